//! The layout of the tasks' plot: a lane for each thread, rows in it for tasks that overlap, and groups
//! of short tasks where there are too many.

use std::sync::Arc;

use profiler_core::Outcome;
use rustc_hash::FxHashMap;

use super::super::profiler::TaskData;

/// Most lanes. Threads with the most time in tasks come first.
const LANES_MAX: usize = 128;

/// Most rows of one lane. Further overlapping tasks cover each other in the last row.
const ROWS_MAX: usize = 16;

/// Most rectangles. 20,000 take 3 MB, and a browser draws them in a third of a second.
pub(super) const ITEMS_MAX: usize = 20_000;

/// The lane of a thread.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) worker: u32,
    pub(super) worker_name: &'a Arc<str>,
    /// Tasks in the order of their starts.
    pub(super) rows: Vec<Vec<&'a TaskData>>,
}

/// All lanes, in the order of their threads' first tasks.
#[derive(Debug)]
pub(super) struct Lanes<'a> {
    pub(super) lanes: Vec<Lane<'a>>,
    /// Threads without a lane, and their tasks.
    pub(super) lanes_omitted: usize,
    pub(super) tasks_omitted: usize,
    /// Tasks that cover others.
    pub(super) tasks_hidden: usize,
}

/// One rectangle.
#[derive(Debug, PartialEq)]
pub(super) enum Item<'a> {
    Task(&'a TaskData),
    /// Several short tasks of one row.
    Group(Vec<&'a TaskData>),
}

impl<'a> Lanes<'a> {
    pub(super) fn of(tasks: &'a [TaskData]) -> Lanes<'a> {
        // The system reuses the ids of ended threads; the name distinguishes them, unless they are
        // threads of one pool.
        let mut by_thread: FxHashMap<(u32, &str), Vec<&TaskData>> = FxHashMap::default();
        for task in tasks {
            by_thread
                .entry((task.worker, &task.worker_name))
                .or_default()
                .push(task);
        }
        let mut threads: Vec<Vec<&TaskData>> = by_thread.into_values().collect();
        for thread in &mut threads {
            // Of tasks that start together the longest comes first, because it encloses the others.
            thread.sort_by_key(|task| (task.started_at, std::cmp::Reverse(task.finished_at)));
        }
        let order = |thread: &[&TaskData]| (thread[0].started_at, thread[0].worker);
        threads.sort_by_key(|thread| order(thread));
        let all = threads.len();
        if all > LANES_MAX {
            threads.sort_by_key(|thread| {
                std::cmp::Reverse(thread.iter().map(|task| length_ns(task)).sum::<u64>())
            });
        }
        let omitted = threads.split_off(all.min(LANES_MAX));
        threads.sort_by_key(|thread| order(thread));
        let mut lanes = Lanes {
            lanes: Vec::new(),
            lanes_omitted: omitted.len(),
            tasks_omitted: omitted.iter().map(Vec::len).sum(),
            tasks_hidden: 0,
        };
        for thread in threads {
            let worker = thread[0].worker;
            let worker_name = &thread[0].worker_name;
            let rows = lanes.rows(thread);
            lanes.lanes.push(Lane {
                worker,
                worker_name,
                rows,
            });
        }
        lanes
    }

    /// Puts each task into the first row that is free at its start, so that inner tasks are below the
    /// enclosing ones.
    fn rows(&mut self, thread: Vec<&'a TaskData>) -> Vec<Vec<&'a TaskData>> {
        let mut rows: Vec<Vec<&TaskData>> = Vec::new();
        for task in thread {
            let is_free = |row: &Vec<&TaskData>| {
                row.last()
                    .is_none_or(|last| last.finished_at <= task.started_at)
            };
            match rows.iter().position(is_free) {
                Some(free) => rows[free].push(task),
                None if rows.len() < ROWS_MAX => rows.push(vec![task]),
                None => {
                    self.tasks_hidden += 1;
                    rows[ROWS_MAX - 1].push(task);
                }
            }
        }
        rows
    }

    fn all_rows(&self) -> impl Iterator<Item = &[&'a TaskData]> {
        self.lanes
            .iter()
            .flat_map(|lane| lane.rows.iter().map(Vec::as_slice))
    }

    pub(super) fn row_count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.rows.len()).sum()
    }

    /// Returns the smallest grain, 0 or a power of two nanoseconds, for which grouping shorter tasks
    /// leaves at most `items_max` rectangles.
    pub(super) fn grain_ns(&self, items_max: usize) -> u64 {
        let grains = std::iter::once(0).chain((0..63).map(|power| 1 << power));
        grains
            .into_iter()
            .find(|grain_ns: &u64| {
                let items = self.all_rows().map(|row| items(row, *grain_ns).len());
                items.sum::<usize>() <= items_max
            })
            .unwrap_or(u64::MAX)
    }
}

/// A row's rectangles: consecutive tasks shorter than `grain_ns` are grouped while the group fits it.
pub(super) fn items<'a>(row: &[&'a TaskData], grain_ns: u64) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let mut group: Vec<&TaskData> = Vec::new();
    let mut close = |group: &mut Vec<&'a TaskData>| match group[..] {
        [] => {}
        [task] => {
            items.push(Item::Task(task));
            group.clear();
        }
        _ => items.push(Item::Group(std::mem::take(group))),
    };
    for &task in row {
        let fits = |first: &TaskData| task.finished_at.since_ns(first.started_at) <= grain_ns;
        if !group.first().is_some_and(|first| fits(first)) {
            close(&mut group);
        }
        group.push(task);
        if length_ns(task) >= grain_ns {
            close(&mut group);
        }
    }
    close(&mut group);
    items
}

