//! Sums on a Ballista cluster: those of a process alone, also when executors or the scheduler die. And
//! `cargo xtask cluster`, which starts one.
//!
//! The programs are those of `cargo xtask test --only cluster`; without them these tests say so and pass.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use simulation::ballista::BallistaCluster;

use crate::harness::{
    Collector, Running, TEST_WORKER, alone, emberline, get, output, run, wait_for,
};
use crate::views::report_golden::{RANGE, golden_collector};

/// Names the folder with the programs of Ballista.
const BALLISTA_VARIABLE: &str = "EMBERLINE_TEST_BALLISTA";

/// Sends all sums to the cluster, however small they are.
const ALL: [&str; 2] = ["--distribute-over", "0MB"];

const QUERIES: [&str; 5] = [
    "SELECT task, sum(weight_ns) FROM samples('1s') GROUP BY 1 ORDER BY 1",
    "SELECT stack(node) AS stack, sum(weight_ns) AS weight FROM samples('1s') \
     WHERE state = 'cpu' AND ts < '2023-11-14T22:14:00Z' GROUP BY node ORDER BY weight DESC, stack LIMIT 20",
    "SELECT worker, state, sum(weight_ns) FROM samples GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT task, sum(weight_ns) FROM samples('1s') WHERE stack(node) LIKE '%1%' GROUP BY 1 ORDER BY 1",
    "SELECT node, count(*), min(ts), max(weight_ns) FROM store.samples_1s WHERE state < 3 GROUP BY 1 ORDER BY 1",
];

