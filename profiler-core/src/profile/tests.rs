//! The laws of merging on arbitrary trees, and filters and merges on small ones. Profiles are
//! written as collapsed stacks: `task;frame;frame state=weight`.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::State;

/// Parses stacks such as `t;main;run cpu=3`, one a line; `[no task]` and `[agent]` stand for
/// themselves.
fn profile(text: &str) -> Profile {
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(10_000);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let (state, weight) = weight.split_once('=').unwrap();
        let path: Vec<FrameId> = stack
            .split(';')
            .enumerate()
            .map(|(level, name)| match (level, name) {
                (0, "[no task]") => symbols.intern(&Frame::no_task()),
                (0, "[agent]") => symbols.intern(&Frame::agent()),
                (0, name) => symbols.intern(&Frame::task(name)),
                (1, name) if name.starts_with('@') => symbols.intern(&Frame::phase(name)),
                (_, name) => match name.split_once(':') {
                    Some((name, line)) => {
                        symbols.intern(&Frame::function(name, "a.rs", line.parse().unwrap()))
                    }
                    None => symbols.intern(&Frame::function(name, "a.rs", 0)),
                },
            })
            .collect();
        let node = trie.insert_path(path).unwrap();
        trie.add(
            node,
            State::from_name(state).unwrap(),
            weight.parse().unwrap(),
        );
    }
    let all = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let delta = trie.take_delta();
    Profile::collect(&symbols, &trie, [&delta], &all)
}

fn text(profile: &Profile) -> String {
    let mut paths = vec![String::new()];
    let mut lines = String::new();
    for node in profile.nodes() {
        let frame = profile.frame(node.frame);
        let mut path = paths[node.parent.index()].clone();
        if !path.is_empty() {
            path.push(';');
        }
        path.push_str(&frame.label());
        if frame.line > 0 {
            path.push_str(&format!(":{}", frame.line));
        }
        for state in State::ALL
            .into_iter()
            .filter(|state| node.own.get(*state) > 0)
        {
            lines.push_str(&format!(
                "{path} {}={}\n",
                state.name(),
                node.own.get(state)
            ));
        }
        paths.push(path);
    }
    lines
}

