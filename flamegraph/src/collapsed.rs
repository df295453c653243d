//! Collapsed stacks, the text format shared by flame graph tools.

use std::fmt::Write as _;

use profiler_core::{FrameId, Profile};

use crate::prune::{bounded, own_ns};
use crate::text::printable;

/// Largest output in bytes, not counting the weights' digits; beyond it, small subtrees become
/// `[pruned]`.
const BYTES_MAX: u64 = 256 << 20;

/// Writes one line per stack, `task;frame;frame weight`, sorted by stack, each stack once. Weights
/// are **nanoseconds** of thread time over all states and add up to the profile's total.
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
        let _ = writeln!(text, "{stack} {weight}");
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
    // Some tools take a line that starts with `# ` as a comment.
    if name.starts_with('#') {
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
            "b;f:1 cpu=1\nb;f:2 disk=2\na;g cpu=3\n[no task];h runnable=4\nb cpu=5",
            expect![[r#"
                [no task];h 4
                a;g 3
                b 5
                b;f 3
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
                sum += weight.parse::<u64>().unwrap();
            }
            prop_assert_eq!(sum, all.total().total_ns());
        }
    }
}
