"""Hooks while an agent runs: a task follows `await` in asyncio's event loop and work that is given to a thread pool."""

from __future__ import annotations

import contextvars
import functools
import sys

from . import _native


class Hooks:
    """Functions of other modules that are replaced. A replacement calls the original one unless `are_on`: one that another
    library has wrapped since stays where it is, and works again when the hooks are installed again."""

    _every: list[Hooks] = []

    def __init__(self):
        self.are_on = False
        self._replaced = {}
        self._every.append(self)

    def replace(self, owner, name, make) -> None:
        """Replaces a function of `owner` by what `make(original, self)` returns, unless that is in place."""
        current = getattr(owner, name)
        original, _ = self._replaced.get((owner, name), (current, None))
        if original is current:
            replacement = functools.wraps(original)(make(original, self))
            self._replaced[owner, name] = original, replacement
            setattr(owner, name, replacement)

    def remove(self) -> None:
        """Turns the replacements off, and takes out those of all hooks that are off and outermost."""
        self.are_on = False
        while any([hooks._take_out() for hooks in self._every if not hooks.are_on]):
            pass

    def _take_out(self) -> bool:
        outermost = [key for key, (_, replacement) in self._replaced.items() if getattr(*key) is replacement]
        for owner, name in outermost:
            setattr(owner, name, self._replaced.pop((owner, name))[0])
        return bool(outermost)


def _run_of(original, hooks):
    resume, suspend = _native.resume, _native.suspend

    def _run(self):
        if not hooks.are_on:
            return original(self)
        context = self._context
        mark = resume(context)
        try:
            original(self)
        finally:
            suspend(mark, context)

    return _run


def _create_task_of(original, hooks):
    next_mark, leave_since = _native.next_mark, _native.leave_since

    def create_task(self, *args, **options):
        if not hooks.are_on:
            return original(self, *args, **options)
        mark = next_mark()
        task = original(self, *args, **options)
        # An eager task has run until it waits.
        if next_mark() != mark:
            context_of = getattr(task, "get_context", contextvars.copy_context)
            leave_since(mark, context_of())
        return task

    return create_task


def _submit_of(original, hooks):
    handle_for_pool = _native.handle_for_pool

    def submit(self, fn, /, *args, **kwargs):
        handle = handle_for_pool() if hooks.are_on else None
        if handle is None:
            return original(self, fn, *args, **kwargs)
        return original(self, handle.run, fn, *args, **kwargs)

    return submit


_hooks = Hooks()


def install() -> None:
    """Installs the hooks."""
    import asyncio.base_events
    import asyncio.events
    import concurrent.futures.thread

    _hooks.replace(asyncio.events.Handle, "_run", _run_of)
    _hooks.replace(asyncio.base_events.BaseEventLoop, "create_task", _create_task_of)
    _hooks.replace(concurrent.futures.thread.ThreadPoolExecutor, "submit", _submit_of)
    _hooks.are_on = True


def remove() -> None:
    """Removes the hooks, unless a task may still be recorded."""
    if not _native.is_active():
        _hooks.remove()


def stop_with_multiprocessing(stop) -> None:
    """Ends the agent of a child of multiprocessing, which leaves without `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def add_finalizer(_owner) -> None:
        util.Finalize(None, stop, exitpriority=-1_000)

    # The child is about to clear the finalizers of its parent, and calls these functions afterwards.
    util.register_after_fork(stop, add_finalizer)


def stop_at_exit_of_multiprocessing(stop) -> None:
    """Ends the agent of a process that an agent was started in later: a child of multiprocessing leaves without `atexit`."""
    from multiprocessing import util

    util.Finalize(None, stop, exitpriority=-1_000)
