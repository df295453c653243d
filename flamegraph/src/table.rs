//! The functions of a profile by time, for a terminal.

use std::fmt::Write as _;

use profiler_core::{FrameId, FrameKind, Profile, State, Weight};

use crate::owner::owner;
use crate::prune::depths;
use crate::text::{cell, duration, percent, short_name};

/// Columns for the names of a crate and a function.
const CRATE_COLUMNS: usize = 18;
const NAME_COLUMNS: usize = 56;

/// Lists the `rows` functions with the most own time: self and total time with their shares of the
/// whole, and how much of self was on CPU. The header sums the whole by state and kind of waiting.
/// A recursive function counts once in its total. Long generic arguments are elided. Tasks have
/// rows for their total, marked `(task)`. The last line counts the omitted rows.
///
/// ```text
/// 12.4 s of thread time: cpu 3.10 s (25.0 %), runnable 120 ms (1.0 %), wait 9.18 s (74.0 %)
/// wait is lock 1.17 s (9.4 %), network 8.01 s (64.6 %)
///
///    SELF  SELF%    TOTAL  TOTAL%  CPU%  CRATE               FUNCTION
///  8.01 s   64.6   8.01 s    64.6     0  libc.so.6           epoll_wait
/// ```
#[must_use]
pub fn table(profile: &Profile, rows: usize) -> String {
    let whole = profile.total();
    if whole.is_zero() {
        return "no samples in this range\n".to_owned();
    }
    let mut text = headline(whole);
    let functions = functions(profile);
    let _ = writeln!(
        text,
        "\n{:>9}  {:>5}  {:>9}  {:>6}  {:>4}  {:CRATE_COLUMNS$}  FUNCTION",
        "SELF", "SELF%", "TOTAL", "TOTAL%", "CPU%", "CRATE"
    );
    for function in functions.iter().take(rows) {
        let own = function.own.total_ns();
        let _ = writeln!(
            text,
            "{:>9}  {:>5.1}  {:>9}  {:>6.1}  {:>4}  {:CRATE_COLUMNS$}  {}",
            duration(own),
            percent(own, whole.total_ns()),
            duration(function.total_ns),
            percent(function.total_ns, whole.total_ns()),
            cpu_share(function.own),
            cell(&function.owner, CRATE_COLUMNS),
            cell(&function.name, NAME_COLUMNS),
        );
    }
    if let Some(left @ [_, ..]) = functions.get(rows..) {
        let own: Weight = left.iter().map(|function| function.own).sum();
        let share = percent(own.total_ns(), whole.total_ns());
        let _ = writeln!(text, "… and {} more with {share:.1} % of self", left.len());
    }
    text
}

/// One line about the whole, and one about its waiting if there is any.
fn headline(whole: Weight) -> String {
    let all = whole.total_ns();
    let part = |name, part| format!("{name} {} ({:.1} %)", duration(part), percent(part, all));
    let (cpu, runnable) = (whole.get(State::Cpu), whole.get(State::Runnable));
    let parts = [part("cpu", cpu), part("runnable", runnable), part("wait", whole.wait_ns())];
    let mut text = format!("{} of thread time: {}\n", duration(all), parts.join(", "));
    let kinds = State::WAITS.into_iter().filter(|state| whole.get(*state) > 0);
    let kinds: Vec<String> = kinds.map(|state| part(state.name(), whole.get(state))).collect();
    if !kinds.is_empty() {
        let _ = writeln!(text, "wait is {}", kinds.join(", "));
    }
    text
}

/// Share of the time on CPU, in whole percent; a dash where there is no time.
fn cpu_share(weight: Weight) -> String {
    if weight.is_zero() {
        return "-".to_owned();
    }
    format!("{:.0}", percent(weight.get(State::Cpu), weight.total_ns()))
}

/// One row.
struct Function {
    name: String,
    owner: String,
    own: Weight,
    total_ns: u64,
}

