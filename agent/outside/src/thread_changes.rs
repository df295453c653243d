//! Starts and ends of threads, each found at the next tick.
//!
//! A thread that starts when another one ends leaves their number as it was. So the ids that the kernel has given since
//! the last tick show starts ([`system::newest_id`]), and the number shows ends. Only a list of all threads shows which ones
//! ended; of ten thousand that takes milliseconds, so the next one waits. The times of the ends are known until then.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use system::clock::monotonic_ns;
use system::newest_id::{NewIds, NewestId};

use crate::target::thread_count;

/// After a list of all threads the next one waits for this many times the time of that.
const REST_PER_LIST: u64 = 20;
/// Ticks after which threads are listed where new ids are not known: as many may have ended as started.
const LIST_TICKS: u32 = 100;

/// The search for starts and ends.
#[derive(Debug)]
pub(crate) struct ThreadChanges {
    process: u32,
    newest_id: NewestId,
    known: BTreeSet<u32>,
    /// Until when all starts and the number of ends are known.
    complete_ns: u64,
    /// The ends of threads that are not found to be gone, the earliest first.
    ends_ns: VecDeque<u64>,
    /// When all threads may be listed again.
    list_after_ns: u64,
    ticks_since_list: u32,
}

/// Threads that have started or ended.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) started: Vec<u32>,
    /// They started after this time.
    pub(crate) since_ns: u64,
    pub(crate) ended: Vec<Ended>,
}

/// A thread that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) id: u32,
    /// When, or when another one did: their sum is the same.
    pub(crate) about_ns: u64,
}

impl ThreadChanges {
    pub(crate) fn new(process: u32, start_ns: u64) -> ThreadChanges {
        ThreadChanges {
            process,
            newest_id: NewestId::default(),
            known: BTreeSet::new(),
            complete_ns: start_ns,
            ends_ns: VecDeque::new(),
            list_after_ns: 0,
            ticks_since_list: 0,
        }
    }

    /// Returns the starts and ends since the last tick.
    pub(crate) fn find(&mut self, now_ns: u64) -> Changes {
        let mut changes = Changes {
            since_ns: self.complete_ns,
            ..Changes::default()
        };
        // The ids first: a thread that starts meanwhile is in the number, and is looked for.
        let new_ids = self.newest_id.read();
        let count = thread_count(self.process);
        if count == 0 {
            return changes;
        }
        self.ticks_since_list += 1;
        let is_complete = match new_ids {
            NewIds::Among(ids) => {
                let of_others = |id: &u32| !self.known.contains(id) && self.is_of_process(*id);
                changes.started = ids.filter(of_others).collect();
                true
            }
            NewIds::Many => false,
            NewIds::Unknown => self.ticks_since_list < LIST_TICKS,
        };
        self.known.extend(&changes.started);
        let known = self.known.len() as u64;
        let about_ns = self.complete_ns.midpoint(now_ns);
        let ended = usize::try_from(known.saturating_sub(count)).unwrap_or(usize::MAX);
        // Ends that were only threads whose start was seen before they counted are dropped.
        self.ends_ns.resize(ended, about_ns);
        let must_list = !is_complete || known != count;
        if must_list && now_ns >= self.list_after_ns {
            self.list(about_ns, &mut changes);
        } else if !is_complete {
            return changes;
        }
        self.complete_ns = now_ns;
        changes
    }

    /// A visit has found that a thread has ended.
    pub(crate) fn set_gone(&mut self, id: u32, now_ns: u64) -> Ended {
        self.known.remove(&id);
        let about_ns = self.ends_ns.pop_front().unwrap_or(now_ns);
        Ended { id, about_ns }
    }

    fn is_of_process(&self, id: u32) -> bool {
        Path::new(&format!("/proc/{}/task/{id}", self.process)).exists()
    }

    /// Reads the list of threads. Those whose end was not noted ended at `about_ns`.
    fn list(&mut self, about_ns: u64, changes: &mut Changes) {
        let begin_ns = monotonic_ns();
        let Ok(folder) = fs::read_dir(format!("/proc/{}/task", self.process)) else {
            return;
        };
        let listed: BTreeSet<u32> = folder
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let ended: Vec<u32> = self.known.difference(&listed).copied().collect();
        changes.started.retain(|id| listed.contains(id));
        changes.started.extend(listed.difference(&self.known));
        changes.ended.extend(ended.into_iter().map(|id| Ended {
            id,
            about_ns: self.ends_ns.pop_front().unwrap_or(about_ns),
        }));
        self.known = listed;
        self.ends_ns.clear();
        self.ticks_since_list = 0;
        let end_ns = monotonic_ns();
        self.list_after_ns = end_ns + end_ns.saturating_sub(begin_ns) * REST_PER_LIST;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use system::process::thread_id;

    use super::*;

    /// A thread that lives until the sender is dropped.
    struct Living {
        id: u32,
        end: mpsc::Sender<()>,
        thread: thread::JoinHandle<()>,
    }

    impl Living {
        fn start() -> Living {
            let (started, start) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                started.send(thread_id()).unwrap();
                let _ = ended.recv();
            });
            Living {
                id: start.recv().unwrap(),
                end,
                thread,
            }
        }

        fn end(self) {
            drop(self.end);
            self.thread.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_replaces_another_is_found_at_the_next_tick() {
        let mut changes = ThreadChanges::new(std::process::id(), 1);
        let before = Living::start();
        // The time of a tick is long after any list.
        let mut now_ns = 1 << 60;
        let mut find = || {
            now_ns += 1 << 50;
            changes.find(now_ns)
        };
        assert!(find().started.contains(&before.id));
        find();
        let before_id = before.id;
        before.end();
        let after = Living::start();
        let found = find();
        assert!(found.started.contains(&after.id), "{found:?}");
        assert!(
            found.ended.iter().any(|ended| ended.id == before_id),
            "{found:?}"
        );
        after.end();
    }
}
