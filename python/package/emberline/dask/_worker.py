"""The plug-in of a worker. It replaces no function of Dask, only containers that Dask fills at the start and the end of
each task, on the thread that runs it, and after each transfer, and the worker's entry for calls of actors."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
import traceback
from collections import OrderedDict, deque

from dask.utils import key_split
from distributed import Reschedule
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import iscoroutinefunction
from tornado.ioloop import PeriodicCallback

import emberline
from emberline import _tasks

from . import _process
from ._process import warn_once

MEMORY_INTERVAL_MS = 500
# Keys whose failures a worker counts, for the numbers of attempts.
FAILED_KEYS_MAX = 10_000
EARLIER_PHASES_MAX = 16
# The worker's handler for calls of actors.
ACTOR_CALL = "actor_execute"
# Exceptions that are looked at for that of a task.
CONTEXTS_MAX = 100
# A scheduler that does not answer for so long is used without its half of the plug-in.
REGISTRATION_S_MAX = 10


class TaskHooks:
    """Begins and ends tasks of one worker. An error in it is a warning: the computation goes on."""

    def __init__(self, worker):
        self.worker = worker
        self.id = _process.address_of(worker)
        self.is_on = True
        self.running: dict = {}
        self.failures: OrderedDict = OrderedDict()
        self.type_names: dict = {}

    def begin(self, where, key) -> None:
        """Begins the task `key`, which runs on the calling thread. `where` identifies it until its end."""
        if not self.is_on:
            return
        try:
            # Dask leaves the entry of an actor's method that raised, or of a task that raised SystemExit.
            self.exit(where, RuntimeError("the thread went on before Dask had the exception"))
            task = self._describe(key)
            task.__enter__()
            self.running[where] = task
        except Exception as error:
            warn_once(f"a task of Dask was not recorded: {error!r}")

    def _describe(self, key):
        state = self.worker.state.tasks.get(key)
        if state is None:
            # A method of an actor: Dask has no key for the call.
            return emberline.task(str(key) or "actor", labels=self._labels(None))
        failures = self.failures.get(key)
        return emberline.task(
            state.prefix or "task",
            key=key,
            attempt=_tasks.attempt_after(failures) if failures else None,
            labels=self._labels((state.annotations or {}).get("span")),
            earlier_phases=self._phases_before(state.startstops) if state.startstops else (),
        )

    def _labels(self, span):
        labels = {} if _process.is_worker_alone(self.id) else {"dask_worker": self.id}
        if span:
            labels["span"] = "/".join(span["name"])
        return labels or None

    def _phases_before(self, startstops) -> list:
        """Returns what Dask did for the task since it last ran: transfers of inputs, and their reads from disk."""
        now = time.time()
        phases: list = []
        for interval in reversed(startstops):
            action = interval["action"]
            if action == "compute" or len(phases) == EARLIER_PHASES_MAX:
                break
            # The times of transfers are by the scheduler's clock.
            delay = self.worker.scheduler_delay if action == "transfer" else 0
            ago = now - (interval["start"] - delay)
            length = interval["stop"] - interval["start"]
            phases.append((action, max(ago, 0.0), max(length, 0.0)))
        return phases

    def end_by_error(self, key, error) -> None:
        """Ends a task on a thread that Dask left by `error`, for example because the text of the task's own exception
        raised another one: then Dask does not delete the thread's key."""
        with self.worker.active_threads_lock:
            threads = [thread for thread, active in self.worker.active_threads.items() if active == key]
        for thread in threads:
            self.end(thread, key, error)

    def end(self, where, key, result) -> None:
        """Ends a task with what Dask knows of its end: a dict, or the exception that Dask itself raised."""
        task = self.running.pop(where, None)
        if task is None:
            return
        error = None
        try:
            if isinstance(result, dict):
                error = result.get("actual_exception")
                if error is None:
                    self._set_result(task, result)
            elif isinstance(result, BaseException):
                error = _of_task(result)
            if isinstance(error, Reschedule):
                error = asyncio.CancelledError()
            elif error is not None:
                self._count_failure(key)
        except Exception as problem:
            warn_once(f"the result of a task of Dask was not recorded: {problem!r}")
        self._exit(task, error)

    def fail_unstarted(self, key) -> None:
        """Records a task that Dask could not start, such as one whose inputs cannot be read back from disk."""
        state = self.worker.state.tasks.get(key)
        if state is None or key in self.failures or not self.is_on:
            return
        cause = getattr(state.exception, "data", None)
        task = self._describe(key)
        task.__enter__()
        self._exit(task, cause if isinstance(cause, Exception) else RuntimeError(state.exception_text))

    def _set_result(self, task, result) -> None:
        size = result.get("nbytes")
        if size is not None:
            task.result_bytes(size)
        kind = result.get("type")
        if kind is not None:
            task.result_type(self.type_name(kind))

    def type_name(self, kind) -> str:
        name = self.type_names.get(kind)
        if name is None:
            name = f"{kind.__module__}.{kind.__qualname__}"
            # Classes that tasks make are not kept alive in ever larger numbers.
            if len(self.type_names) < 1_000:
                self.type_names[kind] = name
        return name

    def _count_failure(self, key) -> None:
        self.failures[key] = self.failures.get(key, 0) + 1
        if len(self.failures) > FAILED_KEYS_MAX:
            self.failures.popitem(last=False)

    def cancel(self, where) -> None:
        self.exit(where, asyncio.CancelledError())

    def exit(self, where, error) -> None:
        """Ends a task, if it runs, by `error`, or as completed."""
        task = self.running.pop(where, None)
        if task is not None:
            self._exit(task, error)

    def _exit(self, task, error) -> None:
        try:
            task.__exit__(None, error, None)
        except Exception as problem:
            warn_once(f"the end of a task of Dask was not recorded: {problem!r}")


