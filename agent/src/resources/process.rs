//! What the process uses.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::time::ClockId;
use nix::unistd::{SysconfVar, sysconf};
use profiler_core::Resource;

use super::file::SystemFile;
use super::{Look, cpu_clock_ns};

/// Entries of the list of descriptors that may be read in one look on average: reading takes a third
/// of a microsecond each. A longer list is read that much less often.
const LISTED_A_LOOK: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Process {
    statm: SystemFile,
    io: SystemFile,
    /// A file, for a filter of system calls may not know the call that asks for one limit.
    limits: SystemFile,
    page_bytes: u64,
    descriptors: Option<u64>,
    /// Looks until descriptors are counted again.
    count_again_in: u64,
}

impl Default for Process {
    fn default() -> Process {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        Process {
            statm: SystemFile::new("/proc/self/statm"),
            io: SystemFile::new("/proc/self/io"),
            limits: SystemFile::new("/proc/self/limits"),
            page_bytes: page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4_096),
            descriptors: None,
            count_again_in: 0,
        }
    }
}

impl Process {
    pub(super) fn look(&mut self, look: &mut Look) {
        look.set(Resource::ProcessCpu, cpu_clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID));
        let pages = self.statm.read().and_then(resident_pages);
        let memory = pages.map(|pages| pages.saturating_mul(self.page_bytes));
        look.set(Resource::ProcessMemory, memory);
        if let Some(text) = self.io.read() {
            look.set(Resource::ProcessDiskRead, line_number(text, "read_bytes:"));
            look.set(Resource::ProcessDiskWritten, line_number(text, "write_bytes:"));
        }
        look.set(Resource::Threads, threads());
        look.set(Resource::Descriptors, self.descriptors());
        let limits = self.limits.read();
        // Without a limit it says so in words, which is no number.
        let limit = limits.and_then(|text| line_number(text, "Max open files"));
        look.set(Resource::DescriptorsMax, limit);
    }

    fn descriptors(&mut self) -> Option<u64> {
        const FOLDER: &str = "/proc/self/fd";
        // Since 6.2 the kernel tells the number as the folder's size.
        let told = fs::metadata(FOLDER).ok()?.size();
        if told > 0 {
            return Some(told);
        }
        self.count_again_in = self.count_again_in.saturating_sub(1);
        if self.count_again_in == 0 {
            // Without the one that the list is read by.
            let listed = fs::read_dir(FOLDER).ok()?.count() as u64;
            self.descriptors = Some(listed.saturating_sub(1));
            self.count_again_in = listed / LISTED_A_LOOK;
        }
        self.descriptors
    }
}

/// A folder of threads has a link for each, beside its own two. The line of `stat` that tells their
/// number too adds up the times of all of them first.
fn threads() -> Option<u64> {
    fs::metadata("/proc/self/task").ok()?.nlink().checked_sub(2).filter(|threads| *threads > 0)
}

fn resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

/// The first number of the line that begins so.
pub(super) fn line_number(text: &str, start: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(start))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        assert_eq!(resident_pages("1000 250 30 1 0 60 0\n"), Some(250));
        assert_eq!((resident_pages(""), resident_pages("1 x")), (None, None));
        let io = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 0\ncancelled_write_bytes: 7\n";
        assert_eq!(line_number(io, "read_bytes:"), Some(4_096));
        assert_eq!(line_number(io, "write_bytes:"), Some(0));
        assert_eq!(
            (line_number(io, "other:"), line_number("read_bytes:", "read_bytes:")),
            (None, None)
        );
    }
}
