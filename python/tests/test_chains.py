"""Jobs that start the next one inside of their own task, for as long as a program runs: without an end of memory or of the
stack, and with the right parents."""

import asyncio
import os
import subprocess
import sys
import unittest

import chains
import emberline
from support import PATIENCE_S, CollectorCase

LENGTH = 10_000
# All jobs of these are open at a time, so that memory grows with their number.
OPEN = ("nested", "waiting")


class Chains(CollectorCase):
    def test_a_chain_takes_no_memory_and_no_stack(self):
        for way in chains.WAYS:
            with self.subTest(way):
                ended = subprocess.run(
                    [sys.executable, chains.__file__, way, str(LENGTH)],
                    env={**os.environ, "EMBERLINE_LOG": "off"},
                    capture_output=True,
                    text=True,
                    timeout=2 * PATIENCE_S,
                )
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                grown, remaining = map(int, ended.stdout.split())
                self.assertLess(remaining, LENGTH / 10)
                if way not in OPEN:
                    self.assertLess(grown, LENGTH / 10)

    def test_the_parent_of_a_job_is_the_job_that_started_it(self):
        length = 20
        for way in chains.WAYS:
            with self.subTest(way):
                worker = f"chain-{way}"
                self.start(worker)
                chains.run(way, length)
                emberline.stop()
                rows = self.collector.tasks(worker)
                self.assertGreaterEqual(len(rows), length)
                starters = [None, *(row["id"] for row in rows)]
                self.assertEqual([row["parent"] for row in rows], starters[:-1])

    def test_all_work_of_an_ended_task_has_it_as_parent(self):
        names = []

        async def rest():
            for _ in range(2):
                for _ in range(2):
                    with emberline.task("part"):
                        pass
                    names.append(emberline.current_task().name)
                await asyncio.sleep(0)

        async def main():
            with emberline.task("whole"):
                started = asyncio.ensure_future(rest())
            await started
            names.append(emberline.current_task().name)

        self.start("rest")
        asyncio.run(main())
        emberline.stop()
        self.assertEqual(names, ["whole"] * 4 + [None])
        whole = self.collector.one_task("rest", "whole")
        parts = self.collector.tasks("rest", "part")
        self.assertEqual([part["parent"] for part in parts], [whole["id"]] * 4)


if __name__ == "__main__":
    unittest.main()
