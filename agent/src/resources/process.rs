//! Resources of the process.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{SysconfVar, sysconf};
use profiler_core::Resource;

use super::Reading;
use super::file::SystemFile;
use system::directory;
use system::process::process_cpu_ns;

/// Average number of descriptors to list per reading, because each takes a third of a microsecond. A
/// longer list is read less often.
const LISTED_PER_READING: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Process {
    statm: SystemFile,
    io: SystemFile,
    /// Read from a file, because a filter of system calls may reject `prlimit`.
    limits: SystemFile,
    page_bytes: u64,
    descriptors: Option<u64>,
    /// Readings until descriptors are listed again.
    count_again_in: u64,
}

impl Default for Process {
    fn default() -> Process {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        Process {
            statm: SystemFile::new("/proc/self/statm"),
            io: SystemFile::new("/proc/self/io"),
            limits: SystemFile::new("/proc/self/limits"),
            page_bytes: page
                .and_then(|page| u64::try_from(page).ok())
                .unwrap_or(4_096),
            descriptors: None,
            count_again_in: 0,
        }
    }
}

impl Process {
    pub(super) fn read(&mut self, reading: &mut Reading) {
        reading.set(Resource::ProcessCpu, process_cpu_ns());
        let pages = self.statm.read().and_then(resident_pages);
        let memory = pages.map(|pages| pages.saturating_mul(self.page_bytes));
        reading.set(Resource::ProcessMemory, memory);
        if let Some(text) = self.io.read() {
            reading.set(Resource::ProcessDiskRead, line_number(text, "read_bytes:"));
            reading.set(
                Resource::ProcessDiskWritten,
                line_number(text, "write_bytes:"),
            );
        }
        reading.set(Resource::Threads, threads());
        reading.set(Resource::Descriptors, self.descriptors());
        let limits = self.limits.read();
        // `unlimited` does not parse.
        let limit = limits.and_then(|text| line_number(text, "Max open files"));
        reading.set(Resource::DescriptorsMax, limit);
    }

    fn descriptors(&mut self) -> Option<u64> {
        const FOLDER: &str = "/proc/self/fd";
        // Since Linux 6.2 the size of the folder is the number of descriptors.
        let size = fs::metadata(FOLDER).ok()?.size();
        if size > 0 {
            return Some(size);
        }
        self.count_again_in = self.count_again_in.saturating_sub(1);
        if self.count_again_in == 0 {
            // Without the descriptor that reads the list.
            let listed = directory::numbers(FOLDER).ok()?.len() as u64;
            self.descriptors = Some(listed.saturating_sub(1));
            self.count_again_in = listed / LISTED_PER_READING;
        }
        self.descriptors
    }
}

/// The folder of threads has a link for each, in addition to its own two. `stat` has their number too,
/// but first sums the times of all of them.
fn threads() -> Option<u64> {
    fs::metadata("/proc/self/task")
        .ok()?
        .nlink()
        .checked_sub(2)
        .filter(|threads| *threads > 0)
}

fn resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

/// Returns the first number of the line that starts with `start`.
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
            (
                line_number(io, "other:"),
                line_number("read_bytes:", "read_bytes:")
            ),
            (None, None)
        );
    }
}