/// Only the level below the first holds phases, and only if frames say so.
#[test]
fn phases_of_a_task_merge() {
    let told = profile(
        "t;@read;main;load cpu=2\nt;@write;main;load cpu=3\nt;main;load lock=5\nt;@read cpu=7\n\
         t cpu=1\n[no task];@read;main cpu=4\n[agent];tick cpu=1\ns;main;@load cpu=6",
    );
    let without = told.without_phases();
    expect![[r#"
        s;main;@load cpu=6
        t cpu=8
        t;main;load cpu=5
        t;main;load lock=5
        [no task];main cpu=4
        [agent];tick cpu=1
    "#]]
    .assert_eq(&text(&without));
    assert_eq!(without.total(), told.total());
    assert_eq!(without.without_phases(), without);
}

fn check_merge(left: &str, right: &str, expected: Expect) {
    expected.assert_eq(&text(&profile(left).merge(&profile(right))));
}

#[test]
fn merge_sums_shared_prefixes() {
    check_merge(
        "t;main;load cpu=2",
        "t;main;load cpu=1\nt;main;run lock=5\ns;main cpu=1",
        expect![[r#"
            s;main cpu=1
            t;main;load cpu=3
            t;main;run lock=5
        "#]],
    );
}

#[test]
fn merging_with_an_empty_profile_changes_nothing() {
    check_merge(
        "t;main;load cpu=2",
        "",
        expect![[r#"
        t;main;load cpu=2
    "#]],
    );
}

fn check_keep(filter: Filter, expected: Expect) {
    let all = "a;main cpu=1\na;main;f lock=2\nb;main runnable=4\n[no task];main cpu=8\n[agent];tick cpu=16";
    expected.assert_eq(&text(&profile(all).keep(&filter)));
}

#[test]
fn filters_keep_tasks_states_and_threads() {
    let default = Filter::default();
    check_keep(
        default.clone(),
        expect![[r#"
        a;main cpu=1
        a;main;f lock=2
        b;main runnable=4
        [no task];main cpu=8
    "#]],
    );
    check_keep(
        Filter {
            tasks: vec!["a".into()],
            ..default.clone()
        },
        expect![[r#"
        a;main cpu=1
        a;main;f lock=2
    "#]],
    );
    check_keep(
        Filter {
            states: StateSet::WAIT,
            ..default.clone()
        },
        expect![[r#"
        a;main;f lock=2
    "#]],
    );
    check_keep(
        Filter {
            threads: ThreadKind::Agent,
            ..default.clone()
        },
        expect![[r#"
        [agent];tick cpu=16
    "#]],
    );
    check_keep(
        Filter {
            tasks: vec!["b".into()],
            outside_tasks: true,
            ..default.clone()
        },
        expect![[r#"
        b;main runnable=4
        [no task];main cpu=8
    "#]],
    );
    check_keep(
        Filter {
            tasks: vec!["[no task]".into()],
            ..default
        },
        expect![""],
    );
}

#[test]
fn lines_fold_into_functions() {
    let folded = profile("t;f:1;g:5 cpu=1\nt;f:2;g:6 cpu=2\nt;f:2 cpu=4").by_function();
    expect![[r#"
        t;f cpu=4
        t;f;g cpu=3
    "#]]
    .assert_eq(&text(&folded));
}

#[test]
fn stacks_begin_with_the_programs_first_function() {
    let begin = "clone3;__rust_begin_short_backtrace";
    let stacks = format!(
        "t;{begin};work;f cpu=1\nt;other;work;f cpu=2\nt;clone3 cpu=4\n\
         t;{begin};work;{begin};g cpu=8\n[no task];{begin};idle sleep=16"
    );
    expect![[r#"
        t;clone3 cpu=4
        t;other;work;f cpu=2
        t;work;clone3;__rust_begin_short_backtrace;g cpu=8
        t;work;f cpu=1
        [no task];idle sleep=16
    "#]]
    .assert_eq(&text(&profile(&stacks).without_runtime()));
}

#[test]
fn a_stack_begins_with_the_programs_first_function_below_its_phase() {
    let profile = profile(
        "load;@disk;clone3;__rust_begin_short_backtrace;main cpu=2
         load;clone3;__rust_begin_short_backtrace;main cpu=1",
    );
    expect![["load;@disk;main cpu=2\nload;main cpu=1\n"]].assert_eq(&text(&profile.by_function()));
}

#[test]
fn groups_are_above_their_profiles_and_equal_groups_merge() {
    let a = profile("load;main cpu=1\n[no task];idle lock=2");
    let b = profile("load;main cpu=4");
    let grouped = Profile::grouped([("w2", &b), ("w1", &a), ("w1", &b)]);
    expect![["
        w1;load;main cpu=5
        w1;[no task];idle lock=2
        w2;load;main cpu=4
    "]]
    .assert_eq(&text(&grouped));
    assert_eq!(grouped.frame(grouped.nodes()[0].frame), Frame::group("w1"));
}

#[test]
fn totals_hold_children_and_the_innermost_frame_is_counted() {
    let profile = profile("t;main cpu=1\nt;main;f cpu=2\nt;main;f;g disk=4");
    let totals: Vec<u64> = profile.totals().iter().map(Weight::total_ns).collect();
    assert_eq!(totals, [7, 7, 7, 6, 4]);
    let top: Vec<_> = profile
        .top_level()
        .map(|(f, w)| (f.label(), w.total_ns()))
        .collect();
    assert_eq!(top, [("t".to_owned(), 7)]);
}

#[test]
fn a_diff_has_both_sides_of_every_node() {
    let diff = profile("t;f cpu=1\nt;g cpu=2").diff(&profile("t;g cpu=5\nu;f cpu=3"));
    let mut lines: Vec<_> = diff
        .nodes()
        .iter()
        .filter(|node| !node.before.is_zero() || !node.after.is_zero())
        .map(|node| {
            (
                diff.frame(node.frame).label(),
                node.before.total_ns(),
                node.after.total_ns(),
            )
        })
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [("f".into(), 0, 3), ("f".into(), 1, 0), ("g".into(), 2, 5)]
    );
}

/// Arbitrary stacks over few names, so that prefixes are often shared.
fn stacks() -> impl Strategy<Value = Vec<(Vec<u8>, u8, u64)>> {
    let stack = (prop::collection::vec(0..3u8, 1..6), 0..3u8, 1..50u64);
    prop::collection::vec(stack, 0..25)
}

fn from_stacks(stacks: &[(Vec<u8>, u8, u64)]) -> Profile {
    let lines: Vec<String> = stacks
        .iter()
        .map(|(path, state, weight)| {
            let path: Vec<String> = path.iter().map(|name| format!("n{name}")).collect();
            format!(
                "{} {}={weight}",
                path.join(";"),
                State::ALL[usize::from(*state)].name()
            )
        })
        .collect();
    profile(&lines.join("\n"))
}

/// A slow, obvious model: weight by whole stack.
fn model(stacks: &[(Vec<u8>, u8, u64)]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (path, state, weight) in stacks {
        let path: Vec<String> = path.iter().map(|name| format!("n{name}")).collect();
        let key = format!(
            "{} {}",
            path.join(";"),
            State::ALL[usize::from(*state)].name()
        );
        *sums.entry(key).or_default() += weight;
    }
    sums
}

fn sums(profile: &Profile) -> BTreeMap<String, u64> {
    let lines = text(profile);
    let parsed = lines.lines().map(|line| line.rsplit_once('=').unwrap());
    parsed
        .map(|(key, weight)| (key.to_owned(), weight.parse().unwrap()))
        .collect()
}

proptest! {
    #[test]
    fn merging_is_commutative_and_associative(a in stacks(), b in stacks(), c in stacks()) {
        let a = from_stacks(&a);
        let b = from_stacks(&b);
        let c = from_stacks(&c);
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
    }

    #[test]
    fn merging_equals_the_sum_over_whole_stacks(a in stacks(), b in stacks()) {
        let both = [a.clone(), b.clone()].concat();
        let merged = from_stacks(&a).merge(&from_stacks(&b));
        prop_assert_eq!(sums(&merged), model(&both));
        prop_assert_eq!(merged, from_stacks(&both));
    }

    #[test]
    fn weight_never_vanishes_and_parents_come_first(a in stacks()) {
        let weight: u64 = a.iter().map(|(_, _, weight)| weight).sum();
        let profile = from_stacks(&a);
        prop_assert_eq!(profile.total().total_ns(), weight);
        prop_assert_eq!(profile.totals()[0].total_ns(), weight);
        prop_assert_eq!(profile.by_function().total().total_ns(), weight);
        prop_assert_eq!(profile.without_runtime(), profile.clone());
        prop_assert!(profile.nodes().iter().zip(1..).all(|(node, id)| node.parent < NodeId(id)));
    }

    #[test]
    fn a_diff_holds_both_profiles_whole(a in stacks(), b in stacks()) {
        let a = from_stacks(&a);
        let b = from_stacks(&b);
        let diff = a.diff(&b);
        prop_assert_eq!(diff.nodes().iter().map(|n| n.before).sum::<Weight>(), a.total());
        prop_assert_eq!(diff.nodes().iter().map(|n| n.after).sum::<Weight>(), b.total());
    }
}

/// Trees with lines, unresolved addresses, phases, runtime thread roots, and equal siblings.
fn rows() -> impl Strategy<Value = Vec<(u32, u8, u64)>> {
    prop::collection::vec((any::<u32>(), 0..12u8, 0..3u64), 0..60)
}

proptest! {
    #[test]
    fn a_profile_from_a_shape_equals_one_from_rows(rows in rows(), by_function in any::<bool>()) {
        let mut symbols = SymbolTable::new();
        let frames: Vec<FrameId> = (0..12)
            .map(|frame| match frame {
                0 => symbols.intern(&Frame::task("t")),
                1 => symbols.intern(&Frame::phase("p")),
                2 => symbols.intern(&Frame::function("std::__rust_begin_short_backtrace", "", 0)),
                frame => symbols.intern(&Frame::function(["f", "g", "a"][frame % 3], "", frame as u32)),
            })
            .collect();
        let frame = |frame: u8| frames[usize::from(frame)];
        let rows: Vec<ProfileNode> = (0u32..).zip(&rows).map(|(place, (parent, of, cpu))| {
            let mut own = Weight::ZERO;
            own.count(State::Cpu, *cpu);
            ProfileNode { parent: NodeId(parent % (place + 1)), frame: frame(*of), own }
        }).collect();
        let table = symbols.frames_by_number();
        let expected = Profile::from_rows(table.strings, table.frames, rows.clone(), by_function);
        let tree: Vec<_> = rows.iter().map(|row| (row.parent, row.frame)).collect();
        let shape = Shape::of(table.strings.to_vec(), table.frames.to_vec(), &tree, by_function);
        let weights = (1u32..).zip(&rows).filter(|(_, row)| !row.own.is_zero()).map(|(id, row)| Some((shape.node(NodeId(id))?, row.own)));
        // The runtime's own time has no place in a shape.
        if let Some(weights) = weights.collect::<Option<Vec<_>>>() {
            prop_assert_eq!(shape.profile(&weights), expected);
        } else {
            prop_assert!(by_function);
        }
    }
}
