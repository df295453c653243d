//! Names of code that a runtime makes while the program runs, such as JavaScript's, from the file in which it lists them
//! for `perf`: `/tmp/perf-PID.map`, with lines `START SIZE NAME` in hexadecimal. Lines are added, and later ones replace
//! earlier ones where the runtime has moved its code.

use std::io::{BufRead as _, BufReader, Read};

use profiler_core::Frame;
use profiler_core::limits::bounded_name;

/// Most bytes of a file that are read: its first ones.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// Shown as the origin of the functions.
pub const MODULE: &str = "[jit]";

/// Beginning and end of the label of code without a name.
const UNNAMED_START: &str = "[";
const UNNAMED_END: &str = "code made at run time]";

/// The label of code without a name, of a known runtime or another one.
#[must_use]
pub fn unnamed_label(runtime: Option<&str>) -> String {
    match runtime {
        Some(runtime) => format!("{UNNAMED_START}{runtime}: {UNNAMED_END}"),
        None => format!("{UNNAMED_START}{UNNAMED_END}"),
    }
}

/// The runtime in a [label](unnamed_label); empty if it is not known.
#[must_use]
pub fn runtime_of(label: &str) -> Option<&str> {
    let inner = label
        .strip_prefix(UNNAMED_START)?
        .strip_suffix(UNNAMED_END)?;
    Some(inner.trim_end().trim_end_matches(':'))
}

/// Whether an open file can be that of a process of `user`, written since `since_s`, in seconds since 1970. Anybody may
/// write to that folder, and an earlier process may have had the same id.
#[cfg(unix)]
#[must_use]
pub fn may_be_of(file: &std::fs::Metadata, user: u32, since_s: i64) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let is_own = file.is_file() && file.uid() == user && file.nlink() == 1;
    is_own && file.mtime() >= since_s
}

/// The file of a process, without its folder. It is the module of code of the process that has no name.
#[must_use]
pub fn file_name(process: u32) -> String {
    format!("perf-{process}.map")
}

/// The process whose [file](file_name) it is.
#[must_use]
pub fn process_of(file_name: &str) -> Option<u32> {
    let rest = file_name.strip_prefix("perf-")?;
    rest.strip_suffix(".map")?.parse().ok()
}

/// Passes the function of each address that the file names to `each`, with the address's index. A file that cannot be read
/// to its end names less.
pub fn name(file: impl Read, addresses: &[u64], mut each: impl FnMut(usize, Frame<String>)) {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|index| addresses[*index]);
    let mut names: Vec<Option<String>> = vec![None; addresses.len()];
    let mut lines = BufReader::new(file.take(FILE_BYTES_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        // The runtime may be writing the last one.
        let Some(symbol) = line.strip_suffix(b"\n").and_then(Symbol::parse) else {
            continue;
        };
        let first = order.partition_point(|index| addresses[*index] < symbol.start);
        let covered = order[first..]
            .iter()
            .take_while(|index| addresses[**index] < symbol.end);
        for index in covered {
            names[*index] = Some(String::from_utf8_lossy(symbol.name).into_owned());
        }
    }
    for (index, name) in names.into_iter().enumerate() {
        if let Some(name) = name {
            each(index, frame_of(&name));
        }
    }
}

/// A line of the file.
struct Symbol<'a> {
    start: u64,
    /// The first address after it.
    end: u64,
    name: &'a [u8],
}

impl Symbol<'_> {
    fn parse(line: &[u8]) -> Option<Symbol<'_>> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut number = || {
            let digits = std::str::from_utf8(parts.next()?).ok()?;
            u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
        };
        let start = number()?;
        let bytes = number()?;
        let name = parts.next().filter(|name| !name.is_empty())?;
        let end = start.checked_add(bytes)?;
        Some(Symbol { start, end, name })
    }
}

/// The method of a name as Java writes it, without types: `long Main.hash(long)`.
fn java_method(name: &str) -> Option<&str> {
    let (signature, types) = name.strip_suffix(')')?.split_once('(')?;
    let (result, method) = signature.split_once(' ')?;
    let is_method = method.contains('.') && !method.contains(' ') && !result.is_empty();
    (is_method && !types.contains(['(', ')'])).then_some(method)
}

/// Returns the function of a name as V8 (`JS:~name file:line:column`), CPython (`py::name:file`), Java or another
/// runtime writes it.
fn frame_of(name: &str) -> Frame<String> {
    let frame = |function: &str, file: &str, line: u32| {
        let function = bounded_name(function);
        let file = bounded_name(file);
        let frame = Frame {
            module: MODULE,
            ..Frame::function(&function, &file, line)
        };
        frame.map(str::to_owned)
    };
    if let Some(python) = name.strip_prefix("py::") {
        let (function, file) = python.split_once(':').unwrap_or((python, ""));
        return frame(function, file, 0);
    }
    let script = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"]
        .iter()
        .find_map(|kind| name.strip_prefix(kind));
    let Some(script) = script else {
        return frame(java_method(name).unwrap_or(name), "", 0);
    };
    // The first character is how far the function is compiled.
    let text = script.trim_start_matches(['~', '*', '^', '+']);
    let (function, location) = text.split_once(' ').unwrap_or((text, ""));
    let mut parts = location.rsplitn(3, ':');
    let numbers = [parts.next(), parts.next()];
    let line = numbers[1].and_then(|line| line.parse().ok());
    let is_column = numbers[0].is_some_and(|column| column.parse::<u32>().is_ok());
    let function = if function.is_empty() {
        "(anonymous)"
    } else {
        function
    };
    match (line, parts.next()) {
        (Some(line), Some(file)) if is_column => frame(function, file, line),
        _ => frame(function, location, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_java_have_no_types() {
        let check = |name: &str, expected: &str| assert_eq!(frame_of(name).function, expected);
        check("long Main.hash(long)", "Main.hash");
        check(
            "void java.util.ComparableTimSort.mergeHi(int, int, int, int)",
            "java.util.ComparableTimSort.mergeHi",
        );
        for other in [
            "Interpreter",
            "StubRoutines (1)",
            "void f(int, char)",
            "a.b(c)",
            "int a.b",
        ] {
            check(other, other);
        }
    }

    #[test]
    fn a_process_has_one_file() {
        assert_eq!(process_of(&file_name(7)), Some(7));
        for other in [
            "perf-.map",
            "perf-7",
            "perf-x.map",
            "/tmp/perf-7.map",
            "libc.so.6",
            "",
        ] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }
}
