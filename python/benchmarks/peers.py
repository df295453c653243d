"""Emberline next to other profilers of Python, on programs that know the truth: `python peers.py --rounds 5`.

Needs Python 3.11, numpy, the package emberline and its program (EMBERLINE_PROGRAM names another one); `emberline run` has
the programs without the package. Compares with those of these packages that are installed in the same environment:
py-spy, austin-dist, pyroscope-io, scalene. memray is not among them: it profiles memory. All sample 100 times a second.

In each round each program of `peers_programs.py` runs under each profiler and under none, in an order that rotates,
with one hidden division of its time. CPU time is of the whole run: program, profiler, and the collector during it.
Prints the costs as ratios round by round, then what each profiler shows next to the truth, as sums over the rounds.
`--programs long` is for costs without the start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.util import find_spec

from emberline.dask import _program
from shared import shares, spread

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("python", "native", "gil", "threads", "deep")
# Not by default.
LONG = "long"
INTERVAL_S = 0.01
RUN_S_MAX = 120


@dataclass
class Seen:
    """What a profiler shows of a run."""

    # Seconds by function, that of the truth around them.
    cpu_s: Counter = field(default_factory=Counter)
    wait_s: Counter = field(default_factory=Counter)
    gil_s: float = 0.0
    threads: set = field(default_factory=set)
    # Calls of `descend` in the deepest stack.
    depth: int = 0

    def add(self, stack, functions, cpu_s, wait_s=0.0):
        """Adds a stack, outermost function first."""
        self.depth = max(self.depth, stack.count("descend"))
        innermost = next((name for name in reversed(stack) if name in functions), None)
        if innermost:
            self.cpu_s[innermost] += cpu_s
            self.wait_s[innermost] += wait_s


@dataclass
class Run:
    """A program that ran under a profiler."""

    truth: dict
    path: str
    worker: str
    url: str

    def functions(self):
        return {*self.truth["cpu_ns"], *self.truth["wait_ns"]}


# A profiler of each kind: its command line around that of the program, and what its output shows.


def inside(name):
    def command(program, path, url, worker):
        address = path if name == "frames" else url
        return [*program, name, address, worker]

    return command


def py_spy(*options):
    def command(program, path, _url, _worker):
        fixed = ["record", "--rate", "100", "--threads", "--function", "--format", "raw", "--output", path]
        return [tool("py-spy"), *fixed, *options, "--", *program]

    return command


def austin(program, path, _url, _worker):
    return [tool("austin"), "--full", "--interval", "10ms", "--output", path, *program]


def scalene(program, path, _url, _worker):
    options = ["--cpu-only", "--cpu-sampling-rate", str(INTERVAL_S), "--cpu-percent-threshold", "0"]
    return [tool("scalene"), "run", *options, "--outfile", f"{path}.json", program[1], "---", *program[2:]]


def unchanged(program, _path, url, worker):
    return [_program.find(), "run", "--collector", url, "--label", f"of={worker}", "--", *program]


def tool(name):
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def read_py_spy(is_idle_shown):
    def read(run):
        seen = Seen()
        with open(run.path) as file:
            for line in file:
                stack, _, count = line.rstrip("\n").rpartition(" ")
                thread, *frames = stack.split(";")
                seconds = int(count) * INTERVAL_S
                seen.threads.add(thread)
                # "Class.function (file.py:12)"
                names = [frame.partition(" (")[0] for frame in frames]
                seen.add(names, run.functions(), seconds, seconds if is_idle_shown else 0.0)
        return seen

    return read


def read_austin(run):
    """Lines of "P1;T0:2;file:function:line;… microseconds,is_idle,bytes"."""
    seen = Seen()
    with open(run.path) as file:
        for line in file:
            if not line.startswith("P"):
                continue
            stack, _, metrics = line.rstrip("\n").rpartition(" ")
            _process, thread, *frames = stack.split(";")
            elapsed_us, is_idle, _bytes = metrics.split(",")
            seconds = int(elapsed_us) / 1e6
            cpu_s, wait_s = (0.0, seconds) if int(is_idle) else (seconds, 0.0)
            seen.threads.add(thread)
            names = [frame.split(":")[-2] for frame in frames if frame.count(":") >= 2]
            seen.add(names, run.functions(), cpu_s, wait_s)
    return seen


def read_scalene(run):
    """Each function's own time, with that of libraries that it calls; `visit` is a part of `walk`."""
    seen = Seen()
    with open(f"{run.path}.json") as file:
        profile = json.load(file)
    second = profile["elapsed_time_sec"] / 100
    for file in profile["files"].values():
        for function in file["functions"]:
            name = function["line"].replace("visit", "walk")
            cpu_s = (function["n_cpu_percent_python"] + function["n_cpu_percent_c"]) * second
            seen.add([name], run.functions(), cpu_s, function["n_sys_percent"] * second)
    # Each stack is a list of lines, "file function:line;", and its times.
    depths = [sum(" descend:" in frame for frame in stack) for stack, _times in profile["stacks"]]
    seen.depth = max(depths, default=0)
    return seen


