"""The examples in docstrings run."""

import doctest
import importlib
import os
import unittest
import unittest.mock

import emberline

# Those whose examples need a cluster or a broker are shown only.
MODULES = ("emberline", "emberline.pools")
PUBLIC = [name for name in emberline.__all__ if not name.endswith("Error")]


class Examples(unittest.TestCase):
    def setUp(self):
        self.addCleanup(emberline.stop)
        # Nothing listens there.
        patch = unittest.mock.patch.dict(os.environ, EMBERLINE_URL="http://127.0.0.1:1")
        patch.start()
        self.addCleanup(patch.stop)

    def run_examples(self, name, text, names):
        """Returns how many there are."""
        examples = doctest.DocTestParser().get_doctest(text or "", names, name, None, None)
        result = doctest.DocTestRunner().run(examples)
        self.assertEqual(result.failed, 0, name)
        return result.attempted

    def test_examples_of_modules_run(self):
        for name in MODULES:
            self.assertGreater(self.run_examples(name, importlib.import_module(name).__doc__, {}), 0, name)

    def test_public_names_have_examples_that_run(self):
        names = {name: getattr(emberline, name) for name in emberline.__all__}
        without = [name for name in PUBLIC if self.run_examples(name, names[name].__doc__, dict(names)) == 0]
        # Results of functions that have examples, and what needs the program.
        self.assertEqual(without, ["Agent", "Report", "report", "stop"])
