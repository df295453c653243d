"""A thread is in the tasks of the code that it runs, where contexts begin and end in other places than `with` blocks: eager
tasks of asyncio, generators that the loop closes, and tasks that end on another thread."""

import asyncio
import gc
import threading
import unittest

import emberline
from support import CollectorCase
from test_tasks import spin


class Contexts(CollectorCase):
    def cpu_seconds(self, worker):
        """CPU time by task, as samples have it."""
        seconds = {}
        for node in self.collector.profile(worker):
            if node["parent"] == 0 and node["kind"] == "task":
                seconds[node["name"]] = node["total"]["cpu"] / 1e9
        return seconds

    @unittest.skipUnless(hasattr(asyncio, "eager_task_factory"), "before Python 3.12")
    def test_an_eager_task_that_waits_is_not_in_the_way_of_its_parent(self):
        names = []

        async def child():
            with emberline.task("child"), emberline.phase("wait"):
                await asyncio.sleep(0)
                names.append(emberline.current_task().name)

        async def main():
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            with emberline.task("parent"):
                children = [asyncio.create_task(child()) for _ in range(2)]
                names.append(emberline.current_task().name)
                spin(0.5)
                await asyncio.gather(*children)

        self.start("eager", cpu_limit=1.0)
        asyncio.run(main())
        emberline.stop()
        self.assertEqual(names, ["parent", "child", "child"])
        parent = self.collector.one_task("eager", "parent")
        children = self.collector.tasks("eager", "child")
        self.assertEqual([row["parent"] for row in children], [parent["id"]] * 2)
        for row in children:
            self.assertEqual({phase["name"] for phase in row["phases"]}, {"wait"})
            self.assertGreaterEqual(sum(phase["duration_ns"] for phase in row["phases"]), 0.45e9)
        self.assertAlmostEqual(self.cpu_seconds("eager")["parent"], 0.5, delta=0.15)

    def test_the_end_of_a_generator_by_the_loop_ends_its_task_for_its_consumer(self):
        async def rows(closed):
            try:
                with emberline.task("rows"):
                    yield 1
            finally:
                closed.set()

        async def consume():
            """Leaves a generator that is closed in another context, and waits for that."""
            closed = asyncio.Event()
            async for _ in rows(closed):
                break
            await closed.wait()
            names.append(emberline.current_task().name)
            spin(0.5)

        async def main():
            with emberline.task("job"):
                await consume()
            names.append(emberline.current_task().name)
            await asyncio.sleep(0)
            with emberline.task("next"):
                await emberline.task("decorated")(consume)()
            names.append(emberline.current_task().name)

        names = []
        self.start("abandoned", cpu_limit=1.0)
        asyncio.run(main())
        emberline.stop()
        self.assertEqual(names, ["job", None, "decorated", None])
        self.assertIsNone(self.collector.one_task("abandoned", "next")["parent"])
        self.assertAlmostEqual(self.cpu_seconds("abandoned")["job"], 0.5, delta=0.15)

    def test_a_thread_leaves_a_task_that_ends_on_another_one(self):
        def end(task):
            thread = threading.Thread(target=task.__exit__, args=(None, None, None))
            thread.start()
            thread.join()

        self.start("elsewhere", cpu_limit=1.0)
        with emberline.task("outer"), emberline.phase("read"):
            # The thread is no longer young: it does not measure itself.
            spin(0.2)
            request = emberline.task("request")
            request.__enter__()
            end(request)
            spin(0.4)
            first = emberline.task("first")
            first.__enter__()
            with emberline.task("second"):
                end(first)
                spin(0.3)
            spin(0.4)
        emberline.stop()
        seconds = self.cpu_seconds("elsewhere")
        self.assertAlmostEqual(seconds["outer"], 1.0, delta=0.15)
        self.assertAlmostEqual(seconds["second"], 0.3, delta=0.15)
        phases = [node for node in self.collector.profile("elsewhere", phases="true") if node["name"] == "read"]
        self.assertAlmostEqual(sum(node["total"]["cpu"] for node in phases) / 1e9, 1.0, delta=0.15)


if __name__ == "__main__":
    unittest.main()
