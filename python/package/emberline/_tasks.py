"""`task` as a decorator."""

from __future__ import annotations

import functools
import inspect

from . import _native


class task(_native.Task):
    """A task: `with task("load"):`, or `@task("load")` above a function, a generator or a coroutine.

    Samples of the thread belong to the innermost task. A task follows `await`, `asyncio.to_thread`,
    `run_in_executor` and thread pools. It ends as `failed` if an exception leaves it, with the exception as its
    cause, and as `cancelled` by those that are no `Exception`, such as `asyncio.CancelledError`.

    `key` identifies the task within its name, `attempt` counts from 1, `labels` is a dict, `parent` a handle
    (default: the current task), and `queued_for` the seconds that it waited. `earlier_phases` are those before the
    start, such as the transfer of its input: name, seconds before the start, and length in seconds of each.

    A decorated generator or coroutine is inside its task while it runs, and not while it waits. With an event loop
    that is not asyncio's own, such as uvloop, decorate coroutines: a `with` block with `await` in it would give the
    task's samples to others.

    >>> with task("load", key="load-17", attempt=2, labels={"role": "reader"}) as load:
    ...     load.result_bytes(1_000)
    >>> @task("count")
    ... def count(limit):
    ...     yield from range(limit)
    >>> list(count(3))
    [0, 1, 2]
    """

    __slots__ = ()

    def __call__(self, function):
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if not callable(function):
            raise TypeError(f"a task decorates a function, got {type(function).__name__}")
        if inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is an async generator; decorate the coroutine that iterates it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args, **kwargs):
                return await _native.Steps(self, function(*args, **kwargs))

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def call(*args, **kwargs):
                return (yield from _native.Steps(self, function(*args, **kwargs)))

        else:

            @functools.wraps(function)
            def call(*args, **kwargs):
                with self.again():
                    return function(*args, **kwargs)

        return call
