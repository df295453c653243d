//! Writes a profile of 100,000 nodes in each format, and prints sizes and times: the figures of
//! `docs/FORMATS.md`.
//!
//! ```sh
//! cargo run --release -p emberline-flamegraph --example formats -- target/formats
//! ```

use std::path::PathBuf;
use std::time::Instant;
use std::{env, error, fs};

use emberline_flamegraph::{
    ExportOptions, SvgOptions, collapsed, diff_svg, firefox, json, nested_json, pprof, speedscope,
    svg,
};
use profiler_core::{CallTrie, Filter, Frame, Profile, State, SymbolTable, ThreadKind};

/// Tasks, call chains of each task, and functions of a chain: 10 * (1 + 303 * 33) nodes, which is the limit of
/// some formats.
const TASKS: usize = 10;
const CHAINS: usize = 303;
const DEPTH: usize = 33;

type Exporter = fn(&Profile, &ExportOptions) -> Vec<u8>;

const FORMATS: [(&str, Exporter); 8] = [
    ("pb.gz", pprof),
    ("speedscope.json", |profile, options| {
        speedscope(profile, options).into_bytes()
    }),
    ("firefox.json", |profile, options| {
        firefox(profile, options).into_bytes()
    }),
    ("nested.json", |profile, _| {
        nested_json(profile).into_bytes()
    }),
    ("json", |profile, _| json(profile).into_bytes()),
    ("collapsed", |profile, _| collapsed(profile).into_bytes()),
    ("svg", |profile, _| {
        svg(profile, &SvgOptions::default())
            .expect("the tests cover all profiles")
            .into_bytes()
    }),
    ("diff.svg", |profile, _| {
        let after = with_slower_disk(profile);
        let difference = diff_svg(profile, &after, &SvgOptions::default());
        difference
            .expect("the tests cover all profiles")
            .into_bytes()
    }),
];

fn main() -> Result<(), Box<dyn error::Error>> {
    let folder = PathBuf::from(env::args().nth(1).ok_or("which folder?")?);
    fs::create_dir_all(&folder)?;
    let profile = profile();
    let nodes = profile.nodes().len();
    let total = profile.total();
    println!(
        "{nodes} nodes, wall {} ns, cpu {} ns",
        total.total_ns(),
        total.get(State::Cpu)
    );
    let options = ExportOptions {
        title: "All tasks".to_owned(),
        ..ExportOptions::default()
    };
    for (extension, export) in FORMATS {
        let begin = Instant::now();
        let bytes = export(&profile, &options);
        let milliseconds = begin.elapsed().as_millis();
        println!(
            "{extension:16} {:>6} kB {milliseconds:>5} ms",
            bytes.len() / 1_000
        );
        fs::write(folder.join(format!("large.{extension}")), bytes)?;
    }
    Ok(())
}

/// Chains that share no function; half of the leaves wait for the disk.
fn profile() -> Profile {
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(1 << 20);
    for task in 0..TASKS {
        let task = format!("task-{task}");
        for chain in 0..CHAINS {
            let names: Vec<String> = (0..DEPTH)
                .map(|level| format!("app::module_{chain}::function_{level}"))
                .collect();
            let frames = names.iter().map(|name| Frame {
                module: "/opt/app",
                build_id: "ab12",
                ..Frame::function(name.as_str(), "src/app.rs", 7)
            });
            let frames = std::iter::once(Frame::task(task.as_str())).chain(frames);
            let path: Vec<_> = frames.map(|frame| symbols.intern(&frame)).collect();
            let leaf = trie.insert_path(path).expect("there is room");
            let state = if chain % 2 == 0 {
                State::Cpu
            } else {
                State::Disk
            };
            trie.add(leaf, state, 1_000_003);
        }
    }
    let all = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let delta = trie.take_delta();
    Profile::collect(&symbols, &trie, [&delta], &all)
}

/// The same stacks, with twice the time of waiting for the disk.
fn with_slower_disk(profile: &Profile) -> Profile {
    let mut rows = profile.nodes().to_vec();
    for row in &mut rows {
        *row.own.get_mut(State::Disk) *= 2;
    }
    profile.with_rows(&rows)
}
