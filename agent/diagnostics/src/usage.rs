//! Resource usage of this process and its descendants, read from the system.

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The unit of times in `/proc`: a hundredth of a second for every program on Linux.
const TICK_NS: u64 = 10_000_000;

/// Most descendants of the process that are counted.
const DESCENDANTS_MAX: usize = 4096;

/// Attempts that a child's end may spoil, before the last one is accepted as it is.
const ATTEMPTS_MAX: usize = 4;

/// Sums over the process and all its descendants.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Usage {
    /// Resident memory.
    pub(super) resident_bytes: u64,
    /// CPU time since the process started, without that of the calling thread.
    pub(super) processor_ns: u64,
}

/// Measures the present usage, without the CPU time of the calling thread, which is the profiler's.
pub(super) fn of_process_and_children() -> Usage {
    for _ in 1..ATTEMPTS_MAX {
        if let (usage, true) = measure() {
            return usage;
        }
    }
    measure().0
}

/// Returns the usage, and whether each process was counted exactly once. A child that ends and is waited
/// for during the measurement is missed, or counted twice: as a process and as an ended child. Either
/// would add the CPU time of its whole life again, to the next measurement or to this one.
fn measure() -> (Usage, bool) {
    let own = std::process::id();
    let ended_ns = ended_children_ns();
    let mut usage = Usage {
        resident_bytes: resident_bytes(own),
        processor_ns: own_processor_ns() + ended_ns,
    };
    let mut is_whole = true;
    // Parents before their children: a process whose clock can still be read was not among the ended
    // children of its parent before.
    for process in descendants(own) {
        usage.resident_bytes += resident_bytes(process);
        match processor_ns(process) {
            Some(used_ns) => usage.processor_ns += used_ns,
            None => is_whole = false,
        }
    }
    (usage, is_whole && ended_children_ns() == ended_ns)
}

/// CPU time of all threads of this process except the calling one.
fn own_processor_ns() -> u64 {
    // The thread's time first: its use in between, under a microsecond, is then added instead of
    // subtracted from that of the others.
    let of_thread = clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID);
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(of_thread)
}

fn clock_ns(clock: ClockId) -> u64 {
    cpu_clock_ns(clock).unwrap_or(0)
}

/// CPU time of descendants that have ended and were waited for.
fn ended_children_ns() -> u64 {
    let to_ns = |time: TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_usec()).unwrap_or(0) * 1_000
    };
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        to_ns(usage.user_time()) + to_ns(usage.system_time())
    })
}

/// CPU time of another process, with that of its ended children; `None` if it has ended.
fn processor_ns(process: u32) -> Option<u64> {
    // The ended children first: see `measure`.
    let ended_ns = stat(process)?.ended_children_ns;
    let clock = clock_getcpuclockid(Pid::from_raw(process as i32)).ok()?;
    Some(ended_ns + cpu_clock_ns(clock)?)
}

fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The relevant fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ended_children_ns: u64,
}

fn stat(process: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parse_stat(&line)
}

fn parse_stat(line: &str) -> Option<Stat> {
    // The second field is the process's name, which may contain anything; the last `)` ends it.
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let mut ticks = fields.skip(11);
    let user = ticks.next()?.parse::<u64>().ok()?;
    let system = ticks.next()?.parse::<u64>().ok()?;
    Some(Stat {
        parent,
        ended_children_ns: user.saturating_add(system).saturating_mul(TICK_NS),
    })
}

/// Returns the descendants of `process`.
fn descendants(process: u32) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    let mut next = Some(process);
    let mut looked_at = 0;
    while let Some(parent) = next {
        let room = DESCENDANTS_MAX - all.len();
        match children_by_threads(parent) {
            Some(children) => all.extend(children.into_iter().take(room)),
            // A kernel that does not list children: search all processes once.
            None if looked_at == 0 => return descendants_among(process, &parents()),
            None => {}
        }
        next = all.get(looked_at).copied();
        looked_at += 1;
    }
    all
}

