//! The files of `/proc` about this process's threads, and which of them stay open.
//!
//! Opening a file costs three times as much as reading it, so the files of threads that run now and
//! then are kept open: few, because descriptors belong to the program. A program may also close
//! descriptors that are not its own and reuse their numbers; so each is a [`CheckedFile`], and is
//! only read at an offset, which affects no other user of the descriptor.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::wait::WaitSite;
use system::file::CheckedFile;
use system::newest_id::{NewIds, NewestId};
use system::task_list::{self, TaskPath, ThreadStat};

const TASKS: &str = "/proc/self/task";
/// Most files that are kept open; and at most 1/16 of the process's descriptors.
const KEPT_MAX: u64 = 128;
const KEPT_PART: u64 = 16;
/// Ticks for which no file is kept open after the process ran out of descriptors.
const SHORT_TICKS: u32 = 1000;

/// A thread's activity, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// On a processor or ready for one.
    Running,
    /// Blocked in the kernel.
    Blocked(WaitSite),
}

/// A thread's waits for a processor since it began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct RunDelay {
    /// Time ready without a processor.
    pub(super) ns: u64,
    /// How often it got a processor.
    pub(super) turns: u64,
}

/// Why a thread could not be probed.
#[derive(Debug)]
pub(super) enum ProbeError {
    /// The thread does not exist (any more).
    Gone,
    /// The system refused, for example because descriptors ran out.
    Refused(io::Error),
}

/// The open files of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadFiles {
    syscall: Option<CheckedFile>,
    schedstat: Option<CheckedFile>,
}

/// All files that are kept open, and the limits on them.
#[derive(Debug)]
pub(super) struct Files {
    tasks: Option<CheckedFile>,
    keep_tasks: bool,
    newest_id: NewestId,
    kept: u64,
    kept_max: u64,
    short_ticks: u32,
}

impl Files {
    pub(super) fn new() -> Self {
        let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let kept_max = limit.map_or(0, |(soft, _)| soft / KEPT_PART).min(KEPT_MAX);
        Files {
            tasks: None,
            keep_tasks: kept_max > 0,
            newest_id: NewestId::default(),
            kept: 0,
            kept_max,
            short_ticks: 0,
        }
    }

    /// A tick begins.
    pub(super) fn begin_tick(&mut self) {
        self.short_ticks = self.short_ticks.saturating_sub(1);
    }

    /// The number of this process's threads.
    pub(super) fn thread_count(&mut self) -> Option<u64> {
        let links = self.task_links()?;
        // The folder's own links are not threads.
        links.checked_sub(task_list::DOTS)
    }

    fn task_links(&mut self) -> Option<u64> {
        if let Some(links) = self.tasks.as_ref().and_then(CheckedFile::links_if_same) {
            return Some(links);
        }
        let opened = File::open(TASKS).ok().and_then(CheckedFile::new);
        let links = opened.as_ref().and_then(CheckedFile::links_if_same);
        self.tasks = opened.filter(|_| self.keep_tasks);
        links.or_else(|| Some(fs::metadata(TASKS).ok()?.nlink()))
    }

    /// Ids that threads of any process have got lately.
    pub(super) fn new_ids(&mut self) -> NewIds {
        if self.keep_tasks && self.short_ticks == 0 {
            self.newest_id.read()
        } else {
            NewIds::Unknown
        }
    }

    /// The thread's activity, read without a signal.
    pub(super) fn activity(
        &mut self,
        thread_id: u32,
        files: &mut ThreadFiles,
    ) -> Result<Activity, ProbeError> {
        let mut buffer = [0; 256];
        let text = self.read(thread_id, "syscall", &mut files.syscall, &mut buffer)?;
        match parse_activity(text) {
            Some(Activity::Blocked(site)) if site.call < 0 => Ok(outside_call(thread_id, site)),
            Some(activity) => Ok(activity),
            // The program may have opened another file under our descriptor's number.
            None => {
                self.close(files);
                Err(invalid(text))
            }
        }
    }

    /// How long and how often a thread has waited for a processor; `None` if the kernel does not
    /// count that or the thread is gone.
    pub(super) fn run_delay(
        &mut self,
        thread_id: u32,
        files: &mut ThreadFiles,
    ) -> Option<RunDelay> {
        let mut buffer = [0; 128];
        let text = self
            .read(thread_id, "schedstat", &mut files.schedstat, &mut buffer)
            .ok()?;
        let mut numbers = text.split(' ').skip(1);
        let ns = numbers.next()?.parse().ok()?;
        let turns = numbers.next()?.parse().ok()?;
        Some(RunDelay { ns, turns })
    }

    /// Closes a thread's files, because it has not run for a while or is gone.
    pub(super) fn close(&mut self, files: &mut ThreadFiles) {
        for file in [files.syscall.take(), files.schedstat.take()]
            .into_iter()
            .flatten()
        {
            self.kept -= 1;
            drop(file);
        }
    }

