//! Queries in SQL: the same sums as the API, over one store and over several, and nothing but reading.

mod program;
mod spilled;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Collector, Worker, emberline, output, run, wait_for};
use crate::stores::bucket;
use crate::views::report_golden::{RANGE, golden_collector};

/// Whether `emberline` finds the program for SQL; a line says if not.
fn has_sql() -> bool {
    let is_missing = program::path().is_none();
    if is_missing {
        println!("skipped: `cargo xtask test --only sql` builds the program emberline-sql");
    }
    !is_missing
}

/// The golden store and its collector.
struct Golden {
    collector: Collector,
    store: PathBuf,
    /// Deleted after the collector has ended.
    folder: TempDir,
}

/// `None` if the program does not answer SQL.
fn golden() -> Option<Golden> {
    if !has_sql() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let store = folder.path().join("store");
    Some(Golden {
        folder,
        collector,
        store,
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The rows of a query that succeeds.
fn rows(arguments: &[&str], query: &str) -> Vec<Value> {
    let done = run(&[&["sql", "--format", "json"][..], arguments, &[query]].concat());
    assert!(done.status.success(), "{query}: {}", said(&done));
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answer["truncated"], false, "{query}");
    answer["rows"].as_array().unwrap().clone()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Nanoseconds by name in rows of a name and a number.
fn by_name(rows: &[Value]) -> Vec<(String, u64)> {
    let mut sums: Vec<_> = rows
        .iter()
        .map(|row| (row[0].as_str().unwrap_or("-").to_owned(), number(&row[1])))
        .collect();
    sums.sort();
    sums
}

#[test]
fn sums_of_sql_are_those_of_the_api() {
    let Some(golden) = golden() else { return };
    let Golden {
        collector, store, ..
    } = &golden;
    let url = collector.url();
    let asked = ["--url", &url];
    let range = format!("from={}&to={}&threads=all", RANGE[1], RANGE[3]);
    let profile = collector.json(&format!("/api/v1/profile?{range}&state=all"));
    for resolution in ["1s", "1m", "10m", "1h", "1d"] {
        let query = format!("SELECT sum(weight_ns) FROM samples('{resolution}')");
        assert_eq!(
            rows(&asked, &query)[0][0],
            profile["totals"]["total_ns"],
            "{query}"
        );
    }
    let mut states = 0;
    for state in [
        "cpu",
        "runnable",
        "lock",
        "interpreter",
        "sleep",
        "network",
        "disk",
        "other",
    ] {
        let timeline = collector.json(&format!("/api/v1/timeline?{range}&state={state}"));
        let series = timeline["series"].as_array().unwrap().iter();
        let totals = series.map(|one| json!([one["name"], one["totals"]["total_ns"]]));
        let mut expected = by_name(&totals.collect::<Vec<_>>());
        expected.retain(|(_, sum)| *sum > 0);
        states += usize::from(!expected.is_empty());
        let query = format!(
            "SELECT task, sum(weight_ns) FROM samples('1s') WHERE state = '{state}' GROUP BY task"
        );
        assert_eq!(by_name(&rows(&asked, &query)), expected, "{state}");
    }
    assert!(states >= 3, "the store has few states: {states}");
    // One task, of which most pages have nothing, and a range that ends within a file.
    let of_task = collector.json(&format!(
        "/api/v1/profile?from={}&to=2023-11-14T22:13:30Z&threads=all&state=all&task=task-0",
        RANGE[1]
    ));
    let query = "SELECT sum(weight_ns) FROM samples('1s') WHERE task = 'task-0' \
                 AND ts < '2023-11-14T22:13:30Z'";
    assert_eq!(rows(&asked, query)[0][0], of_task["totals"]["total_ns"]);
    // Each task once, and those that came as sums have no row.
    let answer = collector.json(&format!(
        "/api/v1/tasks?from={}&to={}&limit=100000",
        RANGE[1], RANGE[3]
    ));
    let listed = answer["tasks"].as_array().unwrap().iter();
    let ended = listed.filter(|task| task["outcome"] != "running").count();
    let query = "SELECT count(*) FROM tasks WHERE outcome <> 'running'";
    assert_eq!(rows(&asked, query), [json!([ended])]);
    // The same without a collector, and while one runs.
    let data = ["--data", store.to_str().unwrap()];
    let query = "SELECT task, state, sum(weight_ns) FROM samples GROUP BY 1, 2 ORDER BY 1, 2";
    assert_eq!(rows(&data, query), rows(&asked, query));
}

/// Sums of columns are taken before names are joined, other sums after that.
#[test]
fn sums_are_the_same_before_and_after_names() {
    // The optimizer's rule changes sums of columns only.
    const LATE_SUM: &str = "sum(abs(weight_ns))";
    let Some(golden) = golden() else { return };
    let data = ["--data", golden.store.to_str().unwrap()];
    let worker = rows(&data, "SELECT min(worker) FROM workers")[0][0]
        .as_str()
        .unwrap()
        .to_owned();
    let mut found = 0;
    for resolution in ["1s", "1m", "1d"] {
        for query in [
            "SELECT task, sum(weight_ns) FROM S GROUP BY 1 ORDER BY 1",
            "SELECT task, state, worker, sum(weight_ns) FROM S GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
            "SELECT ts, sum(weight_ns) FROM S GROUP BY 1 ORDER BY 1",
            "SELECT function, module, sum(weight_ns) FROM S WHERE state = 'cpu' GROUP BY 1, 2 ORDER BY 1, 2",
            "SELECT node, sum(weight_ns) FROM S WHERE worker = 'W' GROUP BY 1 ORDER BY 1",
            "SELECT task, sum(weight_ns) FROM S WHERE stack(node) LIKE '%1%' GROUP BY 1 ORDER BY 1",
            "SELECT state, sum(weight_ns) FROM S WHERE ts < '2023-11-14T22:14:00Z' GROUP BY 1 ORDER BY 1",
            "SELECT collector, sum(weight_ns) FROM S GROUP BY 1",
            "SELECT collector, sum(weight_ns) FROM S WHERE ts < '1980-01-01T00:00:00Z' GROUP BY 1",
            "SELECT sum(weight_ns), sum(weight_ns) FILTER (WHERE state <> 'cpu' AND task = 'task-0') FROM S",
            "SELECT s.task, w.host, sum(s.weight_ns) FROM S s JOIN workers w ON w.worker = s.worker \
             GROUP BY 1, 2 ORDER BY 1, 2",
            "SELECT task, total FROM (SELECT task, sum(weight_ns) AS total FROM S WHERE line >= 0 GROUP BY 1) \
             WHERE total > 1000 ORDER BY 1",
        ] {
            let query = query
                .replace("FROM S", &format!("FROM samples('{resolution}')"))
                .replace("'W'", &format!("'{worker}'"));
            let late = query
                .replace("sum(weight_ns)", LATE_SUM)
                .replace("sum(s.weight_ns)", "sum(abs(s.weight_ns))");
            assert_ne!(query, late);
            let early = rows(&data, &query);
            assert_eq!(early, rows(&data, &late), "{query}");
            found += early.len();
        }
    }
    assert!(found > 200, "the store has few sums: {found}");
    // A sum without stacks reads a table that has none.
    let plan = |sum: &str| {
        let plan = rows(
            &data,
            &format!("EXPLAIN SELECT task, {sum} FROM samples GROUP BY task"),
        );
        plan.iter()
            .map(|row| row[1].as_str().unwrap().to_owned())
            .collect::<String>()
    };
    assert!(
        plan("sum(weight_ns)").contains("tables/totals_1m/"),
        "{}",
        plan("sum(weight_ns)")
    );
    assert!(
        plan(LATE_SUM).contains("tables/samples_1m/"),
        "{}",
        plan(LATE_SUM)
    );
}

/// The lines of a plan that read a table.
fn scans(data: &[&str], query: &str, table: &str) -> Vec<String> {
    let plan = rows(data, &format!("EXPLAIN {query}"));
    let physical = plan.iter().find(|row| row[0] == "physical_plan").unwrap();
    let lines = physical[1].as_str().unwrap().lines();
    lines
        .filter(|line| line.contains(&format!("tables/{table}/")))
        .map(str::to_owned)
        .collect()
}

/// Workers are selected by name, and rows of others are dropped where they are read.
#[test]
fn rows_of_other_workers_are_not_summed() {
    let Some(golden) = golden() else { return };
    let data = ["--data", golden.store.to_str().unwrap()];
    let by_worker = rows(
        &data,
        "SELECT worker, task, node, sum(weight_ns) FROM samples GROUP BY 1, 2, 3 ORDER BY 2, 3, 1",
    );
    let worker = rows(&data, "SELECT min(worker) FROM workers")[0][0]
        .as_str()
        .unwrap()
        .to_owned();
    let of_worker = by_worker.iter().filter(|row| row[0] == *worker);
    let expected: Vec<Value> = of_worker
        .map(|row| json!([row[1], row[2], row[3]]))
        .collect();
    assert!(
        expected.len() > 10 && expected.len() < by_worker.len(),
        "{expected:?}"
    );
    for selection in [
        format!("worker = '{worker}'"),
        format!("worker IN (SELECT worker FROM workers WHERE worker = '{worker}')"),
        format!(
            "worker IN (SELECT w.worker FROM workers w JOIN stacks k ON k.node > 0 WHERE w.worker LIKE '{worker}')"
        ),
    ] {
        let query = format!(
            "SELECT task, node, sum(weight_ns) FROM samples WHERE {selection} GROUP BY 1, 2 ORDER BY 1, 2"
        );
        assert_eq!(rows(&data, &query), expected, "{query}");
        let scans = scans(&data, &query, "samples_1m");
        assert!(
            !scans.is_empty()
                && scans
                    .iter()
                    .all(|scan: &String| scan.contains("DynamicFilter")),
            "{query}: {scans:?}"
        );
    }
    // A condition on stacks is tried for each stack, not for each row.
    let query = "SELECT task, sum(weight_ns) FROM samples WHERE stack(node) LIKE '%1%' GROUP BY 1";
    let scans = scans(&data, query, "samples_1m_all");
    assert!(
        scans.len() == 1 && !scans[0].contains("stack("),
        "{scans:?}"
    );
    // The other worker's life is no longer listed, but its rows are part of the whole.
    let count = |condition: &str| {
        rows(
            &data,
            &format!("SELECT count(*) FROM samples WHERE worker {condition}"),
        )
    };
    assert_eq!(
        count("NOT IN (SELECT worker FROM workers)"),
        count(&format!("<> '{worker}'"))
    );
}

/// A collector seals what it has in memory before it answers.
#[test]
fn a_collector_answers_with_what_it_has_just_acknowledged() {
    if !has_sql() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let collector = Collector::start_with_data("127.0.0.1:0", &store);
    let record = Worker::start("steady", "w1", &collector.url(), &[]).finish();
    let stored_ns = number(&record["report"]["stored_ns"]);
    assert!(stored_ns > 0, "{record}");
    let asked = ["--url", &collector.url()];
    let sums = rows(&asked, "SELECT sum(weight_ns) FROM samples('1s')");
    assert_eq!(sums, [json!([stored_ns])]);
    let tasks = rows(&asked, "SELECT count(*) FROM tasks WHERE outcome = 'ok'");
    assert_eq!(tasks, [json!([record["tasks"]])]);
}

/// The phases of a task and the rest of its time are its duration.
#[test]
fn phases_have_all_time_of_tasks() {
    let Some(golden) = golden() else { return };
    let data = ["--data", golden.store.to_str().unwrap()];
    for resolution in ["1s", "1h"] {
        let durations = "SELECT n.function, sum(d.duration_ns) FROM store.duration_sums_1s d \
                         JOIN store.node_names n ON n.node = d.task GROUP BY 1";
        // A task waits in a queue before it starts.
        let phases = format!(
            "SELECT task, sum(duration_ns) FROM phases('{resolution}') WHERE phase <> 'queue' GROUP BY 1"
        );
        let expected = by_name(&rows(&data, durations));
        assert_eq!(expected.len(), 3, "{expected:?}");
        assert_eq!(by_name(&rows(&data, &phases)), expected, "{resolution}");
        let tasks = "SELECT sum(tasks) FROM store.durations_1s";
        let executed =
            format!("SELECT sum(tasks) FROM phases('{resolution}') WHERE phase = 'execute'");
        assert_eq!(rows(&data, &executed), rows(&data, tasks), "{resolution}");
        let others =
            format!("SELECT sum(duration_ns) FROM phases('{resolution}') WHERE phase <> 'execute'");
        assert!(
            number(&rows(&data, &others)[0][0]) > 0,
            "the store has no other phases"
        );
    }
}

#[test]
fn each_view_has_rows_with_names_and_a_node_has_its_stack() {
    let Some(golden) = golden() else { return };
    let data = ["--data", golden.store.to_str().unwrap()];
    for view in [
        "samples",
        "stacks",
        "tasks",
        "phases",
        "transfers",
        "resources",
        "workers",
    ] {
        let count = rows(
            &data,
            &format!("SELECT count(*), min(collector) FROM {view}"),
        );
        assert!(number(&count[0][0]) > 0, "{view}");
        assert_eq!(count[0][1], "store", "{view}");
    }
    let hottest = rows(
        &data,
        "SELECT stack(node), task, function FROM samples WHERE worker IS NOT NULL \
         ORDER BY weight_ns DESC LIMIT 1",
    );
    let [stack, task, function] = [0, 1, 2].map(|cell| hottest[0][cell].as_str().unwrap());
    assert!(
        stack.starts_with(task) && stack.ends_with(function),
        "{hottest:?}"
    );
    let durations = rows(&data, "SELECT count(*) FROM tasks WHERE duration_ns < 0");
    assert_eq!(durations, [json!([0])]);
    // Of several rows of a task one counts.
    let twice = "SELECT count(*) FROM (SELECT worker, epoch, id FROM tasks WHERE outcome <> 'running' \
                 GROUP BY 1, 2, 3 HAVING count(*) > 1)";
    assert_eq!(rows(&data, twice), [json!([0])]);
    let tables = rows(&data, "SHOW TABLES");
    assert!(
        tables
            .iter()
            .any(|row| row[1] == "store" && row[2] == "samples_1s"),
        "{tables:?}"
    );
}

#[test]
fn rows_leave_as_a_table_and_as_files() {
    let Some(golden) = golden() else { return };
    let Golden {
        folder, collector, ..
    } = &golden;
    let url = collector.url();
    let query = "SELECT 'größe' AS name, 1.5 AS value, now() < now() AS is_late, NULL AS nothing";
    let table = run(&["sql", "--url", &url, query]);
    let text = String::from_utf8_lossy(&table.stdout);
    assert_eq!(
        text,
        "name   value  is_late  nothing\ngröße    1.5  false    NULL\n"
    );
    assert!(said(&table).starts_with("data until "), "{}", said(&table));
    for (file, start) in [("a.csv", &b"name\n"[..]), ("a.parquet", b"PAR1")] {
        let path = folder.path().join(file);
        let done = run(&[
            "sql",
            "--url",
            &url,
            "-o",
            path.to_str().unwrap(),
            "SELECT 'x' AS name",
        ]);
        assert!(done.status.success(), "{}", said(&done));
        assert!(fs::read(&path).unwrap().starts_with(start), "{file}");
    }
    let query = folder.path().join("query.sql");
    fs::write(&query, "SELECT 7 AS n").unwrap();
    let piped = output(
        Command::new(emberline())
            .args(["sql", "--url", &url, "--format", "csv", "-"])
            .stdin(fs::File::open(&query).unwrap()),
    );
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "n\n7\n");
    let few = run(&[
        "sql",
        "--url",
        &url,
        "--rows",
        "1",
        "SELECT node FROM stacks",
    ]);
    assert!(
        said(&few).contains("only the first 1 rows"),
        "{}",
        said(&few)
    );
}

#[test]
fn statements_that_write_or_read_other_files_are_rejected() {
    let Some(golden) = golden() else { return };
    let Golden {
        folder,
        collector,
        store,
    } = &golden;
    let secret = folder.path().join("secret.csv");
    fs::write(&secret, "a\n1\n").unwrap();
    let secret = secret.display();
    let written = folder.path().join("written");
    let target = written.display();
    let url = collector.url();
    for (statement, reason) in [
        (
            format!("COPY (SELECT 1) TO '{target}' STORED AS CSV"),
            "queries only read",
        ),
        (
            format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{secret}'"),
            "queries only read",
        ),
        ("CREATE TABLE t AS SELECT 1".to_owned(), "queries only read"),
        (
            "CREATE VIEW samples AS SELECT 1".to_owned(),
            "queries only read",
        ),
        ("DROP VIEW samples".to_owned(), "queries only read"),
        (
            "INSERT INTO store.tasks SELECT * FROM store.tasks".to_owned(),
            "queries only read",
        ),
        ("DELETE FROM store.tasks".to_owned(), "queries only read"),
        (
            "SET datafusion.execution.target_partitions = 1000".to_owned(),
            "queries only read",
        ),
        (format!("SELECT * FROM '{secret}'"), "not found"),
        (
            format!("SELECT * FROM read_parquet('{secret}')"),
            "not found",
        ),
        (format!("SELECT * FROM read_csv('{secret}')"), "not found"),
        ("SELECT 1; SELECT 2".to_owned(), "single SQL statement"),
        ("SELEC 1".to_owned(), "Expected"),
        ("SELECT * FROM nothing".to_owned(), "SHOW TABLES lists them"),
        ("SELECT nothing FROM tasks".to_owned(), "nothing"),
        (
            "SELECT * FROM samples('2s')".to_owned(),
            "needs a resolution",
        ),
        ("SELECT 1 / 0".to_owned(), "Divide by zero"),
        (String::new(), "No SQL statements"),
    ] {
        let places: [[&str; 2]; 2] = [["--url", &url], ["--data", store.to_str().unwrap()]];
        for place in places {
            let done = run(&["sql", place[0], place[1], &statement]);
            let text = said(&done);
            assert_eq!(done.status.code(), Some(2), "{statement}: {text}");
            assert!(text.contains(reason), "{statement}: {text}");
            assert!(done.stdout.is_empty(), "{statement}");
        }
    }
    assert!(!written.exists());
    assert_eq!(
        rows(&["--url", &url], "SELECT 1"),
        [json!([1])],
        "the collector still answers"
    );
}

/// Processes of queries, whose parent is the collector.
fn children(collector: &Collector) -> Vec<String> {
    children_of(collector.process.id())
}

fn children_of(parent: u32) -> Vec<String> {
    let listed = output(Command::new("pgrep").args(["-P", &parent.to_string()]));
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_query_that_explodes_is_ended_and_one_ends_with_its_reader() {
    let Some(golden) = golden() else { return };
    let Golden { collector, .. } = &golden;
    let url = collector.url();
    for explosion in [
        "SELECT length(repeat(repeat('x', 1000000), 1000000))",
        "SELECT a.node, count(*) FROM stacks a, stacks b, stacks c, stacks d, stacks e, stacks f \
         GROUP BY a.node, b.stack, c.stack, d.stack, e.stack, f.stack",
    ] {
        let done = run(&["sql", "--url", &url, explosion]);
        assert_eq!(done.status.code(), Some(2), "{explosion}: {}", said(&done));
    }
    // An endless query, whose reader is killed.
    let endless = "SELECT count(*) FROM stacks a, stacks b, stacks c, stacks d, stacks e, stacks f, \
                   stacks g WHERE a.node + b.node + c.node + d.node + e.node + f.node = g.node";
    let mut reader = Command::new(emberline())
        .args(["sql", "--url", &url, endless])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = wait_for("the query's process", || children(collector).pop());
    let of_child = |file: &str| fs::read_to_string(format!("/proc/{child}/{file}")).unwrap();
    wait_for("its limits", || {
        of_child("limits").contains("8589934592").then_some(())
    });
    wait_for("its rank", || {
        (of_child("oom_score_adj").trim() == "1000").then_some(())
    });
    reader.kill().unwrap();
    reader.wait().unwrap();
    wait_for("the end of the query's process", || {
        children(collector).is_empty().then_some(())
    });
    assert_eq!(rows(&["--url", &url], "SELECT 1"), [json!([1])]);
}

/// A collector's limits on queries: two at once, a minute for each.
#[test]
fn two_queries_run_at_once_and_each_for_a_minute_at_most() {
    let Some(golden) = golden() else { return };
    let Golden { collector, .. } = &golden;
    let url = collector.url();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000000) WHERE value % 7 = 8";
    let start = || {
        let mut reader = Command::new(emberline());
        reader
            .args(["sql", "--url", &url, endless])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        reader
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let readers = [start(), start()];
    wait_for("both queries", || {
        (children(collector).len() == 2).then_some(())
    });
    let third = run(&["sql", "--url", &url, "SELECT 1"]);
    assert!(!third.status.success());
    assert!(
        said(&third).contains("too many other queries"),
        "{}",
        said(&third)
    );
    assert_eq!(children(collector).len(), 2);
    for reader in readers {
        let done = reader.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{}", said(&done));
        assert!(said(&done).contains("longer than 60 s"), "{}", said(&done));
    }
    assert_eq!(rows(&["--url", &url], "SELECT 1"), [json!([1])]);
}

/// Two collectors whose numbers of stacks and workers mean different things.
#[test]
fn a_query_over_a_place_has_the_rows_of_all_collectors() {
    if !has_sql() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}", folder.path().display());
    let mut sums = Vec::new();
    for name in ["c1", "c-2"] {
        let arguments = ["--listen", "127.0.0.1:0", "--store", &place, "--name", name];
        let mut collector = Collector::start_with(&arguments);
        for number in 0..2 {
            let id = format!("{name}-{number}");
            let worker = Worker::start("truth", &id, &collector.url(), &["1"]);
            worker.finish();
        }
        let profile = collector.json("/api/v1/profile?from=-1h&threads=all&state=all");
        sums.push(number(&profile["totals"]["total_ns"]));
        // It puts everything in tables.
        let pid = Pid::from_raw(collector.process.id().cast_signed());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(collector.process.wait().success());
    }
    let of_place = ["--store", &place];
    let workers = rows(
        &of_place,
        "SELECT collector, worker FROM workers ORDER BY 1, 2",
    );
    let expected = [
        json!(["c-2", "c-2-0"]),
        json!(["c-2", "c-2-1"]),
        json!(["c1", "c1-0"]),
        json!(["c1", "c1-1"]),
    ];
    assert_eq!(workers, expected);
    let by_collector = "SELECT collector, sum(weight_ns) FROM samples GROUP BY 1 ORDER BY 1";
    let found = rows(&of_place, by_collector);
    assert_eq!([&found[1][1], &found[0][1]].map(number), [sums[0], sums[1]]);
    let mixed = "SELECT count(*) FROM samples WHERE NOT starts_with(worker, collector)";
    assert_eq!(rows(&of_place, mixed), [json!([0])]);
    let one = ["--store", &place, "--name", "c-2"];
    assert_eq!(rows(&one, by_collector), [json!(["c-2", sums[1]])]);
    let stacks = "SELECT count(*), count(stack(node)) FROM samples";
    let found = rows(&of_place, stacks);
    assert_eq!(
        found[0][0], found[0][1],
        "each node of each store has its stack"
    );
}

/// Tables in a bucket of a real S3 server.
#[test]
fn a_query_reads_the_stores_of_a_bucket() {
    if !has_sql() {
        return;
    }
    let Some(server) = bucket::server() else {
        return;
    };
    let place = format!("s3://{}/sql", simulation::s3::BUCKET);
    let mut sums = Vec::new();
    for name in ["c1", "c2"] {
        let mut command = Command::new(emberline());
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &place,
            "--name",
            name,
        ]);
        let mut collector = Collector::start_by(command.envs(server.environment()));
        let worker = Worker::start("truth", &format!("{name}-w"), &collector.url(), &["1"]);
        worker.finish();
        let profile = collector.json("/api/v1/profile?from=-1h&threads=all&state=all");
        sums.push(number(&profile["totals"]["total_ns"]));
        kill(
            Pid::from_raw(collector.process.id().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        assert!(collector.process.wait().success());
    }
    let environment = server.environment();
    let ask = |query: &str| {
        let mut command = Command::new(emberline());
        command.args(["sql", "--format", "json", "--store", &place, query]);
        output(
            command
                .envs(environment.iter().cloned())
                .env("NO_COLOR", "1")
                .stdin(Stdio::null()),
        )
    };
    let done = ask("SELECT collector, sum(weight_ns) FROM samples('1s') GROUP BY 1 ORDER BY 1");
    assert!(done.status.success(), "{}", said(&done));
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answer["rows"], json!([["c1", sums[0]], ["c2", sums[1]]]));
    let port = server.port;
    drop(server);
    let done = ask("SELECT 1");
    let text = said(&done);
    assert_eq!(done.status.code(), Some(1), "{text}");
    assert!(text.contains(&port.to_string()), "{text}");
}