fn programs() -> Option<PathBuf> {
    let programs = env::var_os(BALLISTA_VARIABLE).map(PathBuf::from);
    if programs.is_none() {
        println!("skipped: `cargo xtask test --only cluster` builds the programs");
    }
    programs
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a query on the golden store.
fn ask(store: &Path, more: &[&str], query: &str) -> Output {
    let data = store.to_str().unwrap();
    run(&[
        &["sql", "--format", "json", "--data", data][..],
        more,
        &[query],
    ]
    .concat())
}

fn rows(store: &Path, more: &[&str], query: &str) -> Value {
    let done = ask(store, more, query);
    assert!(done.status.success(), "{query}: {}", said(&done));
    assert_eq!(said(&done), "", "{query}");
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    answer["rows"].clone()
}

/// All stacks of a profile.
fn run_profile(source: &[&str], filter: &[&str]) -> Output {
    let all = ["--threads", "all", "--outside", "--runnable", "--waiting"];
    let command = [&["profile", "--format", "collapsed"][..], &RANGE, &all];
    run(&[&command.concat(), source, filter].concat())
}

/// These stacks in order.
fn profile(source: &[&str], filter: &[&str]) -> String {
    let done = run_profile(source, filter);
    assert!(done.status.success(), "{}", said(&done));
    String::from_utf8(done.stdout).unwrap()
}

/// The jobs of a scheduler, by its own API.
fn jobs(cluster: &BallistaCluster) -> Vec<Value> {
    let (status, text) = get(&format!("http://{}", cluster.scheduler), "/api/jobs");
    assert_eq!(status, 200, "{text}");
    let jobs: Value = serde_json::from_str(&text).unwrap();
    jobs.as_array().unwrap().clone()
}

fn finished_jobs(cluster: &BallistaCluster) -> usize {
    jobs(cluster).len()
}

/// Rows of all jobs' results.
fn result_rows(cluster: &BallistaCluster) -> u64 {
    jobs(cluster)
        .iter()
        .map(|job: &Value| -> u64 {
            let status = job["job_status"].as_str().unwrap();
            let (_, rest) = status.split_once(" containing ").unwrap();
            rest.split_once(" row").unwrap().0.parse().unwrap()
        })
        .sum()
}

#[test]
fn a_cluster_finds_the_sums_that_one_process_finds() {
    let Some(programs) = programs() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let store = folder.path().join("store");
    let mut cluster = BallistaCluster::start(&programs, folder.path(), &[]).unwrap();
    let scheduler = cluster.scheduler.clone();
    let on_cluster = [&["--scheduler", &scheduler][..], &ALL].concat();
    for (number, query) in QUERIES.into_iter().enumerate() {
        let alone = rows(&store, &[], query);
        assert!(!alone.as_array().unwrap().is_empty(), "{query}");
        assert_eq!(rows(&store, &on_cluster, query), alone, "{query}");
        assert_eq!(
            finished_jobs(&cluster),
            number + 1,
            "{query}: not on the cluster"
        );
    }
    // Executors have no names, but they drop the rows of other workers.
    for selection in [
        "= 'worker-1'",
        "IN (SELECT worker FROM workers WHERE worker LIKE '%-1')",
    ] {
        let query = format!(
            "SELECT task, node, sum(weight_ns) FROM samples('1s') WHERE worker {selection} \
             GROUP BY 1, 2 ORDER BY 1, 2"
        );
        let before = result_rows(&cluster);
        let sums = rows(&store, &on_cluster, &query);
        assert_eq!(sums, rows(&store, &[], &query), "{query}");
        let count = sums.as_array().unwrap().len() as u64;
        assert_eq!(result_rows(&cluster) - before, count, "{query}");
    }

    // A collector hands its sums to the cluster too.
    drop(collector);
    let own = ["--listen", "127.0.0.1:0", "--data", store.to_str().unwrap()];
    let collector = Collector::start_with(&[&own[..], &on_cluster].concat());
    let done = run(&[
        "sql",
        "--format",
        "json",
        "--url",
        &collector.url(),
        QUERIES[0],
    ]);
    assert!(done.status.success(), "{}", said(&done));
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answer["rows"], rows(&store, &[], QUERIES[0]));
    assert_eq!(
        finished_jobs(&cluster),
        QUERIES.len() + 3,
        "not on the cluster"
    );

    // So are the samples of its profiles, and of a command that reads the stores of a place.
    let place = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .args([&store, &place.path().join("c1")])
        .status();
    assert!(copied.unwrap().success());
    let place = format!("file://{}", place.path().display());
    let copy = tempfile::tempdir().unwrap();
    let alone = golden_collector(copy.path());
    for filter in [&[][..], &["--worker", "worker-1"], &["--task", "task-0"]] {
        let expected = profile(&["--url", &alone.url()], filter);
        assert!(expected.lines().count() > 3, "{expected}");
        let before = finished_jobs(&cluster);
        assert_eq!(profile(&["--url", &collector.url()], filter), expected);
        let stores = [&["--store", &place][..], &on_cluster].concat();
        assert_eq!(profile(&stores, filter), expected);
        assert_eq!(finished_jobs(&cluster), before + 2, "not on the cluster");
    }
    drop(alone);

    // Small sums stay here.
    assert_eq!(
        rows(&store, &["--scheduler", &scheduler], QUERIES[0]),
        rows(&store, &[], QUERIES[0])
    );
    assert_eq!(finished_jobs(&cluster), QUERIES.len() + 9);

    // An executor that dies while queries run leaves its work to the other one.
    let before = finished_jobs(&cluster);
    let expected = rows(&store, &[], QUERIES[0]);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            (0..6)
                .map(|_| rows(&store, &on_cluster, QUERIES[0]))
                .collect()
        });
        wait_for("two queries", || {
            (finished_jobs(&cluster) >= before + 2).then_some(())
        });
        drop(cluster.services.remove(0));
        let found: Vec<Value> = asker.join().unwrap();
        assert!(
            found.iter().all(|rows| *rows == expected),
            "{found:?} instead of {expected}"
        );
    });

    // Without a scheduler the query runs here, and says so.
    drop(cluster);
    let done = ask(&store, &on_cluster, QUERIES[0]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(
        said(&done).contains("no scheduler answers at"),
        "{}",
        said(&done)
    );
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answer["rows"], rows(&store, &[], QUERIES[0]));
    let done = run_profile(&[&["--store", &place][..], &on_cluster].concat(), &[]);
    let said = said(&done);
    assert!(
        said.contains("the cluster did not sum, so this process reads the files"),
        "{said}"
    );
    let stacks = String::from_utf8(done.stdout).unwrap();
    assert_eq!(stacks, profile(&["--store", &place], &[]));
    drop(collector);
}

