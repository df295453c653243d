//! Profiles for a receiver that has some of their names and stacks already.

use flamegraph::messages::pprof as proto;
use profiler_core::{CallTrie, Frame, FrameId, NodeId, StringId, SymbolTable};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::{KnownTables, LookUp, import_into};

/// Tables of an earlier profile.
pub(super) struct Earlier(pub(super) Imported);

impl KnownTables for Earlier {
    fn open(&self) -> Box<dyn LookUp + '_> {
        Box::new(self)
    }
}

impl LookUp for &Earlier {
    fn name(&self, text: &str) -> Option<StringId> {
        self.0.symbols.string_id(text)
    }

    fn frame(&self, frame: &Frame<StringId>) -> Option<FrameId> {
        self.0.symbols.find_ids(frame)
    }

    fn child(&self, parent: NodeId, frame: FrameId) -> Option<NodeId> {
        self.0.trie.find(parent, frame)
    }
}

/// A sample: the numbers of its functions from the innermost, and its task and thread.
type Stack = (Vec<u64>, Option<u8>, u8);

const NAMES: [&str; 8] = [
    "main",
    "work",
    "[truncated]",
    " ",
    "shop+0x10",
    "load",
    "store.(*Cache).Get",
    "[no stack]",
];

/// The numbers of `stacks` are those of locations. The last two have no function.
fn message(stacks: &[Stack]) -> Vec<u8> {
    let mut texts: Vec<String> = [
        "",
        "cpu",
        "nanoseconds",
        "task",
        "thread",
        "ab12",
        "/bin/shop",
    ]
    .map(str::to_owned)
    .into();
    let mut text = |text: &str| {
        let known = texts.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        }) as i64
    };
    let mut message = proto::Profile {
        sample_type: vec![proto::ValueType { kind: 1, unit: 2 }],
        mapping: vec![proto::Mapping {
            id: 1,
            filename: 6,
            build_id: 5,
            ..Default::default()
        }],
        ..Default::default()
    };
    for (id, name) in (1..).zip(NAMES) {
        message.function.push(proto::Function {
            id,
            name: text(name),
            filename: text("main.go"),
            ..Default::default()
        });
        let inlined = proto::Line {
            function_id: 1 + id % 3,
            line: 5,
        };
        let line = proto::Line {
            function_id: id,
            line: id as i64,
        };
        message.location.push(proto::Location {
            id,
            mapping_id: id % 2,
            line: [inlined, line][usize::from(id % 3 > 0)..].to_vec(),
            ..Default::default()
        });
    }
    for id in [9, 10] {
        message.location.push(proto::Location {
            id,
            mapping_id: 1,
            address: id,
            ..Default::default()
        });
    }
    for (functions, task, thread) in stacks {
        let task = task.map(|task| proto::Label {
            key: 3,
            text: text(&format!("task-{task}")),
            ..Default::default()
        });
        let thread = proto::Label {
            key: 4,
            text: text(&format!("thread-{thread}")),
            ..Default::default()
        };
        message.sample.push(proto::Sample {
            location_id: functions.clone(),
            value: vec![7],
            label: task.into_iter().chain([thread]).collect(),
        });
    }
    message.string_table = texts;
    message.encode_to_vec()
}

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let functions = prop::collection::vec(1..=10_u64, 1..6);
    prop::collection::vec((functions, prop::option::of(0..2_u8), 0..2_u8), 1..20)
}

/// The samples with whole stacks, by text.
fn by_text(of: &Imported, trie: &CallTrie, symbols: &SymbolTable, known: bool) -> Vec<String> {
    let path = |node| {
        let frames = trie.path(node).map(|frame| symbols.frame(frame));
        format!("{:?}", frames.collect::<Vec<_>>())
    };
    let samples = if known {
        &of.known_samples
    } else {
        &of.samples
    };
    samples
        .iter()
        .map(|sample| {
            let [stack, thread] = [sample.node, sample.thread].map(path);
            format!("{stack} {thread} {:?} {}", sample.state, sample.nanoseconds)
        })
        .collect()
}

proptest! {
    #[test]
    fn known_stacks_are_those_that_a_receiver_would_add(earlier in stacks(), stacks in stacks()) {
        let options = ImportOptions::default();
        let earlier = Earlier(import(&message(&earlier), &options).unwrap());
        let file = message(&stacks);
        let whole = import(&file, &options).unwrap();
        let imported = import_into(&earlier, &file, &options).unwrap();
        let mut samples = by_text(&imported, &imported.trie, &imported.symbols, false);
        samples.extend(by_text(&imported, &earlier.0.trie, &earlier.0.symbols, true));
        samples.sort_unstable();
        let mut expected = by_text(&whole, &whole.trie, &whole.symbols, false);
        expected.sort_unstable();
        prop_assert_eq!(samples, expected);
        prop_assert_eq!(imported.total_ns(), whole.total_ns());
        let again = import_into(&Earlier(whole), &file, &options).unwrap();
        prop_assert_eq!((again.samples.len(), again.symbols.string_count()), (0, 1));
    }
}

#[test]
fn a_damaged_location_is_an_error_whether_its_names_are_known_or_not() {
    let options = ImportOptions::default();
    let stacks: Vec<Stack> = vec![(vec![1, 2], None, 0)];
    let file = message(&stacks);
    let earlier = Earlier(import(&file, &options).unwrap());
    let mut damaged = proto::Profile::decode(&file[..]).unwrap();
    damaged.location[6].line[0].function_id = 99;
    let mut missing = proto::Profile::decode(&file[..]).unwrap();
    missing.sample[0].location_id[1] = 77;
    for broken in [damaged, missing] {
        let file = broken.encode_to_vec();
        let error = import(&file, &options).unwrap_err();
        assert_eq!(import_into(&earlier, &file, &options).unwrap_err(), error);
    }
}
