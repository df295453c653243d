"""Dask's schedulers in one process, reports of clusters, and the demonstration."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from collections import Counter

import emberline
import emberline.dask
from support import PATIENCE_S, CollectorCase

try:
    import dask
    import distributed
    from dask._task_spec import Dict, Task
    from dask.diagnostics import Profiler
except ImportError as error:
    raise unittest.SkipTest("dask is not installed") from error


def double(number):
    return 2 * number


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


class Unsized:
    def __sizeof__(self):
        raise TypeError("no size")


def fail(number):
    raise ValueError(f"no {number}")


def graph(number=20):
    doubled = [dask.delayed(double)(it, dask_key_name=f"double-{it}") for it in range(number)]
    return dask.delayed(sum)(doubled, dask_key_name="total-1")


class Local(CollectorCase):
    def check(self, scheduler, **options):
        self.start(f"local-{scheduler}")
        with emberline.dask.Diagnostics():
            self.assertEqual(graph().compute(scheduler=scheduler, **options), 380)
        # Only within the block.
        self.assertEqual(graph().compute(scheduler="synchronous"), 380)
        emberline.stop()
        rows = []
        for worker in self.collector.get("workers")["workers"]:
            if worker["worker"].startswith(f"local-{scheduler}"):
                rows += self.collector.tasks(worker["worker"])
        counts = Counter((row["name"], row["outcome"]) for row in rows)
        self.assertEqual(counts, {("double", "ok"): 20, ("total", "ok"): 1})
        self.assertEqual({row["key"] for row in rows}, {f"double-{it}" for it in range(20)} | {"total-1"})
        (total,) = [row for row in rows if row["name"] == "total"]
        self.assertEqual((total["type_name"], total["result_bytes"]), ("builtins.int", 28))
        return rows

    def test_threads(self):
        self.check("threads", num_workers=3)

    def test_synchronous(self):
        rows = self.check("synchronous")
        self.assertEqual(len({row["thread_id"] for row in rows}), 1)

    def test_processes(self):
        rows = self.check("processes", num_workers=2)
        self.assertNotIn("local-processes", {row["worker"] for row in rows})

    def test_failures_reach_the_caller(self):
        self.start("local-failing")
        with emberline.dask.Diagnostics(), self.assertRaisesRegex(ValueError, "no 3"):
            dask.delayed(fail)(3).compute(scheduler="threads")
        emberline.stop()
        row = self.collector.one_task("local-failing", "fail")
        self.assertEqual((row["outcome"], row["cause"]), ("failed", "ValueError: no 3"))

    def test_every_task_that_dask_runs_is_one_with_its_nested_work(self):
        graph = {
            "alias-1": "outer-1",
            "outer-1": (double, (spin, 0.2)),
            "list-1": [(spin, 0.1), (spin, 0.1)],
            "dict-1": Dict({"a": Task(None, spin, 0.2)}),
        }
        for scheduler in ("threads", "processes", "synchronous"):
            get = dask.base.get_scheduler(scheduler=scheduler)
            expected = get(graph, list(graph))
            self.start(f"nested-{scheduler}")
            with emberline.dask.Diagnostics(), Profiler() as profiler:
                self.assertEqual(get(graph, list(graph)), expected)
            emberline.stop()
            rows = self.collector.rows(f"nested-{scheduler}")
            with self.subTest(scheduler):
                self.assertEqual(sorted(row["key"] for row in rows), sorted(it.key for it in profiler.results))
                lengths = {row["name"]: row["duration_ns"] / 1e9 for row in rows}
                self.assertEqual({name for name, length in lengths.items() if length >= 0.2}, {"outer", "list", "dict"})

    def test_a_result_without_a_size_reaches_the_caller(self):
        self.start("local-unsized")
        with emberline.dask.Diagnostics(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertIsInstance(dask.delayed(Unsized)().compute(scheduler="threads"), Unsized)
        emberline.stop()
        self.assertEqual(self.collector.one_task("local-unsized", "Unsized")["outcome"], "ok")

    def test_without_an_agent_nothing_changes(self):
        with emberline.dask.Diagnostics():
            self.assertEqual(graph().compute(scheduler="threads"), 380)


class Reports(CollectorCase):
    def test_a_report_of_a_cluster_needs_no_collector(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "report.html")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster:
            with distributed.Client(cluster) as client:
                with emberline.dask.report(file, flush_timeout=PATIENCE_S):
                    self.assertEqual(client.gather(client.map(double, range(100)))[-1], 198)
                # The cluster goes on without agents.
                self.assertEqual(client.submit(double, 4).result(), 8)
        self.assertGreater(os.path.getsize(file), 100_000)
        with open(file.replace(".html", ".json")) as data:
            report = json.load(data)
        counts = [(it["name"], it["outcomes"]["ok"]) for it in report["summary"]["names"]]
        self.assertEqual(counts, [("double", 100)])


class Demo(CollectorCase):
    def test_the_demonstration_shows_tasks_failures_transfers_and_waits_for_the_gil(self):
        demo = [sys.executable, "-m", "emberline.dask.demo", "--seconds", "1", "--collector", self.collector.url]
        subprocess.run(demo, check=True, timeout=4 * PATIENCE_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        workers = [it["worker"] for it in self.collector.get("workers")["workers"]]
        self.assertEqual(len(workers), 5)
        rows = self.collector.get("tasks", limit=10_000)["tasks"]
        names = Counter((row["name"], row["outcome"]) for row in rows)
        self.assertGreaterEqual(names["count_primes", "ok"], 16)
        self.assertGreaterEqual(names["fail_sometimes", "failed"], 2)
        self.assertTrue(any("qr" in name for name, _ in names), names)
        transfers = self.collector.get("transfers", limit=1_000)["transfers"]
        self.assertEqual({it["direction"] for it in transfers}, {"incoming", "outgoing"})
        profile = self.collector.get("profile", task="count_primes")["profile"]["nodes"]
        frames = {node["name"] for node in profile}
        self.assertTrue(any("count_primes" in name for name in frames))
        self.assertTrue(any("[waiting for the GIL]" in name for name in frames), frames)
