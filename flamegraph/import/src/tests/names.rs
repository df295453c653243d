//! Names with blanks, brackets and the characters of patterns stay whole, and select their functions as displayed.

use flamegraph::messages::pprof as proto;
use flamegraph::symbols::label;
use flamegraph::{Selector, View};

use prost::Message as _;

use super::known::Earlier;
use super::*;
use crate::import_into;

const NAMES: [&str; 16] = [
    "main",
    "operator()(int) const",
    "operator<<",
    "operator delete[](void*)",
    "std::vector<int, std::allocator<int> >::push_back(int const&)",
    "f(int (*)(int), char (&) [4])",
    "<impl Fn<(A,)> for F>::call",
    "<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop",
    "core::ops::function::FnOnce::call_once{{vtable.shim}}",
    "[libc.so.6]",
    "/tmp/a.so (deleted)",
    "a.*b+[c]?(d|e)$",
    "-[NSObject performSelector:]",
    "päckchen 東京",
    "#<Class:App>",
    "100%",
];

/// The time of stacks with a frame of this label, which focus shows.
fn focused(profile: &Profile, label: &str) -> u64 {
    let view = View {
        focus: vec![Selector::parse(label).unwrap()],
        ..View::default()
    };
    view.apply(profile.clone()).profile.total().total_ns()
}

fn check_names(imported: &Imported) {
    let profile = imported.profile();
    let names: Vec<String> = stacks(imported)
        .into_iter()
        .map(|(stack, _)| stack)
        .collect();
    for (number, name) in NAMES.iter().enumerate() {
        assert!(
            names.contains(&format!("root;{name}")),
            "{name:?} in {names:?}"
        );
        let labels = (0..imported.symbols.frame_count())
            .map(profiler_core::FrameId)
            .map(|id| imported.symbols.frame(id))
            .filter(|frame| frame.function == *name)
            .map(|frame| label(&frame));
        for label in labels.chain([(*name).to_owned()]) {
            assert_eq!(focused(&profile, &label), 1 << number, "{label:?}");
        }
    }
}

#[test]
fn names_are_found_as_they_are_displayed() {
    let numbered = || NAMES.iter().enumerate();
    let line = |(number, name): (usize, &&str)| format!("root;{name} {}\n", 1 << number);
    let options = ImportOptions {
        unit: Some(CollapsedUnit::Samples),
        interval_ns: Some(1),
        ..ImportOptions::default()
    };
    let lines: String = numbered().map(line).collect();
    check_names(&import(lines.as_bytes(), &options).unwrap());

    let sample = |(number, name): (usize, &&str)| {
        let frames =
            format!("\t1f {name}+0x1 (/opt/my app/a.so (deleted))\n\t2f root (/opt/a (1))\n");
        format!("app 9 1.000000: {} cpu-clock:\n{frames}\n", 1 << number)
    };
    check_names(&of(numbered().map(sample).collect::<String>()));

    let frames: Vec<_> = [&"root"]
        .into_iter()
        .chain(&NAMES)
        .map(|name| serde_json::json!({ "name": name }))
        .collect();
    let file = serde_json::json!({ "shared": { "frames": frames }, "profiles": [{
        "type": "sampled", "name": "t", "unit": "nanoseconds",
        "samples": (1..=NAMES.len()).map(|index| [0, index]).collect::<Vec<_>>(),
        "weights": (0..NAMES.len()).map(|number| 1 << number).collect::<Vec<u32>>(),
    }] });
    check_names(&of(file.to_string()));
}

const MANGLED: [[&str; 2]; 6] = [
    ["_ZN3foo3bazEv", "foo::baz"],
    ["_RNvC6_123foo3bar", "123foo::bar"],
    ["_ZN1a5inner3gen17hc5424c1275e0932dE", "a::inner::gen"],
    ["__ZN1a5inner4open17hc5424c1275e0932dE", "a::inner::open"],
    ["_ZN3foo", "_ZN3foo"],
    ["__libc_start_main", "__libc_start_main"],
];

/// Labels are no names of functions.
const MANGLED_TASK: &str = "_ZN3foo3runEv";

/// One sample of 1 ns in each function. The functions have a name only for the linker, twice the same, or no other one.
fn mangled_pprof() -> Vec<u8> {
    let mut texts = ["", "cpu", "nanoseconds", "task", MANGLED_TASK]
        .map(str::to_owned)
        .to_vec();
    let mut message = proto::Profile {
        sample_type: vec![proto::ValueType { kind: 1, unit: 2 }],
        ..Default::default()
    };
    for (id, [mangled, _]) in (1..).zip(MANGLED) {
        texts.push(mangled.to_owned());
        let index = texts.len() as i64 - 1;
        message.function.push(proto::Function {
            id,
            name: if id % 3 == 0 { 0 } else { index },
            system_name: if id % 3 == 1 { 0 } else { index },
            filename: index,
            ..Default::default()
        });
        message.location.push(proto::Location {
            id,
            line: vec![proto::Line {
                function_id: id,
                line: 0,
            }],
            ..Default::default()
        });
        message.sample.push(proto::Sample {
            location_id: vec![id],
            value: vec![1],
            label: vec![proto::Label {
                key: 3,
                text: 4,
                ..Default::default()
            }],
        });
    }
    message.string_table = texts;
    message.encode_to_vec()
}

#[test]
fn mangled_names_are_those_of_the_source() {
    let file = mangled_pprof();
    let imported = of(&file);
    let found: Vec<String> = stacks(&imported)
        .into_iter()
        .map(|(stack, _)| stack)
        .collect();
    for [mangled, name] in MANGLED {
        assert!(found.contains(&name.to_owned()), "{mangled} in {found:?}");
    }
    let frames = (0..imported.symbols.frame_count()).map(profiler_core::FrameId);
    for frame in frames.map(|id| imported.symbols.frame(id)) {
        match frame.kind {
            FrameKind::Task => assert_eq!(frame.function, MANGLED_TASK),
            FrameKind::Function => assert!(frame.file.starts_with('_'), "{frame:?}"),
            _ => {}
        }
    }
    let known = import_into(&Earlier(imported), &file, &ImportOptions::default()).unwrap();
    assert_eq!(known.samples.len(), 0, "the receiver has these names");

    let sample = |[mangled, _]: [&str; 2]| {
        format!("app 9 1.000000: 1 cpu-clock:\n\t1f {mangled}+0x1 (/opt/app)\n\n")
    };
    let perf = of(MANGLED.map(sample).concat());
    let collapsed = of(MANGLED
        .map(|[mangled, _]| format!("{mangled};{mangled} 5\n"))
        .concat());
    for [mangled, name] in MANGLED {
        let stacks_of = |imported| -> Vec<String> {
            stacks(imported)
                .into_iter()
                .map(|(stack, _)| stack)
                .collect()
        };
        assert!(
            stacks_of(&perf).contains(&name.to_owned()),
            "{mangled} in {:?}",
            stacks_of(&perf)
        );
        assert!(
            stacks_of(&collapsed).contains(&format!("{name};{name}")),
            "{mangled}"
        );
    }
}
