"""Prefect: each run of a task is a task of Emberline. In the module of the flow:

>>> import emberline.prefect                                    # doctest: +SKIP
>>> emberline.prefect.install()                                 # doctest: +SKIP

The process ships to EMBERLINE_URL or http://127.0.0.1:4747.
"""

from __future__ import annotations

import asyncio
import warnings

import anyio
from prefect.states import State
from prefect.task_engine import AsyncTaskRunEngine, SyncTaskRunEngine, TaskRunTimeoutError

import emberline
from emberline import _native, _tasks
from emberline._hooks import Hooks

__all__ = ["install", "uninstall"]

_hooks = Hooks()
_warned: set = set()


def install(collector=None, **settings) -> None:
    """Makes each run of a task in this process a task of Emberline: its name, the id of the task run as key, the attempt,
    its exception, and the id of the flow run as label. Starts an agent unless one runs.

    `collector` is the URL (default: EMBERLINE_URL, or http://127.0.0.1:4747); other settings are those of
    `emberline.start`. The flow goes on with one warning if an agent cannot start.
    """
    _hooks.replace(SyncTaskRunEngine, "call_task_fn", _call_of)
    _hooks.replace(AsyncTaskRunEngine, "call_task_fn", _call_async_of)
    _hooks.are_on = True
    if _native.mode() != "stopped":
        return
    labels = {"prefect": "runner", **(settings.pop("labels", None) or {})}
    try:
        emberline.start(collector=collector, labels=labels, **settings)
    except Exception as error:
        _warn_once(f"tasks of Prefect are not recorded: {error}")


def uninstall() -> None:
    """Undoes `install`; an agent goes on."""
    _hooks.remove()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"emberline: {text}", RuntimeWarning, stacklevel=3)


def _call_of(original, hooks):
    def call_task_fn(self, transaction):
        if not hooks.are_on or transaction.is_committed():
            return original(self, transaction)
        with _Run(self) as run:
            return run.note(original(self, transaction))

    return call_task_fn


def _call_async_of(original, hooks):
    async def call_task_fn(self, transaction):
        if not hooks.are_on or transaction.is_committed():
            return await original(self, transaction)
        with _Run(self) as run:
            return run.note(await original(self, transaction))

    return call_task_fn


class _Run:
    """One attempt. An error in it is a warning: the flow goes on."""

    def __init__(self, engine):
        self.engine = engine
        self.task = None
        self.error = None

    def __enter__(self):
        try:
            task = self._describe()
            task.__enter__()
            self.task = task
        except Exception as error:
            _warn_once(f"a task of Prefect was not recorded: {error!r}")
        return self

    def _describe(self):
        run = self.engine.task_run
        return emberline.task(
            self.engine.task.name or "task",
            key=run.id,
            attempt=_tasks.attempt_after(self.engine.retries),
            labels={"flow_run": str(run.flow_run_id)} if run.flow_run_id else None,
        )

    def note(self, result):
        """Takes note of the result, which may be a state, and returns it."""
        if isinstance(result, State) and result.is_failed():
            self.error = RuntimeError(result.message or result.name)
        elif self.task is not None:
            self.task.result_type(f"{type(result).__module__}.{type(result).__qualname__}")
        return result

    def __exit__(self, _class, error, _traceback):
        if self.task is None:
            return
        if isinstance(error, asyncio.CancelledError) and self._is_too_late():
            error = TaskRunTimeoutError(f"after {self.engine.task.timeout_seconds} s")
        try:
            self.task.__exit__(None, error or self.error, None)
        except Exception as problem:
            _warn_once(f"the end of a task of Prefect was not recorded: {problem!r}")

    def _is_too_late(self) -> bool:
        """Whether Prefect cancels the coroutine because of its time limit."""
        limit = self.engine.task.timeout_seconds
        return limit is not None and anyio.current_effective_deadline() <= anyio.current_time()
