"""Celery: each run of a task is a task of Emberline. In the module of the app:

>>> import emberline.celery                                     # doctest: +SKIP
>>> emberline.celery.install()                                  # doctest: +SKIP

Workers then start an agent, which ships to EMBERLINE_URL or http://127.0.0.1:4747.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import warnings

from celery import signals

import emberline
from emberline import _native, _tasks

__all__ = ["install", "uninstall"]

# When a producer with these hooks sent a task, in seconds since the Unix epoch.
SENT = "emberline_sent"

_settings: dict = {}
_running: dict = {}
_warned: set = set()


def install(collector=None, **settings) -> None:
    """Starts an agent in each worker of this app, and makes each run of a task a task of Emberline: its name, id, queue,
    attempt, and its exception. Also in producers, whose time of sending tells how long a task waited.

    `collector` is the URL (default: EMBERLINE_URL, or http://127.0.0.1:4747); other settings are those of
    `emberline.start`. A worker's id is its node name, with the process id for processes of the pool `prefork`. A worker
    that cannot have an agent works without, with one warning.
    """
    _settings.clear()
    _settings.update(settings)
    if collector is not None:
        _settings["collector"] = collector
    for signal, receiver in RECEIVERS:
        signal.connect(receiver, weak=False)


def uninstall() -> None:
    """Undoes `install`; an agent goes on."""
    for signal, receiver in RECEIVERS:
        signal.disconnect(receiver)


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"emberline: {text}", RuntimeWarning, stacklevel=3)


def _guarded(receiver):
    """Celery logs errors of receivers for each task; here the first is a warning."""

    def call(*args, **details):
        try:
            receiver(*args, **details)
        except Exception as error:
            _warn_once(f"a signal of Celery was not recorded: {error!r}")

    return call


@_guarded
def _worker_starts(sender=None, **_details) -> None:
    if _native.mode() == "stopped":
        labels = {"celery": "worker", **(_settings.get("labels") or {})}
        others = {name: value for name, value in _settings.items() if name != "labels"}
        emberline.start(str(sender), labels=labels, **others)


@_guarded
def _worker_ends(**_details) -> None:
    emberline.stop()


@_guarded
def _task_is_sent(headers=None, **_details) -> None:
    if isinstance(headers, dict):
        headers[SENT] = time.time()


def _follow_greenlets() -> None:
    """For the pools gevent and eventlet: a task stays with the greenlet that runs it."""
    module = sys.modules.get("greenlet")
    if module is not None and module.getcurrent().parent is not None:
        from . import greenlets

        greenlets.install()


@_guarded
def _task_starts(task_id=None, task=None, **_details) -> None:
    _follow_greenlets()
    request = task.request
    sent = getattr(request, SENT, None)
    delivery = request.delivery_info or {}
    queue = delivery.get("routing_key")
    run = emberline.task(
        task.name,
        key=task_id,
        attempt=_tasks.attempt_after(request.retries or 0),
        labels={"queue": queue} if queue else None,
        queued_for=max(time.time() - sent, 0.0) if isinstance(sent, (int, float)) else None,
    )
    run.__enter__()
    # A task that is delivered twice may run twice at a time.
    _running[task_id, threading.get_ident()] = run


@_guarded
def _task_ends(task_id=None, state=None, retval=None, **_details) -> None:
    run = _running.pop((task_id, threading.get_ident()), None)
    if run is None:
        return
    error = None
    if state == "FAILURE":
        error = retval if isinstance(retval, BaseException) else RuntimeError(str(retval))
    elif state == "RETRY":
        # Of a retry without an exception it is known only that the task comes again.
        error = getattr(retval, "exc", None) or asyncio.CancelledError()
    elif state == "SUCCESS":
        run.result_type(f"{type(retval).__module__}.{type(retval).__qualname__}")
    else:
        # Ignored or rejected, or a `BaseException`.
        error = asyncio.CancelledError()
    run.__exit__(None, error, None)


RECEIVERS = (
    (signals.celeryd_after_setup, _worker_starts),
    (signals.worker_process_shutdown, _worker_ends),
    (signals.worker_shutdown, _worker_ends),
    (signals.before_task_publish, _task_is_sent),
    (signals.task_prerun, _task_starts),
    (signals.task_postrun, _task_ends),
)
