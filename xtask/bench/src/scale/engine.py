"""Answers queries in SQL, a JSON string a line: their cost, and the sums by their column `task`.

Arguments: the engine, a folder with a folder of Parquet files for each table. The result stays in the engine, or in
Arrow's columns, while the time is taken: nothing is converted for Python.
"""

import json
import pathlib
import sys
import time

engine, folder = sys.argv[1], pathlib.Path(sys.argv[2])
tables = sorted(table.name for table in folder.iterdir())

if engine == "duckdb":
    import duckdb

    for table in tables:
        duckdb.execute(f"create view {table} as select * from read_parquet('{folder}/{table}/*.parquet')")

    def run(query):
        duckdb.execute(f"create or replace temp table answer as {query}")

    def sums():
        return dict(duckdb.execute("select task, sum(weight_ns)::ubigint from answer group by 1").fetchall())
else:
    import datafusion

    context = datafusion.SessionContext()
    for table in tables:
        context.register_parquet(table, f"{folder}/{table}")
    answer = []

    def run(query):
        answer[:] = context.sql(query).collect()

    def sums():
        found = {}
        for batch in answer:
            for task, weight_ns in zip(batch.column(0).to_pylist(), batch.column(batch.num_columns - 1).to_pylist()):
                found[task] = found.get(task, 0) + weight_ns
        return found


for line in sys.stdin:
    query = json.loads(line)
    wall, cpu = time.perf_counter(), time.process_time()
    run(query)
    cost = {"wall_ms": (time.perf_counter() - wall) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}
    print(json.dumps(cost | {"sums": sums()}), flush=True)
