"""Emberline next to Dask's own profiler, and next to neither, in one run: `python dask_side_by_side.py --rounds 5`.

Each round gives each contestant a fresh cluster of 4 processes with 2 threads each, in an order that rotates. The
collector is a process of its own, whose CPU time does not count. Prints a table of medians and of ratios to the
contestant without a profiler, round by round.

`--shares` runs three functions for a third of the time each, and prints what share each profiler gives them next to the
time that they measured themselves. `--ledger N` computes N tiny tasks once with Emberline, and prints how many of them the ledger has, how many tasks and
functions remain after the cluster is closed, and the size and time of both reports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections import defaultdict

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import dask
import numpy
from distributed import Client, LocalCluster, performance_report

import emberline.dask
from emberline.dask import _program
from emberline.dask.demo import qr, shuffle
from shared import agent_seconds, shares, spread

CONTESTANTS = ("neither", "Dask's profiler", "Emberline")


def increment(number):
    return number + 1


def tiny(client, number):
    """Graphs of 1,000 tasks, so that the scheduler is not measured with graphs that nobody sends."""
    for start in range(0, number, 1_000):
        client.gather(client.map(increment, range(start, start + 1_000), pure=False))


def workloads(tasks):
    return {
        "qr": lambda client: qr(client),
        "shuffle": lambda client: shuffle(client),
        f"{tasks:,} tiny tasks": lambda client: tiny(client, tasks),
    }


def measure(contestant, work, url, repeat):
    """Returns seconds of the computation; CPU seconds of the workers, of the agents' threads in them, and of the process
    with the scheduler."""
    enabled = contestant == "Dask's profiler"
    with dask.config.set({"distributed.worker.profile.enabled": enabled}):
        with LocalCluster(n_workers=4, threads_per_worker=2, dashboard_address=None, silence_logs=50) as cluster:
            with Client(cluster) as client:
                if contestant == "Emberline":
                    client.register_plugin(emberline.dask.Plugin(url))
                client.gather(client.map(increment, range(100)))
                before = sum(client.run(time.process_time).values())
                agents = sum(client.run(agent_seconds).values())
                own = time.process_time()
                start = time.perf_counter()
                for _ in range(repeat):
                    work(client)
                wall = time.perf_counter() - start
                scheduler = time.process_time() - own
                workers = sum(client.run(time.process_time).values()) - before
                agents = sum(client.run(agent_seconds).values()) - agents
    return {"wall s": wall, "workers' CPU s": workers, "agents' part s": agents, "scheduler's CPU s": scheduler}


def compare(rounds, tasks, repeat, url):
    for name, work in workloads(tasks).items():
        results = defaultdict(list)
        for turn in range(rounds):
            shift = turn % len(CONTESTANTS)
            for contestant in CONTESTANTS[shift:] + CONTESTANTS[:shift]:
                results[contestant].append(measure(contestant, work, url, repeat))
        print(f"\n| {name} | neither | Dask's profiler | ratio | Emberline | ratio |\n|---|--:|--:|--:|--:|--:|")
        for value in results["neither"][0]:
            cells = [f"{statistics.median(it[value] for it in results['neither']):.2f}"]
            for contestant in CONTESTANTS[1:]:
                own = [it[value] for it in results[contestant]]
                # Of the agents' part, to all CPU time of the workers.
                whole = "workers' CPU s" if value == "agents' part s" else value
                ratios = [mine / none[whole] for mine, none in zip(own, results["neither"])]
                cells.append(f"{statistics.median(own):.2f}")
                cells.append(spread(ratios))
            print(f"| {value} | {' | '.join(cells)} |", flush=True)


def factorize(seconds):
    end = time.perf_counter() + seconds
    matrix = numpy.random.rand(220, 220)
    while time.perf_counter() < end:
        numpy.linalg.qr(matrix)


def iterate(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(number for number in range(1_000))


def nap(seconds):
    # Dask's profiler does not count innermost functions.
    (lambda: time.sleep(seconds))()


PARTS = (factorize, iterate, nap)


def parts(_number):
    """Returns the seconds of each part."""
    seconds = {}
    for part in PARTS:
        start = time.perf_counter()
        part(0.12)
        seconds[part.__name__] = time.perf_counter() - start
    return seconds


def of_dask(node, counts):
    name = (node["description"] or {}).get("name", "")
    if name in counts:
        counts[name] += node["count"]
        return
    for child in node["children"].values():
        of_dask(child, counts)


def check_shares(url):
    """Prints each contestant's shares, and half the sum of their differences from the truth."""
    names = [part.__name__ for part in PARTS]
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        with Client(cluster) as client:
            client.register_plugin(emberline.dask.Plugin(url))
            measured = client.gather(client.map(parts, range(60)))
            theirs = dict.fromkeys(names, 0)
            of_dask(client.profile(), theirs)
            (worker,) = client.scheduler_info()["workers"]
    query = urllib.parse.urlencode({"worker": worker.partition("://")[2], "task": "parts"})
    with urllib.request.urlopen(f"{url}/api/v1/profile?{query}") as answer:
        nodes = json.load(answer)["profile"]["nodes"]
    ours = dict.fromkeys(names, 0)
    for node in nodes:
        if node["name"] in ours:
            ours[node["name"]] += sum(node["total"][state] for state in ("cpu", "runnable", "wait"))
    truth = shares({name: sum(it[name] for it in measured) for name in names})
    for contestant, counts in (("truth", truth), ("Dask's profiler", theirs), ("Emberline", ours)):
        own = shares(counts)
        distance = sum(abs(own[name] - truth[name]) for name in names) / 2
        print(f"| {contestant} | {' | '.join(f'{own[name]:.3f}' for name in names)} | {distance:.3f} |", flush=True)
    print(f"ticks: Dask {sum(theirs.values()):,}, due {sum(sum(it.values()) for it in measured) / 0.01:,.0f}")


