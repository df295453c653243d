"""Tasks as the collector sees them: names, outcomes, parents and phases, in threads, coroutines and generators."""

import asyncio
import collections
import concurrent.futures
import contextvars
import inspect
import pickle
import threading
import types
import unittest

import emberline
from emberline import _tasks
from support import CollectorCase


def spin(seconds):
    """Uses CPU time."""
    import time

    end = time.thread_time() + seconds
    number = 0
    while time.thread_time() < end:
        number += 1
    return number


class Tasks(CollectorCase):
    def test_a_with_block_is_a_task(self):
        self.start("block")
        with emberline.task("load", key=("x", 17), attempt=2, labels={"table": "orders"}, queued_for=0.5) as task:
            self.assertEqual(emberline.current_task().name, "load")
            task.result_bytes(512)
            task.result_type("Matrix")
            with emberline.task("parse"):
                pass
        self.assertIsNone(emberline.current_task().name)
        emberline.stop()
        load = self.collector.one_task("block", "load")
        self.assertEqual(load["key"], "('x', 17)")
        self.assertEqual((load["attempt"], load["labels"]), (2, {"table": "orders"}))
        self.assertEqual((load["result_bytes"], load["type_name"]), (512, "Matrix"))
        self.assertEqual(load["outcome"], "ok")
        self.assertEqual(load["phases"][0]["name"], "queue")
        self.assertEqual(self.collector.one_task("block", "parse")["parent"], load["id"])

    def test_what_came_before_a_task_is_no_part_of_it(self):
        self.start("before")
        with emberline.task("load", earlier_phases=[("transfer", 30.0, 20.0)]):
            pass
        with emberline.transfer("incoming", "peer", keys=["x"], lasted=20.0) as transfer:
            transfer.add_bytes(7)
        with self.assertRaisesRegex(ValueError, "invalid lasted -1"):
            emberline.transfer("incoming", "peer", lasted=-1)
        with self.assertRaisesRegex(ValueError, "invalid length of a phase -1"):
            emberline.task("load", earlier_phases=[("transfer", 1, -1)])
        with self.assertRaisesRegex(ValueError, "invalid number of managed bytes -1"):
            emberline.report_memory(-1, 0)
        emberline.stop()
        load = self.collector.one_task("before", "load")
        (phase,) = load["phases"]
        self.assertEqual((phase["name"], phase["duration_ns"]), ("transfer", 20_000_000_000))
        self.assertEqual(load["start_ns"] - phase["start_ns"], 30_000_000_000)
        self.assertLess(load["duration_ns"], 1_000_000_000)
        (transfer,) = self.collector.get("transfers", worker="before")["transfers"]
        self.assertGreaterEqual(transfer["duration_ns"], 20_000_000_000)

    def test_exceptions_end_tasks(self):
        self.start("ends")
        with self.assertRaises(ZeroDivisionError), emberline.task("failed"):
            1 / 0
        with self.assertRaises(KeyboardInterrupt), emberline.task("interrupted"):
            raise KeyboardInterrupt

        class Unprintable(Exception):
            def __str__(self):
                raise ValueError

        with self.assertRaises(Unprintable), emberline.task("unprintable"):
            raise Unprintable
        emberline.stop()
        failed = self.collector.one_task("ends", "failed")
        self.assertEqual((failed["outcome"], failed["cause"]), ("failed", "ZeroDivisionError: division by zero"))
        self.assertEqual(self.collector.one_task("ends", "interrupted")["outcome"], "cancelled")
        self.assertEqual(self.collector.one_task("ends", "unprintable")["cause"], "Unprintable")

    def test_tasks_are_pickled_with_their_description(self):
        task = emberline.task("load", key="load-17", attempt=2, labels={"role": "reader"})
        # As functions that are sent by value keep it.
        again = pickle.loads(pickle.dumps(task.again))
        self.start("pickled")
        with again():
            pass
        emberline.stop()
        row = self.collector.one_task("pickled", "load")
        self.assertEqual((row["key"], row["attempt"], row["labels"]), ("load-17", 2, {"role": "reader"}))

    def test_decorated_functions_are_tasks_at_each_call(self):
        @emberline.task("double")
        def double(number):
            """Doubles."""
            return 2 * number

        class Numbers:
            @staticmethod
            @emberline.task("static")
            def static():
                return 1

            @emberline.task("class")
            @classmethod
            def of_class(cls):
                return cls

            @emberline.task("method")
            def method(self):
                return self

        self.assertEqual(double(1), 2, "without an agent")
        self.start("calls")
        self.assertEqual([double(number) for number in range(3)], [0, 2, 4])
        self.assertEqual((double.__name__, double.__doc__), ("double", "Doubles."))
        numbers = Numbers()
        self.assertEqual((numbers.static(), numbers.of_class(), numbers.method()), (1, Numbers, numbers))
        emberline.stop()
        names = [task["name"] for task in self.collector.tasks("calls")]
        self.assertEqual(names, ["double"] * 3 + ["static", "class", "method"])

    def test_a_decorated_generator_is_in_its_task_only_while_it_runs(self):
        @emberline.task("count")
        def count(stop):
            received = []
            for number in range(stop):
                received.append((yield number, emberline.current_task().name))
            return received

        self.start("generators")
        steps = count(2)
        self.assertTrue(inspect.isgeneratorfunction(count))
        self.assertEqual(next(steps), (0, "count"))
        self.assertIsNone(emberline.current_task().name)
        self.assertEqual(steps.send("a"), (1, "count"))
        with self.assertRaises(StopIteration) as end:
            steps.send("b")
        self.assertEqual(end.exception.value, ["a", "b"])
        closed = count(2)
        next(closed)
        closed.close()
        thrown = count(2)
        next(thrown)
        with self.assertRaises(OSError):
            thrown.throw(OSError("gone"))
        emberline.stop()
        ends = [(task["outcome"], task["cause"]) for task in self.collector.tasks("generators")]
        self.assertEqual(ends, [("ok", ""), ("cancelled", ""), ("failed", "OSError: gone")])

    def test_a_decorated_generator_that_is_closed_has_the_same_result(self):
        def close_late():
            try:
                yield 1
            except GeneratorExit:
                return "closed"

        def closed(function):
            steps = function()
            next(steps)
            return steps.close()

        self.start("closed")
        self.assertEqual(closed(emberline.task("late")(close_late)), closed(close_late))
        emberline.stop()
        self.assertEqual(closed(emberline.task("late")(close_late)), closed(close_late))

    def test_coroutines_keep_their_tasks_across_await(self):
        seen = []

        @emberline.task("decorated")
        async def decorated(other):
            await asyncio.sleep(0)
            seen.append(("decorated", emberline.current_task().name))
            with emberline.task("inner"):
                other.set()
                await asyncio.sleep(0)
                seen.append(("inner", emberline.current_task().name))
            seen.append(("decorated", emberline.current_task().name))

        async def block(other):
            with emberline.task("block"):
                await other.wait()
                seen.append(("block", emberline.current_task().name))
                await asyncio.to_thread(lambda: seen.append(("block", emberline.current_task().name)))
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, lambda: seen.append(("block", emberline.current_task().name)))

        async def main():
            other = asyncio.Event()
            await asyncio.gather(block(other), decorated(other))
            seen.append((None, emberline.current_task().name))

        self.start("coroutines")
        asyncio.run(main())
        emberline.stop()
        self.assertEqual([pair for pair in seen if pair[0] != pair[1]], [])
        self.assertEqual(len(seen), 7)
        tasks = {task["name"]: task for task in self.collector.tasks("coroutines")}
        self.assertEqual(sorted(tasks), ["block", "decorated", "inner"])
        self.assertEqual(tasks["inner"]["parent"], tasks["decorated"]["id"])
        self.assertIsNone(tasks["block"]["parent"])

    def test_a_canceled_coroutine_is_a_canceled_task(self):
        async def main():
            @emberline.task("waits")
            async def waits():
                await asyncio.Event().wait()

            waiting = asyncio.ensure_future(waits())
            await asyncio.sleep(0)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting

        self.start("cancels")
        asyncio.run(main())
        emberline.stop()
        self.assertEqual(self.collector.one_task("cancels", "waits")["outcome"], "cancelled")

    def test_samples_belong_to_the_coroutine_that_runs(self):
        async def work(name, seconds):
            with emberline.task(name):
                for _ in range(10):
                    spin(seconds / 10)
                    await asyncio.sleep(0)

        async def main():
            await asyncio.gather(work("long", 0.9), work("short", 0.3))

        self.start("shares", cpu_limit=1.0)
        asyncio.run(main())
        emberline.stop()
        time_of = {}
        for node in self.collector.profile("shares"):
            if node["parent"] == 0 and node["kind"] == "task":
                time_of[node["name"]] = node["total"]["cpu"] / 1e9
        self.assertAlmostEqual(time_of["long"], 0.9, delta=0.15)
        self.assertAlmostEqual(time_of["short"], 0.3, delta=0.15)

    def test_thread_pools_work_for_the_task_that_submits(self):
        self.start("pools")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            with emberline.task("outer"):
                names = [pool.submit(lambda: emberline.current_task().name).result() for _ in range(3)]
            self.assertIsNone(pool.submit(lambda: emberline.current_task().name).result())
        self.assertEqual(names, ["outer"] * 3)

    def test_handles_carry_tasks_to_other_threads(self):
        self.start("handles")
        names = []
        with emberline.task("outer") as task:
            handle = task.handle

            def work():
                with handle:
                    with handle:
                        names.append(emberline.current_task().name)
                    names.append(emberline.current_task().name)
                names.append(emberline.current_task().name)
                names.append(handle.run(lambda: emberline.current_task().name))

            thread = threading.Thread(target=work, args=())
            thread.start()
            thread.join()
            with emberline.task("child", parent=handle):
                pass
        emberline.stop()
        self.assertEqual(names, ["outer", "outer", None, "outer"])
        outer = self.collector.one_task("handles", "outer")
        self.assertEqual(self.collector.one_task("handles", "child")["parent"], outer["id"])

    def test_phases_go_on_while_a_coroutine_waits(self):
        async def main():
            with emberline.task("reads"):
                with emberline.phase("disk-read"):
                    await asyncio.sleep(0.2)

        self.start("phases")
        with emberline.task("decodes"), emberline.phase("decode"):
            spin(0.05)
        asyncio.run(main())
        emberline.stop()
        for name, phase, least_ns in [("decodes", "decode", 50e6), ("reads", "disk-read", 190e6)]:
            task = self.collector.one_task("phases", name)
            phases = {}
            for interval in task["phases"]:
                phases[interval["name"]] = phases.get(interval["name"], 0) + interval["duration_ns"]
            self.assertGreaterEqual(phases[phase], least_ns, name)
            self.assertLessEqual(phases[phase], task["duration_ns"], name)

    def check_phases(self, worker, name, expected):
        """Compares the phases of a task, each with its least part of the task's time."""
        task = self.collector.one_task(worker, name)
        self.assertEqual([(it["name"], it["count"]) for it in task["phases"]], [(phase, 1) for phase, _ in expected], name)
        for phase, (_, least) in zip(task["phases"], expected):
            self.assertGreaterEqual(phase["duration_ns"], least * task["duration_ns"], name)
        self.assertLessEqual(sum(it["duration_ns"] for it in task["phases"]), task["duration_ns"], name)

    def test_labels_are_any_mapping(self):
        labels = types.MappingProxyType({"zone": "a", "shard": 7, "part": 0.5})
        self.start("mapping", labels=labels)
        with emberline.task("load", labels=collections.ChainMap({"zone": "b"}, labels)):
            pass
        self.assertEqual(pickle.loads(pickle.dumps(emberline._settings))["others"]["labels"], dict(labels))
        emberline.stop()
        expected = {"zone": "b", "shard": "7", "part": "0.5"}
        self.assertEqual(self.collector.one_task("mapping", "load")["labels"], expected)

    def test_attempts_of_frameworks_stay_in_the_range(self):
        self.assertEqual([_tasks.attempt_after(it) for it in (-5, 0, 3, 2**40)], [1, 1, 4, 2**32 - 1])
        self.start("attempts")
        with emberline.task("last", attempt=_tasks.attempt_after(2**40)):
            pass
        emberline.stop()
        self.assertEqual(self.collector.one_task("attempts", "last")["attempt"], 2**32 - 1)

    def test_a_phase_with_many_steps_is_one(self):
        async def steps(number, seconds):
            for _ in range(number):
                await asyncio.sleep(seconds / number)

        async def in_with_block():
            with emberline.task("block"), emberline.phase("read"):
                await steps(100, 0.5)

        @emberline.task("decorated")
        async def decorated():
            with emberline.phase("read"):
                await steps(100, 0.5)

        async def nested():
            with emberline.task("nested"), emberline.phase("outer"):
                await steps(10, 0.3)
                with emberline.phase("inner"):
                    await steps(10, 0.3)
                await steps(10, 0.3)

        async def joined():
            with emberline.task("joined"), emberline.phase("read"):
                work = [asyncio.to_thread(spin, 0.1) for _ in range(2)]
                await asyncio.gather(steps(100, 0.5), steps(50, 0.3), *work)

        async def main():
            await asyncio.gather(in_with_block(), decorated(), nested(), joined())

        self.start("steps")
        asyncio.run(main())
        emberline.stop()
        for name in ("block", "decorated", "joined"):
            self.check_phases("steps", name, [("read", 0.9)])
        self.check_phases("steps", "nested", [("outer", 0.2), ("inner", 0.2), ("outer", 0.2)])

    def test_phases_that_are_left_open_or_out_of_order_end(self):
        self.start("open")
        with emberline.task("forgotten"):
            forgotten = emberline.phase("read")
            forgotten.__enter__()
            spin(0.1)
        self.assertIsNone(emberline.current_task().name)
        with emberline.task("crossed"):
            first, second = emberline.phase("first"), emberline.phase("second")
            first.__enter__()
            second.__enter__()
            spin(0.1)
            first.__exit__(None, None, None)
            spin(0.1)
            second.__exit__(None, None, None)
            spin(0.1)
        with emberline.task("twice"), emberline.phase("outer"):
            again = emberline.phase("inner")
            with again:
                with self.assertRaisesRegex(RuntimeError, "is active already"):
                    again.__enter__()
                spin(0.1)
        emberline.stop()
        self.check_phases("open", "forgotten", [("read", 0.9)])
        self.check_phases("open", "crossed", [("first", 0), ("second", 0.2)])
        self.check_phases("open", "twice", [("outer", 0), ("inner", 0.9), ("outer", 0)])

    def test_a_context_that_runs_elsewhere_leaves_its_thread_as_it_was(self):
        self.start("contexts")
        context = contextvars.copy_context()
        task = emberline.task("elsewhere")
        context.run(task.__enter__)
        thread = threading.Thread(target=context.run, args=(task.__exit__, None, None, None))
        thread.start()
        thread.join()
        self.assertIsNone(emberline.current_task().name)
        emberline.stop()
        self.assertEqual(self.collector.one_task("contexts", "elsewhere")["outcome"], "ok")


