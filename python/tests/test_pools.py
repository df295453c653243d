"""Pools of threads and processes whose calls are tasks."""

import asyncio
import concurrent.futures
import contextvars
import functools
import itertools
import multiprocessing
import os
import sys
import tempfile
import unittest
from collections import Counter

import emberline
from emberline import _hooks, pools
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

    def test_names_do_not_depend_on_what_was_installed_when(self):
        orders = {
            "after": "start install",
            "before": "install start",
            "restart": "start install stop start",
            "restarts": "start install stop start stop start",
            "again": "start install uninstall stop install start uninstall install",
            "report": "start install stop report start",
        }
        for name, order in orders.items():
            with self.subTest(name):
                worker = f"order-{name}"
                for step in order.split():
                    self.take(step, worker)
                with emberline.task("outer") as outer, concurrent.futures.ThreadPoolExecutor(2) as pool:
                    pool.submit(double, 1).result()
                    list(pool.map(double, range(2)))
                    self.assertIsInstance(pool.submit(fail, 3).exception(), ValueError)
                    pool.submit(outer.handle.run, double, 1).result()
                    pool.submit(contextvars.copy_context().run, double, 1).result()
                    asyncio.run(self.in_thread())
                pools.uninstall()
                emberline.stop()
                # Of the last start: the others have recorded nothing.
                rows = self.rows(worker)
                counts = Counter((row["name"], row["outcome"]) for row in rows)
                self.assertEqual(counts, {("outer", "ok"): 1, ("double", "ok"): 6, ("fail", "failed"): 1})
                (outer_id,) = [row["id"] for row in rows if row["name"] == "outer"]
                parents = {row["parent"] for row in rows if row["name"] != "outer"}
                self.assertEqual(parents, {outer_id})

    def take(self, step, worker):
        if step == "start":
            self.start(worker)
        elif step == "report":
            with tempfile.TemporaryDirectory() as folder, emberline.report(os.path.join(folder, "report.html")):
                pass
        else:
            {"stop": emberline.stop, "install": pools.install, "uninstall": pools.uninstall}[step]()

    def test_hooks_are_there_once_while_they_are_needed_in_any_order(self):
        owner = concurrent.futures.ThreadPoolExecutor
        original = owner.submit
        others = _hooks.Hooks()
        self.addCleanup(others.remove)
        self.addCleanup(_hooks._hooks.remove)

        def install_others():
            others.replace(owner, "submit", _hooks._submit_of)
            others.are_on = True

        steps = {
            "start": (_hooks._hooks, _hooks.install),
            "stop": (_hooks._hooks, _hooks.remove),
            "install": (pools._hooks, pools.install),
            "uninstall": (pools._hooks, pools.uninstall),
            "install others": (others, install_others),
            "remove others": (others, others.remove),
        }
        for order in itertools.product(steps, repeat=5):
            for step in order:
                steps[step][1]()
            on = [hooks for hooks, _ in steps.values() if hooks.are_on]
            layers = 0
            function = owner.submit
            while function is not original:
                function = function.__wrapped__
                layers += 1
            self.assertLessEqual(layers, 3, order)
            self.assertGreaterEqual(layers, len(on) / 2, order)
            for name in ("stop", "uninstall", "remove others"):
                steps[name][1]()
            self.assertIs(owner.submit, original, order)

    def test_a_replacement_that_another_library_has_wrapped_does_nothing_once_removed(self):
        owner = concurrent.futures.ThreadPoolExecutor
        original = owner.submit
        self.addCleanup(setattr, owner, "submit", original)
        calls = []
        for number in range(5):
            _hooks.install()
            pools.install()
            if number == 0:
                ours = owner.submit

                def submit(self, function, *args):
                    calls.append(function)
                    return ours(self, function, *args)

                owner.submit = submit
            pools.uninstall()
            _hooks.remove()
        self.assertIs(owner.submit, submit)
        with owner(1) as pool:
            self.assertEqual(pool.submit(sys._getframe).result().f_code.co_name, "run")
        owner.submit = ours
        pools.uninstall()
        self.assertIs(owner.submit, original)

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
