//! The files of `/proc` that tell of this process's threads, and which of them stay open.
//!
//! Opening one costs three times as much as reading it, so those of threads that run now and then
//! are kept open: few, for descriptors are the program's. A program may also close descriptors that
//! are not its own and open others under their numbers; so each is known by the file behind it, is
//! only ever read at an offset (which changes nothing for anybody), and is closed only while it is
//! still the same.

use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::wait::WaitSite;

const TASKS: &str = "/proc/self/task";
/// Most files that are kept open, and the part (one in so many) of the process's descriptors that
/// they may be.
const KEPT_MAX: u64 = 128;
const KEPT_PART: u64 = 16;
/// Ticks without keeping files after the process ran out of descriptors.
const SHORT_TICKS: u32 = 1000;

/// What a thread is doing, as the kernel sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// On a processor or ready for one.
    Running,
    /// Blocked in the kernel.
    Blocked(WaitSite),
}

/// Why a thread could not be looked at.
#[derive(Debug)]
pub(super) enum Unseen {
    /// There is no such thread (any more).
    Gone,
    /// The system refuses for now, such as for want of a descriptor.
    Refused(io::Error),
}

/// The open files of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadFiles {
    syscall: Option<KeptFile>,
    schedstat: Option<KeptFile>,
}

/// All kept files, and the rules for keeping them.
#[derive(Debug)]
pub(super) struct Files {
    tasks: Option<KeptFile>,
    kept: u64,
    kept_max: u64,
    short_ticks: u32,
}

impl Files {
    pub(super) fn new() -> Self {
        let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let kept_max = limit.map_or(0, |(soft, _)| soft / KEPT_PART).min(KEPT_MAX);
        Files { tasks: None, kept: 0, kept_max, short_ticks: 0 }
    }

    /// A tick begins.
    pub(super) fn begin_tick(&mut self) {
        self.short_ticks = self.short_ticks.saturating_sub(1);
    }

    /// A number that changes when threads come or go (though not if as many come as go).
    pub(super) fn thread_count(&mut self) -> Option<u64> {
        if let Some(count) = self.tasks.as_ref().and_then(KeptFile::links_if_same) {
            return Some(count);
        }
        let opened = File::open(TASKS).ok().and_then(KeptFile::new);
        let count = opened.as_ref().and_then(KeptFile::links_if_same);
        self.tasks = opened;
        count.or_else(|| Some(fs::metadata(TASKS).ok()?.nlink()))
    }

    /// What the thread is doing, without a signal.
    pub(super) fn activity(
        &mut self,
        thread_id: u32,
        files: &mut ThreadFiles,
    ) -> Result<Activity, Unseen> {
        let mut buffer = [0; 256];
        let text = self.read(thread_id, "syscall", &mut files.syscall, &mut buffer)?;
        parse_activity(text).ok_or_else(|| {
            // Another file of the program's, perhaps, under the number of ours.
            self.close(files);
            invalid(text)
        })
    }

    /// Nanoseconds that a thread has spent ready but without a processor; `None` if the kernel does
    /// not count it or the thread is gone.
    pub(super) fn run_delay_ns(&mut self, thread_id: u32, files: &mut ThreadFiles) -> Option<u64> {
        let mut buffer = [0; 128];
        let text = self.read(thread_id, "schedstat", &mut files.schedstat, &mut buffer).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    }

    /// Closes a thread's files: it has not run for a while, or is gone.
    pub(super) fn close(&mut self, files: &mut ThreadFiles) {
        for file in [files.syscall.take(), files.schedstat.take()].into_iter().flatten() {
            self.kept -= 1;
            drop(file);
        }
    }

    fn read<'b>(
        &mut self,
        thread_id: u32,
        name: &str,
        place: &mut Option<KeptFile>,
        buffer: &'b mut [u8],
    ) -> Result<&'b str, Unseen> {
        let mut length = None;
        if let Some(kept) = place {
            match kept.file.read_at(buffer, 0) {
                Ok(read) => length = Some(read),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(Unseen::Gone);
                }
                // The program has closed it: it is somebody else's now, or nobody's.
                Err(_) => {
                    *place = None;
                    self.kept -= 1;
                }
            }
        }
        let length = match length {
            Some(length) => length,
            None => self.read_new(thread_id, name, place, buffer)?,
        };
        let text = std::str::from_utf8(&buffer[..length]).map(str::trim_end);
        text.map_err(|error| Unseen::Refused(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    fn read_new(
        &mut self,
        thread_id: u32,
        name: &str,
        place: &mut Option<KeptFile>,
        buffer: &mut [u8],
    ) -> Result<usize, Unseen> {
        let opened = File::open(format!("{TASKS}/{thread_id}/{name}"));
        let file = opened.map_err(|error| self.explain(error))?;
        let length = file.read_at(buffer, 0).map_err(|error| self.explain(error))?;
        if self.kept < self.kept_max && self.short_ticks == 0 {
            *place = KeptFile::new(file);
            self.kept += u64::from(place.is_some());
        }
        Ok(length)
    }

    fn explain(&mut self, error: io::Error) -> Unseen {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Unseen::Gone,
            Some(libc::EMFILE | libc::ENFILE) => {
                self.short_ticks = SHORT_TICKS;
                Unseen::Refused(error)
            }
            _ => Unseen::Refused(error),
        }
    }

    /// Whether the process is short of descriptors, and kept ones are to be given back.
    pub(super) fn must_close(&self) -> bool {
        self.short_ticks > 0 && self.kept > 0
    }
}

