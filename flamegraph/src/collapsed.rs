//! Collapsed stacks, the text format shared by flame graph tools.

use std::fmt::Write as _;

use profiler_core::{FrameId, Profile};

use crate::prune::{bounded, own_ns};
use crate::text::printable;

/// Largest output in bytes, not counting the weights' digits; beyond it, small subtrees become
/// `[pruned]`.
const BYTES_MAX: u64 = 256 << 20;

/// Fewest digits of a weight. Other tools write counts of samples without leading zeros, and hardly a profile in which
/// each stack has this many digits of them; so weights of our files are known as nanoseconds, line by line: a mark that
/// stays when lines are sorted, selected or joined, and that every reader of decimal numbers ignores. A comment would
/// get lost there, and some tools reject it.
pub const WEIGHT_DIGITS_MIN: usize = 5;

/// The least weight without leading zeros of its own.
const WITHOUT_ZEROS_MIN: u64 = 10_000;

/// Writes one line per stack, `task;frame;frame weight`, sorted by stack, each stack once. Weights
/// are **nanoseconds** of thread time over all states and add up to the profile's total; those below 10,000 have
/// [leading zeros](WEIGHT_DIGITS_MIN), and so have those of stacks that could be another tool's.
///
/// Lines of a function are merged. Tools split stacks at `;` and weights at the last space, so
/// names are changed where they would be misread: `;` becomes `:`, characters that [`printable`]
/// escapes are escaped, and an empty name becomes `[unnamed]`.
#[must_use]
pub fn collapsed(profile: &Profile) -> String {
    let folded = profile.by_function();
    // The separator after a name takes a byte too.
    let folded = bounded(
        &folded,
        usize::MAX,
        BYTES_MAX,
        |frame: &profiler_core::Frame<&str>| stack_name(&frame.label()).len() + 1,
    );

    let mut stacks = stacks(&folded);
    stacks.sort_unstable();
    // Frames that differ only in file or module have equal text.
    stacks.dedup_by(|(next, weight), (stack, sum)| {
        let same = next == stack;
        if same {
            *sum = sum.saturating_add(*weight);
        }
        same
    });
    let mut text = String::new();
    for (stack, weight) in stacks {
        let mark = if is_ambiguous(&stack) && weight >= WITHOUT_ZEROS_MIN {
            "0"
        } else {
            ""
        };
        let _ = writeln!(text, "{stack} {mark}{weight:0WEIGHT_DIGITS_MIN$}");
    }
    text
}

/// Visits each node with weight of its own: its path and that weight.
fn stacks(profile: &Profile) -> Vec<(String, u64)> {
    let names: Vec<String> = (0..profile.symbols().frame_count())
        .map(|id| stack_name(&profile.frame(FrameId(id)).label()))
        .collect();
    let mut path = String::new();
    // End of each node's path in the current stack, by depth: nodes come in depth-first order.
    let mut ends = vec![0];
    let mut stacks = Vec::new();
    for (node, depth) in profile
        .nodes()
        .iter()
        .zip(&crate::prune::depths(profile)[1..])
    {
        ends.truncate(*depth as usize);
        path.truncate(*ends.last().unwrap_or(&0));
        if !path.is_empty() {
            path.push(';');
        }
        path.push_str(&names[node.frame.0 as usize]);
        ends.push(path.len());
        if !node.own.is_zero() {
            stacks.push((path.clone(), own_ns(node)));
        }
    }
    stacks
}

/// Formats `name` as one frame of a line.
fn stack_name(name: &str) -> String {
    let mut name = printable(name)
        .chars()
        .map(|character| {
            if character == ';' {
                ':'
            } else {
                spaced(character)
            }
        })
        .collect::<String>()
        .trim()
        .to_owned();
    if name.is_empty() {
        return "[unnamed]".to_owned();
    }
    // Some tools take a line that starts with `# ` or `// ` as a comment.
    if name.starts_with('#') || name.starts_with("//") {
        name.insert(0, '\\');
    }
    // They would also read `step 3 500` as a stack with two weights.
    if let Some((_, last)) = name.rsplit_once(' ')
        && last.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        let space = name.len() - last.len() - 1;
        name.replace_range(space..=space, "_");
    }
    name
}

/// Whether a reader may take names of a stack for marks of other tools: processes and threads of austin, kinds of frames
/// and threads of async-profiler, lines and threads of py-spy, and stacks off the CPU.
fn is_ambiguous(stack: &str) -> bool {
    const OFF_CPU: [&str; 4] = [
        "finish_task_switch",
        "schedule",
        "__schedule",
        "__traceiter_sched_switch",
    ];
    let is_numbered = |name: &str, letter| {
        let digits = name.strip_prefix(letter).unwrap_or_default();
        digits.starts_with(|first: char| first.is_ascii_digit())
    };
    let is_mark = |name: &str| {
        is_numbered(name, 'P')
            || name.contains("_[")
            || name.contains(" tid=")
            || name.starts_with("thread (")
            || name.ends_with(')') && name.contains(" (") && name.contains(':')
    };
    let last = stack.rsplit(';').next().unwrap_or_default();
    stack.split(';').any(is_mark) || OFF_CPU.iter().any(|name| last.starts_with(name))
}

fn spaced(character: char) -> char {
    if character.is_whitespace() {
        ' '
    } else {
        character
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};

    fn check(stacks: &str, expected: Expect) {
        expected.assert_eq(&collapsed(&profile(stacks)));
    }

    #[test]
    fn states_and_lines_are_summed_and_stacks_sorted() {
        check(
            "b;f:1 cpu=1\nb;f:2 disk=2\na;g cpu=30000\n[no task];h runnable=400000\nb cpu=5",
            expect![[r#"
                [no task];h 400000
                a;g 30000
                b 00005
                b;f 00003
            "#]],
        );
        check("", expect![""]);
    }

    #[test]
    fn names_cannot_be_misread() {
        for (name, expected) in [
            ("<[u8; 8] as T>::f", "<[u8: 8] as T>::f"),
            ("step 3", "step_3"),
            ("a b 1.5", "a b_1.5"),
            ("a\nb 7", "a\\nb_7"),
            ("# note", "\\# note"),
            ("// note", "\\// note"),
            ("/a/b", "/a/b"),
            ("  \u{a0} ", "[unnamed]"),
            ("", "[unnamed]"),
            ("-", "-"),
        ] {
            assert_eq!(stack_name(name), expected);
        }
    }

    proptest! {
        #[test]
        fn lines_sum_to_the_total_and_every_line_parses(all in hostile_profiles()) {
            let text = collapsed(&all);
            let mut sum = 0;
            let mut last = "";
            for line in text.lines() {
                let (stack, weight) = line.rsplit_once(' ').unwrap();
                prop_assert!(!stack.contains(char::is_control) && stack == stack.trim());
                prop_assert!(stack.split(';').all(|name| !name.is_empty()));
                prop_assert!(last < stack, "{:?} then {:?}", last, stack);
                last = stack;
                prop_assert!(weight.len() >= WEIGHT_DIGITS_MIN);
                sum += weight.parse::<u64>().unwrap();
            }
            prop_assert_eq!(sum, all.total().total_ns());
        }
    }
}
