"""Jupyter and IPython: `%load_ext emberline`, then `%%emberline` above a cell shows where its time went.

The output is a report (flame graph, tasks, resources) inside of the notebook: no server and no network. The program
`emberline` makes it. With a current client of Dask, the report is of the cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import shlex
import sys
import tempfile

import emberline

HEIGHT_PX = 600
# The frame runs the report's own script and nothing else; the document's policy forbids requests.
FRAME = (
    '<iframe sandbox="allow-scripts" style="width: 100%; height: {height}px; border: 0" srcdoc="{document}"></iframe>'
)


class Output:
    """A report as the output of a cell."""

    def __init__(self, document: str, height: int):
        self.document = document
        self.height = height

    def _repr_html_(self) -> str:
        return FRAME.format(height=self.height, document=html.escape(self.document))

    def __repr__(self) -> str:
        return f"<report of Emberline, {len(self.document):,} characters; -o FILE keeps it>"


class _Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(f"%%emberline: {message}; {self.format_usage().strip()}")


def _arguments(line: str):
    parser = _Arguments(prog="%%emberline", add_help=False)
    parser.add_argument("-o", "--output", help="keep the report as this HTML file, with JSON next to it")
    parser.add_argument("--height", type=int, default=HEIGHT_PX, help="pixels")
    return parser.parse_args(shlex.split(line))


def _client():
    """Returns the current client of Dask, if the program uses one."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


@contextlib.contextmanager
def _report(file):
    client = _client()
    if client is not None:
        from .dask import report

        with report(file, client=client):
            yield
        return
    guard = emberline.report(file)
    try:
        yield
    finally:
        guard.finish()


@contextlib.contextmanager
def _only_one(shell):
    """Refuses a cell inside of a cell."""
    if getattr(shell, "_emberline_runs", False):
        raise RuntimeError("%%emberline runs in a cell that has it already: the report of the outer cell shows both")
    shell._emberline_runs = True
    try:
        yield
    finally:
        del shell._emberline_runs


@contextlib.contextmanager
def _without_traceback(shell):
    """The shell shows the traceback of an exception that leaves the magic; so not that of the cell inside of it."""
    shell._showtraceback = lambda *_traceback: None
    try:
        yield
    finally:
        del shell._showtraceback


def _written(file):
    """When a report was written; each is a new file."""
    return (os.stat(file).st_ino, os.stat(file).st_mtime_ns) if os.path.exists(file) else None


def run(shell, line: str, cell: str) -> None:
    """`%%emberline [-o FILE] [--height PIXELS]`: runs a cell, and shows a report of it below its own output. An exception
    of the cell is one of the magic, so that "Run all" ends there."""
    from IPython.display import display

    options = _arguments(line)
    with _only_one(shell), tempfile.TemporaryDirectory() as folder:
        file = os.path.abspath(options.output or os.path.join(folder, "cell.html"))
        before = _written(file)
        try:
            with _report(file), emberline.task("cell", key=shell.execution_count):
                with _without_traceback(shell):
                    result = shell.run_cell(cell)
                result.raise_error()
        finally:
            if os.path.exists(file) and _written(file) != before:
                with open(file, encoding="utf-8") as document:
                    output = Output(document.read(), options.height)
                display(output)


def load(shell) -> None:
    """Registers the magic."""
    shell.register_magic_function(lambda line, cell: run(shell, line, cell), "cell", "emberline")
