"""The functions of Python in profiles: callers, lines, and their time, for threads that run and threads that wait."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import unittest

import emberline
from support import PATIENCE_S, CollectorCase, shown

# Before 3.11 each call of Python nests native frames, of which 512 are kept.
DEPTH = 300 if sys.version_info >= (3, 11) else 100
FILE = __file__


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def branch(seconds):
    spin(seconds)
    return seconds


def recurse(depth, seconds):
    if depth == 0:
        return branch(seconds)
    return recurse(depth - 1, seconds)


def generate(seconds):
    for _ in range(5):
        spin(seconds / 5)
        yield _


def consume(seconds):
    return sum(generate(seconds))


async def inner_step(seconds):
    spin(seconds)
    await asyncio.sleep(0)


async def outer_step(seconds):
    for _ in range(5):
        await inner_step(seconds / 5)


def key_of(number):
    spin(0.01)
    return -number


def callback(seconds):
    return sorted(range(int(seconds / 0.01)), key=key_of)


class Deleted:
    def __del__(self):
        spin(0.01)


def delete(seconds):
    for _ in range(int(seconds / 0.01)):
        Deleted()


def raise_and_catch(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        try:
            thrower(10)
        except ValueError:
            pass


def thrower(depth):
    if depth == 0:
        raise ValueError
    thrower(depth - 1)


def compile_and_run(seconds):
    """Code that is freed while it is sampled."""
    end = time.thread_time() + seconds
    number = 0
    while time.thread_time() < end:
        number += 1
        names = {}
        exec(f"def made_{number % 7}(n):\n    return sum(i * i for i in range(n))\n", names)
        names[f"made_{number % 7}"](200)


def wait_for(event):
    event.wait(PATIENCE_S)


# The callers of each function of this file; those of the test itself are open.
CALLERS = {
    "branch": {"recurse", "work"},
    "recurse": {"recurse", "work"},
    "generate": {"consume"},
    "consume": {"work"},
    "inner_step": {"outer_step"},
    "key_of": {"callback"},
    "callback": {"work"},
    "Deleted.__del__": {"delete"},
    "delete": {"work"},
    "thrower": {"thrower", "raise_and_catch"},
    "raise_and_catch": {"work"},
    "compile_and_run": {"work"},
    "wait_for": {"Thread.run"},
    "spin": {"branch", "generate", "inner_step", "key_of", "Deleted.__del__"},
}


def work(seconds):
    """Calls everything, for about this time."""
    part = seconds / 8
    branch(part)
    recurse(DEPTH, part)
    consume(part)
    asyncio.run(outer_step(part))
    callback(part)
    delete(part)
    raise_and_catch(part)
    compile_and_run(part)


class Stacks(CollectorCase):
    def test_callers_and_lines_are_those_of_the_program(self):
        self.start("callers", cpu_limit=1.0)
        waits = threading.Event()
        waiting = threading.Thread(target=wait_for, args=(waits,))
        waiting.start()
        with emberline.task("work"):
            work(3.0)
        waits.set()
        waiting.join()
        emberline.stop()
        nodes = self.nodes("callers", by="line")
        of_file = [node for node in nodes if node.is_python and node.file == FILE]
        seen = {node.name for node in of_file}
        callers = {shown(name): set(map(shown, names)) for name, names in CALLERS.items()}
        self.assertEqual(sorted(set(callers) - seen), [], "functions that were never seen")
        wrong = []
        for node in of_file:
            if node.name not in callers:
                continue
            function = node.name
            caller = node.caller()
            if caller is None or caller.name not in callers[function]:
                wrong.append((function, node.path()[-4:]))
        self.assertEqual(wrong, [])
        self.check_lines(of_file)
        in_work = [node for node in nodes if node.name == "work" and node.is_python]
        for node in in_work:
            root = node.path()
            self.assertEqual(root[0], "work", "the task")
            self.assertNotIn("_PyEval_EvalFrameDefault", root)
            self.assertNotIn("[truncated]", root)

    def check_lines(self, nodes):
        """Every line is one of its function, and most time of `spin` is in its loop."""
        first = {
            function.__qualname__: function.__code__.co_firstlineno
            for function in (spin, branch, recurse, consume, callback, delete, work)
        }
        with open(FILE) as file:
            text = file.read().splitlines()
        spin_lines = {}
        for node in nodes:
            if node.name in first:
                self.assertGreaterEqual(node.line, first[node.name])
                body = text[first[node.name] : node.line]
                self.assertNotIn("", body, f"{node.name}:{node.line}: the function ended before")
            if node.name == "spin":
                time_ns = sum(node.total[state] for state in ("cpu", "runnable"))
                spin_lines[node.line] = spin_lines.get(node.line, 0) + time_ns
        loop = spin.__code__.co_firstlineno + 2
        self.assertGreater(spin_lines[loop] / sum(spin_lines.values()), 0.8, spin_lines)

    def test_a_waiting_thread_shows_where_it_waits(self):
        self.start("waits")
        waits = threading.Event()
        waiting = threading.Thread(target=wait_for, args=(waits,), name="waits")
        with emberline.task("waits"):
            waiting.start()
            time.sleep(1.0)
        waits.set()
        waiting.join()
        emberline.stop()
        waited_ns = 0
        for node in self.nodes("waits"):
            if "wait_for" in node.path():
                waited_ns += node.own_ns
        self.assertGreater(waited_ns, 0.9e9)

    def test_time_is_divided_as_the_program_divides_it(self):
        self.start("divides", cpu_limit=1.0)
        with emberline.task("divides"):
            branch(1.2)
            consume(0.6)
        emberline.stop()
        time_of = {"branch": 0, "consume": 0}
        for node in self.nodes("divides"):
            if node.name in time_of and node.is_python:
                time_of[node.name] += node.total["cpu"]
        share = time_of["branch"] / sum(time_of.values())
        self.assertAlmostEqual(share, 2 / 3, delta=0.05)

    def test_waits_for_the_lock_of_the_interpreter_are_shown(self):
        self.start("locks", cpu_limit=1.0)
        until = time.monotonic() + 3.0

        def count():
            with emberline.task("count"):
                while time.monotonic() < until:
                    pass

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        emberline.stop()
        nodes = self.nodes("locks")
        of_count = [node for node in nodes if node.path()[0] == "count"]
        all_ns = sum(node.own_ns for node in of_count)
        runnable_ns = sum(node.own["runnable"] for node in of_count)
        waits = [node for node in nodes if node.name == "[waiting for the GIL]"]
        wait_ns = sum(node.total["wait"] for node in waits)
        state_ns = sum(node.total.get("interpreter", 0) for node in waits)
        self.assertGreater(state_ns, 0.99 * wait_ns)
        # In its first half second a thread's time is divided among the stacks that were seen.
        all_state_ns = sum(node.own.get("interpreter", 0) for node in nodes)
        self.assertGreater(state_ns, 0.9 * all_state_ns)
        in_count = [node for node in waits if node.path()[0] == "count"]
        waited_ns = sum(node.total["wait"] for node in in_count)
        print(f"waiting for the GIL: {waited_ns / all_ns:.3f} of {all_ns / 1e9:.2f} s", file=sys.stderr)
        # One of four holds it at a time; on a busy machine all four wait for a processor too.
        self.assertGreater(waited_ns / (all_ns - runnable_ns), 0.4)
        self.assertLess(waited_ns / all_ns, 0.8)
        callers = {node.parent.name for node in in_count}
        self.assertTrue(any("count" in caller for caller in callers), callers)

    def test_the_function_that_holds_the_lock_has_the_time_of_those_that_wait(self):
        self.start("holders", cpu_limit=1.0)
        until = time.monotonic() + 6.0
        # Nanoseconds for which each held the lock. Native code that does not release it: the other thread waits.
        truth = {"hold_often": 0, "hold_seldom": 0}

        def hold_often(number):
            return sum(range(number))

        def hold_seldom(number):
            return sum(range(number))

        def timed(function, number):
            start = time.perf_counter_ns()
            function(number)
            truth[function.__name__] += time.perf_counter_ns() - start

        def hold():
            with emberline.task("hold"):
                while time.monotonic() < until:
                    for _ in range(3):
                        timed(hold_often, 1_000_000)
                    timed(hold_seldom, 1_000_000)

        def count():
            with emberline.task("count"):
                while time.monotonic() < until:
                    pass

        threads = [threading.Thread(target=function) for function in (hold, count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        emberline.stop()
        seen = dict.fromkeys(truth, 0)
        unknown_ns = 0
        for node in self.nodes("holders", state="interpreter", task="count"):
            holder = node.name.removeprefix("[GIL held by ").removesuffix("]").split(".")[-1]
            if holder in seen:
                seen[holder] += node.own_ns
                self.assertEqual(node.file, FILE)
            else:
                unknown_ns += node.own_ns
        of_seen = seen["hold_often"] / sum(seen.values())
        of_truth = truth["hold_often"] / sum(truth.values())
        unknown = unknown_ns / (unknown_ns + sum(seen.values()))
        held_s = sum(truth.values()) / 1e9
        seen_s = sum(seen.values()) / 1e9
        print(
            f"GIL held: {of_seen:.3f} of {seen_s:.2f} s seen, {of_truth:.3f} of {held_s:.2f} s true,"
            f" {unknown:.3f} of the waits by others",
            file=sys.stderr,
        )
        # A busy machine leaves a hundred samples: three and a half times their standard deviation.
        self.assertAlmostEqual(of_seen, of_truth, delta=0.15)
        self.assertLess(unknown, 0.15)

    def test_forked_children_show_their_functions(self):
        text = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(FILE)!r})
import emberline, test_stacks
emberline.start("parent")
child = os.fork()
if child == 0:
    with emberline.task("child"):
        test_stacks.branch(0.5)
    emberline.stop()
    os._exit(0)
print(child)
assert os.waitpid(child, 0)[1] == 0
"""
        ended = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text],
            env={**os.environ, "EMBERLINE_URL": self.collector.url},
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
        )
        child = ended.stdout.decode().strip()
        paths = [node.path() for node in self.nodes(f"parent-{child}")]
        self.assertTrue(any(path[:1] == ["child"] and path[-2:] == ["branch", "spin"] for path in paths), paths)


class Unknown(unittest.TestCase):
    def test_an_unknown_version_says_so_once(self):
        """A name that the innermost function does not have is what an unknown layout looks like."""
        text = """
import sys, emberline
if len(sys.argv) > 1:
    emberline._native.find_interpreter("another")
for _ in range(2):
    emberline.start("unknown", "http://127.0.0.1:1", flush_timeout=10.0).stop()
"""
        for arguments in [], ["unknown"]:
            ended = subprocess.run(
                [sys.executable, "-W", "always", "-c", text, *arguments],
                stderr=subprocess.PIPE,
                timeout=PATIENCE_S,
                check=True,
            )
            self.assertEqual(ended.stderr.count(b"Python functions are not shown"), len(arguments))


if __name__ == "__main__":
    unittest.main()