def _of_task(error: BaseException) -> BaseException:
    """Returns the exception of the task itself, where Dask's work on its text raised `error`."""
    at = error.__context__
    for _ in range(CONTEXTS_MAX):
        if at is None:
            break
        frame = at.__traceback__ and at.__traceback__.tb_frame
        if frame and frame.f_code.co_name in ("_run_task_simple", "_run_task_async"):
            return at
        at = at.__context__
    return error


class ActiveThreads(dict):
    """`Worker.active_threads`. Dask sets the key of a thread, on that thread, when a task begins, and deletes it at the
    task's end."""

    def __init__(self, hooks: TaskHooks, earlier: dict):
        super().__init__()
        self.hooks = hooks
        # Tasks that run since before delete their keys there.
        self.earlier = earlier
        # Of each thread the id of the frame that began its task.
        self.frames: dict = {}

    def __setitem__(self, thread, key):
        super().__setitem__(thread, key)
        self.frames[thread] = id(sys._getframe(1))
        self.hooks.begin(thread, key)

    def __delitem__(self, thread):
        key = self.get(thread)
        super().__delitem__(thread)
        if thread in self.hooks.running:
            # `_run_task` has its result in `msg`; `_run_actor` has none there.
            self.hooks.end(thread, key, sys._getframe(1).f_locals.get("msg"))

    def __missing__(self, thread):
        return self.earlier[thread]

    def copy(self):
        return {**self.earlier, **self}

    def items(self):
        return self.copy().items() if self.earlier else super().items()


class ActiveKeys(set):
    """`Worker.active_keys`, to which Dask adds a key, on the event loop, before it runs a task by any executor, and from
    which it discards the key afterwards. Counts for coroutines and for pools of processes."""

    def __init__(self, hooks: TaskHooks, earlier: set):
        super().__init__(earlier)
        self.hooks = hooks

    def add(self, key):
        super().add(key)
        if self._is_on_loop(key):
            self.hooks.begin(("loop", key), key)

    def discard(self, key):
        super().discard(key)
        where = ("loop", key)
        if where in self.hooks.running:
            self.hooks.end(where, key, sys.exc_info()[1] or sys._getframe(1).f_locals.get("result"))
        elif isinstance(sys.exc_info()[1], Exception):
            self.hooks.end_by_error(key, sys.exc_info()[1])

    def _is_on_loop(self, key) -> bool:
        worker = self.hooks.worker
        state = worker.state.tasks.get(key)
        if state is None:
            return False
        if getattr(state.run_spec, "is_coro", False):
            return True
        executor = worker.executors.get((state.annotations or {}).get("executor", "default"))
        # As Dask decides itself.
        return "ThreadPoolExecutor" not in str(type(executor))


