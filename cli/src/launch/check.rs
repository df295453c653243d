//! Whether a program can be profiled, before it starts.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{getgid, getuid};
use object::elf::{DT_NEEDED, DT_STRTAB, EM_AARCH64, EM_X86_64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ReadCache, ReadRef as _};

/// Interpreters of scripts that are followed, as the kernel does.
const INTERPRETERS_MAX: usize = 4;
/// Most bytes of a script's first line.
const LINE_BYTES_MAX: u64 = 256;
/// Where programs are looked for without `PATH`.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    EM_AARCH64.0
} else {
    EM_X86_64.0
};
const LOADER: &str = if cfg!(target_arch = "aarch64") {
    "ld-linux-aarch64.so.1"
} else {
    "ld-linux-x86-64.so.2"
};

/// Why a program cannot start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum FindError {
    #[error("no such program; name one that is in PATH, or its path")]
    Missing,
    #[error("it is not executable; run: chmod +x")]
    NotExecutable,
}

/// Kind of a program, as far as its file shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// Nothing speaks against profiling it.
    Suitable,
    /// It runs without a profile; programs that it starts may have one.
    Refused(Obstacle),
}

/// Why a program is not profiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    Static,
    Privileged,
    Go,
    Sanitizer,
    OtherProcessor,
    OtherLibrary,
    AddressSpace,
    Confined,
    Cleared,
    Zygote,
    OtherProc,
    Clock,
    Replaced,
    Unknown,
}

impl Obstacle {
    /// Whether the process can be profiled from outside.
    pub(crate) fn leaves_outside(self) -> bool {
        matches!(
            self,
            Obstacle::Static
                | Obstacle::Go
                | Obstacle::Sanitizer
                | Obstacle::OtherLibrary
                | Obstacle::AddressSpace
        )
    }

    /// Whether the program starts as without the library, which its children may then have.
    pub(super) fn tolerates_library(self) -> bool {
        // The loaders of the others complain, or do not start them.
        !matches!(
            self,
            Obstacle::Sanitizer | Obstacle::OtherProcessor | Obstacle::OtherLibrary
        )
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Obstacle::Static => "it is statically linked, so nothing can be loaded into it",
            Obstacle::Privileged => {
                "it is set-uid or set-gid, so the system loads nothing of another user into it"
            }
            Obstacle::Go => "Go's runtime replaces all signal handlers",
            Obstacle::Sanitizer => "it is built with a sanitizer, which must be alone",
            Obstacle::OtherProcessor => "it is for another processor",
            Obstacle::OtherLibrary => "its C library is not glibc",
            Obstacle::AddressSpace => {
                "its address space is limited, and the agent must not take a part of that"
            }
            Obstacle::Confined => {
                "it confines itself by seccomp, and is profiled until then at most"
            }
            Obstacle::Cleared => "it began without LD_PRELOAD, which names the profiler's library",
            Obstacle::Zygote => "it is a zygote, which checks that it has one thread",
            Obstacle::OtherProc => "its /proc is of another PID namespace",
            Obstacle::Clock => "another library replaces its clock",
            Obstacle::Replaced => {
                "it has functions of its own with names of the C library's, which the agent would call"
            }
            Obstacle::Unknown => "its agent did not start",
        }
    }

    fn way_on(self) -> &'static str {
        match self {
            Obstacle::Static | Obstacle::Go | Obstacle::Sanitizer | Obstacle::AddressSpace => {
                "profile it from outside while it runs: --pid or --name"
            }
            Obstacle::Privileged => "run it as its owner",
            Obstacle::OtherProcessor => "use a build for this one",
            Obstacle::OtherLibrary => {
                "use a build for glibc, or profile it from outside while it runs: --pid or --name"
            }
            Obstacle::Confined => "switch its sandbox off",
            Obstacle::Cleared => {
                "let it inherit LD_PRELOAD and EMBERLINE_*, or profile it from outside while it runs: --pid or --name"
            }
            Obstacle::Zygote => "run it with --no-zygote",
            Obstacle::OtherProc => "mount /proc with the namespace, as unshare --mount-proc does",
            Obstacle::Clock | Obstacle::Replaced => {
                "profile it from outside while it runs: --pid or --name"
            }
            Obstacle::Unknown => "run: emberline doctor",
        }
    }

    /// The obstacle that the library calls so.
    pub(super) fn of_journal(word: &str) -> Option<Obstacle> {
        Some(match word {
            "static" => Obstacle::Static,
            "privileged" => Obstacle::Privileged,
            "go" => Obstacle::Go,
            "sanitizer" => Obstacle::Sanitizer,
            "processor" => Obstacle::OtherProcessor,
            "library" => Obstacle::OtherLibrary,
            "address-space" => Obstacle::AddressSpace,
            "seccomp" => Obstacle::Confined,
            "environment" => Obstacle::Cleared,
            "zygote" => Obstacle::Zygote,
            "proc" => Obstacle::OtherProc,
            "clock" => Obstacle::Clock,
            "functions" => Obstacle::Replaced,
            "unknown" => Obstacle::Unknown,
            _ => return None,
        })
    }
}

