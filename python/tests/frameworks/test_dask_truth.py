"""Every task that Dask's own transitions report is in the ledger once, with its key, outcome and duration, while graphs
are random, tasks fail and are retried, keys are cancelled and workers die or restart.

EMBERLINE_TRUTH_SECONDS sets its length (10); EMBERLINE_TRUTH_SEED repeats a run's graphs.
"""

import contextlib
import json
import os
import random
import signal
import statistics
import tempfile
import time
import unittest
from collections import Counter, defaultdict

import emberline.dask
from support import PATIENCE_S, CollectorCase

try:
    from distributed import Client, LocalCluster, WorkerPlugin, wait
    from distributed.client import FuturesCancelledError
except ImportError as error:
    raise unittest.SkipTest("distributed is not installed") from error


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
                "start": computed[-1]["start"] - self.worker.scheduler_delay,
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

    def round(self):
        futures = self.graph()
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


class Ledger(CollectorCase):
    def test_each_end_is_in_the_ledger_once(self):
        seconds = float(os.environ.get("EMBERLINE_TRUTH_SECONDS", 10))
        seed = int(os.environ.get("EMBERLINE_TRUTH_SEED", time.time_ns()))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        truth = os.path.join(folder.name, "truth")
        os.mkdir(truth)
        cluster = LocalCluster(n_workers=4, threads_per_worker=2, dashboard_address=None, silence_logs=60)
        with cluster, Client(cluster) as client:
            client.register_plugin(emberline.dask.Plugin(self.collector.url, flush_timeout=PATIENCE_S))
            client.register_plugin(Truth(truth))
            load = Load(client, folder.name, seed)
            started = time.monotonic()
            turn = 0
            while time.monotonic() < started + seconds or turn < 4:
                turn += 1
                load.round()
                if turn % 15 == 3:
                    self.lose_workers(client, load.random)
            self.wait_until_idle(client)
            client.unregister_worker_plugin("emberline")
            client.run_on_scheduler(emberline.dask._scheduler.stop)
        self.compare(truth, seed)

    def wait_until_idle(self, client):
        """Waits for cancelled tasks too, which run on: what ends after the plug-in has gone is not recorded."""
        deadline = time.monotonic() + PATIENCE_S
        while any(client.run(running_tasks).values()):
            self.assertLess(time.monotonic(), deadline)

    @staticmethod
    def lose_workers(client, choose):
        """Restarts a worker and kills another."""
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if len(workers) < 4:
            return
        victim, killed = choose.sample(workers, 2)
        processes = client.run(os.getpid)
        # Dask now and then does not see a worker return from its restart, also without the plug-in.
        with contextlib.suppress(TimeoutError):
            client.restart_workers([victim], timeout=10)
        os.kill(processes[killed], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while killed in client.scheduler_info(n_workers=-1)["workers"] and time.monotonic() < deadline:
            pass
        client.wait_for_workers(2, timeout=PATIENCE_S)

    def compare(self, truth, seed):
        expected = defaultdict(Counter)
        ends = []
        for name in os.listdir(truth):
            with open(os.path.join(truth, name)) as file:
                for line in file:
                    end = json.loads(line)
                    ends.append(end)
                    expected[end["worker"]][end["key"], end["outcome"]] += 1
        lost, missing, twice, far = self.lost_by_worker(), [], [], []
        rows = {worker: self.rows(worker) for worker in expected}
        for worker, counts in expected.items():
            found = Counter((row["key"], row["outcome"]) for row in rows[worker])
            twice += [end for end, number in found.items() if number > max(counts[end], 1) and end in counts]
            absent = sum((counts - found).values())
            # A worker that was killed takes what it had not sent with it.
            missing += [(worker, absent)] if absent and worker not in lost else []
        for end in ends:
            mine = [row for row in rows[end["worker"]] if row["key"] == end["key"]]
            near = min((abs(row["duration_ns"] / 1e9 - end["seconds"]) for row in mine), default=None)
            if near is not None:
                far.append(near)
        within = sum(it <= 0.005 for it in far)
        print(
            f"\nseed {seed}: {len(ends)} ends by {len(expected)} workers, {sum(map(len, rows.values()))} rows, "
            f"{len(lost)} workers lost; {within} of {len(far)} durations within 5 ms"
        )
        self.assertGreater(len(ends), 50)
        self.assertEqual((missing, twice), ([], []), f"seed {seed}")
        self.assertLess(statistics.median(far), 0.005)

    def lost_by_worker(self):
        """Workers that ended without a flush."""
        workers = self.collector.get("workers")["workers"]
        return {it["worker"] for it in workers for life in it["epochs"] if life["disconnect"]["reason"] != "clean"}

    def rows(self, worker):
        """All rows of a worker, page by page."""
        answer = self.collector.get("tasks", worker=worker, limit=100_000)
        self.assertFalse(answer["truncated"])
        return [row for row in answer["tasks"] if row["outcome"] in ("ok", "failed")]
