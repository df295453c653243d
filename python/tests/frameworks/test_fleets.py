"""Real processes of Ray and joblib, whose calls a real collector has as tasks."""

import os
import socket
import subprocess
import sys
import time
import unittest
from collections import Counter

from support import PATIENCE_S, CollectorCase

try:
    import joblib  # noqa: F401: used by the programs
    import ray  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest("Ray or joblib is not installed") from error

# They end when their input does: both end their processes without a last flush.
OF_RAY = """
import ray, emberline

@ray.remote
@emberline.task("double")
def double(number):
    return 2 * number

@ray.remote(max_retries=0)
@emberline.task("fail")
def fail():
    raise ValueError("no")

ray.init(
    num_cpus=2,
    include_dashboard=False,
    _node_ip_address="127.0.0.1",
    logging_level="ERROR",
    log_to_driver=False,
    runtime_env={"worker_process_setup_hook": emberline.start},
)
assert ray.get([double.remote(number) for number in range(20)]) == list(range(0, 40, 2))
try:
    ray.get(fail.remote())
except ValueError:
    print("computed", flush=True)
input()
"""
OF_JOBLIB = """
import joblib, emberline, emberline.pools

def double(number):
    return 2 * number

emberline.start("joblib")
traced = emberline.pools.traced(double)
doubled = joblib.Parallel(n_jobs=2)(joblib.delayed(traced)(number) for number in range(20))
assert doubled == list(range(0, 40, 2))
print("computed", flush=True)
input()
"""


class Fleets(CollectorCase):
    def counts(self, prefix, program, url, expected):
        """Runs a program until it has computed and the collector has so many rows."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            env={**os.environ, "EMBERLINE_URL": url, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "computed\n")
        deadline = time.monotonic() + PATIENCE_S
        counts = Counter()
        while counts.total() < expected and time.monotonic() < deadline:
            rows = self.collector.rows(prefix)
            counts = Counter((row["name"], row["outcome"]) for row in rows if row["outcome"] != "running")
        process.communicate("\n", timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0)
        return counts

    def test_calls_of_ray(self):
        # By default an agent is named by its host and process.
        counts = self.counts(f"{socket.gethostname()}:", OF_RAY, self.collector.url, 21)
        self.assertEqual(counts, {("double", "ok"): 20, ("fail", "failed"): 1})

    def test_calls_of_joblib(self):
        counts = self.counts("joblib", OF_JOBLIB, self.collector.url, 20)
        self.assertEqual(counts, {("double", "ok"): 20})

    def test_without_a_collector_nothing_changes(self):
        for program in OF_RAY, OF_JOBLIB:
            self.counts("none", program, "http://127.0.0.1:1", 0)


if __name__ == "__main__":
    unittest.main()
