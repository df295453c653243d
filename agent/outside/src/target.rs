//! Finding a process, and whether it can be profiled from outside.

use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use nix::unistd::geteuid;
use system::process::Memory;

/// Most bytes of a file of a process in `/proc` that are read.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Bit of a kernel's thread in the flags of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// The namespace of process ids that all others are in.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// A process that exists and may be profiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its id.
    pub process: u32,
    /// Its name, as the kernel has it.
    pub command: String,
    /// The id of its parent.
    pub parent: u32,
    /// When it began, in the kernel's ticks since the machine started: another process with this id has another time.
    pub(crate) began: u64,
}

/// Why a process cannot be profiled.
#[derive(Debug, thiserror::Error)]
#[error("process {process} {reason}")]
pub struct TargetError {
    /// Its id.
    pub process: u32,
    /// The reason, and the way on.
    pub reason: Obstacle,
}

/// Why a process cannot be profiled.
#[derive(Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is none with this id.
    Missing,
    /// There is none with this id in the namespace of process ids that this process is in.
    MissingInNamespace,
    /// `/proc` has the ids of another namespace of process ids than this process.
    OtherNamespace,
    /// The id is that of a thread of this process.
    Thread {
        /// The process.
        of: u32,
    },
    /// It is this process.
    Own,
    /// It runs in the kernel.
    Kernel,
    /// It is not waited for yet.
    Ended,
    /// It has another user.
    OtherUser {
        /// Number of the user.
        user: u32,
    },
    /// The system protects it from other processes of its user.
    Protected {
        /// The system's answer.
        error: io::Error,
    },
    /// It is for another processor than this program.
    OtherProcessor,
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Missing => f.write_str("does not exist; see: ps -e"),
            Obstacle::MissingInNamespace => f.write_str(
                "does not exist in the pid namespace of this command, such as its container's; see: ps -e, or run this \
                 command in the namespace of the process",
            ),
            Obstacle::OtherNamespace => f.write_str(
                "cannot be read: /proc is that of another pid namespace than this command's; mount its own, as \
                 `unshare --mount-proc` does, or enter that of the process: nsenter --pid --mount --target PID",
            ),
            Obstacle::Thread { of } => write!(f, "is a thread of process {of}; use --pid {of}"),
            Obstacle::Own => f.write_str("is this command; name another one"),
            Obstacle::Kernel => {
                f.write_str("is a thread of the kernel, which has no code of a program; name a program's process")
            }
            Obstacle::Ended => f.write_str("has ended, and its parent has not waited for it yet"),
            Obstacle::OtherUser { user } => write!(
                f,
                "belongs to user {user}, and this command runs as user {}; run it as that user or as root",
                geteuid()
            ),
            Obstacle::Protected { error } => {
                let way_on = match (geteuid().is_root(), yama_restricts()) {
                    (true, _) => "this command needs the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)",
                    (false, true) => "run it as root, or set: sysctl kernel.yama.ptrace_scope=0",
                    (false, false) => "run it as root",
                };
                write!(f, "may not be read by this command: {error}; {way_on}")
            }
            Obstacle::OtherProcessor => {
                f.write_str("is a program for 32 bits or another processor; expected one for this machine, of 64 bits")
            }
        }
    }
}

/// Fields of `/proc/PID/stat` behind the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    flags: u64,
    pub(crate) began: u64,
}

impl Stat {
    pub(crate) fn of(process: u32) -> Option<Stat> {
        Stat::parse(&text(process, "stat").ok()?)
    }

    pub(crate) fn parse(text: &str) -> Option<Stat> {
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let began = fields.nth(12)?.parse().ok()?;
        Some(Stat {
            state,
            parent,
            flags,
            began,
        })
    }

    /// Whether it is a process that nobody has waited for, or is being removed.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

impl Target {
    /// Examines the process with this id.
    ///
    /// # Errors
    /// [`TargetError`]: why it cannot be profiled, and what to do.
    pub fn find(process: u32) -> Result<Target, TargetError> {
        examine(process).map_err(|reason| TargetError { process, reason })
    }

    /// Processes of this user whose name or file name is `wanted`, without this one and those that cannot be profiled; at
    /// most `limit` of them, by their ids.
    ///
    /// # Errors
    /// If processes cannot be listed.
    pub fn find_by_name(wanted: impl Fn(&str) -> bool, limit: usize) -> io::Result<Vec<Target>> {
        if !proc_is_own() {
            return Err(io::Error::other(format!(
                "a process {}",
                Obstacle::OtherNamespace
            )));
        }
        let user = geteuid().as_raw();
        let mut ids: Vec<u32> = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        let matching = ids.into_iter().filter(|process| {
            let facts = fs::metadata(format!("/proc/{process}"));
            let is_own = facts.is_ok_and(|facts| facts.uid() == user);
            let path = fs::read_link(format!("/proc/{process}/exe")).ok();
            let program = path.as_deref().and_then(|path| path.file_name());
            is_own
                && (wanted(&command(*process))
                    || program.is_some_and(|name| wanted(&name.to_string_lossy())))
        });
        let targets = matching.filter_map(|process| Target::find(process).ok());
        Ok(targets.take(limit).collect())
    }