def read_frames(run):
    seen = Seen()
    with open(run.path) as file:
        for line in file:
            stack, _, count = line.rpartition(" ")
            thread, *names = stack.split(";")
            seconds = int(count) * INTERVAL_S
            seen.threads.add(thread)
            seen.add(names, run.functions(), seconds, seconds)
    return seen


def ask(url, path, **query):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
        return json.load(answer)


def read_collector(prefix="", key="worker"):
    def read(run):
        seen = Seen()
        selected = {key: prefix + run.worker}
        profile = ask(run.url, "profile", **selected)
        seen.gil_s = profile["totals"]["interpreter_ns"] / 1e9
        stacks = [[]]
        for node in profile["profile"]["nodes"]:
            stack = [*stacks[node["parent"]], node["name"]]
            stacks.append(stack)
            own = node["self"]
            if any(own.values()):
                seen.add(stack, run.functions(), own["cpu"] / 1e9, (own["wait"] + own["runnable"]) / 1e9)
        for thread in ask(run.url, "thread-time", **selected)["threads"]:
            # Clients of Pyroscope send names only.
            seen.threads.add(thread["thread_id"] or thread["thread"])
        return seen

    return read


@dataclass
class Contestant:
    name: str
    command: object
    read: object
    # Whether waiting is part of what it shows.
    waits: bool = False
    programs: tuple = PROGRAMS
    # Where it comes from, if that is not here.
    package: str = ""

    def runs(self, program):
        return program in self.programs or program == LONG and self.name in LONG_CONTESTANTS

    def is_installed(self):
        if self.package == "pyroscope-io":
            return find_spec("pyroscope") is not None
        name = self.package.removesuffix("-dist")
        return not name or tool(name) is not None


NONE = "no profiler"
LONG_CONTESTANTS = (NONE, "Emberline", "py-spy", "austin --full", "pyroscope-io")
CONTESTANTS = (
    Contestant(NONE, lambda program, *_: program, lambda run: Seen()),
    Contestant("Emberline", inside("emberline"), read_collector(), waits=True),
    Contestant("emberline run", unchanged, read_collector("of=", "label"), waits=True),
    Contestant("py-spy", py_spy(), read_py_spy(False), package="py-spy"),
    Contestant("py-spy --native", py_spy("--native"), read_py_spy(False), package="py-spy"),
    Contestant("py-spy --idle", py_spy("--idle"), read_py_spy(True), True, ("native", "threads"), "py-spy"),
    Contestant("austin --full", austin, read_austin, True, package="austin-dist"),
    Contestant("pyroscope-io", inside("pyroscope"), read_collector("pyroscope:"), package="pyroscope-io"),
    Contestant("scalene --cpu-only", scalene, read_scalene, True, package="scalene"),
    Contestant("_current_frames", inside("frames"), read_frames, True),
)


def cpu_seconds(pid):
    """Returns the CPU seconds of a process that runs."""
    with open(f"/proc/{pid}/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def measure(contestant, program, seed, collector, folder):
    """Returns the seconds of a run, and what the profiler shows of it next to the truth."""
    name = f"{program}-{seed}-{contestant.name}".replace(" ", "").replace("_", "-")
    truth_path, path = os.path.join(folder, f"{name}.truth"), os.path.join(folder, name)
    script = [sys.executable, os.path.join(FOLDER, "peers_programs.py"), program, str(seed), truth_path]
    command = contestant.command(script, path, collector.url, name)
    collector_s = cpu_seconds(collector.process.pid)
    before = os.times()
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_S_MAX, text=True)
    after = os.times()
    if ended.returncode:
        raise RuntimeError(f"{contestant.name} failed with code {ended.returncode}: {ended.stdout[-2000:]}")
    children_s = sum(after[2:4]) - sum(before[2:4])
    collector_s = cpu_seconds(collector.process.pid) - collector_s
    with open(truth_path) as file:
        run = Run(json.load(file), path, name, collector.url)
    costs = {"cpu": children_s, "all": children_s + collector_s, "wall": after.elapsed - before.elapsed}
    return {"costs": costs, "run": run, "seen": contestant.read(run)}


