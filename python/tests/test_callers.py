"""The callers of functions where an interpreter's stack is not one list of frames: deep recursion, generators, code that
is freed, calls from C, several interpreters."""

import ctypes
import re
import sys
import threading
import time
import unittest

import emberline
from support import CollectorCase, shown

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

# Seconds of CPU time for each kind.
PART_S = 1.0


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def dive(depth):
    if depth == 0:
        spin(PART_S)
    else:
        dive(depth - 1)


def innermost_numbers():
    for number in range(10):
        spin(PART_S / 10)
        yield number


def inner_numbers():
    yield from innermost_numbers()


def outer_numbers():
    yield from inner_numbers()


def sum_numbers():
    return sum(number for number in outer_numbers())


def run_made_code():
    """Makes functions that are freed while they are sampled, so that others get their addresses."""
    end = time.thread_time() + PART_S
    number = 0
    while time.thread_time() < end:
        number += 1
        text = f"def made_{number % 5}(n):\n    return inner_{number % 5}(n)\n"
        text += f"def inner_{number % 5}(n):\n    return sum(range(n))\n"
        names = {}
        exec(text, names)
        names[f"made_{number % 5}"](20_000)


def compare(left, right):
    spin(0.001)
    return left[0] - right[0]


def sort_in_c():
    number = ctypes.c_int
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(number), ctypes.POINTER(number))
    numbers = (number * 150)(*range(150, 0, -1))
    ctypes.CDLL(None).qsort(numbers, len(numbers), ctypes.sizeof(number), kind(compare))
    assert list(numbers) == list(range(1, 151))


def body_of_thread(_argument):
    spin(PART_S)
    return 0


def run_thread_of_c():
    """Runs a thread that Python did not create."""
    library = ctypes.CDLL(None)
    body = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)(body_of_thread)
    thread = ctypes.c_ulong()
    assert library.pthread_create(ctypes.byref(thread), None, body, None) == 0
    library.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
    assert library.pthread_join(thread, None) == 0


TEXT_OF_INTERPRETER = """
import time
def spin_NAME(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
def wait_NAME(seconds):
    time.sleep(seconds)
def work_NAME(seconds):
    spin_NAME(seconds)
    wait_NAME(seconds)
work_NAME(SECONDS)
"""


def run_in_interpreter(name):
    interpreter = interpreters.create()
    text = TEXT_OF_INTERPRETER.replace("NAME", name).replace("SECONDS", str(PART_S))
    failure = interpreters.run_string(interpreter, text)
    assert failure is None, failure
    interpreters.destroy(interpreter)


def run_first():
    run_in_interpreter("first")


def run_second():
    run_in_interpreter("second")


class Callers(CollectorCase):
    def python_paths(self, function):
        """Runs a function as the task of its name; returns its Python functions, by stack, with their own seconds."""
        name = function.__name__
        self.start(name, cpu_limit=1.0)
        with emberline.task(name):
            function()
        emberline.stop()
        return self.paths_of(name)

    def paths_of(self, worker):
        paths = {}
        for node in self.nodes(worker):
            path = node.python_path()
            if node.own_ns and path:
                paths[path] = paths.get(path, 0) + node.own_ns / 1e9
        return paths

    def check_main(self, paths, expected):
        """Nearly all time is in stacks that contain these functions in a row, the first called by the test."""
        expected = tuple(expected)
        inside = {path: seconds for path, seconds in paths.items() if expected[0] in path}
        right = [seconds for path, seconds in inside.items() if path[-len(expected) :] == expected]
        self.assertGreater(sum(right), 0.8 * sum(inside.values()), inside)
        self.assertGreater(sum(right), 0.5 * PART_S, inside)

    def test_of_a_recursion_of_1000_the_inner_functions_remain(self):
        limit = sys.getrecursionlimit()
        self.addCleanup(sys.setrecursionlimit, limit)
        sys.setrecursionlimit(1_500)

        def dive_1000():
            dive(1_000)

        paths = self.python_paths(dive_1000)
        deep = {path: seconds for path, seconds in paths.items() if path[-1] == "spin"}
        self.assertGreater(sum(deep.values()), 0.8 * PART_S)
        for path in deep:
            self.assertEqual(set(path), {"dive", "spin"}, path)
            # Of 512 frames; before 3.11 each call has three native ones.
            self.assertGreater(len(path), 100)
        marks = [node for node in self.nodes("dive_1000") if node.name == "[truncated]"]
        self.assertGreater(sum(node.total["cpu"] for node in marks) / 1e9, 0.8 * PART_S)

    def test_generators_are_called_by_those_that_consume_them(self):
        self.check_main(
            self.python_paths(sum_numbers),
            ["sum_numbers", shown("sum_numbers.<locals>.<genexpr>"), "outer_numbers", "inner_numbers", "innermost_numbers", "spin"],
        )

    def test_freed_code_has_the_name_of_made_code_or_none(self):
        """Names are read up to a tick later, when another function may have the address of a freed one."""
        paths = self.python_paths(run_made_code)
        inside_s = exact_s = 0
        for path, seconds in paths.items():
            if "run_made_code" not in path:
                continue
            inner = path[path.index("run_made_code") + 1 :]
            inside_s += seconds
            exact_s += seconds * bool(re.fullmatch(r"|<module>|made_(\d)(;inner_\1)?", ";".join(inner)))
            for name in inner:
                self.assertRegex(name, r"^(made_\d|inner_\d|<module>|\[code is gone\])$", path)
        print(f"freed code: {exact_s:.2f} of {inside_s:.2f} s as it ran", file=sys.stderr)
        self.assertGreater(inside_s, 0.8 * PART_S)

    def test_a_callback_is_called_by_the_library_that_calls_it(self):
        self.check_main(self.python_paths(sort_in_c), ["sort_in_c", "compare", "spin"])
        (node, *_) = [node for node in self.nodes("sort_in_c") if node.name == "compare" and node.is_python]
        path = node.path()
        between = path[path.index("sort_in_c") + 1 : -1]
        self.assertTrue(any("qsort" in name for name in between), path)

    def test_a_thread_of_c_has_the_functions_that_it_calls(self):
        paths = self.python_paths(run_thread_of_c)
        self.check_main(paths, ["body_of_thread", "spin"])
        self.assertFalse([path for path in paths if "body_of_thread" in path and "run_thread_of_c" in path])

    def test_functions_of_another_interpreter_are_called_by_the_one_that_runs_it(self):
        paths = self.python_paths(run_first)
        caller = ["run_first", "run_in_interpreter", "<module>", "work_first"]
        of_first = {path: seconds for path, seconds in paths.items() if "work_first" in path}
        inner = {path: seconds for path, seconds in of_first.items() if path[-1] in ("spin_first", "wait_first")}
        self.assertGreater(sum(inner.values()), 0.8 * PART_S, paths)
        wrong = [path for path in inner if path[-5:-1] != tuple(caller)]
        self.assertEqual(wrong, [])

    def test_threads_of_interpreters_do_not_mix(self):
        self.start("interpreters", cpu_limit=1.0)
        threads = [threading.Thread(target=function) for function in (run_first, run_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        emberline.stop()
        paths = self.paths_of("interpreters")
        for own, other in ("first", "second"), ("second", "first"):
            with_own = {path: seconds for path, seconds in paths.items() if f"work_{own}" in path}
            self.assertGreater(sum(with_own.values()), 1.5 * PART_S, paths)
            mixed = [path for path in with_own if any(name.endswith(f"_{other}") for name in path)]
            self.assertEqual(mixed, [])


if __name__ == "__main__":
    unittest.main()
