"""The schedulers of Dask in this process, and its pool of processes."""

from __future__ import annotations

from collections import Counter

from dask._task_spec import Task
from dask.callbacks import Callback
from dask.sizeof import sizeof
from dask.utils import key_split

import emberline
from emberline import _native

from .. import pools
from . import _process


class TracedTask(pools.Traced):
    """The function of a task."""

    def note_result(self, task, result):
        task.result_bytes(sizeof(result))
        task.result_type(f"{type(result).__module__}.{type(result).__qualname__}")
        return result


class Diagnostics(Callback):
    """`with Diagnostics():` makes each task of the schedulers `threads`, `processes` and `synchronous` a task of Emberline.

    An agent must run in this process (`emberline.start`). The processes of the pool start one each, with its settings.
    """

    def __init__(self):
        super().__init__(start_state=self._wrap)

    @staticmethod
    def _wrap(dsk, _state) -> None:
        """Dask calls this before it computes `dsk`, a dict of that computation alone."""
        tasks = [(key, task) for key, task in dsk.items() if type(task) is Task]
        for key, task in tasks:
            wrapped = task.copy()
            wrapped.func = TracedTask(task.func, key_split(key), key)
            dsk[key] = wrapped
        for name, number in Counter(key_split(key) for key, _ in tasks).items():
            emberline.expect(name, number)


class _Everywhere(Diagnostics):
    """Of a program that does not know of Emberline: the agent starts with the first computation."""

    @staticmethod
    def _wrap(dsk, state) -> None:
        try:
            if _native.mode() == "stopped":
                emberline.start()
        except Exception as error:
            _process.warn_once(f"Dask's tasks are not recorded: {error}")
        else:
            Diagnostics._wrap(dsk, state)


def install() -> None:
    """Makes each task of the schedulers of this process a task of Emberline from now on."""
    _Everywhere().register()
