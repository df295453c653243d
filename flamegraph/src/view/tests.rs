//! Views of small profiles, most of them shared with the page.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::collapsed;
use crate::symbols::plumbing_of_stack;
use crate::testing::{from_rows, hostile_profiles, profile};
use profiler_core::{Frame, State};

const EXAMPLES: &str = include_str!("../../views.json");

#[derive(Deserialize)]
struct Examples {
    stacks: Vec<String>,
    views: Vec<Example>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Example {
    name: String,
    focus: Vec<String>,
    hide: Vec<String>,
    merge: Vec<String>,
    recursion: bool,
    invert: bool,
    zoom: Option<String>,
    /// Sorted.
    shown: Vec<String>,
    hidden_ns: u64,
    zoomed_away_ns: u64,
}

/// Reads `[task];f;g 3`: each function has a file of its own.
fn parsed(stacks: &[String]) -> Profile {
    let files: Vec<(Vec<String>, Vec<&str>, u64)> = stacks
        .iter()
        .map(|line| {
            let (path, weight) = line.rsplit_once(' ').unwrap();
            let names: Vec<&str> = path.split(';').collect();
            let files = names.iter().map(|name| format!("/src/{name}.rs")).collect();
            (files, names, weight.parse().unwrap())
        })
        .collect();
    from_rows(files.iter().map(|(files, names, weight)| {
        let frames = names.iter().zip(files).map(|(name, file)| {
            let kind = if name.starts_with('[') {
                FrameKind::Task
            } else {
                FrameKind::Function
            };
            Frame {
                kind,
                ..Frame::function(name, file, 0)
            }
        });
        (frames.collect(), State::Cpu, *weight)
    }))
}

fn selectors<T: AsRef<str>>(texts: &[T]) -> Vec<Selector> {
    texts
        .iter()
        .map(|text| Selector::parse(text.as_ref()).unwrap())
        .collect()
}

/// A line of collapsed stacks, with its weight as the page's tests have it.
fn without_zeros(line: &str) -> String {
    let (stack, weight) = line.rsplit_once(' ').unwrap();
    format!("{stack} {}", weight.parse::<u64>().unwrap())
}

#[test]
fn trees_are_transformed_as_on_the_page() {
    let Examples { stacks, views } = serde_json::from_str(EXAMPLES).unwrap();
    let whole = parsed(&stacks);
    for example in views {
        let view = View {
            focus: selectors(&example.focus),
            hide: selectors(&example.hide),
            merge: selectors(&example.merge),
            merges_recursion: example.recursion,
            is_inverted: example.invert,
            zoom: example.zoom.map(|id| PathId::parse(&id).unwrap()),
            ..View::default()
        };
        let ViewedProfile {
            profile, hidden, ..
        } = view.apply(whole.clone());
        let text = collapsed(&profile);
        let shown: Vec<String> = text.lines().map(without_zeros).collect();
        assert_eq!(shown, example.shown, "{}", example.name);
        assert_eq!(
            hidden.functions.total_ns(),
            example.hidden_ns,
            "{}",
            example.name
        );
        assert_eq!(
            hidden.zoom.total_ns(),
            example.zoomed_away_ns,
            "{}",
            example.name
        );
    }
}

#[test]
fn each_hidden_time_has_a_reason() {
    let whole = profile(
        "load;main;read disk=2\nload;main;parse cpu=3\nload;main;parse runnable=4\n[no task];idle sleep=50\n[no task];idle cpu=1",
    );
    let view = View {
        hides_outside: true,
        states: StateSet::from_name("cpu").unwrap(),
        ..View::default()
    };
    let ViewedProfile {
        profile: shown,
        hidden,
        ..
    } = view.apply(whole.clone());
    assert_eq!(collapsed(&shown), "load;main;parse 00003\n");
    assert_eq!(hidden.outside.total_ns(), 51);
    assert_eq!(
        hidden.states,
        Weight::of(State::Disk, 2) + Weight::of(State::Runnable, 4)
    );
    assert_eq!(
        hidden.total().total_ns() + shown.total().total_ns(),
        whole.total().total_ns()
    );
}

#[test]
fn without_tasks_nothing_is_outside_of_them() {
    let view = View {
        hides_outside: true,
        ..View::default()
    };
    let idle = view.apply(profile("[no task];idle cpu=5"));
    assert_eq!(
        (collapsed(&idle.profile), idle.hidden),
        ("[no task];idle 00005\n".into(), Hidden::default())
    );
    let grouped = Profile::grouped([("w", &profile("[no task];idle cpu=5\nload cpu=2"))]);
    let grouped = view.apply(grouped);
    assert_eq!(
        (
            collapsed(&grouped.profile),
            grouped.hidden.outside.total_ns()
        ),
        ("w;load 00002\n".into(), 5)
    );
}

#[test]
fn plumbing_is_folded_into_its_callers() {
    let whole = profile(
        "load;start_thread;app::a;core::iter::fold;app::b cpu=3\nload;app::a;app::b cpu=2\nload;app::a;core::iter::fold cpu=4",
    );
    let view = View {
        stacks: Stacks::Simple,
        ..View::default()
    };
    let ViewedProfile {
        profile: shown,
        folded,
        hidden,
        ..
    } = view.apply(whole);
    assert_eq!(
        collapsed(&shown),
        "load;app::a 00004\nload;app::a;app::b 00005\n"
    );
    assert_eq!((folded, hidden), (2, Hidden::default()));
}

/// A program's own functions may have the names of those that start programs and threads.
#[test]
fn functions_that_start_threads_are_folded_only_below_their_kind() {
    let view = View {
        stacks: Stacks::Simple,
        ..View::default()
    };
    for (whole, expected) in [
        (
            "job;_start;__libc_start_main;main cpu=3\njob;_start;__libc_start_main;main;leaf cpu=2",
            "job;main 00003\njob;main;leaf 00002\n",
        ),
        (
            "job;_start;main;std::rt::lang_start;app::main;app::work cpu=3",
            "job;app::main;app::work 00003\n",
        ),
        (
            "job;clone3;start_thread;worker;clone cpu=3\njob;clone3 cpu=1",
            "job 00001\njob;worker;clone 00003\n",
        ),
        ("job;loop;main;_start cpu=3", "job;loop;main;_start 00003\n"),
        (
            "job;main cpu=3\njob;clone cpu=1",
            "job 00001\njob;main 00003\n",
        ),
    ] {
        let shown = view.apply(profile(whole)).profile;
        assert_eq!(collapsed(&shown), expected, "{whole}");
    }
}

proptest! {
    #[test]
    fn a_stack_is_folded_in_a_dump_as_in_a_profile(
        names in prop::collection::vec(
            prop::sample::select(vec!["_start", "main", "clone", "std::rt::lang_start", "core::iter::fold", "app::a", "leaf"]),
            1..8,
        ),
    ) {
        let frames: Vec<Frame<&str>> = names.iter().rev().map(|name| Frame::function(name, "", 0)).collect();
        let marks = plumbing_of_stack(&frames);
        let kept: Vec<&str> = names
            .iter()
            .zip(marks.iter().rev())
            .filter(|(_, mark)| !**mark)
            .map(|(name, _)| *name)
            .collect();
        let view = View { stacks: Stacks::Simple, ..View::default() };
        let shown = view.apply(profile(&format!("job;{} cpu=1", names.join(";")))).profile;
        prop_assert_eq!(collapsed(&shown), format!("{} 00001\n", [&["job"][..], &kept].concat().join(";")));
    }
}

#[test]
fn dependencies_are_folded_into_own_code() {
    let stack = vec![
        Frame::task("load"),
        function_of("app::run", "/home/me/app/src/main.rs"),
        function_of("serde::parse", "/registry/src/index/serde-1.0.0/src/lib.rs"),
        function_of("app::visit", "/home/me/app/src/visit.rs"),
        function_of("read", ""),
    ];
    let whole = from_rows([(stack, State::Cpu, 5)]);
    let own = View {
        stacks: Stacks::Own,
        ..View::default()
    }
    .apply(whole);
    assert_eq!(
        (collapsed(&own.profile), own.folded),
        ("load;app::run;app::visit 00005\n".into(), 2)
    );
}

#[test]
fn functions_of_python_are_shown_alone_or_folded() {
    let python = |name, module| Frame {
        module,
        ..function_of(name, "/app/train.py")
    };
    let unresolved = Frame {
        kind: FrameKind::Unresolved,
        module: "/lib/blas.so",
        offset: 16,
        ..Frame::function("", "", 0)
    };
    let stack = vec![
        Frame::task("load"),
        function_of("start", "start.c"),
        python("train", "python"),
        python("imported", ""),
        function_of("qr", "qr.c"),
        unresolved,
    ];
    let check = |stacks, expected: (&str, usize)| {
        let whole = from_rows([(stack.clone(), State::Cpu, 5)]);
        let shown = View {
            stacks,
            ..View::default()
        }
        .apply(whole);
        assert_eq!((&collapsed(&shown.profile)[..], shown.folded), expected);
    };
    check(Stacks::Python, ("load;train;imported 00005\n", 3));
    check(Stacks::Native, ("load;start;qr;blas.so 00005\n", 2));
}

fn function_of(name: &'static str, file: &'static str) -> Frame<&'static str> {
    Frame::function(name, file, 0)
}

