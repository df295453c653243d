//! The functions of a profile by time, for a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use profiler_core::{Frame, FrameKind, Profile, State, Weight};

use crate::functions::{FunctionTime, function_times, owner};
use crate::symbols::{label, short_file};
use crate::text::{cell, count, duration, percent, percentage, wrapped};

/// Most columns for the name of a crate.
const CRATE_COLUMNS_MAX: usize = 16;
/// Columns for the name of a function, whatever the width of the table.
const NAME_COLUMNS_MIN: usize = 24;
const NAME_COLUMNS_MAX: usize = 100;

/// The titles of the columns with numbers. The last one is omitted if all time is on CPU.
const TITLES: [&str; 5] = ["SELF", "SELF%", "TOTAL", "TOTAL%", "CPU%"];

/// Sort key of rows, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableOrder {
    /// Own time.
    #[default]
    SelfTime,
    /// Time with callees.
    Total,
    /// The name, in alphabetical order.
    Name,
}

/// Options of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOptions {
    /// Most rows.
    pub rows: usize,
    /// Their order.
    pub order: TableOrder,
    /// Columns of the terminal, which rows fit into.
    pub columns: usize,
}

/// Lists functions by [label](crate::symbols::label): self and total time with their shares of the whole,
/// and how much of self was on CPU. The header sums the whole by state and kind of waiting. A recursive
/// function counts once in its total. Tasks have rows for their total, marked `(task)`. The last line
/// counts the omitted rows.
///
/// ```text
/// 12.4 s of thread time: cpu 3.10 s (25.0%), runnable 120 ms (0.97%), wait 9.18 s (74.0%)
/// wait is lock 1.17 s (9.44%), network 8.01 s (64.6%)
///
///   SELF  SELF%   TOTAL  TOTAL%  CPU%  CRATE   FUNCTION
/// 8.01 s   64.6  8.01 s    64.6     0  [libc]  epoll_wait
/// ```
#[must_use]
pub fn table(profile: &Profile, options: TableOptions) -> String {
    let TableOptions {
        rows,
        order,
        columns,
    } = options;
    let whole = profile.total();
    if whole.is_zero() {
        return "no samples in this range\n".to_owned();
    }
    let mut functions = functions(profile, order);
    let shown = functions.len().min(rows);
    let layout = Layout::of(&functions[..shown], whole, columns);
    layout.tell_apart(&mut functions[..shown]);
    let mut text = headline(whole, columns);
    text.push('\n');
    layout.push_line(&mut text, TITLES.map(str::to_owned), "CRATE", "FUNCTION");
    for function in &functions[..shown] {
        layout.push_line(
            &mut text,
            function.figures(whole),
            &function.owner,
            &function.name,
        );
    }
    if let Some(left @ [_, ..]) = functions.get(rows..) {
        let own: Weight = left.iter().map(|function| function.own).sum();
        let share = percentage(own.total_ns(), whole.total_ns());
        let _ = writeln!(
            text,
            "… and {} more with {share} of self",
            count(left.len() as u64)
        );
    }
    text
}

/// Lines about the whole, and about its waiting if there is any.
fn headline(whole: Weight, columns: usize) -> String {
    let all = whole.total_ns();
    let cpu = whole.get(State::Cpu);
    let runnable = whole.get(State::Runnable);
    // A state without time may be one that the view hides.
    let parts: Vec<String> = [
        ("cpu", cpu),
        ("runnable", runnable),
        ("wait", whole.wait_ns()),
    ]
    .into_iter()
    .filter(|(_, time)| *time > 0)
    .map(|(name, time)| part(name, time, all))
    .collect();
    let start = format!("{} of thread time: ", duration(all));
    let mut text = wrapped(&start, &parts, columns) + "\n";
    let kinds: Vec<String> = State::WAITS
        .into_iter()
        .filter(|state| whole.get(*state) > 0)
        .map(|state| part(state.name(), whole.get(state), all))
        .collect();
    if !kinds.is_empty() {
        text += &wrapped("wait is ", &kinds, columns);
        text.push('\n');
    }
    text
}

fn part(name: &str, part: u64, all: u64) -> String {
    format!("{name} {} ({})", duration(part), percentage(part, all))
}

/// The widths of columns.
struct Layout {
    numbers: [usize; 5],
    owner: usize,
    name: usize,
}