impl Display for Obstacle {
    /// The reason, and the way on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason(), self.way_on())
    }
}

/// The file of a program, found as a shell does.
///
/// # Errors
/// [`FindError`]
pub(super) fn find(name: &OsStr) -> Result<PathBuf, FindError> {
    let path = std::env::var_os("PATH");
    find_in(name, path.as_deref().unwrap_or(OsStr::new(PATH_DEFAULT)))
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, FindError> {
    let candidates = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(path)
            .map(|folder| folder.join(name))
            .collect()
    };
    let mut error = FindError::Missing;
    for file in candidates {
        let Ok(facts) = fs::metadata(&file) else {
            continue;
        };
        if facts.is_file() && facts.permissions().mode() & 0o111 != 0 {
            return Ok(file);
        }
        error = FindError::NotExecutable;
    }
    Err(error)
}

/// Looks at the file of a program, or at that of its interpreter if it is a script.
pub(super) fn examine(file: &Path) -> Program {
    let is_limited = |resource| getrlimit(resource).is_ok_and(|(limit, _)| limit != RLIM_INFINITY);
    if is_limited(Resource::RLIMIT_AS) || is_limited(Resource::RLIMIT_DATA) {
        return Program::Refused(Obstacle::AddressSpace);
    }
    let interpreted = interpreter(file);
    obstacle(&interpreted).map_or(Program::Suitable, Program::Refused)
}

/// The file that the system executes.
fn interpreter(file: &Path) -> PathBuf {
    let mut file = file.to_owned();
    for _ in 0..INTERPRETERS_MAX {
        let mut start = Vec::new();
        let opened = File::open(&file);
        let read = opened.and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut start));
        let line = start.strip_prefix(b"#!").filter(|_| read.is_ok());
        let Some(line) = line else {
            break;
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.trim_ascii().split(u8::is_ascii_whitespace);
        match words.next() {
            Some(word) if !word.is_empty() => file = OsStr::from_bytes(word).into(),
            _ => break,
        }
    }
    file
}

/// `None` too if the file cannot be read: then the system may refuse it.
fn obstacle(path: &Path) -> Option<Obstacle> {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2000;
    let facts = fs::metadata(path).ok()?;
    let is_set_uid = facts.mode() & SET_UID != 0 && facts.uid() != getuid().as_raw();
    let is_set_gid = facts.mode() & SET_GID != 0 && facts.gid() != getgid().as_raw();
    if is_set_uid || is_set_gid {
        return Some(Obstacle::Privileged);
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let start = cache.read_bytes_at(0, 20).ok()?;
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = u16::from_le_bytes([start[18], start[19]]);
    if start[4..6] != [2, 1] || machine != MACHINE {
        return Some(Obstacle::OtherProcessor);
    }
    let elf = Elf::parse(&cache).ok()?;
    if elf.section_by_name(".go.buildinfo").is_some() {
        return Some(Obstacle::Go);
    }
    // A damaged file is the system's to refuse.
    of_loading(&elf).unwrap_or(None)
}

type Elf<'data> = object::read::elf::ElfFile64<'data, LittleEndian, &'data ReadCache<File>>;

/// Returns the obstacle in the tables for the loader.
fn of_loading(elf: &Elf<'_>) -> object::Result<Option<Obstacle>> {
    let endian = elf.endian();
    let data = elf.data();
    let segments = elf.elf_header().program_headers(endian, data)?;
    let loader = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_INTERP);
    let Some(loader) = loader else {
        return Ok(Some(Obstacle::Static));
    };
    let path = loader
        .data(endian, data)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    if Path::new(OsStr::from_bytes(path)).file_name() != Some(OsStr::new(LOADER)) {
        return Ok(Some(Obstacle::OtherLibrary));
    }
    for segment in segments {
        let Some(entries) = segment.dynamic(endian, data)? else {
            continue;
        };
        let strings = entries
            .iter()
            .find(|entry| entry.tag(endian) == DT_STRTAB)
            .map_or(0, |entry| entry.d_val(endian));
        let needed = entries
            .iter()
            .filter(|entry| entry.tag(endian) == DT_NEEDED);
        for entry in needed {
            let address = strings.wrapping_add(entry.d_val(endian));
            if is_sanitizer(&name_at(elf, address)) {
                return Ok(Some(Obstacle::Sanitizer));
            }
        }
    }
    Ok(None)
}

