//! Files that a process has mapped, as the kernel lists them.

use std::ops::Range;
use std::sync::Arc;

use super::elf::Elf;
use super::file::ChunkCache;
use super::{CodeModule, Subject};

/// Most files that are opened for one batch of addresses.
const FILES_MAX: usize = 16;
/// The kernel appends it to the path of a mapped file that was deleted or replaced.
const DELETED: &str = " (deleted)";

/// Whether the file that the process has mapped from this path is no longer there.
pub(super) fn is_replaced(subject: &Subject, path: &str) -> bool {
    subject
        .text("maps")
        .is_some_and(|maps| is_deleted_in(&maps, path))
}

fn is_deleted_in(maps: &str, path: &str) -> bool {
    maps.lines().any(|line| {
        let before = line
            .strip_suffix(DELETED)
            .and_then(|line| line.strip_suffix(path));
        before.is_some_and(|before| before.ends_with(' '))
    })
}

/// Code of a file that the program has mapped itself, so that the loader does not know of it: V8 maps its built-in
/// functions once more, near the code that it makes.
#[derive(Debug)]
pub(super) struct MappedCode {
    pub(super) range: Range<u64>,
    pub(super) module: Arc<CodeModule>,
}

/// The code that is mapped from files at these sorted addresses.
pub(super) fn code_at(subject: &Subject, addresses: &[u64], cache: &ChunkCache) -> Vec<MappedCode> {
    let is_wanted = |mapping: &Mapping<'_>| {
        let first = addresses.partition_point(|address| *address < mapping.range.start);
        addresses
            .get(first)
            .is_some_and(|address| *address < mapping.range.end)
    };
    let maps = subject.text("maps").unwrap_or_default();
    maps.lines()
        .filter_map(Mapping::parse)
        .filter(is_wanted)
        .take(FILES_MAX)
        .filter_map(|mapping| mapping.code(subject, cache))
        .collect()
}

/// A mapping of a file that still has its name.
#[derive(PartialEq, Eq, Debug)]
struct Mapping<'a> {
    range: Range<u64>,
    offset: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    /// `7f00-7f10 r-xp 00001000 08:01 77 /usr/bin/node`
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let (numbers, path) = line.split_at(line.find('/')?);
        if path.ends_with(DELETED) {
            return None;
        }
        let mut fields = numbers.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            range: number(start)?..number(end)?,
            offset: number(offset)?,
            path,
        })
    }

    fn code(self, subject: &Subject, cache: &ChunkCache) -> Option<MappedCode> {
        let elf = Elf::open(&subject.path(self.path), cache)?;
        let bytes = self.range.end - self.range.start;
        let base_in_file = elf.base_of_code(self.offset..self.offset.saturating_add(bytes))?;
        let module = CodeModule {
            path: self.path.into(),
            build_id: elf.build_id().unwrap_or_default().into(),
            file: None,
            base: self
                .range
                .start
                .wrapping_sub(self.offset)
                .wrapping_add(base_in_file),
        };
        Some(MappedCode {
            range: self.range,
            module: Arc::new(module),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_mapped_file_has_its_range_and_offset() {
        let mapping = Mapping::parse("7f00-7f10 r-xp 00001000 08:01 77    /opt/my app/x.so");
        let expected = Mapping {
            range: 0x7f00..0x7f10,
            offset: 0x1000,
            path: "/opt/my app/x.so",
        };
        assert_eq!(mapping, Some(expected));
        for other in [
            "7f00-7f10 rwxp 00000000 00:00 0 ",
            "7f00-7f10 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 r-xs 00000000 00:01 5 /memfd:code (deleted)",
            "7f00 r-xp 00000000 08:01 77 /x.so",
        ] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_mapped_file_that_lost_its_name_is_known_by_its_path() {
        let maps = "7f00-7f10 r-xp 00000000 08:01 77 /opt/my app/x.so (deleted)\n\
            7f10-7f20 r-xp 00000000 08:01 78 /opt/my app/x.so\n\
            7f20-7f30 r-xp 00000000 08:01 79 /opt/y.so\n";
        for (path, deleted) in [
            ("/opt/my app/x.so", true),
            ("x.so", false),
            ("/opt/y.so", false),
            ("/opt/z.so", false),
        ] {
            assert_eq!(is_deleted_in(maps, path), deleted, "{path}");
        }
        assert!(!is_replaced(&Subject::default(), "/no/such/file"));
    }
}
