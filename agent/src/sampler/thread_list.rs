//! Finds the threads that have started or ended since the last tick, at a cost that depends on the
//! number of these threads.
//!
//! The kernel tells the number of threads for the price of one `fstat`, and the newest id of any thread
//! for that of one `read`. The ids since the last tick are asked one by one whether they are of this
//! process; many, and those of a number that rose without them, are read from the end of the kernel's
//! list, which has threads in the order in which they started ([`task_list`]). So a thread is found at the
//! next tick also if another one has ended. Only for those that ended must the whole list be read,
//! which is therefore done rarely, and later the more threads there are. How many ended at which tick is
//! remembered until then, so their times are right all the same.

use super::pages::page_queue::PageQueue;
use super::schedule::TickTimes;
use super::thread_table::ThreadTable;
use system::newest_id::NewIds;
use system::page_vec::PageVec;
use system::{process, task_list};

/// After the whole list was read it is not read again for this many times the CPU time of that.
const REST_PER_READING: u64 = 300;
/// Entries that are read from the end of the list in addition to the expected ones.
const TAIL: u64 = 4;
/// Ticks after which new threads are looked for although nothing shows any: where the newest id is not
/// known, as many may have ended as started. The shorter time holds while threads start or end.
const LOOK_TICKS: u32 = 100;
const LOOK_TICKS_BUSY: u32 = 5;
/// Ticks from one reading of the newest id to the next one while threads neither start nor end: it takes up to 10 us.
const ID_TICKS: u32 = 4;
/// For so many ticks after a change threads are taken to start and end.
const BUSY_TICKS: u32 = 200;

/// The number of threads, and when they started and ended.
#[derive(Debug, Default)]
pub(super) struct ThreadList {
    count: Option<u64>,
    /// Whether the system tells which ids are new.
    has_new_ids: bool,
    ticks_since_ids: u32,
    /// When threads ended that have not been found to be gone: time and number, the earliest first.
    ends: PageQueue<(u64, u64)>,
    /// When the list was last known to be complete up to the newest thread.
    complete_ns: u64,
    /// When the whole list may be read again.
    whole_after_ns: u64,
    ticks_since_look: u32,
    ticks_since_change: u32,
}

/// The kernel's view of the threads at a tick.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadsShown {
    /// Ids that threads of any process have got lately, if they were read.
    pub(super) new_ids: Option<NewIds>,
    /// The number of threads of this one, after these ids were read.
    pub(super) count: Option<u64>,
}

/// The difference between the known threads and those that there are.
#[derive(Debug, Default)]
pub(super) struct ThreadChanges {
    /// Ids of new threads.
    pub(super) started: PageVec<u32>,
    /// They started after this time.
    pub(super) started_after_ns: u64,
    /// Ids of threads that are gone.
    pub(super) ended: PageVec<u32>,
    /// The list was read for the first time: the new threads may have started long ago.
    pub(super) is_first: bool,
}

impl ThreadList {
    /// Forgets everything: all threads are new at the next update.
    pub(super) fn clear(&mut self) {
        *self = ThreadList::default();
    }

    /// Whether the newest id is to be read in the next tick.
    pub(super) fn wants_new_ids(&self) -> bool {
        self.ticks_since_change < BUSY_TICKS || self.ticks_since_ids >= ID_TICKS
    }

