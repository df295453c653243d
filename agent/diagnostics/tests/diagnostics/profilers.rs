//! The results of the profilers, and the output of the progress bar.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use emberline_agent::task;
use emberline_diagnostics::{
    self as diagnostics, CacheProfiler, Outcome, Profiler, ProgressBar, ResourceProfiler,
};

use crate::{lock, turn};

fn epoch_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

/// The clock of tasks keeps its distance to the real one, which may step while the tests run.
const CLOCK_TOLERANCE_SECONDS: f64 = 60.0;

#[test]
fn a_profiler_records_key_name_times_and_thread() {
    let _turn = turn();
    let profiler = Profiler::new().tasks_max(2);
    let scope = diagnostics::scope(profiler.clone());
    let thread = std::thread::Builder::new().name("loader".into());
    let worker = thread
        .spawn(|| {
            task("load").key("load-1").start().fail("no disk");
            nix::unistd::gettid().as_raw().unsigned_abs()
        })
        .unwrap()
        .join()
        .unwrap();
    drop(task("parse").start());
    drop(task("parse").start());
    drop(scope);
    let results = profiler.results();
    let [load, parse] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(
        (&*load.key, &*load.name, load.outcome),
        ("load-1", "load", Outcome::Failed)
    );
    assert_eq!((load.worker, &*load.worker_name), (worker, "loader"));
    assert_eq!(
        (&*parse.key, &*parse.name, parse.outcome),
        ("", "parse", Outcome::Ok)
    );
    assert!(load.started_at <= load.finished_at && load.finished_at <= parse.started_at);
    assert!((load.start - epoch_now()).abs() < CLOCK_TOLERANCE_SECONDS);
    assert_eq!(load.finish, load.finished_at.unix_ns() as f64 / 1e9);
    assert_eq!(profiler.omitted(), 1);
    drop(diagnostics::scope(profiler.clone()));
    assert!(
        profiler.results().is_empty(),
        "a scope begins with no results"
    );
}

#[test]
fn a_registered_profiler_keeps_results_until_cleared() {
    let _turn = turn();
    let profiler = Profiler::new();
    let registration = diagnostics::register(profiler.clone());
    for _ in 0..2 {
        diagnostics::run("run").during(|| drop(task("load").start()));
    }
    assert_eq!(profiler.results().len(), 2);
    profiler.clear();
    drop(task("load").start());
    assert_eq!(profiler.results().len(), 1);
    assert!(diagnostics::unregister(registration));
}

/// A scope is sampled from start to end; a registered profiler samples only during runs. Its thread ends
/// afterwards, also if it is unregistered in the middle of a run.
#[test]
fn resources_are_sampled_in_scopes_and_runs() {
    let _turn = turn();
    let resources = ResourceProfiler::new().interval(Duration::from_secs(3_600));
    let registration = diagnostics::register(resources.clone());
    assert!(resources.results().is_empty());
    diagnostics::run("run").during(|| assert_eq!(resources.results().len(), 1));
    assert_eq!(resources.results().len(), 2);
    let run = diagnostics::run("run").start();
    assert!(diagnostics::unregister(registration));
    assert_eq!(
        resources.results().len(),
        4,
        "unregistering ends what the run began"
    );
    drop(run);
    let scope = diagnostics::scope(resources.clone());
    diagnostics::run("run").during(|| ());
    assert_eq!(
        resources.results().len(),
        1,
        "the scope goes on after the run"
    );
    drop(scope);
    let results = resources.results();
    let [first, last] = &results[..] else {
        panic!("{results:?}")
    };
    assert!(first.memory_mb > 1.0 && first.memory_mb < 1e6, "{first:?}");
    assert!(first.cpu_percent.is_none() && last.cpu_percent.is_some());
}