/// Returns `None` where the kernel has no lists of children, or the process has ended.
fn children_by_threads(process: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    let mut any_list = false;
    for thread in fs::read_dir(format!("/proc/{process}/task"))
        .ok()?
        .flatten()
    {
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            any_list = true;
            children.extend(
                list.split_ascii_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    any_list.then_some(children)
}

/// Returns all processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes
        .filter_map(|process| Some((process, stat(process)?.parent)))
        .collect()
}

fn descendants_among(process: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut all = vec![process];
    let mut looked_at = 0;
    while let Some(&of) = all.get(looked_at) {
        // Ids may be reused while the processes are listed, so the parents may form a circle.
        let children = parents
            .iter()
            .filter(|(child, parent)| *parent == of && *child != of);
        for (child, _) in children {
            if !all.contains(child) && all.len() <= DESCENDANTS_MAX {
                all.push(*child);
            }
        }
        looked_at += 1;
    }
    all.split_off(1)
}

fn cpu_clock_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let rest = u64::try_from(time.tv_nsec()).ok()?;
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A child that waits for its standard input, and has a child that does the same.
    fn parent_and_child() -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3<&0; (echo ready; exec cat <&3) & exec cat"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Both ways of finding children see the same ones, also those of children.
    #[test]
    fn children_and_theirs_are_found_either_way() {
        use std::io::Read as _;
        let mut child = parent_and_child();
        let mut ready = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        let by_threads = descendants(child.id());
        let by_scan = descendants_among(child.id(), &parents());
        assert_eq!((by_threads.len(), &by_threads), (1, &by_scan));
        let all = descendants(std::process::id());
        assert!(
            all.contains(&child.id()) && all.contains(&by_threads[0]),
            "{all:?}"
        );
        assert!(resident_bytes(child.id()) > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(
            (resident_bytes(child.id()), processor_ns(child.id())),
            (0, None)
        );
    }

    /// Measures while children end, some of which have children of their own: each one's time
    /// counts once. (For children of ended children the system reports steps of 10 ms.)
    #[test]
    fn a_child_that_ends_during_a_look_counts_once() {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let waits = format!("sh -c '{busy}'; {busy}");
        let start = |work: &str| Command::new("sh").args(["-c", work]).spawn().unwrap();
        let mut before_ns = of_process_and_children().processor_ns;
        let parent = std::thread::spawn(move || {
            for work in [busy, waits.as_str()].into_iter().cycle().take(50) {
                assert!(start(work).wait().unwrap().success());
            }
        });
        while !parent.is_finished() {
            let now_ns = of_process_and_children().processor_ns;
            assert!(
                now_ns + 2 * TICK_NS >= before_ns,
                "{before_ns}, then {now_ns}"
            );
            before_ns = now_ns;
        }
        parent.join().unwrap();
    }

    #[test]
    fn a_line_of_stat_is_read_whatever_the_process_is_called() {
        let tail = "S 7 1 1 0 -1 4194560 9 9 9 9 5 6 30 12 20 0 1 0 99 1000 10";
        for name in ["cat", "a b", "a) S 1 (b", ")"] {
            let read = parse_stat(&format!("42 ({name}) {tail}"));
            assert_eq!(
                read,
                Some(Stat {
                    parent: 7,
                    ended_children_ns: 420_000_000
                }),
                "{name}"
            );
        }
        for line in [
            "",
            "42",
            "42 (cat",
            "42 (cat) S",
            "42 (cat) S x",
            "42 (cat) S 7 1 1 0",
        ] {
            assert_eq!(parse_stat(line), None, "{line}");
        }
    }

    #[test]
    fn circles_of_processes_end() {
        assert_eq!(
            descendants_among(1, &[(2, 1), (3, 2), (1, 3), (4, 4)]),
            [2, 3]
        );
    }
}