fn invalid(text: &str) -> Unseen {
    Unseen::Refused(io::Error::new(io::ErrorKind::InvalidData, format!("`{text}`")))
}

/// `running`, or `call [arguments] sp pc` with all but the call in hexadecimal.
fn parse_activity(text: &str) -> Option<Activity> {
    if text == "running" {
        return Some(Activity::Running);
    }
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut from_left = text.split(' ');
    let call: i64 = from_left.next()?.parse().ok()?;
    let argument = if call < 0 { 0 } else { hexadecimal(from_left.next()?)? };
    let mut from_right = text.rsplit(' ');
    let pc = hexadecimal(from_right.next()?)?;
    let sp = hexadecimal(from_right.next()?)?;
    Some(Activity::Blocked(WaitSite { call, argument, sp, pc }))
}

/// An open file that is known by more than its number.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: ManuallyDrop<File>,
    device: u64,
    inode: u64,
}

impl KeptFile {
    pub(crate) fn new(file: File) -> Option<KeptFile> {
        let metadata = file.metadata().ok()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Some(KeptFile { file: ManuallyDrop::new(file), device, inode })
    }

    /// The file, if the descriptor still stands for it.
    pub(crate) fn if_same(&self) -> Option<&File> {
        self.links_if_same().map(|_| &*self.file)
    }

    /// The number of its links, if the descriptor still stands for this file.
    fn links_if_same(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        (metadata.dev() == self.device && metadata.ino() == self.inode).then(|| metadata.nlink())
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if self.links_if_same().is_some() {
            // Nobody else has closed it, so that is for us to do; by number, for safe code cannot
            // take the file out of its wrapper. A failure leaves nothing to do.
            let _ = nix::unistd::close(self.file.as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_id() -> u32 {
        nix::unistd::gettid().as_raw().unsigned_abs()
    }

    #[test]
    fn activity_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse_activity("running"), Some(Activity::Running));
        let site = WaitSite { call: 202, argument: 0x7f, sp: 0x7ffd_1000, pc: 0x7f00_2000 };
        let text = "202 0x7f 0x80 0x2 0x0 0x0 0x0 0x7ffd1000 0x7f002000";
        assert_eq!(parse_activity(text), Some(Activity::Blocked(site)));
        let fault = WaitSite { call: -1, argument: 0, ..site };
        assert_eq!(parse_activity("-1 0x7ffd1000 0x7f002000"), Some(Activity::Blocked(fault)));
        assert_eq!(parse_activity(""), None);
        assert_eq!(parse_activity("202"), None);
        assert_eq!(parse_activity("202 7f 0x1 0x2"), None);
    }

    #[test]
    fn files_are_kept_up_to_the_limit_and_closed_when_told() {
        let mut files = Files { kept_max: 1, ..Files::new() };
        let (mut first, mut second) = (ThreadFiles::default(), ThreadFiles::default());
        for _ in 0..2 {
            files.activity(own_id(), &mut first).unwrap();
            assert!(files.run_delay_ns(own_id(), &mut second).is_some());
        }
        assert!(first.syscall.is_some() && second.schedstat.is_none());
        let number = first.syscall.as_ref().unwrap().file.as_raw_fd();
        files.close(&mut first);
        assert_eq!(files.kept, 0);
        assert!(fs::read_link(format!("/proc/self/fd/{number}")).is_err(), "it is closed");
    }

    #[test]
    fn a_descriptor_that_became_another_file_is_left_alone() {
        let mut files = Files::new();
        let mut of_thread = ThreadFiles::default();
        files.activity(own_id(), &mut of_thread).unwrap();
        // As if the program had closed what is not its own, and opened a pipe under the same number.
        let (pipe, _writer) = io::pipe().unwrap();
        let number = pipe.as_raw_fd();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let mut stranger = KeptFile::new(pipe).unwrap();
        stranger.inode = of_thread.syscall.as_ref().unwrap().inode;
        drop(of_thread.syscall.replace(stranger));
        files.activity(own_id(), &mut of_thread).unwrap();
        files.close(&mut of_thread);
        let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert!(target.to_string_lossy().starts_with("pipe:"), "the program's pipe is open");
        nix::unistd::close(number).unwrap();
    }

    #[test]
    fn a_thread_that_is_not_there_is_gone() {
        let mut files = Files::new();
        let seen = files.activity(4_194_303, &mut ThreadFiles::default());
        assert!(matches!(seen, Err(Unseen::Gone)), "{seen:?}");
    }
}
