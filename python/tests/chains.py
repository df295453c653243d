"""Jobs each of which starts the next one inside of its own task, in every way that a program has.

`python chains.py WAY LENGTH` runs one such chain and prints how many blocks of memory it took between its first and its
last jobs, and how many it has left."""

import asyncio
import concurrent.futures
import contextlib
import gc
import sys
import threading

import emberline

PATIENCE_S = 60
# The job at which all is warm.
FIRST = 100
# So that a drop that recurses needs few of them to overflow it.
STACK_BYTES = 512 << 10


class Chain:
    """Counts the jobs; the last one ends the chain."""

    def __init__(self, length):
        self.length = length
        self.number = 0
        self.blocks = []
        self.done = threading.Event()

    def advance(self, start):
        """Calls `start` to start the next job, unless this is the last one."""
        self.number += 1
        if self.number in (FIRST, self.length):
            self.blocks.append(sys.getallocatedblocks())
        if self.number < self.length:
            start()
        else:
            self.done.set()

    def task(self):
        return emberline.task("job", key=self.number)

    def wait(self):
        if not self.done.wait(PATIENCE_S):
            raise TimeoutError(f"the chain ended at {self.number} of {self.length}")


def in_loop(start):
    """Runs `start(loop, end)` in a loop that goes on until `end()`."""

    async def main():
        ended = asyncio.Event()
        start(asyncio.get_running_loop(), ended.set)
        await asyncio.wait_for(ended.wait(), PATIENCE_S)

    asyncio.run(main())


def by_call_soon(chain):
    def start(loop, end):
        def job():
            with chain.task():
                chain.advance(lambda: loop.call_soon(job))
            if chain.done.is_set():
                end()

        loop.call_soon(job)

    in_loop(start)


def by_call_later_in_a_phase(chain):
    def start(loop, end):
        def job():
            with chain.task(), emberline.phase("read"), emberline.phase("decode"):
                chain.advance(lambda: loop.call_later(0, job))
            if chain.done.is_set():
                end()

        loop.call_soon(job)

    in_loop(start)


def by_callback_of_a_future(chain):
    def start(loop, end):
        def job(_future=None):
            with chain.task():
                future = loop.create_future()
                chain.advance(lambda: future.add_done_callback(job))
                future.set_result(None)
            if chain.done.is_set():
                end()

        loop.call_soon(job)

    in_loop(start)


def by_create_task(chain):
    def start(loop, end):
        async def job():
            with chain.task():
                await asyncio.sleep(0)
                chain.advance(lambda: loop.create_task(job()))
            if chain.done.is_set():
                end()

        loop.create_task(job())

    in_loop(start)


def by_decorated_coroutine(chain):
    def start(loop, end):
        async def job():
            chain.advance(lambda: loop.create_task(chain.task()(job)()))
            await asyncio.sleep(0)
            if chain.done.is_set():
                end()

        loop.create_task(chain.task()(job)())

    in_loop(start)


def by_returned_coroutine(chain):
    def start(loop, end):
        async def job():
            chain.advance(next_job)
            await asyncio.sleep(0)
            if chain.done.is_set():
                end()

        def next_job():
            loop.create_task(chain.task()(lambda: job())())

        next_job()

    in_loop(start)


def by_step_of_a_generator(chain):
    def start(loop, end):
        def job():
            def steps():
                chain.advance(lambda: loop.call_soon(job))
                yield

            for _ in chain.task()(steps)():
                pass
            if chain.done.is_set():
                end()

        loop.call_soon(job)

    in_loop(start)


def by_closed_generator(chain):
    def start(loop, end):
        def job():
            def steps():
                chain.advance(lambda: loop.call_soon(job))
                yield

            generator = chain.task()(steps)()
            next(generator)
            generator.close()
            if chain.done.is_set():
                end()

        loop.call_soon(job)

    in_loop(start)


def by_executor_of_the_loop(chain):
    def start(loop, end):
        def job():
            with chain.task():
                chain.advance(lambda: loop.call_soon_threadsafe(loop.run_in_executor, None, job))
            if chain.done.is_set():
                loop.call_soon_threadsafe(end)

        # Threads of a pool without a task have no context.
        with emberline.task("first"):
            loop.run_in_executor(None, job)

    in_loop(start)


def by_pool_of(workers):
    def run(chain):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:

            def job():
                with chain.task():
                    chain.advance(lambda: pool.submit(job))

            pool.submit(job)
            chain.wait()

    return run


def by_traced_pool(chain):
    from emberline import pools

    pools.install()
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:

            def job():
                with emberline.phase("read"):
                    chain.advance(lambda: pool.submit(job))

            pool.submit(job)
            chain.wait()
    finally:
        pools.uninstall()


def by_thread_that_runs_a_handle(chain):
    def job():
        with chain.task() as task:
            chain.advance(lambda: threading.Thread(target=task.handle.run, args=(job,)).start())

    threading.Thread(target=job).start()
    chain.wait()


def by_thread_that_enters_a_handle(chain):
    def job(handle):
        with handle, chain.task():
            chain.advance(lambda: threading.Thread(target=job, args=(emberline.current_task(),)).start())

    threading.Thread(target=job, args=(emberline.current_task(),)).start()
    chain.wait()


def by_nested_blocks(chain):
    """All are open at a time, and the innermost one is dropped last."""

    async def main():
        with contextlib.ExitStack() as stack:
            while not chain.done.is_set():
                stack.enter_context(chain.task())
                chain.advance(lambda: None)
            innermost = emberline.current_task()
        assert innermost.name == "job"

    asyncio.run(main())


def by_coroutines_that_wait(chain):
    """All are open at a time: each waits for the next one."""

    async def job():
        with chain.task():
            others = []
            chain.advance(lambda: others.append(asyncio.ensure_future(job())))
            for other in others:
                await other

    asyncio.run(asyncio.wait_for(job(), PATIENCE_S))


WAYS = {
    "call_soon": by_call_soon,
    "call_later": by_call_later_in_a_phase,
    "callback": by_callback_of_a_future,
    "create_task": by_create_task,
    "decorated": by_decorated_coroutine,
    "returned": by_returned_coroutine,
    "generator": by_step_of_a_generator,
    "closed": by_closed_generator,
    "executor": by_executor_of_the_loop,
    "pool": by_pool_of(1),
    "pool-of-2": by_pool_of(2),
    "traced-pool": by_traced_pool,
    "thread-runs": by_thread_that_runs_a_handle,
    "thread-enters": by_thread_that_enters_a_handle,
    "nested": by_nested_blocks,
    "waiting": by_coroutines_that_wait,
}


def run(way, length):
    chain = Chain(length)
    WAYS[way](chain)
    return chain


def measure(way, length):
    run(way, FIRST)
    gc.collect()
    before = sys.getallocatedblocks()
    first, last = run(way, length).blocks
    gc.collect()
    print(last - first, sys.getallocatedblocks() - before, flush=True)


def main():
    # No collector is there: the agent keeps what fits its limit.
    emberline.start("chain", "http://127.0.0.1:1", flush_timeout=0.1)
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=measure, args=(sys.argv[1], int(sys.argv[2])))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