#[test]
fn builds_of_a_program_do_not_tell_functions_apart() {
    let rows = ["1", "2"].map(|build| (vec![Frame::task("t"), of_build(build)], State::Cpu, 3));
    let whole = from_rows(rows);
    assert_eq!(whole.nodes().len(), 3);
    let simple = View {
        stacks: Stacks::Simple,
        ..View::default()
    }
    .apply(whole);
    assert_eq!(simple.profile.nodes().len(), 2);
}

fn of_build(build_id: &'static str) -> Frame<&'static str> {
    Frame {
        build_id,
        ..Frame::function("app::f", "src/a.rs", 0)
    }
}

#[test]
fn a_label_selects_functions_unless_it_is_a_full_name() {
    let whole = profile("t;app::a::run cpu=1\nt;b cpu=2");
    assert_eq!(
        collapsed(&focused("a::run").apply(whole.clone()).profile),
        "t;app::a::run 00001\n"
    );
    assert_eq!(
        collapsed(&focused("app::a::run").apply(whole).profile),
        "t;app::a::run 00001\n"
    );
    let both = profile("t;app::a::run cpu=1\nt;a::run cpu=2");
    assert_eq!(
        collapsed(&focused("a::run").apply(both).profile),
        "t;a::run 00002\n"
    );
}

fn focused(focus: &str) -> View {
    View {
        focus: selectors(&[focus]),
        ..View::default()
    }
}

#[test]
fn the_zoomed_node_is_named() {
    let zoomed = View {
        zoom: PathId::parse("zzz"),
        ..View::default()
    }
    .apply(profile("t;f cpu=1"));
    assert_eq!((zoomed.zoomed, zoomed.hidden), (None, Hidden::default()));
    assert_eq!(PathId::parse("not an id"), None);
}

#[test]
fn crates_and_patterns_select_functions() {
    let stacks = [
        (vec![Frame::task("tokio")], 1),
        (vec![Frame::task("t"), function_of("tokio::run", "")], 2),
        (
            vec![
                Frame::task("t"),
                function_of("app::run", "/src/app/src/a.rs"),
            ],
            4,
        ),
        (
            vec![
                Frame::task("t"),
                function_of("poll", "/registry/src/index/tokio-1.0.0/src/a.rs"),
            ],
            8,
        ),
        (
            vec![Frame::task("t"), function_of("crate::run", "/src/b.rs")],
            16,
        ),
        (
            vec![Frame::task("t"), function_of("crate:foo", "/src/c.rs")],
            32,
        ),
    ];
    let whole = from_rows(stacks.map(|(stack, weight)| (stack, State::Cpu, weight)));
    for (hide, hidden_ns) in [
        ("crate:tokio", 10),
        ("crate:Tokio", 0),
        ("crate:", 0),
        ("crate:foo", 32),
        ("re:^TOKIO", 3),
        ("re:run$", 22),
        ("file:/registry/", 8),
        ("file:^$", 2),
        ("tokio::run", 2),
    ] {
        let view = View {
            hide: selectors(&[hide]),
            ..View::default()
        };
        assert_eq!(
            view.apply(whole.clone()).hidden.functions.total_ns(),
            hidden_ns,
            "{hide}"
        );
    }
    let view = View {
        hide: selectors(&["crate:tokio", "re:app"]),
        ..View::default()
    };
    assert_eq!(
        collapsed(&view.apply(whole).profile),
        "t;crate::run 00016\nt;crate:foo 00032\ntokio 00001\n"
    );
}

#[test]
fn an_invalid_pattern_is_explained_in_a_line() {
    let unclosed = r#"invalid regular expression "a(b": unclosed group"#;
    assert_eq!(
        [message("re:a(b"), message("file:a(b")],
        [unclosed, unclosed]
    );
    assert!(message("re:(a{1000}){1000}").contains("size limit"));
}

fn message(text: &str) -> String {
    Selector::parse(text).unwrap_err().to_string()
}

#[test]
fn callers_past_the_limit_are_omitted() {
    let whole = profile("t;a;b cpu=3\nt;c;b cpu=2\nt;d cpu=1");
    let inverted = |nodes_max| collapsed(&invert::invert(&whole, nodes_max));
    assert_eq!(inverted(7), "b;a;t 00003\nb;c;t 00002\nd;t 00001\n");
    assert_eq!(inverted(4), "b;a;t 00003\nb;c 00002\nd 00001\n");
    assert_eq!(inverted(0), "b 00005\nd 00001\n");
}

fn views() -> impl Strategy<Value = View> {
    let stacks = prop::sample::select(vec![
        Stacks::Full,
        Stacks::Simple,
        Stacks::Own,
        Stacks::Python,
        Stacks::Native,
    ]);
    let flags = (any::<[bool; 3]>(), 1..128u32, any::<u32>());
    (names(), names(), names(), stacks, flags).prop_map(|(focus, hide, merge, stacks, flags)| {
        let ([hides_outside, merges_recursion, is_inverted], states, zoom) = flags;
        View {
            hides_outside,
            states: StateSet::from_bits(states).unwrap(),
            stacks,
            focus: selectors(&focus),
            hide: selectors(&hide),
            merge: selectors(&merge),
            merges_recursion,
            is_inverted,
            zoom: Some(PathId(zoom)),
        }
    })
}

fn names() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(
        prop::sample::select(vec!["f", "a::b", "crate:a", "re:^s|:", ""]),
        0..2,
    )
}

