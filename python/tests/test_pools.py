"""Pools of threads and processes whose calls are tasks."""

import asyncio
import concurrent.futures
import functools
import multiprocessing
import os
import unittest
from collections import Counter

import emberline
from emberline import pools
from support import CollectorCase


def double(number):
    return 2 * number


def add(left, right):
    return left + right


def fail(number):
    raise ValueError(f"no {number}")


class Pools(CollectorCase):
    def setUp(self):
        self.addCleanup(pools.uninstall)

    def rows(self, worker):
        """Tasks of a process and of those that its pools started."""
        names = [it["worker"] for it in self.collector.get("workers")["workers"]]
        workers = [name for name in names if name == worker or name.startswith(f"{worker}-")]
        return [task for name in workers for task in self.collector.tasks(name)]

    def counts(self, worker):
        return Counter((row["name"], row["outcome"]) for row in self.rows(worker))

    def test_threads(self):
        self.start("threads")
        pools.install()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            self.assertEqual(list(pool.map(double, range(50))), list(range(0, 100, 2)))
            self.assertIsInstance(pool.submit(fail, 3).exception(), ValueError)
            pool.submit(functools.partial(add, 1), 2).result()
        asyncio.run(self.in_thread())
        emberline.stop()
        counts = self.counts("threads")
        expected = {("double", "ok"): 51, ("fail", "failed"): 1, ("add", "ok"): 1}
        self.assertEqual(counts, expected)

    @staticmethod
    async def in_thread():
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, double, 1)

    def test_processes(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                self.start(f"processes-{method}")
                pools.install()
                context = multiprocessing.get_context(method)
                with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
                    self.assertEqual(list(pool.map(double, range(20), chunksize=5)), list(range(0, 40, 2)))
                    self.assertIsInstance(pool.submit(fail, 3).exception(), ValueError)
                pools.uninstall()
                emberline.stop()
                counts = self.counts(f"processes-{method}")
                self.assertEqual(counts, {("double", "ok"): 20, ("fail", "failed"): 1})

    def test_multiprocessing(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                self.start(f"pool-{method}")
                pools.install()
                pool = multiprocessing.get_context(method).Pool(2)
                self.assertEqual(pool.map(double, range(10), chunksize=3), list(range(0, 20, 2)))
                self.assertEqual(pool.apply(double, [4]), 8)
                self.assertEqual(pool.starmap(add, [(1, 2), (3, 4)]), [3, 7])
                self.assertEqual(sorted(pool.imap_unordered(double, range(4), chunksize=2)), [0, 2, 4, 6])
                self.assertEqual(list(pool.imap(double, range(4))), [0, 2, 4, 6])
                with self.assertRaisesRegex(ValueError, "no 1"):
                    pool.map(fail, [1])
                pool.close()
                pool.join()
                pools.uninstall()
                emberline.stop()
                counts = self.counts(f"pool-{method}")
                self.assertEqual(counts, {("double", "ok"): 19, ("add", "ok"): 2, ("fail", "failed"): 1})

    def test_one_function(self):
        self.start("function")
        traced = pools.traced(double, "twice")
        self.assertEqual((traced(2), traced.__name__), (4, "double"))
        emberline.stop()
        self.assertEqual(traced(2), 4)
        self.assertEqual(self.counts("function"), {("twice", "ok"): 1})

    def test_a_process_that_cannot_start_an_agent_works(self):
        settings = {"pid": -1, "worker": None, "collector": "nowhere", "others": {}}
        traced = pools.traced(double)
        traced.settings = settings
        with self.assertWarnsRegex(RuntimeWarning, f"no profile of the process {os.getpid()}"):
            self.assertEqual(traced(2), 4)
        self.addCleanup(setattr, pools, "_tried", None)
        self.assertEqual(traced(3), 6)


if __name__ == "__main__":
    unittest.main()