#[test]
fn a_cache_profiler_records_entry_exit_and_metric() {
    let _turn = turn();
    let profilers = [
        CacheProfiler::new(),
        CacheProfiler::bytes(),
        CacheProfiler::by("rows", |item| {
            item.value::<Vec<u64>>().map_or(0.0, |v| v.len() as f64)
        }),
    ];
    let cache = diagnostics::cache("blocks").sized_by(|block: &Vec<u64>| 8 * block.len() as u64);
    let early = cache.hold("early", vec![1]);
    let scopes = profilers.clone().map(diagnostics::scope);
    let in_task = task("load").start();
    let held = cache.hold("one", vec![1, 2, 3]);
    drop(in_task);
    cache.hit("one");
    cache.miss("two");
    // The newer value of the same key is not the removed one.
    let newer = cache.hold("one", vec![1, 2]);
    assert_eq!(held.into_value(), [1, 2, 3]);
    cache.hit("one");
    cache.inserted("two", &vec![1, 2, 3, 4]);
    cache.inserted("two", &vec![1]);
    cache.removed("two");
    cache.removed("two");
    drop(early);
    for (profiler, metrics) in
        profilers
            .iter()
            .zip([[1.0; 4], [24.0, 32.0, 8.0, 16.0], [3.0, 4.0, 1.0, 2.0]])
    {
        let rows = profiler.results();
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (&*row.key, row.task.as_deref(), row.hits))
            .collect();
        assert_eq!(
            seen,
            [
                ("one", Some("load"), 1),
                ("two", None, 0),
                ("two", None, 0),
                ("one", None, 1)
            ]
        );
        assert_eq!(
            rows.iter().map(|row| row.metric).collect::<Vec<_>>(),
            metrics
        );
        assert!(rows[..3].iter().all(|row| row.exit.unwrap() >= row.entry));
        assert_eq!(
            (rows[3].exit, &*rows[3].cache),
            (None, "blocks"),
            "it is still there"
        );
        assert!((rows[0].entry - epoch_now()).abs() < CLOCK_TOLERANCE_SECONDS);
        let counts = profiler.counts();
        assert_eq!(
            (counts.inserted, counts.removed, counts.hits, counts.misses),
            (4, 3, 2, 1)
        );
    }
    drop((newer, scopes));
}

/// A writer whose text the test reads.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The last line that a bar of eight characters draws for a run of two expected tasks.
fn last_line(bar: ProgressBar, tasks: usize, fail: bool) -> String {
    let paper = Paper::default();
    let bar = bar
        .width(8)
        .interval(Duration::from_secs(3_600))
        .writer(paper.clone());
    let _scope = diagnostics::scope(bar.clone());
    let run = diagnostics::run("run").expect("load", 2).start();
    (0..tasks).for_each(|_| drop(task("load").start()));
    if fail {
        run.fail()
    } else {
        drop(run)
    }
    assert!(bar.last_duration() > Duration::ZERO);
    let written = String::from_utf8(lock(&paper.0).clone()).unwrap();
    let line = written.rsplit('\r').next().unwrap();
    assert!(
        line.is_empty() || (line.ends_with("s\n") && written.starts_with('\r')),
        "{written:?}"
    );
    line.rsplit_once(" | ")
        .map_or(String::new(), |(line, _)| line.into())
}

#[test]
fn a_bar_ends_full_unless_the_run_failed() {
    let _turn = turn();
    assert_eq!(
        last_line(ProgressBar::new(), 2, false),
        "[########] | 100% Completed"
    );
    assert_eq!(
        last_line(ProgressBar::new(), 1, false),
        "[########] | 100% Completed"
    );
    assert_eq!(
        last_line(ProgressBar::new(), 1, true),
        "[####    ] | 50% Completed"
    );
    assert_eq!(
        last_line(ProgressBar::new(), 0, true),
        "[        ] | 0% Completed"
    );
    let patient = ProgressBar::new().minimum(Duration::from_secs(3_600));
    assert_eq!(
        last_line(patient, 2, false),
        "",
        "a run shorter than the minimum leaves no trace"
    );
}

/// The bar moves during the run, which ends only after the bar was at the half.
#[test]
fn a_bar_moves_during_the_run() {
    let _turn = turn();
    let paper = Paper::default();
    let bar = ProgressBar::new()
        .width(8)
        .interval(Duration::from_millis(1))
        .writer(paper.clone());
    let _scope = diagnostics::scope(bar);
    diagnostics::run("run").expect("load", 2).during(|| {
        drop(task("load").start());
        let is_half = |bytes: &[u8]| bytes.windows(10).any(|line| line == b"[####    ]");
        let begin = Instant::now();
        while !is_half(&lock(&paper.0)) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the bar does not move"
            );
            std::thread::yield_now();
        }
    });
    assert!(lock(&paper.0).ends_with(b"s\n"));
}

#[test]
fn a_bar_is_quiet_without_a_terminal() {
    let _turn = turn();
    let written = |set: fn(ProgressBar) -> ProgressBar| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bar = set(ProgressBar::new().out(file.reopen().unwrap()));
        let scope = diagnostics::scope(bar.clone());
        diagnostics::run("run").during(|| drop(task("load").start()));
        drop(scope);
        assert!(
            bar.last_duration() > Duration::ZERO,
            "the time is known all the same"
        );
        std::fs::read_to_string(file.path()).unwrap()
    };
    assert_eq!(written(|bar| bar), "");
    assert!(written(ProgressBar::even_without_terminal).contains("100% Completed"));
}
