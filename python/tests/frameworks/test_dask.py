"""A real Dask cluster whose workers ship to a real collector: each task of Dask is one of Emberline's."""

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings
from collections import Counter

import emberline
import emberline.dask
from support import PATIENCE_S, Collector, CollectorCase

try:
    import dask
    import distributed
    from distributed import Client, LocalCluster, WorkerPlugin, get_worker, worker_client
except ImportError as error:
    raise unittest.SkipTest("distributed is not installed") from error

SETTINGS = {"flush_timeout": PATIENCE_S}


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def fail(number):
    raise ValueError(f"no {number}")


async def wait(seconds):
    await asyncio.sleep(seconds)
    return seconds


async def fail_later():
    await asyncio.sleep(0)
    raise ValueError("later")


def outer(number):
    with worker_client() as client:
        return client.submit(spin, number / 1_000).result()


def reschedule_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        raise distributed.Reschedule
    return path


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def fail_unreadably():
    raise Unreadable


async def fail_unreadably_later():
    raise Unreadable


def fork():
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_program():
    return subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout


def current_task():
    return str(get_worker().get_current_task())


class Counting:
    def __init__(self):
        self.number = 0

    def add(self):
        self.number += 1
        return self.number

    def fail(self):
        raise ValueError("actor")

    async def wait(self, seconds):
        await asyncio.sleep(seconds)

    async def fail_later(self):
        await asyncio.sleep(0)
        raise ValueError("async")


class Truth(WorkerPlugin):
    """What Dask's own transitions report."""

    name = "truth"

    def setup(self, worker):
        self.worker = worker
        self.ends = []

    def transition(self, key, start, finish, **_details):
        if finish in ("memory", "error") and start in ("executing", "long-running"):
            computed = [it for it in self.worker.state.tasks[key].startstops if it["action"] == "compute"][-1]
            self.ends.append((str(key), finish, computed["stop"] - computed["start"]))


def ends(dask_worker):
    return dask_worker.plugins["truth"].ends


class Cluster(CollectorCase):
    def setUp(self):
        self.addCleanup(emberline.stop)

    def cluster(self, **settings):
        settings = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None, **settings}
        cluster = self.enterContext(LocalCluster(silence_logs=logging.CRITICAL, **settings))
        client = self.enterContext(Client(cluster))
        return cluster, client

    def enterContext(self, manager):
        """As of Python 3.11."""
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def attach(self, client, **settings):
        client.register_plugin(emberline.dask.Plugin(self.collector.url, **SETTINGS, **settings))

    def detach(self, client):
        """Flushes."""
        client.unregister_worker_plugin("emberline")

    def all_tasks(self, client):
        workers = [address.partition("://")[2] for address in client.scheduler_info(n_workers=-1)["workers"]]
        return [task for worker in workers for task in self.collector.tasks(worker)]


