"""Programs that know where their time went: `python peers_programs.py PROGRAM SEED FILE [PROFILER ADDRESS WORKER]`.

SEED hides how the time is divided. FILE gets the truth as JSON: for each function, nanoseconds on a processor by the
clock of its thread, and nanoseconds of waiting. PROFILER runs in the process: `emberline`, `pyroscope`, or `frames`,
a thread that looks at all stacks every 10 ms as Dask's profiler does; ADDRESS is the collector's, or a file for stacks.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import random
import select
import socket
import struct
import sys
import threading
import time
import zlib
from collections import Counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy

from shared import agent_seconds

IDLE_THREADS = 197
DEPTH = 1_000
TEXT = "the quick brown fox jumps over the lazy dog " * 200
BYTES = bytes(random.Random(1).choices(b"abcdefgh", k=40_000))
MATRIX = numpy.random.default_rng(1).random((160, 160))


# Functions of Python: about a millisecond for each unit.


def count_letters(units):
    for _ in range(units):
        counts = {}
        for letter in TEXT:
            counts[letter] = counts.get(letter, 0) + 1


def sum_squares(units):
    for _ in range(units):
        total = 0
        for number in range(12_000):
            total += number * number


def join_words(units):
    for _ in range(units):
        words = []
        for number in range(4_000):
            words.append(f"{number}:{number % 7}")
        ";".join(words)


def sift(units):
    for _ in range(units):
        flags = [True] * 8_000
        for number in range(2, 90):
            for multiple in range(number * number, 8_000, number):
                flags[multiple] = False


def walk(units):
    for _ in range(units):
        visit(11)


def visit(depth):
    if depth:
        visit(depth - 1)
        visit(depth - 1)


# Functions of Python that call native code.


def compress(units):
    for _ in range(units):
        zlib.compress(BYTES[:16_000])


def digest(units):
    for _ in range(units):
        hashlib.sha256(BYTES * 30).digest()


def multiply(units):
    for _ in range(units * 2):
        MATRIX @ MATRIX


# Functions that wait.


def nap(seconds):
    time.sleep(seconds)


def receive(connection):
    connection.recv(1)


def acquire(lock):
    with lock:
        pass


def wait_for_event(event, seconds):
    event.wait(seconds)


def wait_in_queue(jobs, seconds):
    try:
        jobs.get(timeout=seconds)
    except queue.Empty:
        pass


def wait_for_socket(connection, seconds):
    select.select([connection], [], [], seconds)


class Truth:
    """Nanoseconds by function, as one thread measures them around its calls."""

    def __init__(self):
        self.cpu_ns = Counter()
        self.wait_ns = Counter()

    def run(self, function, units):
        before = time.thread_time_ns()
        function(units)
        self.cpu_ns[function.__name__] += time.thread_time_ns() - before

    def wait(self, function, *arguments):
        before = time.perf_counter_ns() - time.thread_time_ns()
        function(*arguments)
        self.wait_ns[function.__name__] += time.perf_counter_ns() - time.thread_time_ns() - before

    def add(self, other):
        self.cpu_ns.update(other.cpu_ns)
        self.wait_ns.update(other.wait_ns)


def plan(chance, functions, units, largest=10):
    """Returns calls in a random order: each function has a random share of the units, in calls of up to `largest`."""
    weights = [chance.expovariate(1) + 0.2 for _ in functions]
    calls = []
    for function, weight in zip(functions, weights):
        remaining = round(units * weight / sum(weights))
        while remaining > 0:
            amount = min(remaining, chance.randint(1, largest))
            calls.append((function, amount))
            remaining -= amount
    chance.shuffle(calls)
    return calls


PURE = (count_letters, sum_squares, join_words, sift, walk)


def python(truth, chance):
    """One thread, five functions of Python."""
    for function, units in plan(chance, PURE, 1_800):
        truth.run(function, units)
    return {}


def long(truth, chance):
    """As `python`, for long enough that starts matter little."""
    for function, units in plan(chance, PURE, 20_000):
        truth.run(function, units)
    return {}


def answer_requests(connection, lock):
    while request := connection.recv(8):
        wants_lock, seconds = struct.unpack("=If", request)
        if wants_lock:
            with lock:
                connection.send(b"h")
                time.sleep(seconds)
        else:
            time.sleep(seconds)
            connection.send(b"a")


def native(truth, chance):
    """One thread that calls native code and waits for time, a socket and a lock, with another that answers."""
    own, other = socket.socketpair()
    lock = threading.Lock()
    helper = threading.Thread(target=answer_requests, args=(other, lock), name="helper")
    helper.start()
    calls = plan(chance, (compress, digest, multiply, sum_squares), 1_500) + plan(chance, (nap, receive, acquire), 700)
    chance.shuffle(calls)
    for function, units in calls:
        seconds = units / 1_000
        if function is nap:
            truth.wait(nap, seconds)
        elif function is receive:
            own.send(struct.pack("=If", 0, seconds))
            truth.wait(receive, own)
        elif function is acquire:
            own.send(struct.pack("=If", 1, seconds))
            own.recv(1)
            truth.wait(acquire, lock)
        else:
            truth.run(function, units)
    own.close()
    helper.join()
    return {}


def compete(seed, own, waited_ns):
    chance = random.Random(seed)
    queued_ns, start_ns = thread_queued_ns(), time.perf_counter_ns() - time.thread_time_ns()
    for function, units in plan(chance, PURE, 450):
        own.run(function, units)
    blocked_ns = time.perf_counter_ns() - time.thread_time_ns() - start_ns
    waited_ns.append(blocked_ns - (thread_queued_ns() - queued_ns))


def thread_queued_ns():
    """Returns for how long the thread was ready to run, but without a processor."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def gil(truth, chance):
    """Four threads of pure Python. What a thread neither runs nor is ready to run, it waits for the GIL."""
    parts = [Truth() for _ in range(4)]
    waited_ns = []
    run_all([threading.Thread(target=compete, args=(chance.random(), part, waited_ns)) for part in parts])
    for part in parts:
        truth.add(part)
    return {"gil_wait_ns": sum(waited_ns)}