#[test]
fn a_port_without_a_scheduler_is_named_and_bad_input_is_rejected() {
    let Some(_) = programs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let store = folder.path().join("store");
    // It accepts connections and knows no gRPC.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let done = ask(
        &store,
        &[&["--scheduler", &address][..], &ALL].concat(),
        QUERIES[0],
    );
    let text = said(&done);
    assert_eq!(done.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the cluster of the scheduler") && text.contains(&address),
        "{text}"
    );
    for (arguments, reason) in [
        (&["--scheduler", "nowhere"][..], "expected HOST:PORT"),
        (&["--distribute-over", "1GB"], "--scheduler"),
        (
            &["--scheduler", &address, "--distribute-over", "much"],
            "a size is",
        ),
    ] {
        let done = ask(&store, arguments, "SELECT 1");
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(
            said(&done).contains(reason),
            "{arguments:?}: {}",
            said(&done)
        );
    }
    let url = collector.url();
    let done = run(&["sql", "--url", &url, "--scheduler", &address, "SELECT 1"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        said(&done).contains("emberline serve --scheduler"),
        "{}",
        said(&done)
    );
}

/// Processes below a process.
fn descendants(parent: u32) -> Vec<u32> {
    let listed = output(Command::new("pgrep").args(["-P", &parent.to_string()]));
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let children = text.lines().filter_map(|line| line.parse::<u32>().ok());
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// Starts `cargo xtask cluster` with what is built, asks both collectors, and ends it as Ctrl-C does.
#[test]
fn a_cluster_of_all_parts_starts_and_ends_without_a_trace() {
    let program = PathBuf::from(TEST_WORKER).with_file_name("emberline-bench");
    let probe = run(&["store", "info", "--store", "s3://a/b", "--name", "a"]);
    if !program.exists() || said(&probe).contains("without the feature `s3`") {
        println!("skipped: `cargo xtask test --only bench` builds the programs");
        return;
    }
    let _alone = alone();
    let mut command = Command::new(program);
    command.args([
        "cluster",
        "--workers",
        "4",
        "--seconds",
        "300",
        "--emberline",
    ]);
    command.arg(emberline());
    match env::var_os(BALLISTA_VARIABLE) {
        Some(ballista) => command.arg("--ballista").arg(ballista),
        None => command.arg("--no-ballista"),
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut cluster = Running::new(child);
    let mut collectors = Vec::new();
    for line in lines.map_while(Result::ok) {
        if let Some((_, url)) = line
            .strip_prefix("collector")
            .and_then(|rest| rest.split_once(" at "))
        {
            collectors.push(url.to_owned());
        }
        if line.starts_with("Tables have") {
            break;
        }
    }
    assert_eq!(collectors.len(), 2, "it did not start");
    wait_for("all workers at one of both collectors", || {
        let workers = collectors.iter().map(|url| {
            let answer: Value = serde_json::from_str(&get(url, "/api/v1/workers").1).unwrap();
            answer["workers"].as_array().unwrap().len()
        });
        (workers.sum::<usize>() == 4).then_some(())
    });
    let processes = descendants(cluster.id());
    assert!(processes.len() >= 8, "{processes:?}");
    let begin = Instant::now();
    kill(Pid::from_raw(cluster.id().cast_signed()), Signal::SIGINT).unwrap();
    let status = cluster.wait();
    assert!(status.success(), "{status}");
    assert!(begin.elapsed() < Duration::from_secs(120));
    let left: Vec<_> = processes
        .into_iter()
        .filter(|process| is_alive(*process))
        .collect();
    assert!(left.is_empty(), "{left:?} are left");
}
