//! Whether threads of this process wait for a processor.
//!
//! On a machine with too much work a thread may be ready to run for a minute and not run. It does not hang, and a
//! start of the collector would only add work.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::LOOK_EVERY;

/// The threads of this process, as they were at the last look.
#[derive(Debug, Default)]
pub(super) struct Processors(BTreeMap<u32, Usage>);

/// A thread's use of processors, as the kernel counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Usage {
    /// It runs or is ready to.
    is_ready: bool,
    ran_ns: u64,
    /// Time for which it was ready and did not run, until it last ran.
    waited_ns: u64,
}

impl Processors {
    /// Returns whether a thread has waited for a processor for most of the time since the last look. The calling
    /// thread does not count.
    pub(super) fn look(&mut self) -> bool {
        let own_id = nix::unistd::gettid().as_raw().unsigned_abs();
        let mut threads = usage(Path::new("/proc/self/task"));
        threads.remove(&own_id);
        let mut both = threads
            .iter()
            .filter_map(|(id, now)| Some((self.0.get(id)?, now)));
        let has_waited = both.any(|(before, now)| has_waited(*before, *now));
        self.0 = threads;
        has_waited
    }
}

fn has_waited(before: Usage, now: Usage) -> bool {
    let stayed_ready = before.is_ready && now.is_ready && before.ran_ns == now.ran_ns;
    let waited_ns = now.waited_ns.saturating_sub(before.waited_ns);
    stayed_ready || u128::from(waited_ns) * 2 >= LOOK_EVERY.as_nanos()
}

/// The threads by their ids. One that has just ended is left out.
fn usage(tasks: &Path) -> BTreeMap<u32, Usage> {
    let entries = fs::read_dir(tasks).into_iter().flatten().flatten();
    entries
        .filter_map(|entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((
                id,
                parse(&read(&entry, "stat")?, &read(&entry, "schedstat")?)?,
            ))
        })
        .collect()
}

fn read(entry: &fs::DirEntry, name: &str) -> Option<String> {
    fs::read_to_string(entry.path().join(name)).ok()
}

/// Reads the texts of `stat` and `schedstat`, see proc(5).
fn parse(stat: &str, schedstat: &str) -> Option<Usage> {
    // The name, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = schedstat.split_ascii_whitespace().map(str::parse);
    let ran_ns = times.next()?.ok()?;
    let waited_ns = times.next()?.ok()?;
    Some(Usage {
        is_ready: fields.starts_with('R'),
        ran_ns,
        waited_ns,
    })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_is_ready_and_does_not_run_waits() {
        let ready = Usage {
            is_ready: true,
            ran_ns: 7,
            waited_ns: 3,
        };
        let asleep = Usage {
            is_ready: false,
            ..ready
        };
        assert!(has_waited(ready, ready));
        assert!(!has_waited(asleep, asleep), "blocked");
        assert!(!has_waited(asleep, ready), "it has just become ready");
        assert!(!has_waited(ready, Usage { ran_ns: 8, ..ready }), "it runs");
    }

    #[test]
    fn a_thread_that_ran_after_a_long_wait_has_waited() {
        let before = Usage {
            is_ready: false,
            ran_ns: 7,
            waited_ns: 3,
        };
        let waited = |ns| Usage {
            ran_ns: 9,
            waited_ns: 3 + ns,
            ..before
        };
        let half_ns = u64::try_from(LOOK_EVERY.as_nanos() / 2).unwrap();
        assert!(has_waited(before, waited(half_ns)));
        assert!(!has_waited(before, waited(half_ns - 1)));
    }

    #[test]
    fn names_of_threads_may_contain_anything() {
        let usage = parse("7 (a) S 1 (b)) R 1 2 3", "12 34 5\n");
        assert_eq!(
            usage,
            Some(Usage {
                is_ready: true,
                ran_ns: 12,
                waited_ns: 34
            })
        );
        assert_eq!(
            parse("7 (a) S 1", ""),
            None,
            "a kernel without these counts"
        );
        assert_eq!(parse("", "12 34 5"), None);
    }

    #[test]
    fn the_kernel_counts_what_threads_run() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let (sender, id) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            sender
                .send(nix::unistd::gettid().as_raw().unsigned_abs())
                .unwrap();
            while !STOP.load(Ordering::Relaxed) {
                black_box(0);
            }
        });
        let id = id.recv().unwrap();
        let tasks = Path::new("/proc/self/task");
        let first = usage(tasks)[&id];
        let runs = |now: Usage| now.is_ready && now.ran_ns > first.ran_ns;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !runs(usage(tasks)[&id]) {
            assert!(Instant::now() < deadline, "{first:?}");
        }
        STOP.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    }
}
