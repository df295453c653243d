"""A collector for tests, and questions to it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

PATIENCE_S = 60


class Collector:
    """`emberline serve` on a free port, with its data in the folder `data` if that is given."""

    def __init__(self, data=None):
        self.options = [] if data is None else ["--data", data]
        self.serve("127.0.0.1:0")

    def serve(self, address):
        program = os.environ.get("EMBERLINE_PROGRAM") or shutil.which("emberline")
        if program is None:
            raise unittest.SkipTest("the program emberline is neither in PATH nor in EMBERLINE_PROGRAM")
        self.process = subprocess.Popen(
            [program, "serve", "--listen", address, *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        self.url = None
        for line in self.process.stdout:
            found = re.search(r"collector on (http://[^;]*);", line)
            if found:
                self.url = found[1]
                break
        watchdog.cancel()
        if self.url is None:
            raise RuntimeError("the collector did not start")
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.reader.start()

    def kill_and_serve(self):
        """Kills the collector, and starts another one with its data and address."""
        self.kill()
        self.serve(self.url.partition("://")[2])

    def kill(self):
        self.process.kill()
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stdout.close()

    def get(self, path, **query):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query, doseq=True)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def tasks(self, worker, name=None):
        query = {"worker": worker, "limit": 1000}
        if name:
            query["task"] = name
        return sorted(self.get("tasks", **query)["tasks"], key=lambda task: task["start_ns"])

    def one_task(self, worker, name):
        tasks = self.tasks(worker, name)
        assert len(tasks) == 1, tasks
        return tasks[0]

    def rows(self, prefix, **query):
        """Tasks of all workers whose id starts with `prefix`."""
        names = [it["worker"] for it in self.get("workers")["workers"]]
        return [row for it in names if it.startswith(prefix) for row in self.tasks(it, **query)]

    def profile(self, worker, **query):
        """The nodes of a profile; node 0, the root, is not among them."""
        return self.get("profile", worker=worker, **query)["profile"]["nodes"]


def shown(name):
    """Returns the qualified name as stacks of this version show it: before 3.11, code has the plain one only."""
    return name if sys.version_info >= (3, 11) else name.split(".")[-1]


class Node:
    def __init__(self, node, parent):
        self.name, self.line, self.parent = node["name"], node["line"], parent
        self.is_python = node["module"] == "python"
        self.file = node["file"]
        self.own = node["self"]
        self.own_ns = sum(self.own[state] for state in ("cpu", "runnable", "wait"))
        self.total = node["total"]

    def caller(self):
        """The Python function around it."""
        at = self.parent
        while at is not None and not at.is_python:
            at = at.parent
        return at

    def python_path(self):
        """The functions of Python, from the outermost to this node."""
        around = self.parent.python_path() if self.parent else ()
        # Marks of frames whose names are gone have no module.
        is_function = self.is_python or self.name == "[code is gone]"
        return (*around, self.name) if is_function else around

    def path(self):
        return (self.parent.path() if self.parent else []) + [self.name]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Broker:
    """A Redis in a folder of its own, which keeps its data when it is killed."""

    def __init__(self):
        self.server = shutil.which("redis-server")
        if self.server is None:
            raise unittest.SkipTest("redis-server is not installed")
        self.folder = tempfile.mkdtemp()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.serve()

    def serve(self):
        import redis

        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--appendonly", "yes", "--dir", self.folder]
        self.process = subprocess.Popen([self.server, *options], stdout=subprocess.DEVNULL)
        client = redis.Redis(port=self.port)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                # Also while it loads its data.
                if time.monotonic() > deadline:
                    raise
        client.close()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder)


class CollectorCase(unittest.TestCase):
    """Tests that share a collector."""

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.stop)

    def nodes(self, worker, **query):
        nodes = [None]
        for node in self.collector.profile(worker, **query):
            nodes.append(Node(node, nodes[node["parent"]]))
        return nodes[1:]

    def start(self, worker, **settings):
        """Starts an agent that the test's end stops."""
        import emberline

        # A busy machine may take a while.
        agent = emberline.start(worker, self.collector.url, flush_timeout=PATIENCE_S, **settings)
        self.addCleanup(emberline.stop)
        return agent
