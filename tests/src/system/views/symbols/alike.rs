//! One program profiled twice: an agent names the functions of the first worker, the collector those of
//! the second. Both show the same frames.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::{Programs, has_names, profile, upload};
use crate::harness::{Collector, Worker, alone, get_bytes, number, wait_for};

/// Stacks of the program.
const STACKS: usize = 256;

/// Samples of each worker that are compared.
const SAMPLES_MIN: u64 = 10_000;
/// How long both are sampled: 65 threads make 6,500 samples a second at most.
const SAMPLED_NS: u64 = 4_000_000_000;
/// Stacks with fewer samples may be missing in the other profile by chance.
const SAMPLES_OF_STACK_MIN: u64 = 10;
/// Least share of the samples that is in stacks with more.
const COMPARED_SHARE_MIN: f64 = 0.95;

/// A frame as a reader sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ShownFrame {
    kind: String,
    name: String,
    file: String,
    line: u64,
    inlined: bool,
}

/// Profile of a worker, by line.
struct Shown {
    /// Samples by stack.
    stacks: BTreeMap<Vec<ShownFrame>, u64>,
    samples: u64,
}

impl Shown {
    /// Returns `None` while the collector names functions.
    fn of(collector: &Collector, worker: &str, program: &str) -> Option<Shown> {
        let path = format!("/api/v1/profile?from=-1h&worker={worker}&by=line");
        let answer = collector.json(&path);
        if answer["unnamed"]["pending"].as_bool().unwrap() {
            return None;
        }
        let tick_ns = number(&answer, "sampled_ns") / number(&answer, "ticks");
        let mut paths: Vec<Vec<ShownFrame>> = vec![Vec::new()];
        let mut times_ns: BTreeMap<Vec<ShownFrame>, u64> = BTreeMap::new();
        for node in answer["profile"]["nodes"].as_array().unwrap() {
            let parent = usize::try_from(number(node, "parent")).unwrap();
            let mut path = paths[parent].clone();
            let frame = shown(node, program);
            // However many functions of a library follow each other: nobody has its symbols.
            if frame.kind != "library" || path.last() != Some(&frame) {
                path.push(frame);
            }
            let parts = ["cpu", "runnable", "wait"];
            let own_ns: u64 = parts.iter().map(|part| number(&node["self"], part)).sum();
            *times_ns.entry(path.clone()).or_default() += own_ns;
            paths.push(path);
        }
        times_ns.retain(|_, time_ns| *time_ns > 0);
        let stacks: BTreeMap<_, _> = times_ns
            .into_iter()
            .map(|(stack, time_ns)| (stack, time_ns / tick_ns))
            .collect();
        let samples = stacks.values().sum();
        Some(Shown { stacks, samples })
    }

    /// Stacks with enough samples to be in each profile.
    fn sampled(&self) -> impl Iterator<Item = (&Vec<ShownFrame>, u64)> {
        let stacks = self.stacks.iter().map(|(stack, samples)| (stack, *samples));
        stacks.filter(|(_, samples)| *samples >= SAMPLES_OF_STACK_MIN)
    }

    /// Stacks of the worker's threads that do not occur by chance. The main thread's depend on when it ends.
    fn frequent(&self) -> impl Iterator<Item = (&Vec<ShownFrame>, u64)> {
        self.sampled().filter(move |(stack, _)| is_known(stack))
    }
}

fn is_known(stack: &[ShownFrame]) -> bool {
    stack
        .iter()
        .any(|frame| frame.name == "test_worker::stacks::next")
}

fn shown(node: &Value, program: &str) -> ShownFrame {
    let is_code = matches!(node["kind"].as_str().unwrap(), "function" | "unresolved");
    if is_code && node["module"] != program {
        let [name, file] = [String::new(), String::new()];
        return ShownFrame {
            kind: "library".into(),
            name,
            file,
            line: 0,
            inlined: false,
        };
    }
    ShownFrame {
        kind: text(node, "kind"),
        name: text(node, "name"),
        file: text(node, "file"),
        line: number(node, "line"),
        inlined: node["inlined"].as_bool().unwrap(),
    }
}

fn text(node: &Value, field: &str) -> String {
    node[field].as_str().unwrap().to_owned()
}

