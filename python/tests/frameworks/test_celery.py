"""Real Celery workers with a real Redis, whose tasks a real collector has."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter

from support import PATIENCE_S, Broker, CollectorCase

try:
    import celery
    import redis
except ImportError as error:
    raise unittest.SkipTest("celery and redis are not installed") from error

APP = """
import time
import celery
import emberline.celery

app = celery.Celery("app", broker=BROKER, backend=BROKER)
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
emberline.celery.install(flush_timeout=60)

@app.task
def double(number):
    return 2 * number

@app.task
def fail(number):
    raise ValueError(f"no {number}")

@app.task(bind=True, max_retries=2)
def retry(self):
    try:
        raise KeyError("again")
    except KeyError as error:
        raise self.retry(exc=error, countdown=0)

@app.task(soft_time_limit=1)
def too_long():
    while True:
        time.sleep(0.01)

@app.task(time_limit=3)
def endless():
    while True:
        time.sleep(0.01)

@app.task
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

@app.task
def share(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        spin(0.02)
        time.sleep(0)

@app.task
def nap(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
"""


class Workers(CollectorCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker()
        cls.addClassCleanup(cls.broker.stop)
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        with open(os.path.join(cls.folder, "app.py"), "w") as file:
            file.write(f"BROKER = {cls.broker.url!r}\n{APP}")
        sys.path.insert(0, cls.folder)
        cls.addClassCleanup(sys.path.remove, cls.folder)
        global app
        import app

    def worker(self, name, *options):
        """Runs a worker until `stop`."""
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "app",
            "worker",
            "-n",
            f"{name}@test",
            "-c",
            "2",
            "-l",
            "ERROR",
        ]
        paths = [self.folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "EMBERLINE_URL": self.collector.url, "PYTHONPATH": os.pathsep.join(paths)}
        worker = subprocess.Popen(
            [*command, *options], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        return worker

    @staticmethod
    def stop(worker):
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE_S)

    def check(self, name, *options):
        worker = self.worker(name, *options)
        results = [app.double.delay(number) for number in range(20)]
        self.assertEqual([it.get(PATIENCE_S) for it in results], list(range(0, 40, 2)))
        failed = app.fail.delay(3)
        with self.assertRaisesRegex(ValueError, "no 3"):
            failed.get(PATIENCE_S)
        with self.assertRaises(KeyError):
            app.retry.delay().get(PATIENCE_S)
        if "eventlet" in options:
            # Its worker does not always end in a way that flushes.
            self.wait_for_rows(name, 24)
        self.stop(worker)
        rows = self.collector.rows(name)
        counts = Counter((row["name"], row["outcome"]) for row in rows)
        self.assertEqual(counts, {("app.double", "ok"): 20, ("app.fail", "failed"): 1, ("app.retry", "failed"): 3})
        self.assertLessEqual({it.id for it in results}, {row["key"] for row in rows})
        (row,) = [row for row in rows if row["name"] == "app.fail"]
        self.assertEqual((row["key"], row["cause"], row["attempt"]), (failed.id, "ValueError: no 3", 1))
        self.assertEqual(row["labels"], {"queue": "celery"})
        self.assertEqual(row["phases"][0]["name"], "queue")
        self.assertEqual(sorted(row["attempt"] for row in rows if row["name"] == "app.retry"), [1, 2, 3])
        return rows

    def test_samples_of_green_threads_belong_to_the_task_that_runs(self):
        for pool in ("gevent", "eventlet"):
            with self.subTest(pool):
                if importlib.util.find_spec(pool) is None:
                    self.skipTest(f"{pool} is not installed")
                name = f"{pool}-samples"
                worker = self.worker(name, "-P", pool)
                results = [app.share.delay(1), app.nap.delay(1)]
                for result in results:
                    result.get(PATIENCE_S)
                self.wait_for_rows(name, 2)
                self.stop(worker)
                self.assertGreater(self.cpu(name, "app.share"), 0.7)
                self.assertLess(self.cpu(name, "app.nap"), 0.2)

    def cpu(self, name, task):
        (worker,) = {row["worker"] for row in self.collector.rows(name)}
        return sum(node["self"]["cpu"] for node in self.collector.profile(worker, task=task)) / 1e9

    def wait_for_rows(self, name, number):
        deadline = time.monotonic() + PATIENCE_S
        while sum(row["outcome"] in ("ok", "failed") for row in self.collector.rows(name)) < number:
            self.assertLess(time.monotonic(), deadline)

    def test_processes(self):
        rows = self.check("prefork", "-P", "prefork")
        self.assertGreater(len({row["worker"] for row in rows}), 0)
        self.assertNotIn("prefork", {row["worker"] for row in rows})

    def test_threads(self):
        self.check("threads", "-P", "threads")

    def test_solo(self):
        self.check("solo", "-P", "solo")

    def test_green_threads(self):
        for pool in ("gevent", "eventlet"):
            with self.subTest(pool):
                if importlib.util.find_spec(pool) is None:
                    self.skipTest(f"{pool} is not installed")
                self.check(pool, "-P", pool)

    def test_a_hard_time_limit_ends_one_task_and_the_next_process_records(self):
        worker = self.worker("killed", "-c", "1")
        with self.assertRaises(celery.exceptions.TimeLimitExceeded):
            app.endless.delay().get(PATIENCE_S)
        self.assertEqual(app.double.delay(3).get(PATIENCE_S), 6)
        self.stop(worker)
        deadline = time.monotonic() + PATIENCE_S
        outcomes = {}
        while outcomes.get("app.endless", "running") == "running" and time.monotonic() < deadline:
            outcomes = {row["name"]: row["outcome"] for row in self.collector.rows("killed")}
        # Celery interrupts the process first, which ends the task if there is time.
        self.assertIn(outcomes.pop("app.endless"), ["cancelled", "lost"])
        self.assertEqual(outcomes, {"app.double": "ok"})

    def test_a_broker_that_vanishes_and_returns_changes_no_result(self):
        worker = self.worker("broker")
        numbers = range(10)
        results = [app.double.delay(number) for number in numbers]
        self.assertEqual([it.get(PATIENCE_S) for it in results], [2 * number for number in numbers])
        self.broker.kill()
        self.broker.serve()
        later = [app.double.delay(number) for number in numbers]
        # Celery's worker does not always come back, also without an agent.
        self.worker("broker-next")
        deadline = time.monotonic() + PATIENCE_S
        # `get` would wait for a message over the connection that has broken.
        while {it.state for it in later} != {"SUCCESS"}:
            self.assertLess(time.monotonic(), deadline, [it.state for it in later])
        self.assertEqual([it.result for it in later], [2 * number for number in numbers])
        worker.kill()
        ended = Counter((row["key"], row["outcome"]) for row in self.collector.rows("broker"))
        self.assertEqual({ended[it.id, "ok"] for it in results}, {1})
        self.assertEqual(set(ended.values()), {1})

    def test_time_limits_and_samples(self):
        worker = self.worker("limits")
        with self.assertRaises(celery.exceptions.SoftTimeLimitExceeded):
            app.too_long.delay().get(PATIENCE_S)
        app.spin.delay(0.5).get(PATIENCE_S)
        self.stop(worker)
        rows = {row["name"]: row for row in self.collector.rows("limits")}
        self.assertEqual(rows["app.too_long"]["outcome"], "failed")
        self.assertIn("SoftTimeLimitExceeded", rows["app.too_long"]["cause"])
        nodes = self.collector.profile(rows["app.spin"]["worker"], task="app.spin")
        self.assertTrue(any("spin" in node["name"] for node in nodes))

    def test_a_worker_without_collector_works(self):
        worker = self.worker("alone")
        self.assertEqual(app.double.delay(4).get(PATIENCE_S), 8)
        self.stop(worker)