impl Layout {
    /// Columns as narrow as their content; names get the rest.
    fn of(functions: &[Function], whole: Weight, columns: usize) -> Layout {
        let mut numbers = TITLES.map(str::len);
        let mut owner = "CRATE".len();
        for function in functions {
            for (width, figure) in numbers.iter_mut().zip(function.figures(whole)) {
                *width = (*width).max(figure.chars().count());
            }
            owner = owner.max(function.owner.chars().count());
        }
        if whole.get(State::Cpu) == whole.total_ns() {
            numbers[4] = 0;
        }
        let owner = owner.min(CRATE_COLUMNS_MAX);
        let gaps = 2 * (1 + numbers.iter().filter(|width| **width > 0).count());
        let used = numbers.iter().sum::<usize>() + owner + gaps;
        let name = columns
            .saturating_sub(used)
            .clamp(NAME_COLUMNS_MIN, NAME_COLUMNS_MAX);
        Layout {
            numbers,
            owner,
            name,
        }
    }

    fn push_line(&self, text: &mut String, figures: [String; 5], owner: &str, name: &str) {
        for (width, figure) in self.numbers.into_iter().zip(figures) {
            if width > 0 {
                let _ = write!(text, "{figure:>width$}  ");
            }
        }
        let width = self.owner;
        let _ = writeln!(
            text,
            "{:width$}  {}",
            cell(owner, width),
            cell(name, self.name)
        );
    }

    /// Adds to the names of functions what tells them apart: their file, their types or their library where
    /// that differs, else a number.
    fn tell_apart(&self, functions: &mut [Function]) {
        let cells = |owner: &str, name: &str| (cell(owner, self.owner), cell(name, self.name));
        let mut by_cells: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        for (index, function) in functions.iter().enumerate() {
            by_cells
                .entry(cells(&function.owner, &function.name))
                .or_default()
                .push(index);
        }
        let mut used: BTreeSet<(String, String)> = by_cells.keys().cloned().collect();
        for same in by_cells.into_values().filter(|same| same.len() > 1) {
            for (rank, index) in same.iter().enumerate() {
                let function = &functions[*index];
                let telling = [1, 0, 2].into_iter().find(|detail: &usize| {
                    let of_same = same.iter().map(|other| &functions[*other].details[*detail]);
                    of_same
                        .filter(|other| **other == function.details[*detail])
                        .count()
                        == 1
                });
                let with_detail = telling.map(|detail| match detail {
                    0 => function.details[0].clone(),
                    _ => format!(
                        "{} · {}",
                        function.name,
                        short_file(&function.details[detail])
                    ),
                });
                let numbered = (rank + 1..).map(|number| format!("{} ({number})", function.name));
                let mut candidates = with_detail.into_iter().chain(numbered);
                let free = candidates.find(|name| used.insert(cells(&function.owner, name)));
                functions[*index].name = free.unwrap_or_default();
            }
        }
    }
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
    /// Its name with all types, its file and its library.
    details: [String; 3],
    own: Weight,
    total_ns: u64,
}

impl Function {
    /// The cells of its columns with numbers.
    fn figures(&self, whole: Weight) -> [String; 5] {
        let of_whole = |part| format!("{:.1}", percent(part, whole.total_ns()));
        let own = self.own.total_ns();
        [
            duration(own),
            of_whole(own),
            duration(self.total_ns),
            of_whole(self.total_ns),
            cpu_share(self.own),
        ]
    }
}

/// All functions.
fn functions(profile: &Profile, order: TableOrder) -> Vec<Function> {
    let profile = profile.by_function();
    let mut functions: Vec<Function> = function_times(&profile)
        .into_iter()
        .map(
            |FunctionTime {
                 frame,
                 own,
                 total_ns,
             }| Function {
                name: name(&frame),
                owner: owner(&frame).to_owned(),
                details: [frame.function, frame.file, frame.module].map(str::to_owned),
                own,
                total_ns,
            },
        )
        .collect();
    functions.sort_by(|a, b| {
        order_key(order, b)
            .cmp(&order_key(order, a))
            .then_with(|| a.name.cmp(&b.name))
    });
    functions
}

fn order_key(order: TableOrder, function: &Function) -> (u64, u64) {
    let own_ns = function.own.total_ns();
    match order {
        TableOrder::SelfTime => (own_ns, function.total_ns),
        TableOrder::Total => (function.total_ns, own_ns),
        TableOrder::Name => (0, 0),
    }
}