    fn read<'b>(
        &mut self,
        thread_id: u32,
        name: &str,
        slot: &mut Option<CheckedFile>,
        buffer: &'b mut [u8],
    ) -> Result<&'b str, ProbeError> {
        let mut length = None;
        if let Some(kept) = slot {
            match kept.unchecked().read_at(buffer, 0) {
                Ok(read) => length = Some(read),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(ProbeError::Gone);
                }
                // The program has closed the descriptor, and may have reused its number.
                Err(_) => {
                    *slot = None;
                    self.kept -= 1;
                }
            }
        }
        let length = match length {
            Some(length) => length,
            None => self.read_new(thread_id, name, slot, buffer)?,
        };
        let text = std::str::from_utf8(&buffer[..length]).map(str::trim_end);
        text.map_err(|error| ProbeError::Refused(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    fn read_new(
        &mut self,
        thread_id: u32,
        name: &str,
        slot: &mut Option<CheckedFile>,
        buffer: &mut [u8],
    ) -> Result<usize, ProbeError> {
        let opened = File::open(TaskPath::new(thread_id, name));
        let file = CheckedFile::new(opened.map_err(|error| self.explain(error))?)
            .ok_or_else(|| self.explain(io::Error::from_raw_os_error(libc::EBADF)))?;
        let read = file.unchecked().read_at(buffer, 0);
        let length = read.map_err(|error| self.explain(error))?;
        if self.kept < self.kept_max && self.short_ticks == 0 {
            *slot = Some(file);
            self.kept += 1;
        }
        Ok(length)
    }

    fn explain(&mut self, error: io::Error) -> ProbeError {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => ProbeError::Gone,
            Some(libc::EMFILE | libc::ENFILE) => {
                self.short_ticks = SHORT_TICKS;
                ProbeError::Refused(error)
            }
            _ => ProbeError::Refused(error),
        }
    }

    /// Whether the process ran out of descriptors, so that kept files must be closed.
    pub(super) fn must_close(&self) -> bool {
        self.short_ticks > 0 && self.kept > 0
    }
}

/// Tells a page fault from a stop of the thread, or of the whole process while its files were read: then it runs again.
fn outside_call(thread_id: u32, site: WaitSite) -> Activity {
    match ThreadStat::read(thread_id) {
        Some(stat) if stat.is_running() => Activity::Running,
        stat => Activity::Blocked(WaitSite {
            is_stopped: stat.is_some_and(|stat| stat.is_stopped()),
            ..site
        }),
    }
}

fn invalid(text: &str) -> ProbeError {
    ProbeError::Refused(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("`{text}`"),
    ))
}

/// Parses `running`, or `call [arguments] sp pc` with all but the call in hexadecimal.
pub(super) fn parse_activity(text: &str) -> Option<Activity> {
    if text == "running" {
        return Some(Activity::Running);
    }
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut from_left = text.split(' ');
    let call: i64 = from_left.next()?.parse().ok()?;
    let argument = if call < 0 {
        0
    } else {
        hexadecimal(from_left.next()?)?
    };
    let mut from_right = text.rsplit(' ');
    let pc = hexadecimal(from_right.next()?)?;
    let sp = hexadecimal(from_right.next()?)?;
    Some(Activity::Blocked(WaitSite {
        call,
        is_stopped: false,
        argument,
        sp,
        pc,
    }))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn own_id() -> u32 {
        nix::unistd::gettid().as_raw().unsigned_abs()
    }

    #[test]
    fn activity_is_parsed_as_the_kernel_writes_it() {
        assert_eq!(parse_activity("running"), Some(Activity::Running));
        let site = WaitSite {
            call: 202,
            is_stopped: false,
            argument: 0x7f,
            sp: 0x7ffd_1000,
            pc: 0x7f00_2000,
        };
        let text = "202 0x7f 0x80 0x2 0x0 0x0 0x0 0x7ffd1000 0x7f002000";
        assert_eq!(parse_activity(text), Some(Activity::Blocked(site)));
        let fault = WaitSite {
            call: -1,
            argument: 0,
            ..site
        };
        assert_eq!(
            parse_activity("-1 0x7ffd1000 0x7f002000"),
            Some(Activity::Blocked(fault))
        );
        assert_eq!(parse_activity(""), None);
        assert_eq!(parse_activity("202"), None);
        assert_eq!(parse_activity("202 7f 0x1 0x2"), None);
    }

    #[test]
    fn files_are_kept_up_to_the_limit_and_closed_on_request() {
        let mut files = Files {
            kept_max: 1,
            ..Files::new()
        };
        let mut first = ThreadFiles::default();
        let mut second = ThreadFiles::default();
        for _ in 0..2 {
            files.activity(own_id(), &mut first).unwrap();
            assert!(files.run_delay(own_id(), &mut second).is_some());
        }
        assert!(first.syscall.is_some() && second.schedstat.is_none());
        let number = first.syscall.as_ref().unwrap().unchecked().as_raw_fd();
        // Other tests may open a file under the same number, but none opens this thread's.
        let target = || fs::read_link(format!("/proc/self/fd/{number}")).ok();
        let open = target();
        files.close(&mut first);
        assert_eq!(files.kept, 0);
        assert!(open.is_some() && target() != open, "it is closed");
    }

    #[test]
    fn a_descriptor_that_became_another_file_is_left_alone() {
        let mut files = Files::new();
        let mut of_thread = ThreadFiles::default();
        files.activity(own_id(), &mut of_thread).unwrap();
        // As if the program had closed our descriptor and opened a pipe under the same number.
        let (pipe, _writer) = io::pipe().unwrap();
        let number = pipe.as_raw_fd();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let mut stranger = CheckedFile::new(pipe).unwrap();
        stranger.impersonate(of_thread.syscall.as_ref().unwrap());
        drop(of_thread.syscall.replace(stranger));
        files.activity(own_id(), &mut of_thread).unwrap();
        files.close(&mut of_thread);
        let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert!(
            target.to_string_lossy().starts_with("pipe:"),
            "the program's pipe is open"
        );
        nix::unistd::close(number).unwrap();
    }

    #[test]
    fn a_missing_thread_is_gone() {
        let mut files = Files::new();
        let seen = files.activity(4_194_303, &mut ThreadFiles::default());
        assert!(matches!(seen, Err(ProbeError::Gone)), "{seen:?}");
    }
}
