"""Real flows of Prefect with its server in a child process, whose tasks a real collector has."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

from support import PATIENCE_S, CollectorCase

try:
    import prefect
except ImportError as error:
    raise unittest.SkipTest("prefect is not installed") from error

FLOW = """
import asyncio, json, sys, time
import emberline.prefect
from prefect import flow, task
from prefect.context import TaskRunContext
from prefect.states import Failed

emberline.prefect.install(worker=sys.argv[1], flush_timeout=60 if sys.argv[1] == "flow" else 0.1)
ids = {}

def note():
    run = TaskRunContext.get().task_run
    ids.setdefault(run.name.rpartition("-")[0], []).append([str(run.id), str(run.flow_run_id)])

@task
def double(number):
    note()
    return 2 * number

@task(retries=2)
def flaky():
    note()
    if len(ids["flaky"]) < 3:
        raise KeyError("again")

@task
def fail(number):
    raise ValueError(f"no {number}")

@task
def return_failure():
    return Failed(message="not today")

@task
async def wait(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        await asyncio.sleep(0)

@task(timeout_seconds=0.5)
async def too_long():
    await asyncio.sleep(60)

@flow
async def waits():
    await asyncio.gather(wait(0.2), wait(0.2))
    return type(await too_long(return_state=True)).__name__

@flow
def main():
    doubled = double.map(range(5)).result()
    flaky()
    states = [fail(3, return_state=True), return_failure(return_state=True)]
    return doubled, [it.type.value for it in states]

if __name__ == "__main__":
    results = [main(), asyncio.run(waits())]
    print(json.dumps({"results": results, "ids": ids}))
"""


UNMODIFIED = """
from prefect import flow, task

@task
def double(number):
    return 2 * number

@flow
def main():
    return sum(double.map(range(3)).result())

if __name__ == "__main__":
    print(main())
"""


def server_settings(folder):
    """Variables for a server of the program's own."""
    return {
        "PREFECT_HOME": folder,
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(PATIENCE_S),
        "DO_NOT_TRACK": "1",
    }


class Flows(CollectorCase):
    def run_flow(self, name, collector):
        """Runs the flow in a program of its own; returns what it printed."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "flow.py")
            with open(file, "w") as program:
                program.write(FLOW)
            environment = {**os.environ, **server_settings(folder), "EMBERLINE_URL": collector}
            command = [sys.executable, file, name]
            ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=5 * PATIENCE_S, check=True)
        return json.loads(ended.stdout)

    def test_each_run_of_a_task_is_a_task(self):
        printed = self.run_flow("flow", self.collector.url)
        self.assertEqual(printed["results"], [[[0, 2, 4, 6, 8], ["FAILED", "FAILED"]], "State"])
        rows = self.collector.tasks("flow")
        counts = Counter((row["name"], row["outcome"], row["cause"]) for row in rows)
        expected = {
            ("double", "ok", ""): 5,
            ("flaky", "failed", "KeyError: 'again'"): 2,
            ("flaky", "ok", ""): 1,
            ("fail", "failed", "ValueError: no 3"): 1,
            ("return_failure", "failed", "RuntimeError: not today"): 1,
            ("wait", "ok", ""): 2,
            ("too_long", "failed", "TaskRunTimeoutError: after 0.5 s"): 1,
        }
        self.assertEqual(counts, expected)
        for name in ("double", "flaky"):
            found = [[row["key"], row["labels"]["flow_run"]] for row in rows if row["name"] == name]
            self.assertEqual(sorted(found), sorted(printed["ids"][name]))
        self.assertEqual([row["attempt"] for row in rows if row["name"] == "flaky"], [1, 2, 3])
        nodes = self.collector.profile("flow", task="wait")
        self.assertTrue(any("wait" in node["name"] for node in nodes))

    def test_a_program_that_does_not_know_of_emberline_has_tasks_too(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "flow.py")
            with open(file, "w") as program:
                program.write(UNMODIFIED)
            emberline = os.environ.get("EMBERLINE_PROGRAM") or shutil.which("emberline")
            run = [emberline, "run", "--collector", self.collector.url, "--label", "test=unmodified", "--"]
            environment = {**os.environ, **server_settings(folder)}
            command = [*run, sys.executable, file]
            ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=5 * PATIENCE_S, check=True)
        self.assertEqual(ended.stdout, b"6\n")
        workers = self.collector.get("workers", label="test=unmodified")["workers"]
        rows = [row for it in workers for row in self.collector.tasks(it["worker"], "double")]
        self.assertEqual(Counter(row["outcome"] for row in rows), {"ok": 3})

    def test_a_flow_without_collector_runs(self):
        printed = self.run_flow("alone", "http://127.0.0.1:1")
        self.assertEqual(printed["results"][0][0], [0, 2, 4, 6, 8])
