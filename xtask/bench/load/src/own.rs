//! CPU time and memory of this process and its threads, as the kernel counts them.

use std::fs;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::figure::print_figure;
use crate::profiler::Running;

/// Names of the agent's threads, cut by the kernel to 15 bytes.
const SAMPLER: &str = "emberline-tick";
const SYMBOLIZER: &str = "emberline-syms";

/// A thread of this process.
#[derive(Clone, Debug)]
pub(crate) struct ThreadStat {
    directory: String,
}

/// Resource use of a thread since it started.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ThreadUse {
    pub(crate) cpu_ns: u64,
    /// Voluntary context switches: for a sampler, its ticks.
    pub(crate) sleeps: u64,
}

impl ThreadStat {
    /// The thread called `name`, if there is one.
    pub(crate) fn find(name: &str) -> Result<Option<ThreadStat>> {
        for entry in fs::read_dir("/proc/self/task")? {
            let directory = entry?.path().display().to_string();
            // A thread may end while the list is read.
            if fs::read_to_string(format!("{directory}/comm")).is_ok_and(|comm| comm.trim() == name)
            {
                return Ok(Some(ThreadStat { directory }));
            }
        }
        Ok(None)
    }

    pub(crate) fn read(&self) -> Result<ThreadUse> {
        let schedstat = fs::read_to_string(format!("{}/schedstat", self.directory))?;
        let status = fs::read_to_string(format!("{}/status", self.directory))?;
        let cpu_ns = schedstat
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok());
        Ok(ThreadUse {
            cpu_ns: cpu_ns.context("schedstat begins with the CPU time in nanoseconds")?,
            sleeps: field(&status, "voluntary_ctxt_switches")?,
        })
    }
}

/// The number after `name:` in the text of a `status` file.
fn field(status: &str, name: &str) -> Result<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("status has no number called {name}"))
}

/// The whole process at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    cpu_us: i64,
    sampler: ThreadUse,
    symbolizer: ThreadUse,
}

/// Takes snapshots of the process and of the agent's threads, if there are any.
#[derive(Debug)]
pub(crate) struct Watch {
    sampler: Option<ThreadStat>,
    symbolizer: Option<ThreadStat>,
}

impl Watch {
    /// Call it after the profiler has started and before the load has many threads.
    pub(crate) fn new() -> Result<Watch> {
        Ok(Watch {
            sampler: ThreadStat::find(SAMPLER)?,
            symbolizer: ThreadStat::find(SYMBOLIZER)?,
        })
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
            symbolizer: read(&self.symbolizer)?,
        })
    }
}

/// Measures work that begins and ends at `barrier`, and prints its figures. The threads pause between
/// the first two and between the last two passages of the barrier.
pub(crate) fn watch_work(watch: &Watch, barrier: &Barrier, profiler: &dyn Running) -> Result<()> {
    barrier.wait();
    let before = watch.snapshot();
    barrier.wait();
    barrier.wait();
    let after = watch.snapshot();
    let printed = print_memory().and_then(|()| profiler.report_costs());
    // The threads wait for this even after an error.
    barrier.wait();
    print_used(&before?, &after?);
    printed
}

/// Prints the difference of two snapshots.
pub(crate) fn print_used(before: &Snapshot, after: &Snapshot) {
    print_figure("wall_ns", (after.at - before.at).as_nanos());
    print_figure("cpu_ns", (after.cpu_us - before.cpu_us) * 1_000);
    print_figure(
        "sampler_cpu_ns",
        after.sampler.cpu_ns - before.sampler.cpu_ns,
    );
    print_figure(
        "sampler_ticks",
        after.sampler.sleeps - before.sampler.sleeps,
    );
    print_figure(
        "symbolizer_cpu_ns",
        after.symbolizer.cpu_ns - before.symbolizer.cpu_ns,
    );
}

/// Prints the memory of this process.
pub(crate) fn print_memory() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    for (name, of_status) in [
        ("memory_bytes", "VmRSS"),
        ("memory_private_bytes", "RssAnon"),
        ("memory_peak_bytes", "VmHWM"),
    ] {
        print_figure(name, field(&status, of_status)? * 1024);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_field_is_found_by_its_whole_name() {
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
