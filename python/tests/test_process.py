"""The agent and its process: start, end, forks, transfers, runs, reports, and the cost of a task."""

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import timeit
import unittest
import unittest.mock

import emberline
from support import PATIENCE_S, CollectorCase


# Python warns of any fork of a process with threads.
WARNINGS = ["-W", "error::RuntimeWarning", "-W", "ignore::DeprecationWarning"]


def function_of_report():
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        pass


class Process(CollectorCase):
    def run_program(self, text, **environment):
        """Runs a program in this interpreter; returns what it printed."""
        ended = subprocess.run(
            [sys.executable, *WARNINGS, "-c", text],
            env={**os.environ, "EMBERLINE_URL": self.collector.url, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_the_end_of_the_program_flushes(self):
        self.run_program("import emberline; emberline.start('exits', labels={'a': 1})\nwith emberline.task('last'): pass")
        self.assertEqual(self.collector.one_task("exits", "last")["outcome"], "ok")
        workers = self.collector.get("workers")["workers"]
        (worker,) = [worker for worker in workers if worker["worker"] == "exits"]
        self.assertEqual(worker["epochs"][0]["labels"], {"a": "1"})

    def test_forked_children_have_agents_of_their_own(self):
        text = """
import os, sys, emberline
emberline.start("forks")
with emberline.task("parent"):
    child = os.fork()
    if child == 0:
        assert emberline.current_task().name is None
        with emberline.task("child"):
            grandchild = os.fork()
            if grandchild == 0:
                with emberline.task("grandchild"):
                    pass
                emberline.stop()
                os._exit(0)
            assert os.waitpid(grandchild, 0)[1] == 0
        emberline.stop()
        print(child, grandchild, os.getpid(), file=sys.stdout, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
        _, grandchild, child = self.run_program(text).split()
        self.assertEqual(self.collector.one_task("forks", "parent")["outcome"], "ok")
        self.assertEqual(self.collector.one_task(f"forks-{child}", "child")["outcome"], "ok")
        self.assertEqual(self.collector.one_task(f"forks-{grandchild}", "grandchild")["outcome"], "ok")
        self.assertEqual(len(self.collector.tasks(f"forks-{child}")), 1)

    def test_processes_of_multiprocessing_flush(self):
        text = """
import multiprocessing, os, emberline
def work(number):
    with emberline.task("work", key=number):
        return os.getpid()
if __name__ == "__main__":
    emberline.start("multi")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(number,)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    print(*(process.pid for process in processes))
"""
        for pid in self.run_program(text).split():
            self.assertEqual(self.collector.one_task(f"multi-{pid}", "work")["outcome"], "ok")

    @unittest.skipUnless(sys.version_info < (3, 12), "newer ones refuse the import in another interpreter")
    def test_the_end_of_another_interpreter_leaves_the_agent(self):
        text = """
import _xxsubinterpreters as interpreters, emberline
agent = emberline.start("interpreters")
other = interpreters.create()
interpreters.run_string(other, "import emberline")
interpreters.destroy(other)
assert agent.mode != "stopped"
with emberline.task("after"):
    pass
"""
        self.run_program(text)
        self.assertEqual(self.collector.one_task("interpreters", "after")["outcome"], "ok")

    def test_transfers_runs_and_expectations_arrive(self):
        self.start("records")
        emberline.expect("load", 5)
        with emberline.mark_run("nightly"), emberline.task("load"):
            with emberline.transfer("incoming", "worker-2", keys=["x-1", 2], type_name="Matrix") as transfer:
                transfer.add_bytes(1000)
                transfer.add_compressed_bytes(100)
            with self.assertRaises(OSError), emberline.transfer("outgoing", "worker-3"):
                raise OSError("reset")
        emberline.stop()
        transfers = self.collector.get("transfers", worker="records")["transfers"]
        by_peer = {transfer["peer"]: transfer for transfer in transfers}
        incoming, outgoing = by_peer["worker-2"], by_peer["worker-3"]
        self.assertEqual((incoming["bytes"], incoming["compressed_bytes"]), (1000, 100))
        self.assertEqual((incoming["keys"], incoming["type_name"]), (["x-1", "2"], "Matrix"))
        self.assertEqual((outgoing["outcome"], outgoing["cause"]), ("failed", "OSError: reset"))
        runs = self.collector.get("runs")["runs"]
        self.assertIn("nightly", [run["name"] for run in runs])
        (progress,) = self.collector.get("progress", worker="records")["names"]
        self.assertEqual(progress["name"], "load")

    def test_a_report_is_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "report.html")
            with emberline.report(file):
                with emberline.task("reported"):
                    function_of_report()
            with open(os.path.join(folder, "report.json")) as report:
                text = json.dumps(json.load(report))
            self.assertIn("reported", text)
            self.assertIn("function_of_report", text)
            self.assertTrue(os.path.getsize(file) > 1000)
            report = emberline.report(os.path.join(folder, "none", "report.html"))
            with self.assertRaises(emberline.ReportError):
                report.finish()

    def test_the_error_of_a_report_has_its_cause(self):
        cases = [
            ("/nowhere/emberline", "cannot start /nowhere/emberline", FileNotFoundError),
            ("/bin/false", "emberline: no message, exit status: 1", type(None)),
        ]
        for program, text, cause in cases:
            with self.subTest(program), unittest.mock.patch.dict(os.environ, EMBERLINE_PROGRAM=program):
                report = emberline.report("report.html")
                with self.assertRaisesRegex(emberline.ReportError, text) as raised:
                    report.finish()
                self.assertIsInstance(raised.exception.__cause__, cause)

    def test_a_report_needs_no_path_to_the_program_of_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "report.html")
            text = f"import emberline\nwith emberline.report({file!r}) as report: report.finish()"
            self.run_program(text, PATH="/nowhere", EMBERLINE_PROGRAM="")
            self.assertGreater(os.path.getsize(file), 1000)

    def test_hooks_stay_while_an_agent_or_a_report_needs_them(self):
        before = asyncio.Handle._run
        with tempfile.TemporaryDirectory() as folder:
            agent = self.start("hooks")
            with emberline.report(os.path.join(folder, "report.html")):
                agent.stop()
                self.assertIsNot(asyncio.Handle._run, before)
            self.assertIs(asyncio.Handle._run, before)
            with emberline.report(os.path.join(folder, "report.html")):
                self.assertIsNot(asyncio.Handle._run, before)
                emberline.stop()
                self.assertIsNot(asyncio.Handle._run, before)
            self.assertIs(asyncio.Handle._run, before)

    def test_the_package_has_the_program(self):
        program = shutil.which("emberline", path=sysconfig.get_path("scripts"))
        self.assertIsNotNone(program)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.assertRegex(version.stdout, "^emberline [0-9]")

    def test_the_programs_library_is_installed_with_it(self):
        program = shutil.which("emberline", path=sysconfig.get_path("scripts"))
        text = "import time\ndef spin(end):\n  while time.process_time() < end: pass\nspin(0.5)"
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "x.collapsed")
            command = [program, "record", "-o", file, "--", sys.executable, "-c", text]
            subprocess.run(command, check=True, timeout=PATIENCE_S)
            with open(file) as stacks:
                self.assertIn(";<module>;spin", stacks.read())

    def test_an_agent_takes_over_from_that_of_record(self):
        program = os.environ.get("EMBERLINE_PROGRAM") or shutil.which("emberline")
        text = """
import time, emberline
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
spin(0.5)
with emberline.start("successor", flush_timeout=60), emberline.task("own"):
    spin(0.5)
"""
        run = [program, "run", "--collector", self.collector.url, "--label", "test=successor", "--"]
        subprocess.run([*run, sys.executable, "-c", text], check=True, timeout=PATIENCE_S)
        self.assertEqual(self.collector.one_task("successor", "own")["outcome"], "ok")
        nodes = self.collector.get("profile", label="test=successor", state="cpu")["profile"]["nodes"]
        cpu_s = sum(node["self"]["cpu"] for node in nodes) / 1e9
        self.assertAlmostEqual(cpu_s, 1.1, delta=0.3)

    def test_an_empty_task_is_cheap(self):
        def block():
            with emberline.task("empty"):
                pass

        def floor():
            with io.BytesIO():
                pass

        @emberline.task("empty")
        def decorated():
            pass

        self.start("cost")
        # Of short rounds, so that some are without an interruption.
        least_ns = {
            function.__name__: min(timeit.repeat(function, number=500, repeat=400)) / 500 * 1e9
            for function in (floor, block, decorated)
        }
        print(f"an empty task, in ns: {least_ns}", file=sys.stderr)
        # Builds of one version differ: 2.6 to 4.0 times the floor.
        self.assertLess(least_ns["block"], 5 * least_ns["floor"])
        self.assertLess(least_ns["decorated"], 5 * least_ns["floor"])


if __name__ == "__main__":
    unittest.main()
