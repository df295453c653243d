//! Files of one thread in `/proc`, kept open up to a limit: opening one costs three times as much as reading it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::outside::ThreadActivity;

use crate::target::Stat;

/// Most files that stay open, of all threads of a process.
const OPEN_MAX: usize = 128;

/// The kernel's counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Time on processors.
    pub(crate) cpu_ns: u64,
    /// Time ready without a processor.
    pub(crate) delay_ns: u64,
    /// How often it got a processor.
    pub(crate) turns: u64,
}

/// The id of a thread in the namespace of its process; the same one if that has ended.
pub(crate) fn inner_id(process: u32, thread: u32) -> u32 {
    system::process::innermost_id(&format!("/proc/{process}/task/{thread}")).unwrap_or(thread)
}

/// The thread has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

/// Number of open files.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles(Arc<AtomicUsize>);

#[derive(Debug)]
pub(crate) struct ThreadFiles {
    folder: String,
    schedstat: RetainedFile,
    syscall: RetainedFile,
}

/// A file that may stay open.
#[derive(Debug)]
struct RetainedFile {
    name: &'static str,
    file: Option<File>,
    open: OpenFiles,
}

impl ThreadFiles {
    pub(crate) fn new(process: u32, thread: u32, open: &OpenFiles) -> ThreadFiles {
        let kept = |name| RetainedFile {
            name,
            file: None,
            open: open.clone(),
        };
        ThreadFiles {
            folder: format!("/proc/{process}/task/{thread}"),
            schedstat: kept("schedstat"),
            syscall: kept("syscall"),
        }
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// [`Gone`]
    pub(crate) fn counts(&mut self) -> Result<Counts, Gone> {
        let mut buffer = [0; 128];
        let text = self.schedstat.read(&self.folder, &mut buffer).ok_or(Gone)?;
        let mut numbers = text.split_ascii_whitespace();
        let mut number = || numbers.next()?.parse().ok();
        let counts = (|| {
            Some(Counts {
                cpu_ns: number()?,
                delay_ns: number()?,
                turns: number()?,
            })
        })();
        counts.ok_or(Gone)
    }

    /// The present activity; `None` if it is gone or the system does not tell.
    pub(crate) fn activity(&mut self) -> Option<ThreadActivity> {
        let mut buffer = [0; 256];
        ThreadActivity::parse(self.syscall.read(&self.folder, &mut buffer)?)
    }

    /// Whether a thread that was blocked and has not run since waits for a processor now, as far as that costs little.
    pub(crate) fn is_woken(&mut self) -> bool {
        self.syscall.file.is_some() && self.activity() == Some(ThreadActivity::Running)
    }

    /// Whether a signal or a debugger has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("{}/stat", self.folder)).unwrap_or_default();
        Stat::parse(&stat).is_some_and(|stat| matches!(stat.state, b'T' | b't'))
    }

    /// Its name; empty if it is gone.
    pub(crate) fn name(&self) -> Vec<u8> {
        let name = std::fs::read(format!("{}/comm", self.folder)).unwrap_or_default();
        name.trim_ascii_end().to_owned()
    }
}

impl RetainedFile {
    fn read<'b>(&mut self, folder: &str, buffer: &'b mut [u8]) -> Option<&'b str> {
        if let Some(file) = &self.file {
            let length = file.read_at(buffer, 0).ok()?;
            return std::str::from_utf8(&buffer[..length]).ok();
        }
        let file = File::open(format!("{folder}/{}", self.name)).ok()?;
        let length = file.read_at(buffer, 0).ok()?;
        if self.open.0.fetch_add(1, Ordering::Relaxed) < OPEN_MAX {
            self.file = Some(file);
        } else {
            self.open.0.fetch_sub(1, Ordering::Relaxed);
        }
        std::str::from_utf8(&buffer[..length]).ok()
    }
}

impl Drop for RetainedFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            self.open.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_and_files_stay_open_up_to_the_limit() {
        let open = OpenFiles::default();
        let process = std::process::id();
        let id = nix::unistd::gettid().as_raw().cast_unsigned();
        let mut files = ThreadFiles::new(process, id, &open);
        let before = files.counts().unwrap();
        while files.counts().unwrap().cpu_ns == before.cpu_ns {}
        // Of itself it shows the call that reads the file.
        assert!(files.activity().is_some());
        assert!(!files.name().is_empty());
        assert_eq!(open.0.load(Ordering::Relaxed), 2);
        drop(files);
        assert_eq!(open.0.load(Ordering::Relaxed), 0);
        open.0.store(OPEN_MAX, Ordering::Relaxed);
        let mut files = ThreadFiles::new(process, id, &open);
        files.counts().unwrap();
        assert!(files.schedstat.file.is_none());
        drop(files);
        assert_eq!(open.0.load(Ordering::Relaxed), OPEN_MAX);
        assert!(
            ThreadFiles::new(process, 4_194_303, &open)
                .counts()
                .is_err()
        );
    }
}
