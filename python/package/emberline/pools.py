"""Pools of threads and processes: each call is a task, named by its function.

>>> import emberline.pools
>>> from concurrent.futures import ThreadPoolExecutor
>>> emberline.pools.install()
>>> with ThreadPoolExecutor() as pool:
...     list(pool.map(abs, [-1, 2]))
[1, 2]
>>> emberline.pools.uninstall()

`traced(function)` does the same for one function, in any pool that pickles it: joblib's, Ray's, one of your own.
"""

from __future__ import annotations

import contextvars
import functools
import os
import threading

import emberline
from emberline import _native, _tasks
from emberline._hooks import Hooks

__all__ = ["Traced", "install", "traced", "uninstall"]

_lock = threading.Lock()
_hooks = Hooks()
# Methods of `multiprocessing.Pool` whose first argument is the function.
POOL_METHODS = ("apply_async", "map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered")


def name_of(function) -> str:
    """Returns the name of a task that calls `function`."""
    while isinstance(function, functools.partial):
        # `asyncio.to_thread` calls `Context.run`.
        is_run = getattr(function.func, "__name__", "") == "run" and function.args and callable(function.args[0])
        function = function.args[0] if is_run else function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _is_runner(function) -> bool:
    """Whether it runs its first argument: a method `run` of a context or of a handle."""
    owner = getattr(function, "__self__", None)
    return isinstance(owner, (contextvars.Context, emberline.TaskHandle)) and function.__name__ == "run"


class Traced:
    """A function whose calls are tasks, in this process and in those that it is pickled to.

    A process without an agent starts one, with the settings of the process that made this."""

    def __init__(self, func, name=None, key=None):
        self.func = func
        self.is_runner = name is None and _is_runner(func)
        self.name = name or name_of(func)
        self.key = key
        self.settings = emberline._settings
        functools.update_wrapper(self, func, updated=())

    def __call__(self, *args, **kwargs):
        if self.is_runner and args and callable(args[0]):
            return self.func(type(self)(args[0], key=self.key), *args[1:], **kwargs)
        if self.settings is not None and _native.mode() == "stopped":
            start_in_child(self.settings)
        with emberline.task(self.name, key=self.key) as task:
            return _tasks.with_rest(task, self.note_result(task, self.func(*args, **kwargs)))

    def note_result(self, _task, result):
        return result

    def __reduce__(self):
        return _rebuilt, (type(self), self.func, self.name, self.key, self.settings)


def _rebuilt(kind, func, name, key, settings):
    traced = kind(func, name, key)
    traced.settings = settings
    return traced


def traced(function, name=None) -> Traced:
    """Makes each call of `function` a task, by default of the function's name."""
    return Traced(function, name)


# The process that has tried to start an agent.
_tried = None


def start_in_child(settings: dict) -> None:
    """Starts the agent of a process of a pool, once. An error is a warning: the pool works on."""
    global _tried
    with _lock:
        if _tried == os.getpid() or settings["pid"] == os.getpid():
            return
        _tried = os.getpid()
        worker = settings["worker"]
        try:
            emberline.start(worker and f"{worker}-{os.getpid()}", settings["collector"], **settings["others"])
            emberline._hooks.stop_at_exit_of_multiprocessing(emberline.stop)
        except Exception as error:
            import warnings

            warnings.warn(f"emberline: no profile of the process {os.getpid()}: {error}", RuntimeWarning)


def _traced_in(hooks, function):
    return Traced(function) if hooks.are_on and not isinstance(function, Traced) else function


def _submit_of(original, hooks):
    def submit(self, fn, /, *args, **kwargs):
        return original(self, _traced_in(hooks, fn), *args, **kwargs)

    return submit


def _process_map_of(original, hooks):
    # It calls `submit` with a function of its own that calls `fn` for each item of a chunk.
    def map(self, fn, *iterables, **options):
        return original(self, _traced_in(hooks, fn), *iterables, **options)

    return map


def _process_submit_of(original, hooks):
    def submit(self, fn, /, *args, **kwargs):
        is_chunk = isinstance(fn, functools.partial) and getattr(fn.func, "__name__", "") == "_process_chunk"
        return original(self, fn if is_chunk else _traced_in(hooks, fn), *args, **kwargs)

    return submit


def _pool_method_of(original, hooks):
    def call(self, func, *args, **kwargs):
        # `Pool.map` with chunks and `Pool.apply` pass what these methods have wrapped.
        return original(self, _traced_in(hooks, func), *args, **kwargs)

    return call


def install() -> None:
    """Makes each call in a `ThreadPoolExecutor`, a `ProcessPoolExecutor` or a `multiprocessing.Pool` a task, from now on.

    Call it after `emberline.start`, whose settings the processes of pools take over."""
    import concurrent.futures.process
    import concurrent.futures.thread
    import multiprocessing.pool

    _hooks.replace(concurrent.futures.thread.ThreadPoolExecutor, "submit", _submit_of)
    _hooks.replace(concurrent.futures.process.ProcessPoolExecutor, "submit", _process_submit_of)
    _hooks.replace(concurrent.futures.process.ProcessPoolExecutor, "map", _process_map_of)
    for name in POOL_METHODS:
        _hooks.replace(multiprocessing.pool.Pool, name, _pool_method_of)
    _hooks.are_on = True


def uninstall() -> None:
    """Undoes `install`."""
    _hooks.remove()
