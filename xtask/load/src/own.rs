//! What this process and its threads use, as the kernel counts it.

use std::fs;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::profiler::Running;
use crate::say;

/// How the agent's threads are called.
const SAMPLER: &str = "emberline-tick";
const FOLDER: &str = "emberline-fold";

/// A thread of this process, to be read again and again.
#[derive(Clone, Debug)]
pub(crate) struct ThreadStat {
    folder: String,
}

/// What a thread used since it began.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ThreadUse {
    pub(crate) cpu_ns: u64,
    /// Times that it went to sleep of its own will: for a sampler, its ticks.
    pub(crate) sleeps: u64,
}

impl ThreadStat {
    /// The thread called `name`, if there is one.
    pub(crate) fn find(name: &str) -> Result<Option<ThreadStat>> {
        for entry in fs::read_dir("/proc/self/task")? {
            let folder = entry?.path().display().to_string();
            // A thread may end while the list is read.
            if fs::read_to_string(format!("{folder}/comm")).is_ok_and(|comm| comm.trim() == name) {
                return Ok(Some(ThreadStat { folder }));
            }
        }
        Ok(None)
    }

    pub(crate) fn read(&self) -> Result<ThreadUse> {
        let schedstat = fs::read_to_string(format!("{}/schedstat", self.folder))?;
        let status = fs::read_to_string(format!("{}/status", self.folder))?;
        let cpu_ns = schedstat.split(' ').next().and_then(|word| word.parse().ok());
        Ok(ThreadUse {
            cpu_ns: cpu_ns.context("schedstat begins with the CPU time in nanoseconds")?,
            sleeps: field(&status, "voluntary_ctxt_switches")?,
        })
    }
}

/// The number after `name:` in the text of a `status` file.
fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("status has no number called {name}"))
}

/// The whole process at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    cpu_us: i64,
    sampler: ThreadUse,
    folder: ThreadUse,
}

/// Takes snapshots; knows the agent's threads, if there are any.
#[derive(Debug)]
pub(crate) struct Watch {
    sampler: Option<ThreadStat>,
    folder: Option<ThreadStat>,
}

impl Watch {
    /// To be made when the profiler has started and before the load has many threads.
    pub(crate) fn new() -> Result<Watch> {
        Ok(Watch { sampler: ThreadStat::find(SAMPLER)?, folder: ThreadStat::find(FOLDER)? })
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let read = |thread: &Option<ThreadStat>| match thread {
            Some(thread) => thread.read(),
            None => Ok(ThreadUse::default()),
        };
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let cpu_us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Ok(Snapshot {
            at: Instant::now(),
            cpu_us,
            sampler: read(&self.sampler)?,
            folder: read(&self.folder)?,
        })
    }
}

/// Watches work that begins and ends at `barrier`, whose threads stand still between its first two and
/// between its last two passages; prints what it used.
pub(crate) fn watch_work(watch: &Watch, barrier: &Barrier, profiler: &dyn Running) -> Result<()> {
    barrier.wait();
    let before = watch.snapshot();
    barrier.wait();
    barrier.wait();
    let after = watch.snapshot();
    let told = say_memory().and_then(|()| profiler.report_costs());
    // Whatever failed: the threads wait for this.
    barrier.wait();
    say_used(&before?, &after?);
    told
}

/// Prints what was used between two snapshots.
pub(crate) fn say_used(before: &Snapshot, after: &Snapshot) {
    say("wall_ns", (after.at - before.at).as_nanos());
    say("cpu_ns", (after.cpu_us - before.cpu_us) * 1_000);
    say("sampler_cpu_ns", after.sampler.cpu_ns - before.sampler.cpu_ns);
    say("sampler_ticks", after.sampler.sleeps - before.sampler.sleeps);
    say("folder_cpu_ns", after.folder.cpu_ns - before.folder.cpu_ns);
}

/// Prints what memory this process holds now.
fn say_memory() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    for (name, of_status) in [
        ("memory_bytes", "VmRSS"),
        ("memory_private_bytes", "RssAnon"),
        ("memory_peak_bytes", "VmHWM"),
    ] {
        say(name, field(&status, of_status)? * 1024);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_is_read_by_whole_names() {
        let status = "VmRSSx:\t1 kB\nVmRSS:\t  552 kB\nnonvoluntary_ctxt_switches:\t9\n\
                      voluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, "VmRSS").unwrap(), 552);
        assert_eq!(field(status, "voluntary_ctxt_switches").unwrap(), 7);
        assert!(field(status, "RssAnon").is_err());
    }

    #[test]
    fn a_thread_is_found_by_its_name() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let named = std::thread::Builder::new().name("to-be-found".into());
        let thread = named.spawn(move || ended.recv().is_err()).unwrap();
        // The name is set by the thread itself, as its first step.
        let found = loop {
            match ThreadStat::find("to-be-found").unwrap() {
                Some(found) => break found,
                None => std::thread::yield_now(),
            }
        };
        found.read().unwrap();
        drop(end);
        assert!(thread.join().unwrap(), "nothing was sent to it");
        assert!(ThreadStat::find("not-there").unwrap().is_none());
    }
}
