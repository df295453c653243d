"""`emberline.task` above every kind of callable that gives a coroutine: the coroutine runs in the task."""

import asyncio
import contextlib
import functools
import gc
import inspect
import types
import unittest
import warnings
from collections.abc import Coroutine

import emberline
from emberline import pools
from support import CollectorCase

seen = []


async def work(cause=None):
    """Notes its task before and after it waits; fails if there is a cause."""
    seen.append(emberline.current_task().name)
    await asyncio.sleep(0)
    seen.append(emberline.current_task().name)
    if cause:
        raise ValueError(cause)
    return 5


@types.coroutine
def old_work(cause=None):
    return (yield from work(cause))


@types.coroutine
def old_work_of_function(cause=None):
    return ForeignCoroutine(work(cause))


class ForeignCoroutine(Coroutine):
    """As compilers of Python make it."""

    def __init__(self, inner):
        self.inner = inner

    def __await__(self):
        return (yield from self.inner.__await__())

    def send(self, value):
        return self.inner.send(value)

    def throw(self, *error):
        return self.inner.throw(*error)

    def close(self):
        return self.inner.close()


class Request(ForeignCoroutine):
    """As clients of HTTP return it."""

    async def __aenter__(self):
        return await self

    async def __aexit__(self, *_error):
        return None


class Awaitable:
    def __init__(self, inner):
        self.inner = inner

    def __await__(self):
        return self.inner.__await__()


class Calls:
    async def __call__(self, cause=None):
        return await work(cause)

    def method(self, cause=None):
        return work(cause)

    @staticmethod
    def static(cause=None):
        return work(cause)


class OldCalls:
    @types.coroutine
    def __call__(self, cause=None):
        return (yield from work(cause))


def through_a_plain_function(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


def marked():
    """A plain function that returns an awaitable object, marked as a coroutine function."""

    def call(cause=None):
        return Awaitable(work(cause))

    return inspect.markcoroutinefunction(call)


CALLABLES = {
    "function": work,
    "partial": functools.partial(work),
    "lambda": lambda *args: work(*args),
    "object": Calls(),
    "partial object": functools.partial(Calls()),
    "method": Calls().method,
    "static": Calls.static,
    "decorated": through_a_plain_function(work),
    "decorated object": through_a_plain_function(Calls()),
    "foreign": lambda *args: ForeignCoroutine(work(*args)),
    "old": old_work,
    "old partial": functools.partial(old_work),
    "old lambda": lambda *args: old_work(*args),
    "old object": OldCalls(),
    "old function": old_work_of_function,
}


async def results_of(function):
    """Calls it for a result, for an error, and as a task of the loop."""
    results = [await function()]
    seen.append(emberline.current_task().name)
    with contextlib.suppress(ValueError):
        results.append(await function("no 1"))
    made = function()
    if asyncio.iscoroutine(made):
        results.append(await asyncio.ensure_future(made))
    else:
        results.append(await made)
    seen.append(emberline.current_task().name)
    return results


class Decorators(CollectorCase):
    def setUp(self):
        seen.clear()

    def check(self, name, function):
        self.assertEqual(asyncio.run(results_of(function)), [5, 5])
        self.assertEqual(seen, [name, name, None, name, name, name, name, None])

    def test_a_coroutine_runs_in_the_task_of_what_makes_it(self):
        for name, function in CALLABLES.items():
            for decorate in (emberline.task(name), functools.partial(pools.traced, name=name)):
                worker = f"{name}-{type(decorate).__name__}".replace(" ", "-")
                with self.subTest(worker):
                    seen.clear()
                    with self.start(worker):
                        self.check(name, decorate(function))
                    ends = [(row["name"], row["outcome"], row["cause"]) for row in self.collector.tasks(worker)]
                    self.assertEqual(ends, [(name, "ok", ""), (name, "failed", "ValueError: no 1"), (name, "ok", "")])

    @unittest.skipUnless(hasattr(inspect, "markcoroutinefunction"), "before Python 3.12")
    def test_a_function_that_is_marked_as_coroutine_function(self):
        with self.start("marked"):
            self.check("marked", emberline.task("marked")(marked()))
        self.assertEqual(len(self.collector.tasks("marked")), 3)

    def test_without_an_agent_a_coroutine_just_runs(self):
        for name, function in CALLABLES.items():
            with self.subTest(name):
                seen.clear()
                self.check(None, emberline.task(name)(function))

    def test_a_coroutine_keeps_its_name(self):
        self.start("names")
        for function in (CALLABLES["lambda"], CALLABLES["old lambda"]):
            made = emberline.task("a")(function)()
            plain = function()
            self.assertEqual((made.__name__, made.__qualname__), (plain.__name__, plain.__qualname__))
            made.close()
            plain.close()

    def test_a_coroutine_that_nobody_awaits_is_a_canceled_task(self):
        for name, function in CALLABLES.items():
            worker = f"forgotten-{name}".replace(" ", "-")
            with self.subTest(name), self.start(worker):
                expected = self.warnings_of(function)
                self.assertEqual(self.warnings_of(emberline.task(name)(function)), expected)
                self.assertIsNone(emberline.current_task().name)
                emberline.stop()
                ends = [row["outcome"] for row in self.collector.tasks(worker)]
                self.assertIn(ends, ([], ["cancelled"]))
        self.assertEqual(seen, [])

    def warnings_of(self, function):
        """Makes a coroutine and drops it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
            gc.collect()
        return len(caught)

    def test_a_coroutine_that_is_canceled_before_its_start_is_a_canceled_task(self):
        async def main():
            started = asyncio.ensure_future(emberline.task("early")(CALLABLES["lambda"])())
            started.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await started

        with warnings.catch_warnings(record=True) as caught, self.start("early"):
            warnings.simplefilter("always")
            asyncio.run(main())
            gc.collect()
        self.assertEqual([str(warning.message) for warning in caught], [])
        self.assertEqual(self.collector.one_task("early", "early")["outcome"], "cancelled")

    def test_a_coroutine_that_is_made_in_a_thread_runs_in_the_loop(self):
        async def main():
            made = await asyncio.to_thread(emberline.task("threads")(CALLABLES["lambda"]))
            return await made

        self.start("threads")
        self.assertEqual(asyncio.run(main()), 5)
        emberline.stop()
        self.assertEqual(seen, ["threads"] * 2)
        self.assertEqual(self.collector.one_task("threads", "threads")["outcome"], "ok")

    def test_other_results_are_returned_as_they_are(self):
        async def main():
            loop = asyncio.get_running_loop()
            for result in (loop.create_future(), (number for number in ()), Request(work()), None):
                self.assertIs(emberline.task("a")(lambda result=result: result)(), result)
                self.assertIs(pools.traced(lambda result=result: result)(), result)
                if isinstance(result, Request):
                    async with emberline.task("a")(lambda result=result: result)() as number:
                        self.assertEqual(number, 5)

        self.start("others")
        asyncio.run(main())

    def test_async_generators_are_refused(self):
        async def numbers():
            yield 1

        class Numbers:
            async def __call__(self):
                yield 1

            def __repr__(self):
                return "Numbers()"

        cases = [
            (numbers, "numbers is an async generator"),
            (functools.partial(numbers), "numbers.* is an async generator"),
            (Numbers(), "Numbers.. is an async generator"),
        ]
        for function, text in cases:
            with self.subTest(text), self.assertRaisesRegex(TypeError, text):
                emberline.task("a")(function)


if __name__ == "__main__":
    unittest.main()