class ActorCalls:
    """The worker's handler for calls of actors, around that of Dask. It begins and ends methods that run on the event
    loop, and ends those that raised on a thread: Dask does not delete the thread's key then."""

    def __init__(self, hooks: TaskHooks):
        self.hooks = hooks
        self.handlers = hooks.worker.handlers
        self.original = self.handlers[ACTOR_CALL]

    def install(self) -> None:
        self.handlers[ACTOR_CALL] = self.call

    def remove(self) -> None:
        if self.handlers.get(ACTOR_CALL) == self.call:
            self.handlers[ACTOR_CALL] = self.original

    async def call(self, **request):
        where = ("actor", object())
        name = self._name_on_loop(**request)
        if name:
            self.hooks.begin(where, name)
        try:
            reply = await self.original(**request)
            error = getattr(reply.get("exception"), "data", None)
            self.hooks.exit(where if name else self._thread_of(error), error)
            return reply
        finally:
            self.hooks.cancel(where)

    def _name_on_loop(self, actor=None, function=None, kwargs=None, **_others):
        """Returns the name of the method if Dask calls it on the event loop."""
        instance = self.hooks.worker.state.actors.get(actor)
        method = getattr(type(instance), str(function), None)
        has_thread = (kwargs or {}).get("separate_thread", True) and not iscoroutinefunction(method)
        return None if has_thread else f"{key_split(actor)}.{function}"

    def _thread_of(self, error):
        """Returns the thread whose method raised `error`."""
        frames = self.hooks.worker.active_threads.frames
        for frame, _ in traceback.walk_tb(getattr(error, "__traceback__", None)):
            if frame.f_code.co_name == "_run_actor":
                return next((thread for thread, known in frames.copy().items() if known == id(frame)), None)
        return None


class TransferLog(deque):
    """`Worker.transfer_incoming_log` or `transfer_outgoing_log`, to which Dask appends each finished transfer."""

    def __init__(self, earlier: deque, hooks: TaskHooks, direction: str):
        super().__init__(earlier, earlier.maxlen)
        self.hooks = hooks
        self.direction = direction

    def append(self, entry):
        super().append(entry)
        if self.hooks.is_on:
            try:
                self._record(entry)
            except Exception as error:
                warn_once(f"a transfer of Dask was not recorded: {error!r}")

    def _record(self, entry) -> None:
        who = entry["who"] or "client"
        keys = entry["keys"]
        transfer = emberline.transfer(
            self.direction,
            who.partition("://")[2] or who,
            keys=list(keys),
            type_name=self._common_type(keys),
            lasted=max(entry["stop"] - entry["start"], 0.0),
        )
        with transfer:
            transfer.add_bytes(int(entry["total"]))
            compressed = entry.get("compressed")
            if isinstance(compressed, int) and compressed > 0:
                transfer.add_compressed_bytes(compressed)

    def _common_type(self, keys):
        """Returns the type of all values, as far as this worker has them."""
        tasks = self.hooks.worker.state.tasks
        kinds = {getattr(tasks.get(key), "type", None) for key in keys}
        kind = kinds.pop() if len(kinds) == 1 else None
        return None if kind is None else self.hooks.type_name(kind)


class Attachment:
    """A worker with hooks."""

    def __init__(self, worker, settings: dict):
        self.worker = worker
        self.hooks = TaskHooks(worker)
        self.id = self.hooks.id
        self.settings = settings
        self.actor_calls = ActorCalls(self.hooks)
        self.memory = PeriodicCallback(self.report_memory, MEMORY_INTERVAL_MS)

    def labels(self) -> dict:
        return {
            "dask": "worker",
            "name": str(self.worker.name),
            "host": socket.gethostname(),
            "scheduler": self.worker.scheduler.address,
            "nanny": self.worker.nanny or "none",
        }

    async def start(self) -> None:
        # The start waits for threads of the agent: not on the event loop.
        await asyncio.to_thread(_process.start, self.id, self.labels(), self.settings)
        self.replace_containers()
        self.memory.start()

    def replace_containers(self) -> None:
        worker, hooks = self.worker, self.hooks
        with worker.active_threads_lock:
            worker.active_threads = ActiveThreads(hooks, worker.active_threads)
        worker.active_keys = ActiveKeys(hooks, worker.active_keys)
        worker.transfer_incoming_log = TransferLog(worker.transfer_incoming_log, hooks, "incoming")
        worker.transfer_outgoing_log = TransferLog(worker.transfer_outgoing_log, hooks, "outgoing")
        self.actor_calls.install()

    def stop_dask_profiler(self) -> None:
        for name in ("profile", "profile-cycle"):
            callback = self.worker.periodic_callbacks.pop(name, None)
            if callback is not None:
                callback.stop()

    def report_memory(self) -> None:
        try:
            spilled = getattr(self.worker.data, "spilled_total", None)
            in_memory = self.worker.state.nbytes - (spilled.memory if spilled else 0)
            emberline.report_memory(max(in_memory, 0), spilled.disk if spilled else 0)
        except Exception as error:
            warn_once(f"the memory of a worker of Dask was not recorded: {error!r}")

    async def stop(self) -> None:
        """Records no further tasks, and flushes. The containers stay: running tasks use them."""
        self.memory.stop()
        self.hooks.is_on = False
        self.actor_calls.remove()
        await asyncio.to_thread(_process.stop, self.id)