    /// Reads what has changed since the last tick. `known` are all threads but `own_id`, whose samples nobody takes.
    pub(super) fn update(
        &mut self,
        tick: TickTimes,
        shown: ThreadsShown,
        known: &ThreadTable,
        own_id: u32,
    ) -> ThreadChanges {
        let now = tick.now_ns;
        let is_first = self.count.is_none();
        let has_changed = shown.count != self.count;
        self.count = shown.count.or(Some(0));
        self.ticks_since_change = if has_changed {
            0
        } else {
            self.ticks_since_change.saturating_add(1)
        };
        self.ticks_since_look += 1;
        // Threads that are found at the first look began before the agent did.
        let started_after_ns = if is_first {
            tick.last_ns
        } else {
            self.complete_ns
        };
        let mut changes = ThreadChanges {
            started_after_ns,
            is_first,
            ..Default::default()
        };
        self.ticks_since_ids += 1;
        if let Some(new_ids) = &shown.new_ids {
            self.has_new_ids = *new_ids != NewIds::Unknown;
            self.ticks_since_ids = 0;
        }
        let are_ids_read = self.has_new_ids && shown.new_ids.is_some();
        let Some(count) = shown.count.filter(|_| !is_first) else {
            if now >= self.whole_after_ns {
                self.read_whole(now, known, own_id, &mut changes);
            }
            return changes;
        };
        let known_count = known.len() as u64 + 1;
        let is_new = |id: &u32| *id != own_id && !known.contains(*id);
        let is_complete = match shown.new_ids {
            Some(NewIds::Among(ids)) => {
                // Some 200 ns each.
                let is_own = |id: &u32| process::thread_cpu_ns(*id).is_some();
                changes.started.extend(ids.filter(is_new).filter(is_own));
                if !changes.started.is_empty() {
                    self.ticks_since_change = 0;
                }
                known_count + changes.started.len() as u64 >= count
            }
            Some(NewIds::Many) => false,
            Some(NewIds::Unknown) | None => !has_changed,
        };
        if is_complete && are_ids_read {
            self.complete_ns = now;
        }
        if !is_complete || self.ticks_since_look >= self.look_ticks() {
            self.ticks_since_look = 0;
            match newest(count, count.saturating_sub(known_count) + TAIL, known) {
                Some(ids) => changes.started = ids.into_iter().filter(is_new).collect(),
                None => return changes,
            }
            self.complete_ns = now;
        }
        let listed = known_count + changes.started.len() as u64;
        self.add_ends(tick.between_ns(), listed.saturating_sub(count));
        if (listed != count) && now >= self.whole_after_ns {
            self.read_whole(now, known, own_id, &mut changes);
        }
        changes
    }

    /// Time until `now` of the threads that are not found yet: neither the `known` ones nor the sampler's own.
    pub(super) fn unknown_ns(&self, now: u64, known: usize) -> u64 {
        let unknown = self.count.unwrap_or(0).saturating_sub(known as u64 + 1);
        unknown.saturating_mul(now.saturating_sub(self.complete_ns))
    }

    fn look_ticks(&self) -> u32 {
        if self.ticks_since_change < BUSY_TICKS && !self.has_new_ids {
            LOOK_TICKS_BUSY
        } else {
            LOOK_TICKS
        }
    }

    /// When the first thread ended of those whose ends are counted and that are not yet found to be gone.
    pub(super) fn first_end_ns(&self) -> Option<u64> {
        self.ends.front().map(|(ended_ns, _)| *ended_ns)
    }

    /// `ended` threads that are known have ended.
    fn add_ends(&mut self, ended_ns: u64, ended: u64) {
        let noted: u64 = self.ends.iter().map(|(_, count)| count).sum();
        if ended > noted {
            self.ends.push_back((ended_ns, ended - noted));
        }
        // Threads that started after they were counted, and before the list was read, looked like ends.
        for _ in ended..noted {
            self.take_end(ended_ns);
        }
    }

    fn read_whole(
        &mut self,
        now: u64,
        known: &ThreadTable,
        own_id: u32,
        changes: &mut ThreadChanges,
    ) {
        // Not the time that others had the processor.
        let cpu_ns = || process::thread_cpu_ns(own_id).unwrap_or(0);
        let begin = cpu_ns();
        let Ok(mut ids) = task_list::thread_ids() else {
            return;
        };
        ids.sort_unstable();
        changes.started = ids
            .iter()
            .copied()
            .filter(|id| *id != own_id && !known.contains(*id))
            .collect();
        let is_gone = |id: &u32| ids.binary_search(id).is_err();
        changes.ended = known
            .as_slice()
            .iter()
            .map(|thread| thread.id)
            .filter(is_gone)
            .collect();
        self.whole_after_ns = now + cpu_ns().saturating_sub(begin) * REST_PER_READING;
        self.complete_ns = now;
        self.ticks_since_look = 0;
    }