def check_ledger(tasks, url):
    """All tasks of one cluster, and what reports of them cost."""
    folder = tempfile.mkdtemp()
    theirs, ours = os.path.join(folder, "dask.html"), os.path.join(folder, "emberline.html")
    with LocalCluster(n_workers=4, threads_per_worker=2, dashboard_address=":0", silence_logs=50) as cluster:
        with Client(cluster) as client:
            client.register_plugin(emberline.dask.Plugin(url))
            with performance_report(theirs):
                started = time.time()
                tiny(client, tasks)
                ended = time.perf_counter()
            print(f"\nDask's report: {os.path.getsize(theirs):,} bytes, {time.perf_counter() - ended:.1f} s")
            print(f"Dask's task stream: {len(client.get_task_stream(count=10**9)):,} tasks")
    start = time.perf_counter()
    command = [_program.find(), "report", "--url", url, "--from", str(int(started)), "-o", ours]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"Emberline's report: {os.path.getsize(ours):,} bytes, {time.perf_counter() - start:.1f} s")
    summary = ["tasks", "--url", url, "--from", str(int(started)), "--summary"]
    print(subprocess.run([_program.find(), *summary], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=10_000, help="tiny tasks of a round (10,000)")
    parser.add_argument("--repeat", type=int, default=1, help="times that a round computes the same (1)")
    parser.add_argument("--ledger", type=int, default=0, help="tiny tasks of the check of the ledger (none)")
    parser.add_argument("--shares", action="store_true", help="check shares against the truth")
    options = parser.parse_args()
    serve = ["serve", "--listen", "127.0.0.1:0"]
    collector = _program.Child(serve, r"collector on (http://[^;]*);", subprocess.STDOUT)
    try:
        if options.rounds:
            compare(options.rounds, options.tasks, options.repeat, collector.url)
        if options.shares:
            check_shares(collector.url)
        if options.ledger:
            check_ledger(options.ledger, collector.url)
    finally:
        collector.terminate()


if __name__ == "__main__":
    main()
