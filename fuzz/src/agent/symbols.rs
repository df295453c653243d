//! Object files, as the agent reads those of its own process for names of functions.

use std::path::PathBuf;
use std::process::Command;
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
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
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
    let with_step = |(name, library): (String, Vec<u8>)| (name, [vec![7], library].concat());
    libraries().into_iter().map(with_step).collect()
}

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
    let folder = std::env::temp_dir().join(format!("emberline-seeds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let source = folder.join("library.c");
    std::fs::write(&source, SOURCE).expect("a temporary file");
    let mut libraries = Vec::new();
    for (name, options) in forms {
        let library = folder.join(name);
        let fixed = ["-O2", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id,-z,noseparate-code"];
        let mut compiler = Command::new("cc");
        compiler.args(fixed).args(options).arg("-o").arg(&library).arg(&source);
        // Old and new compilers lack some of the forms.
        if compiler.status().is_ok_and(|status| status.success())
            && let Ok(file) = std::fs::read(&library)
        {
            libraries.push((name.to_owned(), file));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    libraries
}