class Misuse(unittest.TestCase):
    """Without a collector."""

    def test_bad_input_names_the_argument_and_the_allowed_values(self):
        cases = [
            (lambda: emberline.task(7), TypeError, "the name of a task is 7; expected a str"),
            (lambda: emberline.task(""), ValueError, "the name of a task is empty"),
            (lambda: emberline.task("a", attempt=0), ValueError, "invalid attempt 0; expected 1 to"),
            (lambda: emberline.task("a", attempt=-1), ValueError, "invalid attempt -1"),
            (lambda: emberline.task("a", attempt=2**32), ValueError, "invalid attempt 4294967296; expected 1 to 4294967295"),
            (lambda: emberline.task("a", attempt=10**50), ValueError, "invalid attempt 10{50}; expected 1 to"),
            (lambda: emberline.task("a", attempt=1.5), TypeError, "the attempt is 1.5; expected an int"),
            (lambda: emberline.task("a", queued_for=-1.0), ValueError, "invalid queued_for -1"),
            (lambda: emberline.task("a", queued_for=float("nan")), ValueError, "invalid queued_for NaN"),
            (lambda: emberline.task("a", labels={1: "b"}), TypeError, "the key of a label is 1; expected a str"),
            (lambda: emberline.task("a", labels={"b": None}), TypeError, "the label 'b' is None; expected a str or a number"),
            (lambda: emberline.start(labels={"b": [1]}), TypeError, "the label 'b' is .1.; expected a str or a number"),
            (lambda: emberline.start(labels="zone"), TypeError, "the labels are 'zone'; expected a mapping"),
            (lambda: emberline.task("a", wrong=1), TypeError, "wrong"),
            (lambda: emberline.task("a")(7), TypeError, "a task decorates a function, got int"),
            (lambda: emberline.task("a")(Misuse), TypeError, "a task decorates a function, got a class; decorate"),
            (lambda: emberline.phase(""), ValueError, "the name of a phase is empty"),
            (lambda: emberline.transfer("up", "b"), ValueError, "expected incoming or outgoing"),
            (lambda: emberline.expect("a", -1), ValueError, "invalid number of tasks -1"),
            (lambda: emberline.start("a" * 10_000), ValueError, "invalid worker id of 10000 bytes"),
            (lambda: emberline.start(""), ValueError, "invalid worker id of 0 bytes"),
            (lambda: emberline.start(collector="ftp://x"), ValueError, "expected http://HOST:PORT"),
            (lambda: emberline.start(interval=5.0), ValueError, "invalid sampling interval 5s"),
            (lambda: emberline.start(cpu_limit=2.0), ValueError, "invalid CPU limit 2"),
            (lambda: emberline.start(wrong=1), TypeError, "wrong"),
        ]
        for call, error, text in cases:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()
        self.assertEqual(emberline.start.__module__, "emberline")

    def test_a_task_runs_once(self):
        # No collector is there: the program does not wait for one.
        with emberline.start("alone", "http://127.0.0.1:1", flush_timeout=10.0):
            task = emberline.task("once")
            with task:
                with self.assertRaisesRegex(RuntimeError, "started already"), task:
                    pass
            with self.assertRaisesRegex(RuntimeError, "started already"), task:
                pass
            with self.assertRaisesRegex(emberline.StartError, "already running"):
                emberline.start("another")
            with emberline.task("lone surrogate \udcff", key="\udcff"):
                pass

    def test_nothing_happens_without_an_agent(self):
        with emberline.task("a") as task, emberline.phase("b"), emberline.mark_run("c"):
            task.result_bytes(1)
            self.assertIsNone(emberline.current_task().name)
        with emberline.transfer("incoming", "b", keys=["x"]) as transfer:
            transfer.add_bytes(1)
        emberline.expect("a", 3)
        emberline.stop()

    def test_hooks_are_removed(self):
        before = asyncio.Handle._run, concurrent.futures.ThreadPoolExecutor.submit
        with emberline.start("hooks", "http://127.0.0.1:1", flush_timeout=10.0):
            self.assertIsNot(asyncio.Handle._run, before[0])
        after = asyncio.Handle._run, concurrent.futures.ThreadPoolExecutor.submit
        self.assertEqual(before, after)


if __name__ == "__main__":
    unittest.main()
