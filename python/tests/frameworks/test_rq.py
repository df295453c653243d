"""Real workers of RQ with a real Redis, whose jobs a real collector has."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

from support import PATIENCE_S, Broker, CollectorCase

try:
    import redis
    import rq
except ImportError as error:
    raise unittest.SkipTest("rq is not installed") from error

JOBS = """
import time

def double(number):
    return 2 * number

def fail(number):
    raise ValueError(f"no {number}")

def endless():
    while True:
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
        with open(os.path.join(cls.folder, "jobs.py"), "w") as file:
            file.write(JOBS)

    def work(self, name, kind, collector):
        """Runs a worker until its queue, which has its name, is empty."""
        command = [sys.executable, "-m", "rq.cli", "worker", name, "--burst", "--name", name, "--url", self.broker.url]
        paths = [self.folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "EMBERLINE_URL": collector, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(
            [*command, "--worker-class", f"emberline.rq.{kind}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=2 * PATIENCE_S,
            check=True,
        )

    def check(self, name, kind):
        connection = redis.Redis(port=self.broker.port)
        self.addCleanup(connection.close)
        queue = rq.Queue(name, connection=connection)
        doubled = [queue.enqueue("jobs.double", number) for number in range(5)]
        failed = queue.enqueue("jobs.fail", 3)
        late = queue.enqueue("jobs.endless", job_timeout=1)
        self.work(name, kind, self.collector.url)
        self.assertEqual([job.return_value(refresh=True) for job in doubled], [0, 2, 4, 6, 8])
        self.assertEqual([job.get_status(refresh=True).value for job in (failed, late)], ["failed", "failed"])
        rows = {row["key"]: row for row in self.collector.rows(name)}
        self.assertEqual(set(rows), {job.id for job in [*doubled, failed, late]})
        counts = Counter((row["name"], row["outcome"]) for row in rows.values())
        self.assertEqual(counts, {("jobs.double", "ok"): 5, ("jobs.fail", "failed"): 1, ("jobs.endless", "failed"): 1})
        self.assertEqual(rows[failed.id]["cause"], "ValueError: no 3")
        self.assertIn("JobTimeoutException", rows[late.id]["cause"])
        self.assertEqual(rows[failed.id]["labels"], {"queue": name})
        self.assertEqual(rows[failed.id]["phases"][0]["name"], "queue")
        return rows.values()

    def test_a_worker_that_forks(self):
        workers = {row["worker"] for row in self.check("forks", "Worker")}
        self.assertEqual(len(workers), 7)

    def test_a_worker_of_one_process(self):
        workers = {row["worker"] for row in self.check("simple", "SimpleWorker")}
        self.assertEqual(workers, {"simple"})

    def test_a_worker_without_collector_works(self):
        connection = redis.Redis(port=self.broker.port)
        self.addCleanup(connection.close)
        job = rq.Queue("alone", connection=connection).enqueue("jobs.double", 4)
        self.work("alone", "SimpleWorker", "http://127.0.0.1:1")
        self.assertEqual(job.return_value(refresh=True), 8)
