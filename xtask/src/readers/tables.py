"""Reads the files of rows of a collector: CSV and Parquet with DuckDB; and its log of
histograms with hdrhistogram. Compares them with its JSON.

Arguments: the collector's URL, a directory for the files.
"""

import json
import pathlib
import sys
import urllib.request

import duckdb
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
RANGE = "from=2023-11-14T00:00:00Z&to=2023-11-16T00:00:00Z"


def get(path, query):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{RANGE}&{query}") as answer:
        return answer.read()


def files(name, path, query):
    """The file's rows as DuckDB queries them: of CSV, all texts; of Parquet."""
    read = {}
    for format, reader in [("csv", "read_csv('{}', header=true, all_varchar=true, nullstr='')"),
                           ("parquet", "read_parquet('{}')")]:
        file = folder / f"{name}.{format}"
        file.write_bytes(get(f"{path}.{format}", query))
        read[format] = reader.format(file)
    rows = [duckdb.sql(f"select count(*) from {read[format]}").fetchall()[0][0] for format in read]
    columns = [[column[0] for column in duckdb.sql(f"describe select * from {read[format]}").fetchall()]
               for format in read]
    assert rows == rows[:1] * 2 and columns == columns[:1] * 2, (name, rows, columns)
    return read, rows[0]


def equal(name, read, select, expected):
    """All files have the expected values."""
    for format, source in read.items():
        found = duckdb.sql(select.format(source)).fetchall()
        different = [pair for pair in zip(found, expected) if pair[0] != pair[1]]
        assert found == expected, (name, format, len(found), len(expected), different[:3])


def cell(text):
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


# Tasks, one by one.
answer = json.loads(get("tasks", "limit=100000"))
read, rows = files("tasks", "tasks", "limit=100000")
tasks = answer["tasks"]
assert rows == len(tasks) == answer["total"] > 0, (rows, len(tasks), answer["total"])
# The duration of a running task grows from answer to answer.
numbers = """select id::ubigint, if(stop is null, 0, duration_ns::ubigint), thread_id::bigint, attempt::bigint
             from {}"""
expected = [(task["id"], task["duration_ns"] if task["stop"] else 0, task["thread_id"], task["attempt"])
            for task in tasks]
equal("tasks", read, numbers, expected)
texts = "select name, key, outcome, worker, labels::json, phases::json from {}"
csv = duckdb.sql(texts.format(read["csv"])).fetchall()
parquet = duckdb.sql(texts.format(read["parquet"])).fetchall()
for task, from_csv, from_parquet in zip(tasks, csv, parquet):
    plain = [task[key] for key in ("name", "key", "outcome", "worker")]
    assert [text or "" for text in from_csv[:4]] == [cell(text) for text in plain], (from_csv, plain)
    assert list(from_parquet[:4]) == plain, (from_parquet, plain)
    for labels, phases in (from_csv[4:], from_parquet[4:]):
        assert (json.loads(labels), json.loads(phases)) == (task["labels"], task["phases"])
starts = [task["start"] for task in tasks]
assert [row[0] for row in duckdb.sql(f"select start from {read['csv']}").fetchall()] == starts
nanoseconds = duckdb.sql(f"select epoch_ns(start) from {read['parquet']}").fetchall()
# DuckDB has times of a zone in microseconds.
assert [row[0] // 1000 for row in nanoseconds] == [task["start_ns"] // 1000 for task in tasks]

# Tasks by name.
names = json.loads(get("tasks", "summary=true"))["names"]
read, rows = files("names", "tasks", "summary=true")
durations = [name["durations"] or {} for name in names]
expected = [(name["running"], name["outcomes"]["ok"], sums.get("p99_ns"), sums.get("total_ns"))
            for name, sums in zip(names, durations)]
equal("names", read, "select running::bigint, ok::bigint, p99_ns::bigint, total_ns::bigint from {}", expected)

# Time by function: self times sum to the profile.
view = "state=all&outside=shown"
totals = json.loads(get("profile", view))["totals"]
read, functions = files("functions", "profile", view)
sums = "select sum(self_ns::hugeint), sum(self_cpu_ns::hugeint), sum(self_lock_ns::hugeint) from {}"
equal("functions", read, sums, [(totals["total_ns"], totals["cpu_ns"], totals["lock_ns"])])

# Time by step.
series = json.loads(get("timeline", "state=all"))["series"]
read, steps = files("timeline", "timeline", "state=all")
sums = """select name, sum(cpu_ns::hugeint), sum(wait_ns::hugeint), sum(lock_ns::hugeint)
          from {} group by kind, name order by kind, name"""
ordered = sorted(series, key=lambda one: (one["kind"], one["name"]))
by_name = [(cell(one["name"]), one["totals"]["cpu_ns"], one["totals"]["wait_ns"], one["totals"]["lock_ns"])
           for one in ordered]
equal("timeline", read, sums, by_name)

# Resources: each point.
series = json.loads(get("resources", ""))["series"]
read, points = files("resources", "resources", "")
expected = [(one["worker"], one["measure"], *point[1:]) for one in series for point in one["points"]]
equal("resources", read, "select worker, measure, mean::double, max::double, min::double from {}", expected)

# Durations: each histogram has the percentiles of its name and step.
log = folder / "durations.hlog"
log.write_bytes(get("tasks.hlog", ""))
reader = HistogramLogReader(str(log), HdrHistogram(1, 3_600_000_000_000, 3))
found = {}
while (histogram := reader.get_next_interval_histogram()) is not None:
    at_ms = round(histogram.get_start_time_stamp())
    percentiles = [histogram.get_value_at_percentile(percent) for percent in (50, 90, 99)]
    found[histogram.get_tag(), at_ms] = (histogram.get_total_count(), percentiles)
measured = 0
for name in names:
    answer = json.loads(get("tasks/durations", f"task={name['name']}"))
    for point in answer["points"]:
        if point["p50_ns"] is None:
            continue
        count, percentiles = found.pop((name["name"].replace(" ", "_"), point["start_ns"] // 1_000_000))
        assert 0 < count <= point["ended"], (name, point, count)
        for percentile, key in zip(percentiles, ("p50_ns", "p90_ns", "p99_ns")):
            # A bucket is its middle in JSON and its end here.
            assert abs(percentile - point[key]) <= point[key] / 1024, (name["name"], key, percentile, point[key])
        measured += count
assert not found and measured == sum(sums.get("count", 0) for sums in durations), (found, measured)
print(f"hdrhistogram reads the durations of {measured} tasks with equal percentiles")
print(f"DuckDB {duckdb.__version__} reads CSV and Parquet like JSON: {len(tasks)} tasks, {len(names)} names, "
      f"{functions} functions, {steps} steps, {points} points of resources")