def _missing_parts(worker) -> list:
    """Returns the attributes that another version of Dask lacks."""
    expected = {
        "active_threads": dict,
        "active_keys": set,
        "transfer_incoming_log": deque,
        "transfer_outgoing_log": deque,
    }
    missing = [name for name, kind in expected.items() if not isinstance(getattr(worker, name, None), kind)]
    return missing if ACTOR_CALL in worker.handlers else [*missing, f"handlers[{ACTOR_CALL!r}]"]


class Plugin(WorkerPlugin):
    """Gives each worker of a cluster an agent: `client.register_plugin(emberline.dask.Plugin("http://…"))`.

    `collector` is the URL (default: EMBERLINE_URL on the worker, or http://127.0.0.1:4747). A worker's id is its address
    without the protocol; its name, host and scheduler are labels. `dask_profiler=False` ends Dask's own sampling.
    `scheduler=False` starts no agent in the scheduler, which counts the tasks of new graphs for progress. Other settings
    are those of `emberline.start`; `flush_timeout` is 1 by default, so that workers end in time for their nanny.

    The computation goes on without a profile, with one warning, where an agent cannot start.
    """

    name = "emberline"

    def __init__(self, collector=None, *, dask_profiler: bool = True, scheduler: bool = True, **settings):
        self.settings = settings if collector is None else {"collector": collector, **settings}
        self.dask_profiler = dask_profiler
        self.scheduler = scheduler
        self._attached: dict = {}

    def __getstate__(self):
        return {**self.__dict__, "_attached": {}}

    async def setup(self, worker) -> None:
        try:
            await self._attach(worker)
        except Exception as error:
            warn_once(f"the worker {worker.address} of Dask is not profiled: {error}")

    async def _attach(self, worker) -> None:
        missing = _missing_parts(worker)
        if missing:
            return warn_once(f"this version of Dask has no Worker.{missing[0]}: its tasks are not recorded")
        if isinstance(worker.active_threads, ActiveThreads) and worker.active_threads.hooks.is_on:
            return warn_once("a worker of Dask has two plug-ins of Emberline; the first one is in use")
        attachment = Attachment(worker, self.settings)
        await attachment.start()
        self._attached[worker.id] = attachment
        if not self.dask_profiler:
            attachment.stop_dask_profiler()
        if self.scheduler:
            await self._register_scheduler(worker)

    async def _register_scheduler(self, worker) -> None:
        """Registers the scheduler's half. Of all workers the first one succeeds, the others change nothing."""
        from distributed.protocol.pickle import dumps

        from ._scheduler import SchedulerPlugin

        try:
            plugin = dumps(SchedulerPlugin(self.settings))
            call = worker.scheduler.register_scheduler_plugin(plugin=plugin, name=SchedulerPlugin.name, idempotent=True)
            await asyncio.wait_for(call, REGISTRATION_S_MAX)
        except Exception as error:
            warn_once(f"the scheduler of Dask has no agent, and progress has no totals: {error!r}")

    def transition(self, key, start, finish, **_details) -> None:
        if finish != "error" or start not in ("executing", "long-running"):
            return
        try:
            for attachment in self._attached.values():
                attachment.hooks.fail_unstarted(key)
        except Exception as error:
            warn_once(f"a failure of Dask was not recorded: {error!r}")

    async def teardown(self, worker) -> None:
        attachment = self._attached.pop(worker.id, None)
        if attachment is not None:
            await attachment.stop()
