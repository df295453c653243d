"""`task` as a decorator."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Coroutine

from . import _native

# Of most results. To look whether one is a coroutine takes as long as an empty task.
PLAIN = frozenset((type(None), bool, int, float, str, bytes, tuple, list, dict, set))
# Further attempts have this number.
ATTEMPT_MAX = 2**32 - 1


def attempt_after(failures):
    """Returns the number of the attempt after so many."""
    return min(max(failures, 0) + 1, ATTEMPT_MAX)


def restore(name, key, attempt, labels):
    """Returns the task that was pickled."""
    return _native.task(name, key=key, attempt=attempt, labels=labels)


def decorate(task, function):
    """Returns `function` with each call as a task of the same description."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(task, function.__func__))
    if not callable(function) or isinstance(function, type):
        kind = "a class; decorate its methods" if isinstance(function, type) else type(function).__name__
        raise TypeError(f"a task decorates a function, got {kind}")
    if _is(inspect.isasyncgenfunction, function):
        name = getattr(function, "__qualname__", None) or repr(function)
        raise TypeError(f"{name} is an async generator; decorate the coroutine that iterates it")
    steps = _native.Steps
    if _is(inspect.iscoroutinefunction, function):

        @functools.wraps(function)
        async def call(*args, **kwargs):
            inner = function(*args, **kwargs)
            # A function that is marked as one may return any awaitable object.
            return await steps(task, inner if _is_coroutine(inner) else _await(inner))

    elif _is(inspect.isgeneratorfunction, function):

        @functools.wraps(function)
        def call(*args, **kwargs):
            inner = steps(task, function(*args, **kwargs))
            try:
                return (yield from inner)
            except GeneratorExit:
                if inner.closed is None:
                    raise
                return inner.closed

        if _is(_is_iterable_coroutine_function, function):
            call = types.coroutine(call)

    else:
        again = task.again

        @functools.wraps(function)
        def call(*args, **kwargs):
            with again() as running:
                result = function(*args, **kwargs)
                return result if type(result) in PLAIN else with_rest(running, result)

    return call


def with_rest(running, result):
    """Returns what a function has returned in the task `running`. If that is a coroutine, the task ends with it."""
    if not _is_coroutine(result):
        return result
    steps = _native.rest(running, result)
    if steps is None:
        return result
    wrapper = _iterate if isinstance(result, types.GeneratorType) else _await
    rest = wrapper(steps, _Closing(result))
    for attribute in ("__name__", "__qualname__"):
        name = getattr(result, attribute, None)
        if isinstance(name, str):
            setattr(rest, attribute, name)
    return rest


def _is(kind, function):
    """Whether it is a function of this kind, or an object whose method `__call__` is."""
    return kind(function) or kind(getattr(type(function), "__call__", None))


def _is_iterable_coroutine_function(function):
    """Whether it is a generator function with the decorator `types.coroutine`."""
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return isinstance(function, types.FunctionType) and _is_iterable_coroutine(function.__code__)


def _is_iterable_coroutine(code):
    return bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _is_coroutine(result):
    if isinstance(result, types.GeneratorType):
        return _is_iterable_coroutine(result.gi_code)
    # Clients of HTTP return one that is a context manager too, for `async with`.
    return isinstance(result, Coroutine) and not hasattr(type(result), "__aenter__")


class _Closing:
    """Closes a coroutine whose wrapper has not begun: Python warns of the wrapper that nobody awaited it."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __del__(self):
        self.coroutine.close()


async def _await(awaitable, _closing=None):
    return await awaitable


@types.coroutine
def _iterate(steps, _closing):
    return (yield from steps)
