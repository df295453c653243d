"""A report of a computation, as one HTML file."""

from __future__ import annotations

import contextlib

import emberline
from emberline import _native

from . import _process, _program


@contextlib.contextmanager
def report(file, *, client=None, collector=None, **settings):
    """Writes a report of all workers, the scheduler and this process during the `with` block, as the HTML file `file` and
    as JSON next to it. The program `emberline` writes it, which must be in PATH or named by EMBERLINE_PROGRAM.

    `client` is the client of the cluster (default: the current one). With `collector`, the URL of one that runs, or with
    an agent in this process, the report is of that collector's fleet during the block. Otherwise a collector runs for
    the block, on this machine: workers on others need `collector`. Further settings are those of `Plugin`.

    Raises FileNotFoundError without the program, ReportError if there is no report, and TypeError for an asynchronous
    client.
    """
    from distributed import get_client

    client = client or get_client()
    if client.asynchronous:
        raise TypeError("the client of Dask is asynchronous; a report needs one that is not")
    if collector is not None or _native.mode() != "stopped":
        with _of_fleet(file, client, collector, settings):
            yield
        return
    try:
        child = _program.Child(["record", "-o", str(file)], r"^(\S+)$")
    except RuntimeError as error:
        raise emberline.ReportError(str(error)) from error
    try:
        with _agent(child.url), _plugin(client, child.url, settings):
            yield
    finally:
        try:
            child.finish()
        except RuntimeError as error:
            raise emberline.ReportError(str(error)) from error


@contextlib.contextmanager
def _of_fleet(file, client, collector, settings):
    with contextlib.ExitStack() as stack:
        if _native.mode() == "stopped":
            stack.enter_context(_agent(collector))
        if collector is not None:
            stack.enter_context(_plugin(client, collector, settings))
        guard = emberline.report(file)
        try:
            yield
        finally:
            guard.finish()


@contextlib.contextmanager
def _agent(collector):
    _process.start("report", {"dask": "client"}, {"collector": collector})
    try:
        yield
    finally:
        _process.stop("report")


@contextlib.contextmanager
def _plugin(client, collector, settings):
    from ._scheduler import stop
    from ._worker import Plugin

    client.register_plugin(Plugin(collector, **settings))
    try:
        yield
    finally:
        client.unregister_worker_plugin(Plugin.name)
        client.run_on_scheduler(stop)