/// The beginning of a name in the program's memory.
fn name_at(elf: &Elf<'_>, address: u64) -> Vec<u8> {
    use object::ObjectSegment as _;
    const BYTES: u64 = 32;
    let mut pieces = elf.segments().filter_map(|segment| {
        let left = (segment.address() + segment.size()).checked_sub(address)?;
        let piece = segment.data_range(address, left.min(BYTES)).ok()??;
        Some(piece.to_vec())
    });
    pieces.next().unwrap_or_default()
}

fn is_sanitizer(library: &[u8]) -> bool {
    [
        "libasan",
        "libtsan",
        "libhwasan",
        "libclang_rt.asan",
        "libclang_rt.tsan",
        "libclang_rt.hwasan",
    ]
    .iter()
    .any(|name| library.starts_with(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn compiled(folder: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
        let source = folder.join("main.c");
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let file = folder.join(name);
        let mut command = Command::new("cc");
        let done = command
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&file)
            .output()
            .unwrap();
        done.status.success().then_some(file)
    }

    #[test]
    fn programs_that_cannot_be_profiled_are_recognized() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let at = |name: &str| folder.join(name);
        let suitable = compiled(folder, "suitable", &[]).unwrap();
        assert_eq!(examine(&suitable), Program::Suitable);
        let cases = [
            ("static", &["-static"][..], Obstacle::Static),
            ("sanitized", &["-fsanitize=address"], Obstacle::Sanitizer),
            ("watched", &["-fsanitize=thread"], Obstacle::Sanitizer),
            (
                "other-library",
                &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"],
                Obstacle::OtherLibrary,
            ),
        ];
        for (name, options, expected) in cases {
            // The libraries of sanitizers may be missing.
            if let Some(file) = compiled(folder, name, options) {
                assert_eq!(examine(&file), Program::Refused(expected), "{name}");
            }
        }
        let mut other = fs::read(&suitable).unwrap();
        other[18] = 40;
        fs::write(at("other"), &other).unwrap();
        let refused = Program::Refused(Obstacle::OtherProcessor);
        assert_eq!(examine(&at("other")), refused);
        // Scripts of scripts, and files that say nothing.
        fs::write(at("script"), format!("#! {}  -x\n", at("other").display())).unwrap();
        fs::write(at("outer"), format!("#!{}\n", at("script").display())).unwrap();
        assert_eq!(examine(&at("outer")), refused);
        for (name, content) in [
            ("empty", &b""[..]),
            ("elf", b"\x7fELF"),
            ("line", b"#!\n"),
            ("text", b"hello"),
        ] {
            fs::write(at(name), content).unwrap();
            assert_eq!(examine(&at(name)), Program::Suitable, "{name}");
        }
        for length in (0..other.len()).step_by(997) {
            fs::write(at("cut"), &fs::read(&suitable).unwrap()[..length]).unwrap();
            let _ = examine(&at("cut"));
        }
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        let path = std::env::join_paths([Path::new("/no/such"), folder.path()]).unwrap();
        let find = |name: &str| find_in(OsStr::new(name), &path);
        assert_eq!(find("tool"), Err(FindError::Missing));
        fs::write(&file, "").unwrap();
        assert_eq!(find("tool"), Err(FindError::NotExecutable));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool"), Ok(file.clone()));
        assert_eq!(find(file.to_str().unwrap()), Ok(file));
        assert_eq!(find("./tool"), Err(FindError::Missing));
        assert_eq!(
            find(folder.path().to_str().unwrap()),
            Err(FindError::NotExecutable)
        );
    }
}
