"""RQ: each run of a job is a task of Emberline: `rq worker --worker-class emberline.rq.Worker`.

The worker ships to EMBERLINE_URL or http://127.0.0.1:4747. Its id is the worker's name, with the process id for the
process of each job.
"""

from __future__ import annotations

import os
import time
import warnings

import rq

import emberline
from emberline import _native

__all__ = ["SimpleWorker", "Worker"]


class _Profiled:
    def work(self, *args, **options):
        """Works with an agent, or without one after a warning."""
        try:
            emberline.start(self.name, labels={"rq": "worker"})
        except Exception as error:
            warnings.warn(f"emberline: the worker {self.name} is not profiled: {error}", RuntimeWarning, stacklevel=2)
        try:
            return super().work(*args, **options)
        finally:
            emberline.stop()

    def perform_job(self, job, *others, **options):
        if _native.mode() != "stopped":
            job.perform = _traced(job)
        try:
            return super().perform_job(job, *others, **options)
        finally:
            # The process of a job leaves without `atexit`.
            if os.getpid() != self.pid:
                emberline.stop()


def _traced(job):
    """Returns the job's function as a task. RQ calls it once, and takes note of its exception."""
    perform = job.perform

    def call():
        queued_for = None
        if job.enqueued_at is not None:
            queued_for = max(time.time() - job.enqueued_at.timestamp(), 0.0)
        labels = {"queue": job.origin}
        with emberline.task(job.func_name, key=job.id, labels=labels, queued_for=queued_for) as task:
            result = perform()
            task.result_type(f"{type(result).__module__}.{type(result).__qualname__}")
            return result

    return call


class Worker(_Profiled, rq.Worker):
    """A worker that forks for each job."""


class SimpleWorker(_Profiled, rq.SimpleWorker):
    """A worker that runs jobs in its own process."""
