"""The schedulers of Dask in this process, and its pool of processes."""

from __future__ import annotations

from collections import Counter

from dask._task_spec import GraphNode
from dask.callbacks import Callback
from dask.sizeof import sizeof
from dask.utils import key_split

import emberline
from emberline import _native

from .. import pools
from . import _process


class TracedNode(GraphNode):
    """A node of a graph that is a task when a scheduler runs it, with all of its nested nodes. Its other attributes are
    those of the node."""

    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call
        self.key = call.key
        self._dependencies = call.func.dependencies

    def __call__(self, values=()):
        return self.call(values)

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "call").func, name)

    def __reduce__(self):
        return TracedNode, (self.call,)

    def __repr__(self):
        return repr(self.call.func)


class TracedCall(pools.Traced):
    """Calls a node."""

    def note_result(self, task, result):
        try:
            task.result_bytes(sizeof(result))
        except Exception as error:
            _process.warn_once(f"the size of a result of Dask was not recorded: {error!r}")
        task.result_type(f"{type(result).__module__}.{type(result).__qualname__}")
        return result


class Diagnostics(Callback):
    """`with Diagnostics():` makes each task of the schedulers `threads`, `processes` and `synchronous` a task of Emberline.

    An agent must run in this process (`emberline.start`). The processes of the pool start one each, with its settings.
    """

    def __init__(self):
        super().__init__(start_state=self._wrap)

    @staticmethod
    def _wrap(dsk, state) -> None:
        """Dask calls this before it computes `dsk`, a dict of that computation alone."""
        keys = [*state["ready"], *state["waiting"]]
        for key in keys:
            dsk[key] = TracedNode(TracedCall(dsk[key], key_split(key), key))
        for name, number in Counter(map(key_split, keys)).items():
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
