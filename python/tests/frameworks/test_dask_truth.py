"""Every task that Dask's own transitions report is in the ledger once, with its key, outcome and duration, while graphs
are random, tasks fail and are retried, keys are cancelled, workers die or restart, and the collector is killed. Excepted are
the last ends before a worker was killed: all that it had sent before them is there.

EMBERLINE_TRUTH_SECONDS sets its length (10); EMBERLINE_TRUTH_SEED repeats a run's graphs.
"""

import json
import os
import random
import signal
import statistics
import tempfile
import time
import unittest
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import emberline.dask
from support import PATIENCE_S, Collector, CollectorCase

try:
    import dask
    from distributed import Client, LocalCluster, WorkerPlugin, wait
    from distributed.client import FuturesCancelledError
except ImportError as error:
    raise unittest.SkipTest("distributed is not installed") from error


CLUSTER = {"n_workers": 4, "threads_per_worker": 2, "dashboard_address": None, "silence_logs": 60}
# 15 s after it lost a worker, Dask ends the nanny whose worker is away at that moment, if only for another restart.
SETTINGS = {"distributed.deploy.lost-worker-timeout": "1h"}
# Time between two threads' ends of which only the later one was sent: an agent reads the ends of one thread after those
# of another.
DRAIN_S_MAX = 2.0


class Truth(WorkerPlugin):
    """Writes each end that Dask's transitions report to a file of its worker, which survives the worker."""

    name = "truth"

    def __init__(self, folder):
        self.folder = folder

    def setup(self, worker):
        self.worker = worker
        # Line by line: a worker that is killed has written all that it knew.
        self.file = open(os.path.join(self.folder, f"{os.getpid()}-{worker.address.rpartition(':')[2]}"), "w", 1)

    def transition(self, key, start, finish, **_details):
        if finish not in ("memory", "error") or start not in ("executing", "long-running"):
            return
        computed = [it for it in self.worker.state.tasks[key].startstops if it["action"] == "compute"]
        if computed:
            end = {
                "worker": self.worker.address.partition("://")[2],
                "key": str(key),
                "outcome": {"memory": "ok", "error": "failed"}[finish],
                "stop": computed[-1]["stop"] - self.worker.scheduler_delay,
                "seconds": computed[-1]["stop"] - computed[-1]["start"],
            }
            self.file.write(json.dumps(end) + "\n")


def work(seconds, size, *inputs):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return bytes(size)


def flaky(path, seconds, *inputs):
    """Fails the first time."""
    work(seconds, 0)
    try:
        os.remove(path)
    except FileNotFoundError:
        return 1
    raise ValueError(path)


class Load:
    def __init__(self, client, folder, seed):
        self.client = client
        self.folder = folder
        self.random = random.Random(seed)
        self.number = 0

    def key(self, name):
        self.number += 1
        return self.random.choice([f"{name}-{self.number}", (f"{name}-{self.number}", self.number)])

    def graph(self):
        """Submits up to 60 tasks, each with inputs among those before."""
        futures = []
        for _ in range(self.random.randrange(10, 60)):
            inputs = self.random.sample(futures, min(len(futures), self.random.randrange(3)))
            seconds = self.random.random() * 0.004
            kind = self.random.random()
            if kind < 0.8:
                size = self.random.randrange(100_000)
                futures.append(self.client.submit(work, seconds, size, *inputs, key=self.key("work")))
            elif kind < 0.95:
                path = os.path.join(self.folder, f"flaky-{self.number}")
                open(path, "w").close()
                futures.append(self.client.submit(flaky, path, seconds, *inputs, key=self.key("flaky"), retries=2))
            else:
                futures.append(self.client.submit(int, "no number", key=self.key("fail")))
        return futures

    def round(self, trouble):
        futures = self.graph()
        trouble()
        if self.random.random() < 0.3:
            self.client.cancel(self.random.sample(futures, 5))
        while futures:
            try:
                wait(futures, timeout=PATIENCE_S)
                break
            except FuturesCancelledError:
                # Also those that depend on cancelled ones.
                futures = [future for future in futures if not future.cancelled()]


def running_tasks(dask_worker):
    return len(dask_worker.active_threads)


@dataclass
class Accounts:
    """The ends of a run that the ledger lacks, and those that it has."""

    rows: int = 0
    # Keys of tasks that the ledger has as lost, with their workers.
    lost: list = field(default_factory=list)
    # Ends after the last ones that a worker sent before it was killed.
    unsent: list = field(default_factory=list)
    missing: list = field(default_factory=list)
    twice: list = field(default_factory=list)
    # Seconds between a row's duration and Dask's.
    differences: list = field(default_factory=list)


