"""Greenlets of gevent with a real collector: a task stays with its greenlet."""

import subprocess
import sys
import unittest

from support import PATIENCE_S, CollectorCase

try:
    import gevent
except ImportError as error:
    raise unittest.SkipTest("gevent is not installed") from error

# Monkey patches are for the whole process.
PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys, time
import gevent
import emberline, emberline.greenlets

def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def spins():
    with emberline.task("spins"):
        for _ in range(10):
            spin(0.05)
            time.sleep(0)

def waits(number):
    with emberline.task("waits", key=number):
        with emberline.phase("read"):
            for _ in range(5):
                time.sleep(0.02)
        with emberline.task("inner", key=number):
            time.sleep(0.02)
            if number == 3:
                raise ValueError(number)
        assert emberline.current_task().name == "waits"

emberline.start("greenlets", sys.argv[1], flush_timeout=60)
emberline.greenlets.install()
emberline.greenlets.install()
gevent.get_hub().exception_stream = None
work = [gevent.spawn(spins), *(gevent.spawn(waits, number) for number in range(5))]
gevent.joinall(work, timeout=60)
emberline.greenlets.uninstall()
assert emberline.current_task().name is None
emberline.stop()
"""


class Greenlets(CollectorCase):
    def test_a_task_stays_with_its_greenlet(self):
        subprocess.run([sys.executable, "-c", PROGRAM, self.collector.url], timeout=2 * PATIENCE_S, check=True)
        rows = self.collector.tasks("greenlets")
        outcomes = sorted((row["name"], row["key"], row["outcome"]) for row in rows)
        numbers = [str(number) for number in range(5)]
        expected = [(name, key, "failed" if key == "3" else "ok") for name in ("inner", "waits") for key in numbers]
        self.assertEqual(outcomes, sorted([*expected, ("spins", "", "ok")]))
        outer = {row["id"]: row["key"] for row in rows if row["name"] == "waits"}
        for row in rows:
            if row["name"] == "inner":
                self.assertEqual(outer[row["parent"]], row["key"])
                continue
            self.assertIsNone(row["parent"])
            phases = [(phase["name"], phase["count"]) for phase in row["phases"]]
            self.assertEqual(phases, [] if row["name"] == "spins" else [("read", 1)])
        cpu = {name: self.cpu(name) for name in ("spins", "waits")}
        self.assertGreater(cpu["spins"], 0.35)
        self.assertLess(cpu["waits"], 0.1)

    def cpu(self, task):
        return sum(node["self"]["cpu"] for node in self.collector.profile("greenlets", task=task)) / 1e9