fn name(frame: &Frame<&str>) -> String {
    match frame.kind {
        FrameKind::Task => format!("{} (task)", frame.label()),
        _ => label(frame),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};

    fn check(stacks: &str, rows: usize, expected: Expect) {
        let options = TableOptions {
            rows,
            order: TableOrder::SelfTime,
            columns: 80,
        };
        expected.assert_eq(&table(&profile(stacks), options));
    }

    #[test]
    fn rows_are_ordered_by_self_and_recursion_counts_once() {
        check(
            "load;main;fib cpu=1000000\nload;main;fib;fib cpu=2000000\nload;main;fib;g;fib lock=3000000\nload;main;read disk=4000000",
            10,
            expect![[r#"
                10.0 ms of thread time: cpu 3.00 ms (30.0%), wait 7.00 ms (70.0%)
                wait is lock 3.00 ms (30.0%), disk 4.00 ms (40.0%)

                   SELF  SELF%    TOTAL  TOTAL%  CPU%  CRATE  FUNCTION
                6.00 ms   60.0  6.00 ms    60.0    50  app    fib
                4.00 ms   40.0  4.00 ms    40.0     0  app    read
                    0 s    0.0  10.0 ms   100.0     -         load (task)
                    0 s    0.0  10.0 ms   100.0     -  app    main · a.rs
                    0 s    0.0  3.00 ms    30.0     -  app    g
            "#]],
        );
    }

    #[test]
    fn a_table_fits_its_columns() {
        let name = "a_function_with_a_rather_long_name_that_no_narrow_table_has_room_for";
        let stacks = format!("load;{name} cpu=1234567890000 lock=7654321000000\nload;b cpu=8");
        assert_eq!(widest(&stacks, 80), Some(80));
        assert!(widest(&stacks, usize::MAX) > Some(100));
    }

    fn widest(stacks: &str, columns: usize) -> Option<usize> {
        let options = TableOptions {
            rows: 9,
            order: TableOrder::SelfTime,
            columns,
        };
        let text = table(&profile(stacks), options);
        text.lines().map(|line| line.chars().count()).max()
    }

    #[test]
    fn omitted_rows_are_counted() {
        check(
            "t;a cpu=70\nt;b cpu=20\nt;c cpu=10",
            1,
            expect![[r#"
                100 ns of thread time: cpu 100 ns (100%)

                 SELF  SELF%  TOTAL  TOTAL%  CRATE  FUNCTION
                70 ns   70.0  70 ns    70.0  app    a
                … and 3 more with 30.0% of self
            "#]],
        );
        check("", 5, expect!["no samples in this range\n"]);
    }

    #[test]
    fn rows_can_be_ordered_by_total_or_name() {
        assert_eq!(names(TableOrder::SelfTime), ["a", "b", "c", "t (task)"]);
        assert_eq!(names(TableOrder::Total), ["t (task)", "b", "a", "c"]);
        assert_eq!(names(TableOrder::Name), ["a", "b", "c", "t (task)"]);
    }

    fn names(order: TableOrder) -> Vec<String> {
        let all = profile("t;b;a cpu=70\nt;b cpu=20\nt;c cpu=10");
        let names = functions(&all, order)
            .into_iter()
            .map(|function| function.name);
        names.collect::<Vec<_>>()
    }

    proptest! {
        #[test]
        fn selves_sum_to_the_total_and_no_total_exceeds_it(all in hostile_profiles()) {
            let functions = functions(&all, TableOrder::SelfTime);
            prop_assert_eq!(functions.iter().map(|f| f.own).sum::<Weight>(), all.total());
            let whole = all.total().total_ns();
            prop_assert!(functions.iter().all(|f| f.own.total_ns() <= f.total_ns && f.total_ns <= whole));
        }

        #[test]
        fn a_name_cannot_break_a_row(all in hostile_profiles()) {
            let options = TableOptions { rows: 1_000, order: TableOrder::Name, columns: usize::MAX };
            let text = table(&all, options);
            prop_assert!(!text.replace('\n', "").contains(char::is_control));
            let waits = usize::from(all.total().wait_ns() > 0);
            let rows = all.by_function().symbols().frame_count() as usize;
            prop_assert_eq!(text.lines().count(), if rows == 0 { 1 } else { rows + 3 + waits });
        }

        #[test]
        fn no_two_rows_look_the_same(all in hostile_profiles(), rows in 1..50_usize) {
            let mut functions = functions(&all, TableOrder::Total);
            let shown = functions.len().min(rows);
            let layout = Layout::of(&functions[..shown], all.total(), 80);
            layout.tell_apart(&mut functions[..shown]);
            let cells = functions[..shown].iter().map(|row| {
                (cell(&row.owner, layout.owner), cell(&row.name, layout.name))
            });
            prop_assert_eq!(cells.collect::<BTreeSet<_>>().len(), shown);
        }
    }
}