class Ledger(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.collector = Collector(os.path.join(self.folder, "data"))
        self.addCleanup(self.collector.stop)
        self.seed = int(os.environ.get("EMBERLINE_TRUTH_SEED", time.time_ns()))
        # Workers that were restarted or killed.
        self.ended = set()
        self.killed = set()

    def test_each_end_is_in_the_ledger_once(self):
        self.check(lambda: None)

    def test_the_ledger_is_the_same_after_the_collector_was_killed(self):
        self.check(self.collector.kill_and_serve)

    def check(self, trouble):
        """Computes while workers die and restart, with `trouble` in between, and compares."""
        seconds = float(os.environ.get("EMBERLINE_TRUTH_SECONDS", 10))
        truth = os.path.join(self.folder, "truth")
        os.mkdir(truth)
        with dask.config.set(SETTINGS), LocalCluster(**CLUSTER) as cluster, Client(cluster) as client:
            client.register_plugin(emberline.dask.Plugin(self.collector.url, flush_timeout=PATIENCE_S))
            client.register_plugin(Truth(truth))
            load = Load(client, self.folder, self.seed)
            troubles = {2: trouble, 3: lambda: self.lose_workers(client, load.random)}
            started = time.monotonic()
            turn = 0
            while time.monotonic() < started + seconds or turn < 4:
                turn += 1
                load.round(troubles.get(turn % 15, lambda: None))
            self.wait_until_idle(client)
            client.unregister_worker_plugin("emberline")
            client.run_on_scheduler(emberline.dask._scheduler.stop)
        self.compare(truth)

    def wait_until_idle(self, client):
        """Waits for cancelled tasks too, which run on: what ends after the plug-in has gone is not recorded."""
        deadline = time.monotonic() + PATIENCE_S
        while any(client.run(running_tasks).values()):
            self.assertLess(time.monotonic(), deadline)

    def lose_workers(self, client, choose):
        """Kills a worker that computes, and restarts another. Both come back."""
        processes = client.run(os.getpid)
        restarted, killed = choose.sample(sorted(processes), 2)
        self.ended |= {name.partition("://")[2] for name in (restarted, killed)}
        self.killed.add(killed.partition("://")[2])
        os.kill(processes[killed], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while killed in client.scheduler_info(n_workers=-1)["workers"]:
            self.assertLess(time.monotonic(), deadline, f"seed {self.seed}: {killed} was not removed")
        client.restart_workers([restarted], timeout=PATIENCE_S)
        client.wait_for_workers(CLUSTER["n_workers"], timeout=PATIENCE_S)

    def compare(self, truth):
        ends = self.read(truth)
        by_worker = defaultdict(list)
        for end in ends:
            by_worker[end["worker"]].append(end)
        accounts = Accounts()
        known, crashed, lost_tasks = self.troubles()
        # A worker may be killed before it has reached the collector again, which was killed just before.
        unknown = set(by_worker) - known
        self.assertLessEqual(unknown, self.killed, f"seed {self.seed}: workers that the collector does not know")
        crashed |= unknown
        for worker, mine in by_worker.items():
            rows = self.rows(worker) if worker in known else []
            self.settle(accounts, mine, rows, worker in crashed)
        within = sum(it <= 0.005 for it in accounts.differences)
        print(
            f"\nseed {self.seed}: {len(ends)} ends by {len(by_worker)} workers, {accounts.rows} rows, "
            f"{len(crashed)} workers without a last flush, {len(accounts.lost)} ends lost, {len(accounts.unsent)} unsent, "
            f"{lost_tasks} counted as lost; {within} of {len(accounts.differences)} durations within 5 ms"
        )
        self.assertGreater(len(ends), 50)
        self.assertLessEqual(crashed, self.ended)
        self.assertEqual(accounts.twice, [], f"seed {self.seed}")
        self.assertLessEqual(len(accounts.missing), lost_tasks, f"seed {self.seed}: {accounts.missing}")
        self.assertLess(statistics.median(accounts.differences), 0.005)

    @staticmethod
    def read(truth):
        ends = []
        for name in os.listdir(truth):
            with open(os.path.join(truth, name)) as file:
                ends += map(json.loads, file)
        return ends

    @staticmethod
    def settle(accounts, ends, rows, is_crashed):
        """Finds each end of a worker in its rows."""
        ended = [row for row in rows if row["outcome"] in ("ok", "failed", "cancelled")]
        accounts.rows += len(ended)
        found = Counter((row["key"], row["outcome"]) for row in rows)
        expected = Counter((end["key"], end["outcome"]) for end in ends)
        accounts.twice += [end for end in expected if found[end] > expected[end]]
        absent = expected - found
        last_s = max((row["start_ns"] + row["duration_ns"] for row in ended), default=0) / 1e9
        # Of equal ends the latest one is absent.
        for end in sorted(ends, key=lambda end: end["stop"], reverse=True):
            what = end["key"], end["outcome"]
            near = [abs(row["duration_ns"] / 1e9 - end["seconds"]) for row in ended if row["key"] == end["key"]]
            if absent[what] == 0:
                accounts.differences.append(min(near))
                continue
            absent[what] -= 1
            if is_crashed and found[end["key"], "lost"]:
                accounts.lost.append(what)
            elif is_crashed and end["stop"] > last_s - DRAIN_S_MAX:
                accounts.unsent.append(what)
            else:
                accounts.missing.append((end["worker"], *what))

    def troubles(self):
        """Returns all workers, those that ended without a last flush, and how many tasks were counted as lost."""
        lives = [(it["worker"], life) for it in self.collector.get("workers")["workers"] for life in it["epochs"]]
        crashed = {worker for worker, life in lives if life["disconnect"]["reason"] != "clean"}
        return {worker for worker, _ in lives}, crashed, sum(life["account"]["lost_tasks"] for _, life in lives)

    def rows(self, worker):
        answer = self.collector.get("tasks", worker=worker, limit=100_000)
        self.assertFalse(answer["truncated"])
        return answer["tasks"]
