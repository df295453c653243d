"""`%%emberline` in IPython, with the real program."""

import html
import os
import re
import tempfile
import unittest
import unittest.mock

from support import CollectorCase

try:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
except ImportError as error:
    raise unittest.SkipTest("ipython is not installed") from error

CELL = """
import time
def count_slowly(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return 42
answer = count_slowly(0.5)
print("printed")
"""


class Notebook(CollectorCase):
    def setUp(self):
        self.shell = InteractiveShell.instance()
        self.addCleanup(InteractiveShell.clear_instance)
        self.shell.run_line_magic("load_ext", "emberline")

    def run_cell(self, line, cell):
        with capture_output() as output:
            self.shell.run_cell_magic("emberline", line, cell)
        return output

    def test_a_cell_shows_its_report(self):
        output = self.run_cell("--height 300", CELL)
        self.assertEqual(self.shell.user_ns["answer"], 42)
        self.assertIn("printed", output.stdout)
        (shown,) = output.outputs
        text = shown.data["text/html"]
        self.assertTrue(text.startswith('<iframe sandbox="allow-scripts" style="width: 100%; height: 300px'))
        self.assertIn("count_slowly", html.unescape(text))
        self.assertLess(len(text), 1_000_000)

    def test_a_file_stays(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "cell.html")
        self.run_cell(f"-o {file}", "1 / 1")
        self.assertTrue(os.path.exists(file))
        self.assertTrue(os.path.exists(file.replace(".html", ".json")))

    def test_an_earlier_report_is_not_shown_for_a_cell_without_one(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "cell.html")
        with open(file, "w") as earlier:
            earlier.write("earlier")
        with unittest.mock.patch.dict(os.environ, EMBERLINE_PROGRAM="/bin/false"), capture_output() as output:
            self.assertFalse(self.shell.run_cell(f"%%emberline -o {file}\n1 / 1").success)
        self.assertEqual(output.outputs, [])

    def test_an_error_of_the_cell_is_one_of_the_magic_and_is_shown_once(self):
        cases = {
            "ZeroDivisionError": "1 / 0",
            "SyntaxError": "1 +",
            "SystemExit": "raise SystemExit(3)",
            "KeyboardInterrupt": "raise KeyboardInterrupt",
        }
        for name, cell in cases.items():
            with self.subTest(name):
                with capture_output() as output:
                    result = self.shell.run_cell(f"%%emberline\n{cell}")
                self.assertFalse(result.success)
                error = result.error_before_exec or result.error_in_exec
                self.assertEqual(type(error).__name__, name)
                text = re.sub(r"\x1b\[[\d;]*m", "", output.stdout + output.stderr)
                self.assertEqual(len(re.findall(f"^{name}:", text, re.MULTILINE)), 1, text)
                (shown,) = output.outputs
                self.assertIn("text/html", shown.data)
                self.assertNotIn("_showtraceback", vars(self.shell))

    def test_a_cell_inside_of_a_cell_is_refused(self):
        inner = 'get_ipython().run_cell_magic("emberline", "", "inner = 2")'
        with capture_output() as output:
            result = self.shell.run_cell(f"%%emberline\nouter = 1\n{inner}")
        with self.assertRaisesRegex(RuntimeError, "%%emberline runs in a cell that has it already"):
            result.raise_error()
        self.assertEqual(self.shell.user_ns["outer"], 1)
        self.assertNotIn("inner", self.shell.user_ns)
        self.assertEqual(len(output.outputs), 1)
        # The next cell is not affected.
        self.run_cell("", "after = 3")
        self.assertEqual(self.shell.user_ns["after"], 3)

    def test_unknown_options_are_named(self):
        with self.assertRaisesRegex(ValueError, "unrecognized arguments: --size"):
            self.shell.run_cell_magic("emberline", "--size 3", "pass")
