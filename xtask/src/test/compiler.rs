//! Compiles unit tests without optimization. This program stands between cargo and the compiler then
//! (`RUSTC_WRAPPER`), because profiles of cargo cannot tell a crate from its unit tests.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{env, io};

/// The variable by which cargo finds a wrapper.
const VARIABLE: &str = "RUSTC_WRAPPER";

/// Makes cargo compile through this program, unless a person has a wrapper already. Artifacts
/// with and without it are the same to cargo, so neither recompiles those of the other one.
pub(super) fn compile_unit_tests_fast(cargo: &mut Command) {
    if env::var_os(VARIABLE).is_none() {
        // Not the program's path: the step `build` may replace the file.
        cargo.env(VARIABLE, format!("/proc/{}/exe", std::process::id()));
    }
}

/// The compiler's command line, if cargo has started this program with one.
pub(crate) fn command_line() -> Option<Vec<OsString>> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let program = Path::new(arguments.first()?).file_stem()?;
    (program == "rustc").then_some(arguments)
}

/// Becomes the compiler. Returns only if that fails, with the reason.
pub(crate) fn compile(command_line: &[OsString]) -> io::Error {
    let mut compiler = Command::new(&command_line[0]);
    compiler.args(&command_line[1..]);
    if is_unit_test(command_line) {
        compiler.arg("-Copt-level=0");
    }
    compiler.exec()
}

/// Whether it compiles the tests inside a crate. Tests in files of their own are profiled, or start
/// what is profiled.
fn is_unit_test(command_line: &[OsString]) -> bool {
    let is_test = command_line.iter().any(|argument| argument == "--test");
    let is_whole_crate = |argument: &OsString| {
        let path = Path::new(argument);
        let file = path.file_name().and_then(OsStr::to_str);
        path.parent().is_some_and(|folder| folder.ends_with("src"))
            && matches!(file, Some("lib.rs" | "main.rs"))
    };
    is_test && command_line.iter().any(is_whole_crate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_unit_test_by(text: &str) -> bool {
        is_unit_test(&text.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_tests_inside_a_crate_are_told_from_others() {
        assert!(is_unit_test_by(
            "rustc --crate-name emberline cli/src/main.rs --test -Copt-level=3"
        ));
        assert!(is_unit_test_by("rustc --crate-name emberline_agent agent/src/lib.rs --test"));
        assert!(!is_unit_test_by("rustc --crate-name emberline_agent agent/src/lib.rs"));
        assert!(!is_unit_test_by("rustc --crate-name system tests/src/system/main.rs --test"));
        assert!(!is_unit_test_by("rustc --crate-name pools agent/tests/pools.rs --test"));
    }
}
