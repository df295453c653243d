"""Profiles of every thread, by task.

>>> import emberline
>>> with emberline.start("worker-1", flush_timeout=0.1):    # ships to EMBERLINE_URL, or http://127.0.0.1:4747
...     with emberline.task("load", key="load-17"):
...         total = sum(range(1000))
>>> @emberline.task("double")
... def double(number):
...     return 2 * number
>>> double(21)
42

While no agent runs, tasks and all else cost next to nothing.
"""

from __future__ import annotations

import atexit
import os
import warnings

from . import _hooks, _native
from ._native import (
    Report,
    ReportError,
    StartError,
    TaskHandle,
    current_task,
    expect,
    report_memory,
)
from ._native import Phase as phase
from ._native import Run as mark_run
from ._native import Transfer as transfer
from ._native import task

__all__ = [
    "Agent",
    "Report",
    "ReportError",
    "StartError",
    "TaskHandle",
    "current_task",
    "expect",
    "mark_run",
    "phase",
    "report",
    "report_memory",
    "start",
    "stop",
    "task",
    "transfer",
]


# Whether the program was warned that its Python functions are not shown.
_is_warned = False

# Of the last `start` of this process, for processes of pools.
_settings: dict | None = None


class Agent:
    """The running agent: `with start(...):` ends it, or `stop()`, or the end of the program."""

    __slots__ = ()

    @property
    def mode(self) -> str:
        """How much of this process the sampler can see; `stopped` if no agent runs."""
        return _native.mode()

    def stop(self) -> None:
        """Like `emberline.stop()`."""
        stop()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_error: object) -> None:
        stop()

    def __repr__(self) -> str:
        return f"<emberline.Agent, {self.mode}>"


def start(worker=None, collector=None, **settings) -> Agent:
    """Starts the agent of this process, which samples all threads and ships to a collector.

    `worker` is the id by which profiles are selected (default: host and process id), `collector` the URL (default:
    the variable EMBERLINE_URL, or http://127.0.0.1:4747). Further settings: `labels`, a mapping to texts or numbers; `token_file`;
    `interval` between two samples of a thread, in seconds (0.01); `cpu_limit`, the part of a processor that sampling
    may take (0.01, and 0.02 of what the process itself uses); `flush_timeout`, how long the end may take, in seconds (3); `default_task`, the task of threads
    that are in none.

    A forked child has an agent of its own, with the process id after the worker's name. The program never waits for a
    collector.

    Raises ValueError for a bad setting, and StartError if an agent runs already or the system refuses one.

    >>> agent = start("worker-2", labels={"zone": "a"}, flush_timeout=0.1)
    >>> start("worker-3")
    Traceback (most recent call last):
    ...
    emberline.StartError: an agent is already running in this process; one agent samples all its threads
    >>> agent.stop()
    >>> agent.mode
    'stopped'
    """
    global _settings
    if _is_recorded():
        # As for the agent that this one replaces: time outside of tasks is that of the command.
        settings.setdefault("default_task", _command())
    _warn_once(_native.find_interpreter("start"))
    _native.start(worker, collector, **settings)
    if settings.get("labels") is not None:
        # Sent to processes of pools, which other mappings may refuse.
        settings["labels"] = dict(settings["labels"])
    _settings = {"pid": os.getpid(), "worker": worker, "collector": collector, "others": settings}
    _hooks.install()
    return Agent()


def _is_recorded() -> bool:
    """Whether `emberline record` or `emberline run` has loaded an agent into this program."""
    return "libemberline_preload.so" in os.environ.get("LD_PRELOAD", "")


def _command() -> str:
    with open("/proc/self/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def _warn_once(problem) -> None:
    global _is_warned
    if problem is not None and not _is_warned:
        _is_warned = True
        warnings.warn(f"emberline: Python functions are not shown, only native ones: {problem}", stacklevel=3)


def stop() -> None:
    """Ends the agent after a last flush. Does nothing if none runs."""
    global _settings
    _settings = None
    _native.stop()
    _hooks.remove()


def _stop_at_exit() -> None:
    # The end of another interpreter of this process has no agent to end.
    if _settings is not None:
        stop()


def report(file) -> Report:
    """Writes a report of everything in the `with` block, or until `finish()`, as the HTML file `file` and as JSON next
    to it. The program `emberline` writes it: the one that the variable EMBERLINE_PROGRAM names, that this package has
    installed, or that is in PATH.

    It needs no `start`. An error at the end of the block is one line on standard error; `finish()` raises ReportError.
    """
    _name_program()
    _warn_once(_native.find_interpreter("report"))
    _hooks.install()
    return _native.report(file)


def _name_program() -> None:
    """Sets EMBERLINE_PROGRAM, unless it is set, to the program that came with this package: PATH has it only in an
    environment that is activated."""
    if os.environ.get("EMBERLINE_PROGRAM"):
        return
    import shutil
    import sysconfig

    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    installed = shutil.which("emberline", path=os.pathsep.join(folders))
    if installed:
        os.environ["EMBERLINE_PROGRAM"] = installed


def _after_fork() -> None:
    try:
        if _native.fork_in_child():
            _hooks.stop_with_multiprocessing(stop)
    except Exception as error:
        warnings.warn(f"emberline: no profile of the forked process {os.getpid()}: {error}", RuntimeWarning)


def load_ipython_extension(shell) -> None:
    """For `%load_ext emberline`; see `emberline.notebook`."""
    from . import notebook

    notebook.load(shell)


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_after_fork)