pub(super) fn length_ns(task: &TaskData) -> u64 {
    task.finished_at.since_ns(task.started_at)
}

pub(super) fn has_failed(task: &TaskData) -> bool {
    matches!(task.outcome, Outcome::Failed | Outcome::Panicked)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(worker: u32, start_ns: i64, length_ns: i64) -> TaskData {
        let at = |ns| profiler_core::Timestamp::from_unix_ns(ns);
        TaskData {
            key: "".into(),
            name: "load".into(),
            start: 0.0,
            finish: 0.0,
            started_at: at(start_ns),
            finished_at: at(start_ns + length_ns),
            worker,
            worker_name: "".into(),
            outcome: Outcome::Ok,
        }
    }

    fn tasks() -> impl Strategy<Value = Vec<TaskData>> {
        let one = (
            0..4_u32,
            0..1_000_i64,
            prop_oneof![Just(0), 0..5_i64, 0..500_i64],
        )
            .prop_map(|(worker, start_ns, length_ns)| task(worker, start_ns, length_ns));
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        /// Every task is drawn once, and no two tasks of a row overlap unless counted as hidden.
        #[test]
        fn every_task_is_drawn_once(tasks in tasks()) {
            let lanes = Lanes::of(&tasks);
            prop_assert_eq!(lanes.all_rows().map(<[_]>::len).sum::<usize>(), tasks.len());
            let overlapping = lanes.all_rows().map(|row: &[&TaskData]| {
                row.windows(2).filter(|pair| pair[1].started_at < pair[0].finished_at).count()
            }).sum::<usize>();
            prop_assert!(overlapping <= lanes.tasks_hidden, "{} {}", overlapping, lanes.tasks_hidden);
        }

        /// Grouping loses no task and keeps their order; a group fits the grain; and there are at most
        /// `items_max` rectangles, unless there are more rows.
        #[test]
        fn grouping_keeps_all_tasks(tasks in tasks(), items_max in 0..100_usize) {
            let lanes = Lanes::of(&tasks);
            let grain_ns = lanes.grain_ns(items_max);
            let mut drawn = 0;
            for row in lanes.all_rows() {
                let items = items(row, grain_ns);
                drawn += items.len();
                let joined = items.iter().flat_map(|item| match item {
                    Item::Task(task) => std::slice::from_ref(task),
                    Item::Group(tasks) => tasks,
                });
                prop_assert!(joined.eq(row.iter()));
                for item in items {
                    if let Item::Group(tasks) = item {
                        let last = tasks.iter().map(|task| task.finished_at).max().unwrap();
                        prop_assert!(last.since_ns(tasks[0].started_at) <= grain_ns);
                    }
                }
            }
            prop_assert!(drawn <= items_max.max(lanes.row_count()));
            if tasks.len() <= items_max {
                prop_assert_eq!(grain_ns, 0);
            }
        }
    }

    #[test]
    fn tasks_past_the_limits_are_counted() {
        let together: Vec<TaskData> = (0..20).map(|_| task(1, 0, 10)).collect();
        let lanes = Lanes::of(&together);
        assert_eq!(
            (lanes.row_count(), lanes.tasks_hidden),
            (ROWS_MAX, 20 - ROWS_MAX)
        );
        let threads: Vec<TaskData> = (0..200)
            .map(|worker| task(worker, 0, worker.into()))
            .collect();
        let lanes = Lanes::of(&threads);
        assert_eq!(
            (lanes.lanes.len(), lanes.lanes_omitted, lanes.tasks_omitted),
            (128, 72, 72)
        );
        assert!(
            lanes.lanes.iter().all(|lane| lane.worker >= 72),
            "threads with the most time have lanes"
        );
    }
}
