//! Profiles for tests of this crate and of others.

#![allow(missing_docs, clippy::unwrap_used, reason = "only tests use it")]

use profiler_core::{
    CallTrie, Filter, Frame, FrameKind, NoStack, Profile, State, SymbolTable, ThreadKind,
};
use proptest::prelude::*;

/// Parses stacks such as `t;main:7;run cpu=3`, one a line; `[no task]` and `[agent]` stand for
/// themselves.
pub fn profile(text: &str) -> Profile {
    let rows = text.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let (state, weight) = weight.split_once('=').unwrap();
        let frames = stack
            .split(';')
            .enumerate()
            .map(|(level, name)| match (level, name) {
                (0, "[no task]") => Frame::no_task(),
                (0, "[agent]") => Frame::agent(),
                (0, name) => Frame::task(name),
                (_, "[truncated]") => Frame::truncated(),
                (_, "[no stack: not sampled]") => Frame::no_stack(NoStack::NotSampled),
                (_, name) => match name
                    .rsplit_once(':')
                    .map(|(name, line)| (name, line.parse()))
                {
                    Some((name, Ok(line))) => Frame::function(name, "app/src/a.rs", line),
                    _ => Frame::function(name, "app/src/a.rs", 0),
                },
            });
        let state = State::from_name(state).unwrap();
        (frames.collect(), state, weight.parse().unwrap())
    });
    from_rows(rows)
}

/// Builds a profile from whole stacks, each with a weight.
pub fn from_rows<'a>(rows: impl IntoIterator<Item = (Vec<Frame<&'a str>>, State, u64)>) -> Profile {
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(1 << 24);
    for (frames, state, weight) in rows {
        let path: Vec<_> = frames.iter().map(|frame| symbols.intern(frame)).collect();
        let node = trie.insert_path(path).unwrap();
        trie.add(node, state, weight);
    }
    let all = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let delta = trie.take_delta();
    Profile::collect(&symbols, &trie, [&delta], &all)
}

/// One stack of `depth` frames.
pub fn deep_profile(depth: usize) -> Profile {
    let names: Vec<String> = (0..depth).map(|level| format!("m{level}::f")).collect();
    let frames = names.iter().enumerate().map(|(level, name)| match level {
        0 => Frame::task(name.as_str()),
        _ => Frame::function(name.as_str(), "app/src/a.rs", 0),
    });
    from_rows([(frames.collect(), State::Cpu, 5)])
}

/// Names that programs or attackers may choose.
const NAMES: [&str; 20] = [
    "f",
    "a::b",
    "<T as U>::f",
    "<script>alert('1')</script>",
    "]]></script><script>alert(1)</script>",
    "&amp;&#0;&x",
    "\" onload=\"alert(1)\" x='",
    "[u8; 8]",
    ";;",
    "step 3",
    "a\nb",
    "\u{1b}[31m\u{9b}2J",
    "\u{202e}gnp.exe",
    "\u{feff}\u{fffe}\u{ffff}\u{2028}",
    "",
    " ",
    "# comment",
    "// comment",
    "f 1,2,3",
    "--><!-- x (1 ns)",
];

/// Profiles of up to 24 stacks with hostile names, every kind of frame, and names up to 4 KiB.
pub fn hostile_profiles() -> impl Strategy<Value = Profile> {
    let name = prop_oneof![
        8 => prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => prop::sample::select(NAMES.to_vec())
            .prop_map(|name| name.chars().chain("x".chars()).cycle().take(1_300).collect()),
    ];
    let frame = (name, 0..3u32, 0..7u8);
    let stack = (
        prop::collection::vec(frame, 1..6),
        0..State::ALL.len(),
        1..2_000u64,
    );
    prop::collection::vec(stack, 0..25).prop_map(|stacks| {
        from_rows(stacks.iter().map(|(frames, state, weight)| {
            let frames = frames
                .iter()
                .enumerate()
                .map(|(level, (name, line, kind))| hostile_frame(level, name, *line, *kind));
            (frames.collect(), State::ALL[*state], *weight)
        }))
    })
}

fn hostile_frame(level: usize, name: &str, line: u32, kind: u8) -> Frame<&str> {
    match (level, kind) {
        (0, 0) => Frame::no_task(),
        (0, 1) => Frame::agent(),
        (0, _) => Frame::task(name),
        (_, 0) => Frame::truncated(),
        (_, 2) => Frame::no_stack(NoStack::ALL[line as usize]),
        (_, 1) => Frame {
            kind: FrameKind::Unresolved,
            module: name,
            offset: u64::from(line),
            ..Frame::function("", "", 0)
        },
        (_, _) => Frame::function(name, name, line),
    }
}
