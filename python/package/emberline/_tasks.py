"""`task` as a decorator."""

from __future__ import annotations

import functools
import inspect

from . import _native


def restore(name, key, attempt, labels):
    """Returns the task that was pickled."""
    return _native.task(name, key=key, attempt=attempt, labels=labels)


def decorate(task, function):
    """Returns `function` with each call as a task of the same description."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(task, function.__func__))
    if not callable(function):
        raise TypeError(f"a task decorates a function, got {type(function).__name__}")
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is an async generator; decorate the coroutine that iterates it")
    again = task.again
    steps = _native.Steps
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args, **kwargs):
            return await steps(task, function(*args, **kwargs))

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def call(*args, **kwargs):
            return (yield from steps(task, function(*args, **kwargs)))

    else:

        @functools.wraps(function)
        def call(*args, **kwargs):
            with again():
                return function(*args, **kwargs)

    return call
