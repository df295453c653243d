//! Names with blanks, brackets and the characters of patterns stay whole, and select their functions as displayed.

use flamegraph::symbols::label;
use flamegraph::{Selector, View};

use super::*;

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
