//! Reasons in a program's file against loading this library into it.
//!
//! Nothing here allocates except [`obstacle_of_own`]: a forked child may be about to become the program.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{getegid, geteuid};

/// Interpreters of scripts that are followed, as the kernel does.
const INTERPRETERS_MAX: usize = 4;
/// Limits of what is read of a file.
const SEGMENTS_MAX: u16 = 64;
const DYNAMIC_ENTRIES_MAX: usize = 1_024;
const SECTIONS_MAX: u16 = 512;
const SECTION_NAMES_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a path or of a library's name.
pub(crate) const NAME_BYTES_MAX: usize = 256;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "x86_64")]
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "aarch64")]
const LOADER: &[u8] = b"ld-linux-aarch64.so.1";

/// Libraries of sanitizers, which must be loaded before all others or see the agent's threads.
const SANITIZERS: [&[u8]; 6] = [
    b"libasan.so",
    b"libtsan.so",
    b"libhwasan.so",
    b"libclang_rt.asan",
    b"libclang_rt.tsan",
    b"libclang_rt.hwasan",
];

/// Why a program is not profiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    /// Nothing is loaded into it.
    Static,
    /// An address or thread sanitizer.
    Sanitizer,
    /// The file is for another processor.
    OtherProcessor,
    /// Another C library loads it.
    OtherLibrary,
    /// Go's runtime replaces all signal handlers.
    Go,
    /// The program has an agent of its own.
    HasAgent,
    /// The system gives it other rights than those of its user.
    Privileged,
    /// A limit of the address space.
    AddressSpace,
    /// The program has confined itself before it began.
    Confined,
    /// Its environment does not name this library.
    Cleared,
    /// It checks that it has one thread.
    Zygote,
    /// The processes of its `/proc` have other numbers than it knows.
    OtherProc,
    /// Another library replaces its clock.
    Clock,
    /// The program has functions with names of the C library.
    Replaced,
    /// The agent did not start.
    Unknown,
}

impl Obstacle {
    /// The reason in the journal.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Obstacle::Static => "static",
            Obstacle::Sanitizer => "sanitizer",
            Obstacle::OtherProcessor => "processor",
            Obstacle::OtherLibrary => "library",
            Obstacle::Go => "go",
            Obstacle::HasAgent => "agent",
            Obstacle::Privileged => "privileged",
            Obstacle::AddressSpace => "address-space",
            Obstacle::Confined => "seccomp",
            Obstacle::Cleared => "environment",
            Obstacle::Zygote => "zygote",
            Obstacle::OtherProc => "proc",
            Obstacle::Clock => "clock",
            Obstacle::Replaced => "functions",
            Obstacle::Unknown => "unknown",
        }
    }
}

/// Why a program's file, or the interpreter that its first line names, must not get this library;
/// `None` too if it cannot be read. Overwrites `space`.
pub(crate) fn obstacle_in(mut file: File, space: &mut [u8; NAME_BYTES_MAX]) -> Option<Obstacle> {
    for _ in 0..INTERPRETERS_MAX {
        let length = file.read_at(space, 0).ok()?;
        let Some(line) = space[..length].strip_prefix(b"#!") else {
            break;
        };
        let start = length - line.trim_ascii_start().len();
        let mut bytes = space[start..length].iter();
        let end = start + bytes.position(u8::is_ascii_whitespace)?;
        space[end] = 0;
        file = open_file(CStr::from_bytes_until_nul(&space[start..]).ok()?).ok()?;
    }
    if is_privileged(&file) {
        return Some(Obstacle::Privileged);
    }
    Image::read(file)?.obstacle(space)
}

/// Whether the system runs a program with other rights than those of this process, so that its loader ignores
/// `LD_PRELOAD`.
fn is_privileged(file: &File) -> bool {
    let Ok(facts) = fstat(file) else {
        return false;
    };
    let is_set_uid = facts.st_mode & libc::S_ISUID != 0 && facts.st_uid != geteuid().as_raw();
    let is_set_gid = facts.st_mode & libc::S_ISGID != 0 && facts.st_gid != getegid().as_raw();
    is_set_uid || is_set_gid
}

/// Why this process, which has this library, is not profiled.
pub(crate) fn obstacle_of_own() -> Option<Obstacle> {
    let image = Image::read(open_file(c"/proc/self/exe").ok()?)?;
    let sections = image.section_names()?;
    let has = |name: &[u8]| sections.split(|byte| *byte == 0).any(|one| one == name);
    if has(b".go.buildinfo") {
        return Some(Obstacle::Go);
    }
    has(b".emberline_agent").then_some(Obstacle::HasAgent)
}

/// Opens a program's file, without waiting for anything.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn open_file(path: &CStr) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    Ok(open(path, flags, Mode::empty())?.into())
}

/// An ELF file of 64 bits, little-endian.
struct Image {
    file: File,
    header: [u8; 64],
}

