"""Hooks while an agent runs: a task follows `await` in asyncio's event loop and work that is given to a thread pool."""

from __future__ import annotations

import sys

from . import _native

_scope = _native.scope_variable()
_originals: dict = {}


def _replace(owner, name, make) -> None:
    original = getattr(owner, name)
    replacement = make(original)
    _originals[owner, name] = original, replacement
    setattr(owner, name, replacement)


def _run_of(original):
    resume, suspend, scope_of = _native.resume, _native.suspend, _scope

    def _run(self):
        context = self._context
        before = resume(context.get(scope_of))
        try:
            original(self)
        finally:
            suspend(before, context.get(scope_of))

    return _run


def _submit_of(original):
    handle_for_pool = _native.handle_for_pool

    def submit(self, fn, /, *args, **kwargs):
        handle = handle_for_pool()
        if handle is None:
            return original(self, fn, *args, **kwargs)
        return original(self, handle.run, fn, *args, **kwargs)

    return submit


def install() -> None:
    """Installs the hooks, once."""
    if _originals:
        return
    import asyncio.events
    import concurrent.futures.thread

    _replace(asyncio.events.Handle, "_run", _run_of)
    _replace(concurrent.futures.thread.ThreadPoolExecutor, "submit", _submit_of)


def remove() -> None:
    """Removes the hooks; one that another library has replaced since stays."""
    for (owner, name), (original, replacement) in _originals.items():
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)
    _originals.clear()


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