class Tasks(Cluster):
    def test_each_task_is_recorded_once(self):
        _, client = self.cluster()
        self.attach(client)
        client.register_plugin(Truth())
        total = client.submit(sum, client.map(spin, [0.001 + number / 1e6 for number in range(200)]))
        total.result()
        client.submit(fail, 1, retries=1).exception()
        client.submit(wait, 0.05).result()
        client.submit(fail_later).exception()
        client.submit(outer, 3).result()
        key = ("tuple", 1, "x" * 5_000)
        client.submit(spin, 0.002, key=key).result()
        truth = [end for worker in client.run(ends).values() for end in worker]
        self.detach(client)
        tasks = self.all_tasks(client)
        expected = Counter((key[:4_000], {"memory": "ok", "error": "failed"}[state]) for key, state, _ in truth)
        self.assertEqual(Counter((task["key"][:4_000], task["outcome"]) for task in tasks), expected)
        self.assertEqual(len(tasks), 208)
        lengths = {(key[:4_000], state == "error"): length for key, state, length in truth}
        more = [
            task["duration_ns"] / 1e9 - lengths[task["key"][:4_000], task["outcome"] == "failed"]
            for task in tasks
            if task["name"] != "fail"
        ]
        # A task begins before Dask's first clock and ends after its last, which are apart when the machine is busy.
        self.assertEqual([it for it in more if it < -0.001], [])
        self.assertLess(statistics.median(more), 0.005)
        by_name = {task["name"]: task for task in tasks}
        self.assertEqual(by_name["fail"]["cause"], "ValueError: no 1")
        self.assertEqual(by_name["fail_later"]["cause"], "ValueError: later")
        self.assertEqual((by_name["sum"]["type_name"], by_name["sum"]["result_bytes"]), ("builtins.float", 24))
        self.assertTrue(by_name["tuple"]["key"].startswith("('tuple', 1, 'xxx"))
        self.assertGreater(by_name["wait"]["duration_ns"], 45_000_000)

    def test_samples_belong_to_the_task_on_its_thread(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client, dask_profiler=False)
        client.submit(spin, 0.5).result()
        client.submit(wait, 0.5).result()
        (worker,) = client.scheduler_info()["workers"]
        self.detach(client)
        worker = worker.partition("://")[2]
        nodes = self.collector.profile(worker, task="spin")
        functions = {node["name"] for node in nodes}
        self.assertTrue(any("spin" in name for name in functions), functions)

    def test_transfers_have_both_ends_and_come_before_their_task(self):
        _, client = self.cluster()
        self.attach(client)
        first, second = client.scheduler_info()["workers"]
        left = client.submit(bytes, 1_000_000, workers=[first], pure=False)
        length = client.submit(lambda data: len(data), left, workers=[second], key="length-1")
        self.assertEqual(length.result(), 1_000_000)
        logs = client.run(lambda dask_worker: [dict(it) for it in dask_worker.transfer_incoming_log])
        self.detach(client)
        transfers = self.collector.get("transfers", limit=100)["transfers"]
        received = [it["bytes"] for it in transfers if (it["direction"], it["worker"]) == ("incoming", second[6:])]
        self.assertEqual(received, [it["total"] for it in logs[second]])
        ends = {(it["direction"], it["worker"], it["peer"]) for it in transfers if left.key in it["keys"]}
        self.assertEqual(ends, {("incoming", second[6:], first[6:]), ("outgoing", first[6:], second[6:])})
        (task,) = [task for task in self.collector.tasks(second[6:]) if task["key"] == "length-1"]
        self.assertIn("transfer", [phase["name"] for phase in task["phases"]])

    def test_attempts_count_failures_on_a_worker(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        client.submit(fail, 1, retries=2, key="fail-1").exception()
        self.detach(client)
        tasks = self.all_tasks(client)
        self.assertEqual([task["attempt"] for task in tasks], [None, 2, 3])

    def test_a_task_that_dask_cannot_start_has_failed(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        with dask.annotate(executor="nowhere"):
            client.submit(spin, 0.001, key="unstarted-1").exception()
        client.submit(fail, 1, key="started-1").exception()
        self.detach(client)
        rows = {row["key"]: row for row in self.all_tasks(client)}
        self.assertEqual(set(rows), {"unstarted-1", "started-1"})
        self.assertEqual(rows["unstarted-1"]["outcome"], "failed")
        self.assertIn("Invalid executor 'nowhere'", rows["unstarted-1"]["cause"])

    def test_an_exception_without_text_is_one_failure_with_its_type(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        client.submit(fail_unreadably, key="thread-1").exception()
        client.submit(fail_unreadably_later, key="loop-1").exception()
        self.assertEqual(client.submit(spin, 0.001, key="next-1").result(), 0.001)
        self.detach(client)
        rows = Counter((row["key"], row["outcome"], row["cause"]) for row in self.all_tasks(client))
        failures = {("thread-1", "failed", "Unreadable"): 1, ("loop-1", "failed", "Unreadable"): 1}
        self.assertEqual(rows, {**failures, ("next-1", "ok", ""): 1})

    def test_a_rescheduled_task_is_cancelled_first(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "seen")
        client.submit(reschedule_once, path).result()
        self.detach(client)
        self.assertEqual([task["outcome"] for task in self.all_tasks(client)], ["cancelled", "ok"])

    def test_methods_of_actors_are_tasks(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        actor = client.submit(Counting, actor=True).result()
        self.assertEqual(actor.add().result(), 1)
        with self.assertRaises(ValueError):
            actor.fail().result()
        self.assertEqual(actor.add().result(), 2)
        calls = [actor.fail() for _ in range(20)]
        for call in calls:
            self.assertRaises(ValueError, call.result)
        self.detach(client)
        names = Counter((task["name"], task["outcome"], task["cause"]) for task in self.all_tasks(client))
        self.assertEqual(names["Counting.add", "ok", ""], 2)
        self.assertGreaterEqual(names["Counting.fail", "failed", "ValueError: actor"], 1)
        outcomes = Counter((task["name"], task["outcome"]) for task in self.all_tasks(client))
        self.assertEqual(outcomes["Counting.fail", "failed"], 21)
        self.assertEqual(sum(names.values()), 24)

    def test_methods_of_actors_on_the_event_loop_are_tasks_of_their_length(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        actor = client.submit(Counting, actor=True).result()
        for call in [actor.wait(0.2), actor.wait(0.4)]:
            call.result()
        with self.assertRaisesRegex(ValueError, "async"):
            actor.fail_later().result()
        self.assertEqual(actor.add(separate_thread=False).result(), 1)
        self.detach(client)
        # As before the plug-in.
        actor.wait(0).result()
        rows = [row for row in self.all_tasks(client) if "." in row["name"]]
        rows.sort(key=lambda row: (row["name"], row["duration_ns"]))
        ends = [(row["name"], row["outcome"], row["cause"]) for row in rows]
        failed = ("Counting.fail_later", "failed", "ValueError: async")
        waited = ("Counting.wait", "ok", "")
        self.assertEqual(ends, [("Counting.add", "ok", ""), failed, waited, waited])
        for row, seconds in zip(rows[-2:], [0.2, 0.4]):
            self.assertAlmostEqual(row["duration_ns"] / 1e9, seconds, delta=0.15)

    def test_forks_programs_and_a_blocked_event_loop_change_no_result(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        self.assertEqual(client.submit(fork, key="fork-1").result(), 7)
        self.assertEqual(client.submit(run_program, key="program-1").result(), "42\n")
        busy = client.submit(spin, 0.5, key="busy-1")
        client.run(time.sleep, 2)
        self.assertEqual(busy.result(), 0.5)
        self.detach(client)
        rows = {row["key"]: row for row in self.all_tasks(client)}
        self.assertEqual(set(rows), {"fork-1", "program-1", "busy-1"})
        self.assertEqual({row["outcome"] for row in rows.values()}, {"ok"})

    def test_keys_of_any_kind_change_no_result(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        keys = [("tuple", 2, ("inner", 3.5)), "x" * 4_096, 7, 1.5, "näme-1"]
        for key in keys:
            self.assertEqual(client.submit(sum, [1, 2], key=key).result(), 3, repr(key)[:40])
        self.detach(client)
        rows = self.all_tasks(client)
        self.assertEqual(len(rows), len(keys), [row["key"][:40] for row in rows])
        self.assertLessEqual({"näme-1", "('tuple', 2, ('inner', 3.5))", "7", "1.5"}, {row["key"] for row in rows})

    def test_spans_are_labels(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client)
        with distributed.span("nightly"), distributed.span("load"):
            client.submit(spin, 0.001).result()
        self.detach(client)
        (task,) = self.all_tasks(client)
        self.assertEqual(task["labels"], {"span": "nightly/load"})


class Workers(Cluster):
    def managed_bytes(self, worker):
        """The most that the worker has reported so far."""
        answer = self.collector.get("resources", worker=worker)
        return max((it["peak"] for it in answer["series"] if it["measure"] == "managed_memory"), default=0)

    def test_workers_have_labels_memory_and_expected_tasks(self):
        cluster, client = self.cluster(n_workers=1)
        self.attach(client)
        data = client.submit(bytes, 30_000_000, key="data-1")
        keys = [f"expected-{number}" for number in range(20)]
        futures = client.map(spin, [0.001] * 20, key=keys)
        # A graph that contains tasks of another one.
        client.submit(sum, futures).result()
        (worker,) = client.scheduler_info()["workers"]
        managed = 0
        deadline = time.monotonic() + PATIENCE_S
        while managed < 30_000_000 and time.monotonic() < deadline:
            managed = self.managed_bytes(worker[6:])
        self.assertGreaterEqual(managed, 30_000_000)
        del data
        self.detach(client)
        (epochs,) = [it["epochs"] for it in self.collector.get("workers")["workers"] if it["worker"] == worker[6:]]
        labels = epochs[0]["labels"]
        self.assertEqual((labels["dask"], labels["name"]), ("worker", "0"))
        self.assertEqual(labels["scheduler"], cluster.scheduler_address)
        client.run_on_scheduler(emberline.dask._scheduler.stop)
        names = {it["name"]: it for it in self.collector.get("progress")["names"]}
        self.assertEqual((names["expected"]["expected"], names["data"]["expected"]), (20, 1))

    def test_tasks_name_their_worker_where_workers_share_a_process(self):
        _, client = self.cluster(n_workers=2, threads_per_worker=1, processes=False)
        self.attach(client)
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        for number, address in enumerate(addresses):
            client.submit(spin, 0.001, key=f"spin-{number}", workers=[address]).result()
        self.detach(client)
        # The scheduler uses the agent still.
        emberline.stop()
        ids = [address.partition("://")[2] for address in addresses]
        labels = {row["key"]: row["labels"] for row in self.collector.rows(os.path.commonprefix(ids))}
        self.assertEqual(labels, {f"spin-{number}": {"dask_worker": it} for number, it in enumerate(ids)})

    def test_restarted_workers_are_attached_again(self):
        _, client = self.cluster()
        self.attach(client)
        client.gather(client.map(spin, [0.001, 0.002], key=["restarted-1", "restarted-2"]))
        before = client.run(os.getpid)
        client.restart()
        self.assertFalse(set(before.values()) & set(client.run(os.getpid).values()))
        client.gather(client.map(spin, [0.001, 0.002], key=["restarted-3", "restarted-4"]))
        self.detach(client)
        rows = self.collector.get("tasks", task="restarted", limit=100)["tasks"]
        self.assertEqual(sorted(row["key"] for row in rows), [f"restarted-{number}" for number in range(1, 5)])

    def test_two_plugins_record_each_task_once(self):
        _, client = self.cluster(n_workers=1, processes=False)
        self.attach(client)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.register_plugin(emberline.dask.Plugin(self.collector.url), name="another")
            client.register_plugin(emberline.dask.Plugin(self.collector.url), name="third")
        self.assertEqual(sum("two plug-ins" in str(it.message) for it in caught), 1)
        client.submit(spin, 0.001).result()
        self.detach(client)
        client.run_on_scheduler(emberline.dask._scheduler.stop)
        self.assertEqual([task["name"] for task in self.all_tasks(client)], ["spin"])

    def test_the_profiler_of_dask_can_be_off(self):
        _, client = self.cluster(n_workers=1)
        self.attach(client, dask_profiler=False)
        callbacks = client.run(lambda dask_worker: list(dask_worker.periodic_callbacks))
        self.assertNotIn("profile", next(iter(callbacks.values())))

    def test_a_task_finds_itself_while_plugins_come_and_go(self):
        _, client = self.cluster(n_workers=1)
        self.assertIn("current_task", client.submit(current_task, pure=False).result())
        self.attach(client)
        self.assertIn("current_task", client.submit(current_task, pure=False).result())
        self.detach(client)
        self.assertIn("current_task", client.submit(current_task, pure=False).result())

    def test_a_cluster_without_collector_computes(self):
        _, client = self.cluster()
        client.register_plugin(emberline.dask.Plugin("http://127.0.0.1:9", flush_timeout=0.1))
        self.assertEqual(client.submit(sum, client.map(spin, [0.001, 0.002])).result(), 0.003)

    def test_workers_end_by_themselves_while_the_collector_is_away(self):
        collector = Collector()
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        logger = logging.getLogger("distributed.nanny")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        with LocalCluster(n_workers=2, dashboard_address=None, silence_logs=logging.WARNING) as cluster, Client(cluster) as client:
            client.register_plugin(emberline.dask.Plugin(collector.url))
            client.gather(client.map(spin, [0.001] * 10))
            collector.kill()
            client.gather(client.map(spin, [0.001] * 10, key="away"))
        killed = [text for text in (record.getMessage() for record in records) if "still alive" in text]
        self.assertEqual(killed, [])

    def test_a_collector_that_is_away_gets_all_when_it_returns(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        collector = Collector(folder)
        self.addCleanup(collector.stop)
        _, client = self.cluster()
        client.register_plugin(emberline.dask.Plugin(collector.url, **SETTINGS))
        keys = [f"away-{number}" for number in range(300)]
        client.gather(client.map(spin, [0.001] * 100, key=keys[:100]))
        collector.kill()
        client.gather(client.map(spin, [0.001] * 100, key=keys[100:200]))
        # Longer than a second, in which an agent sends once.
        client.submit(spin, 1.5, key="long").result()
        collector.serve(collector.url.partition("://")[2])
        client.gather(client.map(spin, [0.001] * 100, key=keys[200:]))
        self.detach(client)
        rows = collector.get("tasks", task="away", limit=1_000)["tasks"]
        self.assertEqual(sorted(row["key"] for row in rows), sorted(keys))

    def test_workers_that_come_and_go_with_the_load_record_each_task_once(self):
        cluster, client = self.cluster(n_workers=1)
        self.attach(client)
        cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=1, target_duration="100ms")
        keys = [f"adapted-{number}" for number in range(200)]
        futures = client.map(spin, [0.02] * 200, key=keys)
        client.wait_for_workers(2, timeout=PATIENCE_S)
        self.assertEqual(client.gather(futures), [0.02] * 200)
        del futures
        deadline = time.monotonic() + PATIENCE_S
        while len(client.scheduler_info(n_workers=-1)["workers"]) > 1:
            self.assertLess(time.monotonic(), deadline)
        # A worker that retires leaves the scheduler's list before its plug-in has sent the last rows.
        rows = []
        while len(rows) < len(keys) and time.monotonic() < deadline:
            rows = self.collector.get("tasks", task="adapted", limit=1_000)["tasks"]
        self.detach(client)
        self.assertEqual(sorted(row["key"] for row in rows), sorted(keys))
        self.assertGreater(len({row["worker"] for row in rows}), 1)

    def test_a_report_that_cannot_be_written_is_refused_before_the_block(self):
        cases = [
            (emberline.ReportError, "ended without an address", False),
            (TypeError, "the client of Dask is asynchronous", True),
        ]
        for error, text, is_asynchronous in cases:
            client = unittest.mock.Mock(asynchronous=is_asynchronous)
            with self.subTest(text), self.assertRaisesRegex(error, text) as raised:
                with emberline.dask.report("/nonexistent/report.html", client=client):
                    self.fail("the block runs")
            self.assertEqual(raised.exception.__cause__ is None, is_asynchronous)
            client.register_plugin.assert_not_called()

    def test_bad_settings_leave_workers_unharmed(self):
        _, client = self.cluster(n_workers=1)
        client.register_plugin(emberline.dask.Plugin("nowhere", interval=-1))
        self.assertEqual(client.submit(sum, [1, 2]).result(), 3)

    def test_preload_reads_the_collector_from_the_environment(self):
        preload = dask.config.set({"distributed.worker.preload": "emberline.dask"})
        with unittest.mock.patch.dict(os.environ, EMBERLINE_URL=self.collector.url), preload:
            with LocalCluster(n_workers=1, dashboard_address=None, silence_logs=50) as cluster:
                with Client(cluster) as client:
                    client.submit(spin, 0.001, key="preload-1").result()
        rows = self.collector.get("tasks", task="preload", limit=10)["tasks"]
        self.assertEqual([row["key"] for row in rows], ["preload-1"])