def idle(number, own, done):
    chance = random.Random(number)
    connection, other = socket.socketpair()
    waits = ((wait_for_event, threading.Event()), (wait_in_queue, queue.Queue()), (wait_for_socket, connection))
    function, target = waits[number % 3]
    while not done.is_set():
        own.wait(function, target, chance.uniform(0.3, 1.5))
        sum(range(1_000))
    connection.close()
    other.close()


def busy(seed, own):
    for function, units in plan(random.Random(seed), PURE, 900):
        own.run(function, units)


def threads(truth, chance):
    """Two threads that run, and 197 that wait and wake about once a second."""
    parts = [Truth() for _ in range(IDLE_THREADS + 2)]
    done = threading.Event()
    idlers = [
        threading.Thread(target=idle, args=(number, parts[number], done), name=f"idle-{number}")
        for number in range(IDLE_THREADS)
    ]
    for thread in idlers:
        thread.start()
    run_all([threading.Thread(target=busy, args=(chance.random(), part)) for part in parts[IDLE_THREADS:]])
    done.set()
    for thread in idlers:
        thread.join()
    for part in parts:
        truth.add(part)
    return {"threads": IDLE_THREADS + 3}


def descend(depth, truth, function, units):
    if depth == 1:
        truth.run(function, units)
    else:
        descend(depth - 1, truth, function, units)


def deep(truth, chance):
    """Four functions below 1,000 calls of a recursion, and one at its top."""
    sys.setrecursionlimit(2 * DEPTH)
    for function, units in plan(chance, PURE, 1_000):
        descend(DEPTH if function is not walk else 1, truth, function, units)
    return {"depth": DEPTH}


PROGRAMS = {"python": python, "native": native, "gil": gil, "threads": threads, "deep": deep, "long": long}


class Frames:
    """Looks at the stacks of all threads but its own every 10 ms, as Dask's profiler does."""

    def __init__(self, path):
        self.path = path
        self.counts = Counter()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        own = threading.get_ident()
        while not self.ended.wait(0.01):
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    self.counts[thread, tuple(names(frame))] += 1

    def stop(self):
        self.ended.set()
        self.thread.join()
        with open(self.path, "w") as file:
            for (thread, stack), count in self.counts.items():
                file.write(f"{thread};{';'.join(reversed(stack))} {count}\n")


def names(frame):
    while frame is not None:
        yield frame.f_code.co_qualname
        frame = frame.f_back


def start(profiler, address, worker):
    """Returns the function that stops the profiler."""
    if profiler == "emberline":
        import emberline

        emberline.start(worker, address)
        return emberline.stop
    if profiler == "pyroscope":
        import pyroscope

        # By default it leaves out native code that releases the GIL.
        pyroscope.configure(
            application_name=worker, server_address=address, gil_only=False, report_thread_name=True
        )
        return pyroscope.shutdown
    return Frames(address).stop


def main(name, seed, path, profiler=None, address="", worker=""):
    stop = start(profiler, address, worker) if profiler else None
    truth = Truth()
    cpu_s = time.process_time()
    more = PROGRAMS[name](truth, random.Random(seed))
    cpu_s = time.process_time() - cpu_s
    agent_s = agent_seconds()
    if stop:
        stop()
    with open(path, "w") as file:
        values = {"cpu_ns": truth.cpu_ns, "wait_ns": truth.wait_ns, "work_cpu_s": cpu_s, "agent_s": agent_s}
        json.dump({**values, **more}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