/// All functions, most own time first.
fn functions(profile: &Profile) -> Vec<Function> {
    let profile = profile.by_function();
    let frames = profile.symbols().frame_count();
    let mut functions: Vec<Function> = (0..frames)
        .map(|id| Function {
            name: name(&profile, FrameId(id)),
            owner: owner(&profile.frame(FrameId(id))).into_owned(),
            own: Weight::ZERO,
            total_ns: 0,
        })
        .collect();

    let totals = profile.totals();
    let depths = depths(&profile);
    let mut path: Vec<FrameId> = Vec::new();
    // Number of times each frame is on the path: only its outermost call adds to its total.
    let mut active = vec![0u32; frames as usize];
    for (id, node) in (1..).zip(profile.nodes()) {
        for frame in path.drain(depths[id] as usize - 1..) {
            active[frame.0 as usize] -= 1;
        }
        let index = node.frame.0 as usize;
        let function = &mut functions[index];
        function.own += node.own;
        if active[index] == 0 {
            function.total_ns = function.total_ns.saturating_add(totals[id].total_ns());
        }
        active[index] += 1;
        path.push(node.frame);
    }
    functions.sort_by(|a, b| {
        let key = |function: &Function| (function.own.total_ns(), function.total_ns);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    functions
}

fn name(profile: &Profile, id: FrameId) -> String {
    let frame = profile.frame(id);
    match frame.kind {
        FrameKind::Task => format!("{} (task)", frame.label()),
        _ => short_name(&frame.label()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};

    fn check(stacks: &str, rows: usize, expected: Expect) {
        expected.assert_eq(&table(&profile(stacks), rows));
    }

    #[test]
    fn rows_are_ordered_by_self_and_recursion_counts_once() {
        check(
            "load;main;fib cpu=1000000\nload;main;fib;fib cpu=2000000\nload;main;fib;g;fib lock=3000000\nload;main;read disk=4000000",
            10,
            expect![[r#"
                10.0 ms of thread time: cpu 3.00 ms (30.0 %), runnable 0 ns (0.0 %), wait 7.00 ms (70.0 %)
                wait is lock 3.00 ms (30.0 %), disk 4.00 ms (40.0 %)

                     SELF  SELF%      TOTAL  TOTAL%  CPU%  CRATE               FUNCTION
                  6.00 ms   60.0    6.00 ms    60.0    50  app                 fib
                  4.00 ms   40.0    4.00 ms    40.0     0  app                 read
                     0 ns    0.0    10.0 ms   100.0     -                      load (task)
                     0 ns    0.0    10.0 ms   100.0     -  app                 main
                     0 ns    0.0    3.00 ms    30.0     -  app                 g
            "#]],
        );
    }

    #[test]
    fn omitted_rows_are_counted() {
        check(
            "t;a cpu=70\nt;b cpu=20\nt;c cpu=10",
            1,
            expect![[r#"
                100 ns of thread time: cpu 100 ns (100.0 %), runnable 0 ns (0.0 %), wait 0 ns (0.0 %)

                     SELF  SELF%      TOTAL  TOTAL%  CPU%  CRATE               FUNCTION
                    70 ns   70.0      70 ns    70.0   100  app                 a
                … and 3 more with 30.0 % of self
            "#]],
        );
        check("", 5, expect!["no samples in this range\n"]);
    }

    proptest! {
        #[test]
        fn selves_sum_to_the_total_and_no_total_exceeds_it(all in hostile_profiles()) {
            let functions = functions(&all);
            prop_assert_eq!(functions.iter().map(|f| f.own).sum::<Weight>(), all.total());
            let whole = all.total().total_ns();
            prop_assert!(functions.iter().all(|f| f.own.total_ns() <= f.total_ns && f.total_ns <= whole));
        }

        #[test]
        fn a_name_cannot_break_a_row(all in hostile_profiles()) {
            let text = table(&all, 1_000);
            prop_assert!(!text.replace('\n', "").contains(char::is_control));
            let waits = usize::from(all.total().wait_ns() > 0);
            let rows = all.by_function().symbols().frame_count() as usize;
            prop_assert_eq!(text.lines().count(), if rows == 0 { 1 } else { rows + 3 + waits });
        }
    }
}