    /// Whether it has ended. Another process with its id does not count.
    pub(crate) fn has_ended(&self) -> bool {
        match Stat::of(self.process) {
            None => true,
            Some(stat) if stat.began != self.began => true,
            // Its first thread may have ended before the others.
            Some(stat) => stat.has_ended() && thread_count(self.process) <= 1,
        }
    }
}

/// The parent of a process; `None` if there is no such process.
#[must_use]
pub fn parent_of(process: u32) -> Option<u32> {
    Stat::of(process).map(|stat| stat.parent)
}

fn examine(process: u32) -> Result<Target, Obstacle> {
    if !proc_is_own() {
        return Err(Obstacle::OtherNamespace);
    }
    let stat = Stat::of(process).ok_or_else(missing)?;
    if process == std::process::id() {
        return Err(Obstacle::Own);
    }
    let status = text(process, "status").unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    if let Some(of) = group.and_then(|id| id.trim().parse().ok())
        && of != process
    {
        return Err(Obstacle::Thread { of });
    }
    if stat.flags & KERNEL_THREAD != 0 {
        return Err(Obstacle::Kernel);
    }
    if stat.has_ended() && thread_count(process) <= 1 {
        return Err(Obstacle::Ended);
    }
    let user = fs::metadata(format!("/proc/{process}")).map_or(u32::MAX, |facts| facts.uid());
    let refused = |error: io::Error| {
        if user == geteuid().as_raw() || geteuid().is_root() {
            Obstacle::Protected { error }
        } else {
            Obstacle::OtherUser { user }
        }
    };
    check_program(process).map_err(|error| match error {
        Some(error) => refused(error),
        None => Obstacle::OtherProcessor,
    })?;
    check_memory(process).map_err(refused)?;
    Ok(Target {
        process,
        command: command(process),
        parent: stat.parent,
        began: stat.began,
    })
}

/// Whether ids in `/proc` are those that system calls take. With others, memory of another process would be read.
fn proc_is_own() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Whether the system lets processes of a user read their children only.
fn yama_restricts() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.is_ok_and(|scope| scope.trim() != "0")
}

/// Why there is no process.
fn missing() -> Obstacle {
    match fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != FIRST_NAMESPACE => Obstacle::MissingInNamespace,
        _ => Obstacle::Missing,
    }
}

/// Checks that the program is for this processor. The error is that of the system, or `None` if it is for another one.
fn check_program(process: u32) -> Result<(), Option<io::Error>> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let mut header = [0; 20];
    let file = File::open(format!("/proc/{process}/exe")).map_err(Some)?;
    // An empty file cannot be executed.
    file.read_exact_at(&mut header, 0).map_err(Some)?;
    let machine = u16::from_le_bytes([header[18], header[19]]);
    let is_own = header[..6] == *b"\x7fELF\x02\x01" && machine == MACHINE;
    if is_own { Ok(()) } else { Err(None) }
}

/// Checks that memory and system calls can be read.
fn check_memory(process: u32) -> io::Result<()> {
    fs::read_to_string(format!("/proc/{process}/task/{process}/syscall"))?;
    let maps = text(process, "maps")?;
    let range = maps.lines().find_map(|line| line.split_once('-'));
    let start = range.and_then(|(start, _)| u64::from_str_radix(start, 16).ok());
    let mut byte = [0];
    match start {
        Some(start) if Memory::Of(process).read(start, &mut byte) == 0 => {
            let error = io::Error::last_os_error();
            // The mapping has no access, or is gone because the process has just become another program.
            match error.raw_os_error() {
                Some(libc::EFAULT) => Ok(()),
                _ => Err(error),
            }
        }
        _ => Ok(()),
    }
}

/// The name of a process.
pub(crate) fn command(process: u32) -> String {
    let name = text(process, "comm").unwrap_or_default();
    match name.trim_end() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

/// Number of threads; 0 if the process is gone.
pub(crate) fn thread_count(process: u32) -> u64 {
    // `.` and `..`
    const OTHER_LINKS: u64 = 2;
    let facts = fs::metadata(format!("/proc/{process}/task"));
    facts.map_or(0, |facts| facts.nlink().saturating_sub(OTHER_LINKS))
}

/// A file of a process in `/proc`.
pub(crate) fn text(process: u32, name: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{process}/{name}"))?;
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn reason(process: u32) -> String {
        Target::find(process).unwrap_err().to_string()
    }

    #[test]
    fn processes_that_cannot_be_profiled_are_named_with_the_reason() {
        let own = std::process::id();
        assert!(reason(own).ends_with("is this command; name another one"));
        assert!(reason(4_194_303).contains("does not exist"));
        // The kernel's own, where its processes are visible.
        if Stat::of(2).is_some_and(|stat| stat.flags & KERNEL_THREAD != 0) {
            assert!(reason(2).contains("is a thread of the kernel"));
        }
        let thread = std::thread::spawn(|| nix::unistd::gettid().as_raw().cast_unsigned());
        let id = thread.join().unwrap();
        // It may be gone.
        assert!(!reason(id).is_empty());
    }

    #[test]
    fn a_process_is_found_by_id_and_by_name_and_ends() {
        let mut child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let target = Target::find(child.id()).unwrap();
        assert_eq!(target.parent, std::process::id());
        assert!(!target.has_ended());
        let found = Target::find_by_name(|name| name == target.command, 1_000).unwrap();
        assert!(found.contains(&target), "{found:?}");
        assert!(Target::find_by_name(|_| true, 0).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(target.has_ended());
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.began), (b'S', 1, 4_711));
        assert_eq!(stat.flags, 4_194_304);
        assert_eq!(Stat::parse("7 (a"), None);
    }
}
