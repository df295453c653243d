//! A program in three units, whose debug information `dwz` has made smaller. `dwz/make.sh` made the files.

use proptest::prelude::*;

use super::*;
use crate::{Names, SymbolFile};

const WHOLE: &[u8] = include_bytes!("dwz/whole.debug");
const SINGLE: &[u8] = include_bytes!("dwz/single.debug");
/// With GNU's link, and with that of DWARF 5.
const LINKED: [&[u8]; 2] = [
    include_bytes!("dwz/linked.debug"),
    include_bytes!("dwz/linked5.debug"),
];
const SHARED: [&[u8]; 2] = [
    include_bytes!("dwz/shared.debug"),
    include_bytes!("dwz/shared5.debug"),
];

/// The program's code.
const CODE: std::ops::Range<u64> = 0x1000..0x1400;

fn made(source: &[u8], shared: Option<&[u8]>) -> Result<(Names, Reduced), ReduceError> {
    let shared = shared.map(<[u8]>::to_vec);
    let split = SplitFiles {
        shared: shared.as_ref(),
        ..SplitFiles::none()
    };
    let mut made = Vec::new();
    let reduced = reduce_split(&source.to_vec(), &split, &mut made)?;
    let file = SymbolFile::open(made).unwrap();
    file.verify().unwrap();
    Ok((file.lookup(CODE).unwrap(), reduced))
}

/// The functions and lines at each address, as text.
fn chains(names: &Names) -> Vec<String> {
    let mut chains: Vec<String> = names.values().map(|frames| chain(frames)).collect();
    chains.sort();
    chains.dedup();
    chains
}

fn chain(frames: &[profiler_core::Frame<std::sync::Arc<str>>]) -> String {
    let frames = frames
        .iter()
        .map(|frame| format!("{} {}:{}", frame.function, frame.file, frame.line));
    frames.collect::<Vec<_>>().join(" + ")
}

#[test]
fn what_dwz_moved_is_found() {
    let (expected, reduced) = made(WHOLE, None).unwrap();
    assert_eq!(
        (reduced.facts.detail, &reduced.missing_shared),
        (Detail::Lines, &None)
    );
    let inlined = "first /w/sum.c:6 + both /w/sum.c:3 + twice /w/sum.c:2".to_owned();
    assert!(
        chains(&expected).contains(&inlined),
        "{:?}",
        chains(&expected)
    );
    let (single, reduced) = made(SINGLE, None).unwrap();
    assert_eq!(
        (reduced.facts.detail, &reduced.missing_shared),
        (Detail::Lines, &None)
    );
    assert!(single == expected, "{:?}", chains(&single));
    for (linked, shared) in LINKED.into_iter().zip(SHARED) {
        let (names, reduced) = made(linked, Some(shared)).unwrap();
        assert_eq!(
            (reduced.facts.detail, &reduced.missing_shared),
            (Detail::Lines, &None)
        );
        assert!(names == expected, "{:?}", chains(&names));
    }
}

/// Functions and lines are in the program.
#[test]
fn a_shared_file_that_is_missing_costs_inlined_functions() {
    for (linked, shared) in LINKED.into_iter().zip(["shared.debug", "shared5.debug"]) {
        let (names, reduced) = made(linked, None).unwrap();
        assert_eq!(reduced.facts.detail, Detail::CompiledLines);
        let missing = reduced.missing_shared.unwrap();
        assert_eq!(missing.path, PathBuf::from(shared));
        assert_eq!(missing.id.len(), 40, "{missing:?}");
        let chains = chains(&names);
        assert!(
            chains.iter().any(|chain| chain == "first /w/sum.c:6"),
            "{chains:?}"
        );
        assert!(
            !chains.iter().any(|chain| chain.contains("twice")),
            "{chains:?}"
        );
    }
}

#[test]
fn another_shared_file_and_a_damaged_link_are_errors() {
    fn error(linked: &[u8], shared: &[u8]) -> String {
        made(linked, Some(shared)).unwrap_err().to_string()
    }
    let [first, second] = LINKED;
    for (linked, other) in [(first, SHARED[1]), (second, SHARED[0])] {
        let found = error(linked, other);
        assert!(
            found.starts_with("its shared debug information has the id "),
            "{found}"
        );
    }
    let found = error(first, b"#!/bin/sh\n");
    assert!(
        found.starts_with("its shared debug information cannot be used: "),
        "{found}"
    );
    for linked in LINKED {
        // Without the zero that ends the path.
        let mut damaged = linked.to_vec();
        let end = linked
            .windows(7)
            .position(|bytes| bytes == b".debug\0")
            .unwrap()
            + 6;
        damaged[end] = b'x';
        let found = error(&damaged, SHARED[0]);
        assert_eq!(
            found,
            "its link to shared debug information (.gnu_debugaltlink or .debug_sup) is damaged"
        );
    }
}

proptest! {
    /// Whatever the shared file has: an error, or a table without contradictions.
    #[test]
    fn a_damaged_shared_file_costs_names_only(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        form in 0..LINKED.len(),
    ) {
        let mut shared = SHARED[form].to_vec();
        for (at, value) in damage {
            let at = at.index(shared.len());
            shared[at] = value;
        }
        if let Ok((names, _)) = made(LINKED[form], Some(&shared)) {
            // It has the names of its symbols.
            prop_assert!(chains(&names).iter().any(|chain| chain.starts_with("first")));
        }
    }
}