fn as_text(stack: &[ShownFrame]) -> String {
    let frames = stack.iter().map(|frame| {
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        format!(
            "{} {} {}:{}{inlined}",
            frame.kind, frame.name, frame.file, frame.line
        )
    });
    frames.collect::<Vec<_>>().join("\n  ")
}

#[test]
#[ignore = "long"]
fn a_program_has_the_same_frames_by_its_agent_and_by_the_collector() {
    let _alone = alone();
    let programs = Programs::new();
    let collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    let ids = ["agent", "collector"];
    let workers = ids.map(|symbols| {
        let mut command = Command::new(programs.whole());
        command
            .args(["stacks", symbols, &collector.url()])
            .env("EMBERLINE_SYMBOLS", symbols);
        Worker::start_by(&mut command)
    });
    wait_for("samples of both workers", || {
        let sampled_ns = ids.map(|id| number(&profile(&collector, id), "sampled_ns"));
        (sampled_ns.into_iter().min() >= Some(SAMPLED_NS)).then_some(())
    });
    assert!(has_names(&collector, "agent") && !has_names(&collector, "collector"));
    let program = programs.whole();
    upload(&collector, &program);
    let shown = || ids.map(|id| Shown::of(&collector, id, program.to_str().unwrap()));
    wait_for("all stacks of both workers", || {
        shown()
            .iter()
            .all(|shown: &Option<Shown>| {
                shown
                    .as_ref()
                    .is_some_and(|shown| shown.frequent().count() >= STACKS)
            })
            .then_some(())
    });
    let known = workers.map(|worker| number(&worker.finish(), "stacks"));
    let [by_agent, by_collector] = wait_for("the names of both workers", || {
        let [by_agent, by_collector] = shown();
        Some([by_agent?, by_collector?])
    });
    for (one, other) in [(&by_agent, &by_collector), (&by_collector, &by_agent)] {
        let mut samples = 0;
        let mut frames = 0;
        let mut inlined = 0;
        for (stack, samples_of_stack) in one.frequent() {
            let is_known = other.stacks.contains_key(stack);
            assert!(
                is_known,
                "{samples_of_stack} samples only in one:\n  {}",
                as_text(stack)
            );
            samples += samples_of_stack;
            frames += stack.len();
            inlined += stack.iter().filter(|frame| frame.inlined).count();
        }
        let stacks = one.frequent().count() as u64;
        println!(
            "{samples} of {} samples in {stacks} stacks of {frames} frames, {inlined} of them inlined",
            one.samples
        );
        assert!(samples >= SAMPLES_MIN, "{samples} samples");
        let share = samples as f64 / one.samples as f64;
        assert!(share >= COMPARED_SHARE_MIN, "{share} of the samples");
        assert!(stacks >= known[0], "{stacks} stacks of {}", known[0]);
        assert!(inlined as u64 >= stacks, "{inlined} inlined functions");
    }
    for id in ids {
        check_search_and_export(&collector, id);
    }
}

/// A function is found by its name, and written by its name.
fn check_search_and_export(collector: &Collector, worker: &str) {
    let query = format!("from=-1h&worker={worker}&focus=re:stacks::by_generic$");
    let found = collector.json(&format!("/api/v1/profile?{query}"));
    let total_ns = number(&found["totals"], "total_ns");
    let hidden_ns = number(&found["hidden"], "functions_ns");
    assert!(
        total_ns > 0 && hidden_ns > 0,
        "{worker}: {}",
        found["totals"]
    );
    let (_, collapsed) = collector.get(&format!("/api/v1/profile.collapsed?{query}"));
    // It is the last frame of a sample that it ran in itself.
    assert!(
        !collapsed.is_empty()
            && collapsed.lines().all(|line: &str| {
                let stack = line.rsplit_once(' ').map_or(line, |(stack, _)| stack);
                stack
                    .split(';')
                    .any(|frame| frame == "test_worker::stacks::by_generic")
            }),
        "{worker}: {collapsed}"
    );
    let profile = get_bytes(&collector.url(), &format!("/api/v1/profile.pb.gz?{query}"));
    let mut content = Vec::new();
    GzDecoder::new(&*profile).read_to_end(&mut content).unwrap();
    let name = b"test_worker::stacks::by_generic";
    assert!(
        content.windows(name.len()).any(|part| part == name),
        "{worker}: no name in pprof"
    );
}
