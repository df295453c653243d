"""Frameworks in programs that do not know of Emberline, under `emberline run`: a real collector has their tasks."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

from support import PATIENCE_S, Broker, CollectorCase

GRAPH = """
def double(number):
    return 2 * number

def graph():
    doubled = [dask.delayed(double)(it, dask_key_name=f"double-{it}") for it in range(20)]
    return dask.delayed(sum)(doubled, dask_key_name="total-1")
"""

LOCAL = f"""
import dask
{GRAPH}
print(graph().compute(scheduler="threads"))
"""

CLUSTER = f"""
import dask
import distributed
{GRAPH}
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster):
            print(graph().compute())
"""

# A worker in the same process ends when its queue has been empty.
CELERY = """
import os, sys, threading
import celery

app = celery.Celery("app", broker=sys.argv[1], backend=sys.argv[1])

@app.task
def double(number):
    return 2 * number

if __name__ == "__main__":
    results = [double.delay(it) for it in range(10)]
    worker = app.Worker(pool="solo", loglevel="ERROR", quiet=True, hostname="w@test")
    def stop():
        print(sum(it.get(timeout=60, disable_sync_subtasks=False) for it in results))
        worker.stop()
    threading.Thread(target=stop).start()
    worker.start()
"""

RQ = """
import sys
import redis, rq
from jobs import double

connection = redis.Redis.from_url(sys.argv[1])
queue = rq.Queue(connection=connection)
jobs = [queue.enqueue(double, it) for it in range(10)]
rq.Worker([queue], connection=connection).work(burst=True, logging_level="ERROR")
print(sum(job.return_value() for job in jobs))
"""


class Unmodified(CollectorCase):
    def run_program(self, text, *arguments, **modules):
        """Runs a program under `emberline run`, with and without it; returns its rows."""
        with tempfile.TemporaryDirectory() as folder:
            for name, source in {"program": text, **modules}.items():
                with open(os.path.join(folder, f"{name}.py"), "w") as file:
                    file.write(source)
            alone = [sys.executable, os.path.join(folder, "program.py"), *arguments]
            program = os.environ.get("EMBERLINE_PROGRAM") or shutil.which("emberline")
            run = [program, "run", "--collector", self.collector.url, "--label", f"test={self.id()}", "--"]
            outputs = [self.output(command) for command in (alone, run + alone)]
            self.assertEqual(outputs[0], outputs[1])
        workers = self.collector.get("workers", label=f"test={self.id()}")["workers"]
        return [row for it in workers for row in self.collector.tasks(it["worker"])]

    @staticmethod
    def output(command):
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=2 * PATIENCE_S, check=True)
        return ended.stdout

    def counts(self, rows, *names):
        return Counter((row["name"], row["outcome"]) for row in rows if row["name"] in names)

    def test_threads_of_dask(self):
        rows = self.run_program(LOCAL)
        self.assertEqual(self.counts(rows, "double", "total"), {("double", "ok"): 20, ("total", "ok"): 1})

    def test_a_cluster_of_dask(self):
        rows = self.run_program(CLUSTER)
        self.assertEqual(self.counts(rows, "double", "total"), {("double", "ok"): 20, ("total", "ok"): 1})

    def test_celery(self):
        broker = Broker()
        self.addCleanup(broker.stop)
        rows = self.run_program(CELERY, broker.url)
        self.assertEqual(self.counts(rows, "program.double", "__main__.double", "app.double").total(), 10)

    def test_rq(self):
        broker = Broker()
        self.addCleanup(broker.stop)
        rows = self.run_program(RQ, broker.url, jobs="def double(number):\n    return 2 * number\n")
        self.assertEqual(self.counts(rows, "jobs.double"), {("jobs.double", "ok"): 10})


if __name__ == "__main__":
    unittest.main()