/// A part of the file that is loaded into memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Image {
    /// `None` if it is no ELF file.
    fn read(file: File) -> Option<Image> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let is_elf = header.starts_with(b"\x7fELF");
        is_elf.then_some(Image { file, header })
    }

    fn obstacle(&self, name: &mut [u8; NAME_BYTES_MAX]) -> Option<Obstacle> {
        const CLASS_64: u8 = 2;
        const LITTLE_ENDIAN: u8 = 1;
        let is_native = self.header[4..6] == [CLASS_64, LITTLE_ENDIAN];
        if !is_native || half(&self.header, 18) != MACHINE {
            return Some(Obstacle::OtherProcessor);
        }
        let Some(loader) = self.segment(|segment| segment.kind == libc::PT_INTERP) else {
            return Some(Obstacle::Static);
        };
        let read = self.file.read_at(name, loader.offset).ok()?;
        let length = read.min(usize::try_from(loader.bytes).ok()?);
        let path = name[..length].split(|byte| *byte == 0).next()?;
        if path.rsplit(|byte| *byte == b'/').next() != Some(LOADER) {
            return Some(Obstacle::OtherLibrary);
        }
        self.needs_sanitizer().then_some(Obstacle::Sanitizer)
    }

    fn needs_sanitizer(&self) -> bool {
        const NEEDED: u64 = 1;
        const STRING_TABLE: u64 = 5;
        let Some(dynamic) = self.segment(|segment| segment.kind == libc::PT_DYNAMIC) else {
            return false;
        };
        let entries = (0..DYNAMIC_ENTRIES_MAX).map_while(|index| {
            let mut entry = [0; 16];
            let offset = dynamic.offset.checked_add(16 * index as u64)?;
            self.file.read_exact_at(&mut entry, offset).ok()?;
            let tag = word(&entry, 0);
            (tag != 0).then_some((tag, word(&entry, 8)))
        });
        let strings = entries
            .clone()
            .find(|(tag, _)| *tag == STRING_TABLE)
            .and_then(|(_, address)| self.file_offset(address));
        let Some(strings) = strings else {
            return false;
        };
        entries
            .filter(|(tag, _)| *tag == NEEDED)
            .any(|(_, name_at)| {
                let mut name = [0; 32];
                let read = self
                    .file
                    .read_at(&mut name, strings.saturating_add(name_at));
                let name = &name[..read.unwrap_or(0)];
                SANITIZERS.iter().any(|library| name.starts_with(library))
            })
    }

    /// Where the bytes of a memory address are in the file.
    fn file_offset(&self, address: u64) -> Option<u64> {
        let holds = |segment: &Segment| {
            let offset = address.checked_sub(segment.address);
            segment.kind == libc::PT_LOAD && offset.is_some_and(|offset| offset < segment.bytes)
        };
        let segment = self.segment(holds)?;
        segment.offset.checked_add(address - segment.address)
    }

    fn segment(&self, is_it: impl Fn(&Segment) -> bool) -> Option<Segment> {
        let first = word(&self.header, 32);
        let size = u64::from(half(&self.header, 54));
        let count = half(&self.header, 56).min(SEGMENTS_MAX);
        let mut segments = (0..u64::from(count)).map_while(|index| {
            let mut entry = [0; 56];
            let offset = first.checked_add(index * size)?;
            self.file.read_exact_at(&mut entry, offset).ok()?;
            Some(Segment {
                kind: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
                offset: word(&entry, 8),
                address: word(&entry, 16),
                bytes: word(&entry, 32),
            })
        });
        segments.find(is_it)
    }

    /// The names of all sections, each with a 0 at its end.
    fn section_names(&self) -> Option<Vec<u8>> {
        let first = word(&self.header, 40);
        let size = u64::from(half(&self.header, 58));
        let index = half(&self.header, 62);
        if first == 0 || index >= SECTIONS_MAX {
            return None;
        }
        let mut entry = [0; 64];
        let offset = first.checked_add(u64::from(index) * size)?;
        self.file.read_exact_at(&mut entry, offset).ok()?;
        let bytes = word(&entry, 32).min(SECTION_NAMES_BYTES_MAX);
        let mut names = vec![0; usize::try_from(bytes).ok()?];
        self.file.read_exact_at(&mut names, word(&entry, 24)).ok()?;
        Some(names)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    fn obstacle(path: &Path) -> Option<Obstacle> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        obstacle_in(open_file(&path).unwrap(), &mut [0; NAME_BYTES_MAX])
    }

    #[test]
    fn programs_and_scripts_are_recognized_and_damaged_files_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let whole = fs::read("/proc/self/exe").unwrap();
        let header: Vec<u8> = whole.iter().copied().take(64 << 10).collect();
        fs::write(&file, &whole).unwrap();
        assert_eq!(obstacle(&file), None);
        let mut other = header.clone();
        other[18] ^= 1;
        fs::write(&file, &other).unwrap();
        assert_eq!(obstacle(&file), Some(Obstacle::OtherProcessor));
        let script = folder.path().join("script");
        fs::write(&script, format!("#! {} -x\n", file.display())).unwrap();
        assert_eq!(obstacle(&script), Some(Obstacle::OtherProcessor));
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(
            obstacle(&script),
            None,
            "a script that is its own interpreter"
        );
        let mut state = 1_u64;
        for round in 0..500 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let mut damaged = header.clone();
            // Most of it is in the tables that are read.
            let at = (state >> 33) as usize % if round % 2 == 0 { 64 } else { 1_024 };
            damaged[at] = (state >> 24) as u8;
            damaged[(at + 7) % 1_024] = 0xff;
            damaged.truncate((state >> 20) as usize % 8_192);
            fs::write(&file, &damaged).unwrap();
            // Any answer is right, but it must come.
            let _ = obstacle(&file);
        }
    }
}