proptest! {
    #[test]
    fn what_is_shown_and_what_is_hidden_sum_to_the_whole(all in hostile_profiles(), view in views()) {
        let viewed = view.apply(all.clone());
        prop_assert_eq!(viewed.profile.total() + viewed.hidden.total(), all.total());
    }

    #[test]
    fn an_inverted_tree_has_the_time_of_the_tree(all in hostile_profiles(), view in views()) {
        let [upright, inverted] = [false, true].map(|is_inverted| {
            View { is_inverted, zoom: None, ..view.clone() }.apply(all.clone())
        });
        prop_assert_eq!(inverted.profile.total(), upright.profile.total());
        prop_assert_eq!(inverted.hidden, upright.hidden);
        // Each root has the self time of its function.
        let mut self_times = vec![Weight::ZERO; all.symbols().frame_count() as usize];
        let same = same_functions(&upright.profile);
        for node in upright.profile.nodes() {
            self_times[same[node.frame.0 as usize].0 as usize] += node.own;
        }
        let totals = inverted.profile.totals();
        let mut roots = 0;
        for (node, total) in inverted.profile.nodes().iter().zip(&totals[1..]) {
            if node.parent == NodeId::ROOT {
                let function = inverted.profile.frame(node.frame);
                let ids = (0..upright.profile.symbols().frame_count()).map(FrameId);
                let at = ids.into_iter().find(|id| upright.profile.frame(*id) == function).unwrap();
                prop_assert_eq!(*total, self_times[at.0 as usize]);
                roots += 1;
            }
        }
        prop_assert_eq!(roots, self_times.iter().filter(|time| !time.is_zero()).count());
    }

    #[test]
    fn inverting_twice_restores_the_stacks(all in hostile_profiles()) {
        let once = invert::inverted(&all);
        let upright = invert::inverted(&once);
        prop_assert_eq!(invert::inverted(&upright), once);
    }

    #[test]
    fn the_default_view_shows_everything(all in hostile_profiles()) {
        let viewed = View::default().apply(all.clone());
        prop_assert_eq!((viewed.profile, viewed.hidden), (all, Hidden::default()));
    }

    #[test]
    fn every_node_is_found_by_its_id(all in hostile_profiles(), number in any::<prop::sample::Index>()) {
        prop_assume!(!all.is_empty());
        let id_of = |node: usize| {
            let mut path = vec![];
            let mut at = node;
            while at > 0 {
                path.push(all.frame(all.nodes()[at - 1].frame));
                at = all.nodes()[at - 1].parent.index();
            }
            path.iter().rev().fold(PathId(0), |id, frame| {
                let kind = crate::json::kind_name(frame.kind);
                id.below(hash(&format!("{kind}\n{}\n{}", frame.label(), portable_file(frame.file))))
            })
        };
        let id = id_of(number.index(all.nodes().len()) + 1);
        let viewed = View { zoom: Some(id), ..View::default() }.apply(all.clone());
        // Frames that differ only in their line or module share an id.
        let labels: Vec<String> = (1..=all.nodes().len())
            .filter(|node| id_of(*node) == id)
            .map(|node| label(&all.frame(all.nodes()[node - 1].frame)))
            .collect();
        prop_assert!(viewed.zoomed.is_some_and(|zoomed| labels.contains(&zoomed)));
    }
}
