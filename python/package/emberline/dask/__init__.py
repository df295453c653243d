"""Dask: each task of Dask is a task of Emberline.

>>> client.register_plugin(emberline.dask.Plugin("http://127.0.0.1:4747"))     # doctest: +SKIP
>>> with emberline.dask.Diagnostics():                                          # doctest: +SKIP
...     array.sum().compute(scheduler="threads")
>>> with emberline.dask.report("report.html"):                                  # doctest: +SKIP
...     array.sum().compute()

Or set EMBERLINE_URL on the workers, and `distributed.worker.preload: emberline.dask` in Dask's configuration.
"""

from __future__ import annotations

__all__ = ["Diagnostics", "Plugin", "report"]

_MODULES = {"Diagnostics": "_local", "Plugin": "_worker", "report": "_report"}


def __getattr__(name):
    """Imports `distributed` only for the names that need it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)


async def dask_setup(server) -> None:
    """Called by Dask for a module in `distributed.worker.preload` or `distributed.scheduler.preload`."""
    from distributed import Scheduler, Worker

    from . import _scheduler, _worker

    if isinstance(server, Worker):
        await server.plugin_add(_worker.Plugin(), name=_worker.Plugin.name)
    elif isinstance(server, Scheduler):
        plugin = _scheduler.SchedulerPlugin({})
        await plugin.start(server)
        server.add_plugin(plugin, name=plugin.name, idempotent=True)
