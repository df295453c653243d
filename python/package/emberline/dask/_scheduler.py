"""The plug-in of the scheduler: an agent in its process, and how many tasks new graphs have, for progress."""

from __future__ import annotations

import socket
import weakref
from collections import Counter

from distributed.diagnostics.plugin import SchedulerPlugin as Base

import emberline

from . import _process
from ._process import warn_once

# States of tasks that do not run again for a new graph.
DONE = frozenset(["memory", "erred"])


class SchedulerPlugin(Base):
    name = "emberline-scheduler"
    idempotent = True

    def __init__(self, settings: dict):
        self.settings = settings
        self.id = None
        # Graphs contain tasks of earlier graphs.
        self._counted: weakref.WeakSet = weakref.WeakSet()

    def __getstate__(self):
        return {**self.__dict__, "_counted": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _counted=weakref.WeakSet())

    async def start(self, scheduler) -> None:
        """Never waits, so that a second worker that registers the plug-in finds it registered."""
        if self.id is not None:
            return
        address = _process.address_of(scheduler)
        labels = {"dask": "scheduler", "scheduler": scheduler.address, "host": socket.gethostname()}
        try:
            _process.start(address, labels, self.settings)
            self.id = address
        except Exception as error:
            warn_once(f"the scheduler of Dask is not profiled: {error}")

    def update_graph(self, scheduler, *, tasks, **_details) -> None:
        try:
            states = [state for state in map(scheduler.tasks.get, tasks) if self._is_new(state)]
            self._counted.update(states)
            for name, number in Counter(state.prefix.name for state in states).items():
                emberline.expect(name, number)
        except Exception as error:
            warn_once(f"the progress of Dask has no totals: {error!r}")

    def _is_new(self, state) -> bool:
        return state is not None and state.state not in DONE and state not in self._counted

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the agent of the scheduler's process, if this started it."""
        if self.id is not None:
            _process.stop(self.id)
            self.id = None


def stop(dask_scheduler) -> None:
    """Removes the plug-in: for `Client.run_on_scheduler`."""
    plugin = dask_scheduler.plugins.get(SchedulerPlugin.name)
    if plugin is not None:
        dask_scheduler.remove_plugin(SchedulerPlugin.name)
        plugin.stop()