    /// When the thread ended that was found to be gone at `now`: at the earliest tick that missed a
    /// thread. Whose end it was is not known, and makes no difference to their sum.
    pub(super) fn take_end(&mut self, now: u64) -> u64 {
        let Some((tick, count)) = self.ends.front_mut() else {
            return now;
        };
        let ended = *tick;
        *count -= 1;
        if *count == 0 {
            self.ends.pop_front();
        }
        ended
    }
}

/// The newest threads, at least `wanted` of `count` and at least one that is known; `None` if the
/// list cannot be read.
fn newest(count: u64, wanted: u64, known: &ThreadTable) -> Option<PageVec<u32>> {
    let mut wanted = wanted;
    loop {
        let skipped = count.saturating_sub(wanted);
        let ids = task_list::thread_ids_from(skipped).ok()?;
        if skipped == 0 || ids.iter().any(|id| known.contains(*id)) {
            return Some(ids);
        }
        wanted *= 4;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::super::thread::Thread;
    use super::*;
    use system::newest_id::NewestId;
    use system::process::thread_id;

    #[test]
    fn ends_are_taken_in_the_order_of_their_ticks() {
        let mut list = ThreadList::default();
        list.add_ends(10, 2);
        list.add_ends(20, 2);
        list.add_ends(30, 3);
        assert_eq!([(); 5].map(|()| list.take_end(99)), [10, 10, 30, 99, 99]);
    }

    #[test]
    fn a_thread_that_starts_while_threads_are_counted_has_not_ended() {
        let mut list = ThreadList::default();
        list.add_ends(10, 5);
        list.add_ends(20, 0);
        assert_eq!(list.first_end_ns(), None);
        list.add_ends(30, 1);
        assert_eq!(list.take_end(99), 30);
    }

    /// Starts a thread that lives until the sender is dropped.
    fn start() -> (u32, mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            started.send(thread_id()).unwrap();
            let _ = ended.recv();
        });
        (start.recv().unwrap(), end, thread)
    }

    #[test]
    fn a_thread_that_starts_and_one_that_ends_are_found() {
        let (old_id, end_old, old) = start();
        let mut table = ThreadTable::default();
        let mut list = ThreadList::default();
        let mut newest_id = NewestId::default();
        // Long after any reading of the clock, so that the whole list is always read.
        let mut now = 1 << 60;
        // Other tests of this process start and end threads meanwhile.
        let mut update = |table: &mut ThreadTable, count| {
            now += 1_000_000_000_000;
            let tick = TickTimes {
                now_ns: now,
                last_ns: now,
            };
            let shown = ThreadsShown {
                new_ids: Some(newest_id.read()),
                count: Some(count),
            };
            let changes = list.update(tick, shown, table, 0);
            for id in changes.started.iter() {
                table.insert(Thread::new(*id, now));
            }
            for id in changes.ended.iter() {
                table.remove(*id);
            }
            changes
        };
        let changes = update(&mut table, 10);
        assert!(changes.is_first && changes.started.contains(&old_id));
        let (new_id, end_new, new) = start();
        let mut count = 10;
        while !table.contains(new_id) {
            count += 1;
            assert!(count < 200, "the new thread is not found");
            update(&mut table, count);
        }
        drop(end_old);
        old.join().unwrap();
        while table.contains(old_id) {
            count -= 1;
            assert!(count > 0, "the end of the thread is not found");
            update(&mut table, count);
        }
        assert!(table.contains(new_id));
        drop(end_new);
        new.join().unwrap();
    }
}
