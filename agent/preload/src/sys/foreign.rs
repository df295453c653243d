//! Memory at addresses that the program passed to a function of the C library. They may be invalid: then the kernel
//! returns an error where reading them would end the program.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr;

use nix::errno::Errno;

use super::process;
use super::variables::Strings;

/// Most strings whose beginnings are read by one call.
pub(super) const BATCH: usize = 32;

/// How memory of the program is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// By a system call, which reads what is valid.
    Checked,
    /// Directly, where the program's filters may forbid the call.
    Direct,
}

/// Beginnings of strings, and the ranges that one call copies there.
pub(super) struct Beginnings<const N: usize> {
    bytes: [[u8; N]; BATCH],
    ranges: [libc::iovec; BATCH],
}

impl Access {
    /// The access that the system allows to a process without filters of its own. Those of a service or a container may
    /// end it.
    pub(super) fn of_process() -> Access {
        if !process::began_unfiltered() {
            return Access::Direct;
        }
        let mut byte = [0];
        let known = ptr::from_ref(&BATCH).addr();
        match copy(&[range(known, 1)], &mut byte) {
            1 => Access::Checked,
            _ => Access::Direct,
        }
    }

    /// Copies an array of strings up to its null pointer, which is copied too. Returns the number of strings; `None` if
    /// there are too many or the array is invalid.
    ///
    /// # Safety
    /// With [`Access::Direct`], `strings` is an array that ends in a null pointer.
    pub(super) unsafe fn array(self, strings: Strings, to: &mut [*const c_char]) -> Option<usize> {
        const CHUNK: usize = 256;
        if self == Access::Direct {
            for (index, copied) in to.iter_mut().enumerate() {
                // SAFETY: no element before this one is the null pointer at the end, by the caller's contract.
                *copied = unsafe { *strings.wrapping_add(index) };
                if copied.is_null() {
                    return Some(index);
                }
            }
            return None;
        }
        let mut read = 0;
        while read < to.len() {
            let chunk = &mut to[read..];
            let wanted = chunk.len().min(CHUNK);
            let chunk = &mut chunk[..wanted];
            let count = copy_pointers(strings.wrapping_add(read), chunk);
            if let Some(end) = chunk[..count].iter().position(|one| one.is_null()) {
                return Some(read + end);
            }
            if count < wanted {
                return None;
            }
            read += count;
        }
        None
    }

    /// Copies a string with its 0; `None` if it is too long or invalid.
    ///
    /// # Safety
    /// With [`Access::Direct`], `string` is a string that ends in a 0.
    pub(super) unsafe fn string(self, string: *const c_char, to: &mut [u8]) -> Option<&CStr> {
        if self == Access::Checked {
            let read = copy(&[range(string.addr(), to.len())], to);
            return CStr::from_bytes_until_nul(&to[..read]).ok();
        }
        // SAFETY: the caller's contract.
        let bytes = unsafe { CStr::from_ptr(string) }.to_bytes_with_nul();
        let to = to.get_mut(..bytes.len())?;
        to.copy_from_slice(bytes);
        CStr::from_bytes_with_nul(to).ok()
    }

    /// The index of the last string that begins with `prefix`; `None` if there is none, or one before it is invalid.
    ///
    /// # Safety
    /// With [`Access::Direct`], all are strings that end in a 0.
    pub(super) unsafe fn last_with_prefix<const N: usize>(
        self,
        strings: &[*const c_char],
        prefix: &[u8; N],
        space: &mut Beginnings<N>,
    ) -> Option<usize> {
        let mut last = None;
        for (batch, some) in strings.chunks(BATCH).enumerate() {
            if self == Access::Checked {
                space.fill(some)?;
            }
            for (index, string) in some.iter().enumerate() {
                let is_it = match self {
                    Access::Checked => space.bytes[index] == *prefix,
                    // SAFETY: the caller's contract.
                    Access::Direct => unsafe { CStr::from_ptr(*string) }
                        .to_bytes()
                        .starts_with(prefix),
                };
                if is_it {
                    last = Some(batch * BATCH + index);
                }
            }
        }
        last
    }
}

impl<const N: usize> Beginnings<N> {
    pub(super) const NONE: Beginnings<N> = Beginnings {
        bytes: [[0; N]; BATCH],
        ranges: [range(0, 0); BATCH],
    };

    /// Reads the beginnings of at most [`BATCH`] strings; `None` if one is invalid.
    fn fill(&mut self, strings: &[*const c_char]) -> Option<()> {
        let mut first = 0;
        while first < strings.len() {
            let left = &strings[first..];
            for (index, string) in left.iter().enumerate() {
                self.ranges[index] = range(string.addr(), N);
            }
            let bytes = self.bytes[first..].as_flattened_mut();
            let read = copy(&self.ranges[..left.len()], bytes);
            first += read / N;
            if first == strings.len() {
                break;
            }
            // A short string before memory that cannot be read.
            let rest = &mut self.bytes[first];
            let read = copy(&[range(strings[first].addr(), N)], rest);
            if !rest[..read].contains(&0) {
                return None;
            }
            rest[read..].fill(0);
            first += 1;
        }
        Some(())
    }
}

/// The soft limit at `limit`; `None` if it cannot be read.
pub(super) fn soft_limit(limit: *const libc::rlimit) -> Option<libc::rlim_t> {
    const BYTES: usize = size_of::<libc::rlim_t>();
    match Access::of_process() {
        Access::Checked => {
            let mut bytes = [0; BYTES];
            let read = copy(&[range(limit.addr(), BYTES)], &mut bytes);
            (read == BYTES).then(|| libc::rlim_t::from_ne_bytes(bytes))
        }
        // SAFETY: the program passes it to a function that reads it, which is all that can be known.
        Access::Direct => Some(unsafe { (*limit).rlim_cur }),
    }
}