def compare(options, collector, folder, results):
    """Adds the measurements of each program under each contestant, a list by round."""
    installed = [it for it in CONTESTANTS if it.is_installed()]
    for contestant in CONTESTANTS:
        if contestant not in installed:
            print(f"{contestant.name} is left out: pip install {contestant.package}")
    for turn in range(options.rounds):
        for program in options.programs:
            own = [it for it in installed if it.runs(program)]
            shift = turn % len(own)
            for contestant in own[shift:] + own[:shift]:
                result = measure(contestant, program, turn, collector, folder)
                results[program][contestant.name].append(result)
            print(f"round {turn + 1}, {program}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def contestants_of(results):
    """Returns the profilers that ran, without none."""
    return [it for it in CONTESTANTS[1:] if any(it.name in of_program for of_program in results.values())]


def print_costs(results):
    """Ratios to the same program without a profiler, round by round."""
    for cost, title in (("all", "CPU added, %, with the collector's"), ("wall", "elapsed time added, %")):
        print(f"\n| {title} | {' | '.join(results)} |\n|---|{'--:|' * len(results)}")
        for contestant in contestants_of(results):
            cells = []
            for of_program in results.values():
                pairs = zip(of_program.get(contestant.name, []), of_program[NONE])
                ratios = [100 * (own["costs"][cost] / none["costs"][cost] - 1) for own, none in pairs]
                cells.append(spread(ratios, "{:.0f}") if ratios else "–")
            print(f"| {contestant.name} | {' | '.join(cells)} |")
    print(f"\n| Emberline's parts, % | {' | '.join(results)} |\n|---|{'--:|' * len(results)}")
    threads, collector = [], []
    for of_program in results.values():
        runs = of_program["Emberline"]
        truths = [it["run"].truth for it in runs]
        threads.append(spread([100 * it["agent_s"] / it["work_cpu_s"] for it in truths], "{:.1f}"))
        bases = [none["costs"]["cpu"] for none in of_program[NONE]]
        own = [it["costs"]["all"] - it["costs"]["cpu"] for it in runs]
        collector.append(spread([100 * part / base for part, base in zip(own, bases)], "{:.1f}"))
    print(f"| agent's threads | {' | '.join(threads)} |\n| collector | {' | '.join(collector)} |")


def totals(runs):
    """Returns sums over the rounds: the truth and what was seen."""
    truth, seen = {"cpu": Counter(), "wait": Counter()}, {"cpu": Counter(), "wait": Counter()}
    for it in runs:
        for kind in ("cpu", "wait"):
            truth[kind].update({name: ns / 1e9 for name, ns in it["run"].truth[f"{kind}_ns"].items()})
        seen["cpu"].update(it["seen"].cpu_s)
        seen["wait"].update(it["seen"].wait_s)
    return truth, seen


def share_error(truth, seen):
    """Returns by how many points the share of a function differs most, `–` if no function was seen."""
    own = {name: seen[name] for name in truth}
    if not truth or not sum(own.values()):
        return "–"
    true, shown = shares(truth), shares(own)
    return f"{100 * max(abs(shown[name] - true[name]) for name in truth):.1f}"


def part(truth, seen):
    """Returns how much of the functions' true time was shown, in percent."""
    own = sum(seen[name] for name in truth)
    return f"{100 * own / sum(truth.values()):.0f}" if truth and own else "–"


def print_truth(results):
    values = {"largest error of a CPU share, points": share_error, "CPU time shown, % of the truth": part}
    for title, value in values.items():
        print(f"\n| {title} | {' | '.join(results)} |\n|---|{'--:|' * len(results)}")
        for contestant in contestants_of(results):
            cells = []
            for of_program in results.values():
                truth, seen = totals(of_program.get(contestant.name, []))
                cells.append(value(truth["cpu"], seen["cpu"]))
            print(f"| {contestant.name} | {' | '.join(cells)} |")
    off_cpu = ["off CPU, native: error; shown, %", "off CPU, threads: the same"]
    titles = [*off_cpu, "GIL waits shown, %", "threads", "depth"]
    print(f"\n| | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    for contestant in contestants_of(results):
        cells = []
        for program in ("native", "threads"):
            truth, seen = totals(results.get(program, {}).get(contestant.name, []))
            is_shown = contestant.waits and sum(seen["wait"][name] for name in truth["wait"])
            error, shown = share_error(truth["wait"], seen["wait"]), part(truth["wait"], seen["wait"])
            cells.append(f"{error}; {shown}" if is_shown else "no")
        cells.append(gil(results.get("gil", {}).get(contestant.name, [])))
        cells.append(largest(results.get("threads", {}).get(contestant.name, []), lambda it: len(it["seen"].threads)))
        cells.append(largest(results.get("deep", {}).get(contestant.name, []), lambda it: it["seen"].depth))
        print(f"| {contestant.name} | {' | '.join(cells)} |")


def gil(runs):
    shown = [100e9 * it["seen"].gil_s / it["run"].truth["gil_wait_ns"] for it in runs]
    return spread(shown, "{:.0f}") if any(shown) else "no"


def largest(runs, value):
    """Returns the median of the runs; `no` if nothing is shown."""
    values = [value(it) for it in runs]
    return f"{statistics.median(values):.0f}" if any(values) else "no"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", nargs="+", choices=(*PROGRAMS, LONG), default=PROGRAMS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        serve = ["serve", "--listen", "127.0.0.1:0", "--data", os.path.join(folder, "data")]
        collector = _program.Child(serve, r"collector on (http://[^;]*);", subprocess.STDOUT)
        start, load = time.monotonic(), os.getloadavg()
        results = {program: defaultdict(list) for program in options.programs}
        try:
            compare(options, collector, folder, results)
        except KeyboardInterrupt:
            print("interrupted: these are the rounds until then")
        finally:
            collector.terminate()
    print_costs(results)
    print_truth(results)
    print(f"\nload average {load[0]:.1f} before, {os.getloadavg()[1]:.1f} in the last 5 minutes;", end=" ")
    print(f"{time.monotonic() - start:.0f} s, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
