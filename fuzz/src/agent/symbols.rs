//! Object files, as the agent reads those of its own process for names of functions.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;

/// Number of addresses to resolve.
const ADDRESSES: u64 = 48;

/// Where the code of small libraries begins.
const CODE_AT: u64 = 0x1000;

/// A byte for the distance of the addresses, then the file.
pub(crate) const SYMBOLS: Target = Target {
    name: "symbols",
    shape: Shape::Bytes,
    run: |input| {
        let (step, file) = parts::flags(input);
        let step = u64::from(step) + 1;
        let addresses: Vec<u64> = (0..ADDRESSES).map(|index| CODE_AT + index * step).collect();
        let path = path();
        std::fs::write(path, file).expect("a file in memory can be written");
        let _ = agent::fuzzing::symbols(path, &addresses);
    },
    seeds,
};

/// A file in memory, of this process alone.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        folder.join(format!("emberline-fuzz-{}.so", std::process::id()))
    })
}

/// Functions, some of them inlined into others.
const SOURCE: &str = "
struct pair { long a, b; };
static inline __attribute__((always_inline)) long mix(struct pair p) { return p.a * 31 ^ p.b; }
static inline __attribute__((always_inline)) long twice(struct pair p) { return mix(p) + mix(p) / 3; }
__attribute__((noinline)) long sum(const long *values, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += twice((struct pair) { values[i], i });
    return total;
}
long entry(long count) { long values[9] = { count, 2, 3 }; return sum(values, 9) ^ mix((struct pair) { 1, count }); }
";

fn seeds() -> Vec<(String, Vec<u8>)> {
    libraries()
        .into_iter()
        .map(|(name, library): (String, Vec<u8>)| (name, [vec![7], library].concat()))
        .collect()
}

/// Compiler options that make a library small enough to be an input.
const LIBRARY: [&str; 5] = [
    "-O2",
    "-shared",
    "-fPIC",
    "-nostdlib",
    "-Wl,--build-id,-z,noseparate-code",
];

/// The same library in each form that compilers give it.
pub(crate) fn libraries() -> Vec<(String, Vec<u8>)> {
    let forms: [(&str, &[&str]); 6] = [
        ("dwarf-5", &["-g"]),
        ("dwarf-4", &["-gdwarf-4"]),
        ("dwarf-2", &["-gdwarf-2", "-gstrict-dwarf"]),
        ("compressed", &["-g", "-gz=zlib"]),
        ("compressed-gnu", &["-g", "-gz=zlib-gnu"]),
        ("symbols-only", &[]),
    ];
    let folder = Directory::with_source();
    let library_of = |(name, options): (&str, &[&str])| {
        let made = folder.run(
            "cc",
            &[&LIBRARY, options, &["-o", name, "library.c"]].concat(),
        );
        // Old and new compilers lack some of the forms.
        made.then(|| (name.to_owned(), folder.read(name)))
    };
    forms.into_iter().filter_map(library_of).collect()
}

/// Programs and what they share with others, by `dwz`: with GNU's link, and with that of DWARF 5.
const SHARING: [(&str, &[u8], &[u8]); 2] = [
    (
        "dwz",
        include_bytes!("../../../symbols/file/src/reduce/dwz/linked.debug"),
        include_bytes!("../../../symbols/file/src/reduce/dwz/shared.debug"),
    ),
    (
        "dwz-dwarf-5",
        include_bytes!("../../../symbols/file/src/reduce/dwz/linked5.debug"),
        include_bytes!("../../../symbols/file/src/reduce/dwz/shared5.debug"),
    ),
];

/// The library with debug information in other files: itself, the file of its unit, a package, and what it shares, or
/// nothing.
pub(crate) fn split_libraries() -> Vec<(String, Vec<u8>)> {
    let folder = Directory::with_source();
    let mut seeds = Vec::new();
    for (name, program, shared) in SHARING {
        seeds.push((name.to_owned(), parts::join(&[program, &[], &[], shared])));
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let split = ["-O2", "-fPIC", "-gsplit-dwarf", version, "-c", "library.c"];
        let link = [&LIBRARY[1..], &["-o", "library.so", "library.o"]].concat();
        if !folder.run("cc", &split) || !folder.run("cc", &link) {
            continue;
        }
        let program = folder.read("library.so");
        let unit = folder.read("library.dwo");
        seeds.push((format!("unit{version}"), parts::join(&[&program, &unit])));
        // The packager fails for version 5 in some releases.
        if folder.run("dwp", &["-o", "library.dwp", "library.dwo"]) {
            let package = folder.read("library.dwp");
            seeds.push((
                format!("package{version}"),
                parts::join(&[program, unit, package]),
            ));
        }
    }
    seeds
}

/// A temporary directory with the source.
struct Directory(PathBuf);

impl Directory {
    fn with_source() -> Directory {
        let folder = std::env::temp_dir().join(format!("emberline-seeds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        std::fs::write(folder.join("library.c"), SOURCE).expect("a temporary file");
        Directory(folder)
    }

    /// Runs a program there; whether it succeeds.
    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.0)
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("a compiler has written it")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