const fn range(address: usize, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: bytes,
    }
}

fn copy_pointers(from: Strings, to: &mut [*const c_char]) -> usize {
    const BYTES: usize = size_of::<*const c_char>();
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: size_of_val(to),
    };
    // SAFETY: `local` is memory of pointers, for which all bytes are valid.
    let read = unsafe { call(&local, &[range(from.addr(), size_of_val(to))]) };
    read / BYTES
}

/// Copies ranges one after the other, up to the first byte that is invalid. Returns the number of bytes.
fn copy(from: &[libc::iovec], to: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast::<c_void>(),
        iov_len: to.len(),
    };
    // SAFETY: `local` is memory of bytes.
    unsafe { call(&local, from) }
}

/// # Safety
/// `local` is valid for writing any bytes.
unsafe fn call(local: &libc::iovec, from: &[libc::iovec]) -> usize {
    const NO_FLAGS: c_ulong = 0;
    let before = Errno::last_raw();
    let pid: c_int = process::id();
    // SAFETY: the kernel writes to `local` only, which is valid by the caller's contract, and checks the addresses of
    // the others.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            local,
            1,
            from.as_ptr(),
            from.len() as c_ulong,
            NO_FLAGS,
        )
    };
    Errno::set_raw(before);
    usize::try_from(read).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Invalid everywhere: in the first page, and beyond the addresses of programs.
    const INVALID: [usize; 2] = [8, usize::MAX - 64];

    fn invalid<T>() -> [*const T; 2] {
        INVALID.map(ptr::without_provenance)
    }

    fn check_array(strings: Strings, expected: Option<usize>) {
        let mut copied = [ptr::null(); 600];
        // SAFETY: checked access.
        let count = unsafe { Access::Checked.array(strings, &mut copied) };
        assert_eq!(count, expected);
    }

    #[test]
    fn what_is_invalid_is_not_read() {
        assert_eq!(Access::of_process(), Access::Checked);
        let owned: Vec<CString> = (0..500)
            .map(|number| CString::new(format!("V{number}=")).unwrap())
            .collect();
        let mut strings: Vec<_> = owned.iter().map(|string| string.as_ptr()).collect();
        strings.push(ptr::null());
        check_array(strings.as_ptr(), Some(500));
        check_array(strings[500..].as_ptr(), Some(0));
        for address in invalid() {
            check_array(address, None);
        }
        let mut space = Beginnings::NONE;
        let find = |strings: &[*const c_char], space: &mut Beginnings<4>| {
            // SAFETY: checked access.
            unsafe { Access::Checked.last_with_prefix(strings, b"V40=", space) }
        };
        assert_eq!(find(&strings[..500], &mut space), Some(40));
        assert_eq!(find(&strings[41..500], &mut space), None);
        for address in invalid() {
            strings[77] = address;
            assert_eq!(find(&strings[..500], &mut space), None, "an invalid one");
            assert_eq!(find(&strings[..77], &mut space), Some(40));
        }
        let mut copied = [0; 8];
        for (string, expected) in [
            (c"".as_ptr(), Some(c"")),
            (c"1234567".as_ptr(), Some(c"1234567")),
            (c"12345678".as_ptr(), None),
            (ptr::null(), None),
            (invalid()[0], None),
            (invalid()[1], None),
        ] {
            // SAFETY: checked access.
            let text = unsafe { Access::Checked.string(string, &mut copied) };
            assert_eq!(text, expected);
        }
        assert_eq!(soft_limit(invalid()[0]), None);
        let limit = libc::rlimit {
            rlim_cur: 5,
            rlim_max: 6,
        };
        assert_eq!(soft_limit(&raw const limit), Some(5));
    }

    /// The strings of a process begin at the end of its stack, often with less than a prefix before the end.
    #[test]
    fn a_short_string_at_the_end_of_memory_is_read() {
        const PAGE: usize = 4_096;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: takes plain numbers, and maps memory that nothing else uses.
        let pages = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        let second = pages.wrapping_byte_add(PAGE);
        // SAFETY: nothing uses the second page.
        assert_eq!(unsafe { libc::munmap(second, PAGE) }, 0);
        let short = second.wrapping_byte_sub(3).cast::<[u8; 3]>();
        // SAFETY: the last bytes of the first page, which is mapped and used by nothing else.
        unsafe { short.write(*b"A=\0") };
        let endless = second.wrapping_byte_sub(1).cast::<u8>();
        let strings = [
            c"LONG=1".as_ptr(),
            short.cast(),
            c"LONG=2".as_ptr(),
            c"LANG=3".as_ptr(),
        ];
        let mut space = Beginnings::NONE;
        let mut find = |prefix: &[u8; 5]| {
            // SAFETY: checked access.
            unsafe { Access::Checked.last_with_prefix(&strings, prefix, &mut space) }
        };
        assert_eq!(find(b"LONG="), Some(2));
        assert_eq!(find(b"LANG="), Some(3));
        let mut copied = [0; 100];
        // SAFETY: checked access.
        let read = unsafe { Access::Checked.string(short.cast(), &mut copied) };
        assert_eq!(read, Some(c"A="));
        // SAFETY: the last byte of the first page.
        unsafe { endless.write(b'x') };
        assert_eq!(find(b"LANG="), None, "a string without an end");
        // SAFETY: nothing uses the page any more.
        unsafe { libc::munmap(pages, PAGE) };
    }
}
