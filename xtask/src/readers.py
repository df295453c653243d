"""Reads every table of a store with DuckDB and compares it with the sums that Emberline reports.

Arguments: the store's directory. Standard input: the output of `emberline store verify --format json`.
"""

import json
import pathlib
import sys

import duckdb

folder = sys.argv[1]
expected = {table["table"]: (table["rows"], table["sum"]) for table in json.load(sys.stdin)["tables"]}
newest = sorted(pathlib.Path(folder, "manifest").glob("*.json"))[-1]
manifest = json.loads(newest.read_text())
assert manifest["format"] == 1, manifest["format"]
values = {"samples": "weight_ns", "totals": "weight_ns", "cycles": "sum", "durations": "tasks",
          "duration_sums": "duration_ns", "transfer_sums": "sum", "threads": "weight_ns",
          "phases": "count", "phase_sums": "duration_ns"}
files = {}
for file in manifest["body"]["files"]:
    path = f"{folder}/tables/{file['table']}/{file['id']:016x}.parquet"
    files.setdefault(file["table"], []).append(path)
assert files.keys() == expected.keys(), (files.keys(), expected.keys())
for table, paths in files.items():
    base = next((base for base in sorted(values, key=len, reverse=True)
                 if table.startswith(base + "_")), None)
    total = f"sum({values[base]})" if base else "0"
    found = duckdb.sql(f"select count(*), {total} from read_parquet({paths})").fetchall()[0]
    assert (found[0], int(found[1])) == expected[table], (table, found, expected[table])

# A typical query: time by task, through the names.
query = f"""
    select f.function, sum(s.weight_ns) from read_parquet({files['samples_1m']}) s
    join read_parquet({files['nodes']}) n on n.id = s.task
    join read_parquet({files['frames']}) f on f.id = n.frame group by 1 order by 1"""
by_task = duckdb.sql(query).fetchall()
assert sum(weight for _, weight in by_task) == expected["samples_1m"][1], by_task

# Transfers: rows and sums agree by link. Resources: each measure is a column.
if "transfers" in files:
    by_row = duckdb.sql(f"""
        select worker, peer, direction, count(*), sum(bytes)::hugeint
        from read_parquet({files['transfers']}) group by all order by all""").fetchall()
    by_sum = duckdb.sql(f"""
        select w.id, l.peer, if(s.direction = 0, 'incoming', 'outgoing'),
               (sum(s.sum) filter (s.measure = 0))::bigint,
               coalesce(sum(s.sum) filter (s.measure = 2), 0)::hugeint
        from read_parquet({files['transfer_sums_1d']}) s
        join read_parquet({files['workers']}) w on w.number = s.worker
        join read_parquet({files['links']}) l on l.number = s.link
        group by all order by all""").fetchall()
    assert by_row == by_sum, (by_row, by_sum)
if "resources" in files:
    samples = duckdb.sql(f"""
        select count(*), count(sampled_at), count(process_cpu), count(process_memory)
        from read_parquet({files['resources']})""").fetchall()[0]
    rows = expected["resources"][0]
    assert samples == (rows, rows, rows, 0), samples
print(f"DuckDB {duckdb.__version__} read {len(files)} tables and agrees; by task: {by_task}")
