//! Tasks in columns: the data for drawing up to a million tasks in lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Epoch, Outcome, Timestamp, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::table_reader::Cancel;
use crate::tasks::TaskQuery;
use store::rows::TaskRow;

/// Most distinct names and most distinct threads; further ones share the first entry.
const TEXTS_MAX: usize = 100_000;

/// The first entry of names and threads.
const OVERFLOW: &str = "[overflow]";

/// Tasks in columns.
#[derive(Debug)]
pub struct TaskColumns {
    pub names: Vec<Arc<str>>,
    pub threads: Vec<TaskThread>,
    /// The latest starts first.
    pub rows: Vec<TaskPoint>,
    /// The number of tasks; more than `rows` if the limit cut off the oldest.
    pub total: u64,
    /// As in [`crate::TaskAnswer`].
    pub aggregated: u64,
    pub damaged: Vec<String>,
}

/// A thread that ran tasks.
#[derive(Clone, Debug)]
pub struct TaskThread {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub id: u32,
    pub name: Arc<str>,
}

/// The drawn part of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskPoint {
    /// The newest is the least, so that the oldest is dropped first.
    start: Reverse<Timestamp>,
    /// Unique within its worker's life.
    pub id: u64,
    /// Index of its name and of its thread.
    pub name: u32,
    pub thread: u32,
    /// Until now for a running task.
    pub duration_ns: u64,
    outcome: u8,
}

impl TaskPoint {
    pub fn start(&self) -> Timestamp {
        self.start.0
    }

    /// Index of its outcome in [`Outcome::ALL`].
    pub fn outcome(&self) -> u8 {
        self.outcome
    }
}

/// Numbers for repeated values.
struct Interning<K, V> {
    known: KeyedMap<K, u32>,
    values: Vec<V>,
}

impl<K: Eq + std::hash::Hash, V> Interning<K, V> {
    fn new(overflow: V) -> Self {
        Interning {
            known: KeyedMap::default(),
            values: vec![overflow],
        }
    }

    fn number(&mut self, key: K, value: impl FnOnce() -> V) -> u32 {
        if let Some(number) = self.known.get(&key) {
            return *number;
        }
        if self.values.len() >= TEXTS_MAX {
            return 0;
        }
        let number = u32::try_from(self.values.len()).expect("it is below `TEXTS_MAX`");
        self.values.push(value());
        self.known.insert(key, number);
        number
    }
}

impl Queries<'_> {
    /// The rows that overlap the range, at most [`TaskQuery::limit`], 48 bytes each.
    pub fn task_columns(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
        now: Timestamp,
    ) -> Result<TaskColumns, QueryError> {
        let overflow: Arc<str> = OVERFLOW.into();
        let nowhere = TaskThread {
            worker: WorkerId(overflow.clone()),
            epoch: Epoch(0),
            id: 0,
            name: overflow.clone(),
        };
        let mut names = Interning::new(overflow);
        let mut threads = Interning::new(nowhere);
        let mut total = 0;
        // The oldest is on top.
        let mut newest = BinaryHeap::new();
        let (aggregated, damaged) = self.each_row(query, cancel, |row: &Arc<TaskRow>| {
            total += 1;
            let record = &row.record;
            let is_full = newest.len() >= query.limit;
            if is_full
                && newest
                    .peek()
                    .is_some_and(|top: &TaskPoint| top.start() > record.start)
            {
                return;
            }
            let thread = (row.worker.clone(), row.epoch, record.thread_id);
            newest.push(TaskPoint {
                start: Reverse(record.start),
                id: record.id.0,
                name: names.number(record.name.clone(), || record.name.clone()),
                thread: threads.number(thread, || TaskThread {
                    worker: row.worker.clone(),
                    epoch: row.epoch,
                    id: record.thread_id,
                    name: record.thread_name.clone(),
                }),
                duration_ns: row.duration_ns().unwrap_or(now.since_ns(record.start)),
                outcome: Outcome::ALL
                    .iter()
                    .position(|one| *one == record.outcome)
                    .map_or(0, |at| {
                        u8::try_from(at).expect("there are fewer than 256 outcomes")
                    }),
            });
            if is_full {
                newest.pop();
            }
        })?;
        let rows = newest.into_sorted_vec();
        Ok(TaskColumns {
            names: names.values,
            threads: threads.values,
            rows,
            total,
            aggregated,
            damaged,
        })
    }
}
