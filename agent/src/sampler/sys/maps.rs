//! Finding the mapping that contains an address.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use system::file::CheckedFile;

/// A mapping of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) struct Mapping {
    pub(in crate::sampler) low: u64,
    pub(in crate::sampler) end: u64,
    /// Whether it is the main thread's stack, which the kernel grows and never joins with another
    /// mapping.
    pub(in crate::sampler) main_stack: bool,
}

const MAPS: &str = "/proc/self/maps";
const MAIN_STACK: &[u8] = b"[stack]\0";

/// Finds the mapping that contains `address`.
pub(in crate::sampler) fn mapping_of(address: u64) -> Option<Mapping> {
    let maps = CheckedFile::new(File::open(MAPS).ok()?)?;
    match query(maps.unchecked(), address) {
        Answer::Mapping(mapping) => Some(mapping),
        Answer::None => None,
        // Kernels before 6.11 only have the whole list, which takes a second with 10,000 threads.
        Answer::Unknown => {
            let mut text = String::new();
            maps.unchecked().read_to_string(&mut text).ok()?;
            text.lines()
                .filter_map(parse)
                .find(|map| (map.low..map.end).contains(&address))
        }
    }
}

enum Answer {
    Mapping(Mapping),
    None,
    /// The kernel does not support the query.
    Unknown,
}

/// Queries the kernel for one mapping, which takes half a microsecond whatever their number.
fn query(maps: &File, address: u64) -> Answer {
    /// The kernel's `procmap_query`.
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        size: u64,
        flags: u64,
        address: u64,
        start: u64,
        end: u64,
        vma_flags: u64,
        page_size: u64,
        offset: u64,
        inode: u64,
        device: [u32; 2],
        name_size: u32,
        build_id_size: u32,
        name: u64,
        build_id: u64,
    }
    const _: () = assert!(size_of::<Query>() == 104);
    /// Both directions, the structure's size, 'f', 17.
    const REQUEST: libc::c_ulong = 3 << 30 | 104 << 16 | 0x66 << 8 | 17;

    let mut name = [0u8; 16];
    let mut query = Query {
        size: 104,
        address,
        ..Query::default()
    };
    let mut ask = |name: Option<&mut [u8; 16]>| {
        query.name_size = if name.is_some() { 16 } else { 0 };
        query.name = name.map_or(0, |name| name.as_mut_ptr() as u64);
        // SAFETY: the kernel reads and writes one `Query`, whose size is in the request, and writes
        // at most 16 bytes of a name, for which there is room.
        let result = unsafe { libc::ioctl(maps.as_raw_fd(), REQUEST, &raw mut query) };
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        (if result == 0 { 0 } else { error }, query.start, query.end)
    };
    let mut found = ask(Some(&mut name));
    if found.0 == libc::ENAMETOOLONG {
        // The name is longer than `[stack]`, so it does not matter.
        found = ask(None);
    }
    match found {
        (0, low, end) => Answer::Mapping(Mapping {
            low,
            end,
            main_stack: name.starts_with(MAIN_STACK),
        }),
        (libc::ENOENT, ..) => Answer::None,
        _ => Answer::Unknown,
    }
}

fn parse(line: &str) -> Option<Mapping> {
    let (low, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let low = u64::from_str_radix(low, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(Mapping {
        low,
        end,
        main_stack: line.ends_with("[stack]"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_and_the_list_find_the_same_mapping() {
        let text = std::fs::read_to_string(MAPS).unwrap();
        let maps = File::open(MAPS).unwrap();
        let stack = text
            .lines()
            .filter_map(parse)
            .find(|map| map.main_stack)
            .unwrap();
        let code = mapping_of as *const () as u64;
        let code = text
            .lines()
            .filter_map(parse)
            .find(|map| (map.low..map.end).contains(&code));
        for expected in [stack, code.unwrap()] {
            match query(&maps, expected.end - 8) {
                Answer::Mapping(found) => assert_eq!(found, expected),
                Answer::None => panic!("the kernel does not find {expected:?}"),
                Answer::Unknown => {} // An older kernel.
            }
        }
        assert_eq!(mapping_of(stack.end - 8), Some(stack));
        assert_eq!(mapping_of(8), None);
    }
}
