"""The agent that all workers, and the scheduler, of one process share."""

from __future__ import annotations

import threading
import warnings

import emberline
from emberline import _native

# A nanny kills a worker that takes 4 s for its end, of which a lost collector would take 3 for the last flush.
FLUSH_S_MAX = 1.0

_lock = threading.Lock()
# Ids of workers and schedulers that use the agent which this module has started.
_users: set = set()
# The workers among them, and those that use the agent of the program.
_workers: set = set()
# The id of the agent that this module has started.
_agent: str | None = None
_warned: set = set()


def warn_once(text: str) -> None:
    """Warns of a problem, once in this process. The computation goes on."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"emberline: {text}", RuntimeWarning, stacklevel=3)


def address_of(server) -> str:
    """Returns the id of a worker or scheduler: its address without the protocol, as peers of transfers are named."""
    return server.address.partition("://")[2] or server.address


def start(user: str, labels: dict, settings: dict) -> None:
    """Starts the agent for `user`, unless this process has one."""
    global _agent
    with _lock:
        if labels["dask"] == "worker":
            _workers.add(user)
        if _native.mode() != "stopped":
            if _users:
                _users.add(user)
            return
        others = {"flush_timeout": FLUSH_S_MAX, **_without_labels(settings)}
        emberline.start(user, labels={**labels, **(settings.get("labels") or {})}, **others)
        _agent = user
        _users.add(user)


def is_worker_alone(user: str) -> bool:
    """Whether the agent has this worker's id, and no other worker uses it."""
    return _agent == user and len(_workers) == 1


def _without_labels(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if name != "labels"}


def stop(user: str) -> None:
    """Ends the agent after a last flush if `user` is the last one, and if `start` started it."""
    global _agent
    with _lock:
        _workers.discard(user)
        if user not in _users:
            return
        _users.discard(user)
        if not _users:
            _agent = None
            emberline.stop()
