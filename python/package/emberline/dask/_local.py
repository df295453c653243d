"""The schedulers of Dask in this process, and its pool of processes."""

from __future__ import annotations

from collections import Counter

from dask._task_spec import Task
from dask.callbacks import Callback
from dask.sizeof import sizeof
from dask.utils import key_split

import emberline

from .. import pools


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
