//! A program in two units, whose debug information is in one file or split.

use std::fs::{self, File};
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{Detail, Names, Reduced, SymbolFile, reduce, reduce_split};

const SUM: &str = "
static inline __attribute__((always_inline)) long twice(long a) { return a * 2 ^ a >> 3; }
__attribute__((noinline)) long sum(const long *values, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += twice(values[i]);
    return total;
}
";
const MAIN: &str = "
long sum(const long *values, long count);
static inline __attribute__((always_inline)) long half(long a) { return a / 2 ^ a << 3; }
int main(int count, char **arguments) {
    long values[] = { count, half(count), (long)arguments };
    return sum(values, 3);
}
";

/// Where programs that are not moved begin.
const LOW: u64 = 0x40_0000;

/// The program, and its units' files if it has them.
struct Program(TempDir);

impl Program {
    fn compile(options: &[&str]) -> Program {
        Program::link(options, &[])
    }

    fn link(options: &[&str], linking: &[&str]) -> Program {
        let program = Program(tempfile::tempdir().unwrap());
        // The same names of files in each folder.
        let map = format!("-ffile-prefix-map={}=/w", program.0.path().display());
        for (name, source) in [("sum", SUM), ("main", MAIN)] {
            fs::write(program.path(&format!("{name}.c")), source).unwrap();
            let mut compiler = Command::new("cc");
            compiler
                .args(["-O2", "-g", "-fno-pie", &map, "-c"])
                .args(options);
            compiler.arg(program.path(&format!("{name}.c"))).arg("-o");
            compiler
                .arg(program.path(&format!("{name}.o")))
                .current_dir(program.0.path());
            assert!(compiler.status().unwrap().success());
        }
        let mut linker = Command::new("cc");
        linker.args([
            "-no-pie",
            "-Wl,--build-id",
            "main.o",
            "sum.o",
            "-o",
            "program",
        ]);
        linker.args(linking);
        assert!(
            linker
                .current_dir(program.0.path())
                .status()
                .unwrap()
                .success()
        );
        program
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Its functions, with the files of its units but those that are left out.
    fn names(&self, without: &[&str]) -> (Names, Reduced) {
        let open_unit = |unit: &Path| {
            let name = unit.file_name()?.to_str()?;
            let is_wanted = !without.contains(&name);
            is_wanted
                .then(|| File::open(self.path(name)).ok())
                .flatten()
        };
        let split = SplitFiles {
            open_unit: &open_unit,
            ..SplitFiles::none()
        };
        let mut made = Vec::new();
        let reduced = reduce_split(
            &File::open(self.path("program")).unwrap(),
            &split,
            &mut made,
        )
        .unwrap();
        (all_names(made), reduced)
    }
}

fn all_names(made: Vec<u8>) -> Names {
    names_from(made, LOW)
}

fn names_from(made: Vec<u8>, start: u64) -> Names {
    let made = SymbolFile::open(made).unwrap();
    made.verify().unwrap();
    made.lookup(start..start + 0x2000).unwrap()
}

fn has(names: &Names, functions: &[&str]) -> bool {
    names.values().any(|frames| {
        frames
            .iter()
            .map(|frame| &*frame.function)
            .eq(functions.iter().copied())
    })
}

#[test]
fn split_debug_information_has_the_same_names() {
    let whole = Program::compile(&["-gdwarf-5"]);
    let (expected, reduced) = whole.names(&[]);
    assert_eq!(
        (reduced.facts.detail, reduced.split_units),
        (Detail::Lines, 0)
    );
    assert!(has(&expected, &["sum", "twice"]) && has(&expected, &["main", "half"]));
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let split = Program::compile(&["-gsplit-dwarf", version]);
        let (names, reduced) = split.names(&[]);
        assert_eq!((reduced.split_units, reduced.missing_units), (2, 0));
        assert_eq!(reduced.facts.detail, Detail::Lines);
        assert!(names == expected, "{version}");

        // A unit that is missing has lines, and no function is inlined.
        let (names, reduced) = split.names(&["sum.dwo"]);
        assert_eq!((reduced.split_units, reduced.missing_units), (2, 1));
        assert_eq!(reduced.facts.detail, Detail::CompiledLines);
        assert!(has(&names, &["main", "half"]) && has(&names, &["sum"]));
        assert!(!has(&names, &["sum", "twice"]));
        let mut of_sum = names
            .values()
            .flatten()
            .filter(|frame| &*frame.function == "sum");
        assert!(of_sum.all(|frame| frame.line > 0 && &*frame.file == "/w/sum.c"));
    }
}

/// A program like a kernel: its addresses do not fit into 32 bits, and the distances between them do.
#[cfg(target_arch = "x86_64")]
#[test]
fn code_at_high_addresses_has_the_same_names() {
    // Where the kernel begins.
    const HIGH: u64 = 0xffff_ffff_8100_0000;
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for split in [&[][..], &["-gsplit-dwarf"]] {
            let options = [&[version, "-mcmodel=kernel"], split].concat();
            let linked_at = |start: u64| {
                let segment = format!("-Wl,-Ttext-segment={start:#x}");
                Program::link(&options, &["-static", "-nostdlib", "-Wl,-emain", &segment])
            };
            let low = names_from(made_of(&linked_at(LOW)), LOW);
            assert!(
                has(&low, &["sum", "twice"]) && has(&low, &["main", "half"]),
                "{options:?}"
            );
            let high = made_of(&linked_at(HIGH));
            let expected: Names = low
                .into_iter()
                .map(|(address, frames)| (address - LOW + HIGH, frames))
                .collect();
            assert!(names_from(high.clone(), HIGH) == expected, "{options:?}");
            let nothing = names_from(high, LOW);
            assert!(nothing.values().all(Vec::is_empty), "{options:?}");
        }
    }
}

fn made_of(program: &Program) -> Vec<u8> {
    let split = SplitFiles {
        open_unit: &|unit: &Path| File::open(program.path(unit.to_str()?)).ok(),
        ..SplitFiles::none()
    };
    let mut made = Vec::new();
    let source = File::open(program.path("program")).unwrap();
    reduce_split(&source, &split, &mut made).unwrap();
    made
}

/// By rustc, which has a packager of its own. `dwp` of binutils fails for version 5 in some releases.
#[test]
fn a_package_has_the_same_names() {
    let source = "
        #[inline(always)] fn mixed(value: u64) -> u64 { value.rotate_left(9) ^ 5 }
        #[inline(never)] fn total(values: &[u64]) -> u64 { values.iter().map(|v| mixed(*v)).sum() }
        fn main() { println!(\"{}\", total(&[std::process::id().into()])); }
    ";
    for version in ["4", "5"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("program.rs"), source).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut compiler = Command::new(rustc);
        compiler.args([
            "-O",
            "-g",
            "-Csplit-debuginfo=packed",
            "-Clink-arg=-Wl,--build-id",
        ]);
        compiler
            .arg(format!("-Cdwarf-version={version}"))
            .arg("program.rs");
        assert!(
            compiler
                .current_dir(folder.path())
                .status()
                .unwrap()
                .success()
        );
        let open = |name: &str| File::open(folder.path().join(name)).unwrap();
        let package = open("program.dwp");
        let split = SplitFiles {
            package: Some(&package),
            ..SplitFiles::none()
        };
        let mut made = Vec::new();
        let reduced = reduce_split(&open("program"), &split, &mut made).unwrap();
        assert_eq!(
            (reduced.split_units, reduced.missing_units),
            (1, 0),
            "{version}"
        );
        let made = SymbolFile::open(made).unwrap();
        let names = made.lookup(0..0x4_0000).unwrap();
        assert!(
            names
                .values()
                .flatten()
                .any(|frame: &profiler_core::Frame<std::sync::Arc<str>>| {
                    frame.inlined && frame.function.ends_with("mixed") && frame.line == 2
                }),
            "{version}"
        );
    }
}

#[test]
fn files_of_other_units_and_damaged_packages_are_not_used() {
    let split = Program::compile(&["-gsplit-dwarf", "-gdwarf-4"]);
    let other = Program::compile(&["-gsplit-dwarf", "-gdwarf-4", "-O1"]);
    fs::copy(other.path("sum.dwo"), split.path("sum.dwo")).unwrap();
    let (_, reduced) = split.names(&[]);
    assert_eq!(
        (reduced.split_units, reduced.missing_units),
        (2, 1),
        "its id is another"
    );

    let program = split.read("program");
    let unit = split.read("main.dwo");
    assert_eq!(
        error(&program, &unit),
        "its package of split debug information is of another build: it has none of the 2 units"
    );
    let script = error(&program, &b"#!/bin/sh\n".repeat(20));
    assert!(
        script.contains("package of split debug information cannot be used"),
        "{script}"
    );
    let alone = reduce(&unit, &mut Vec::new()).unwrap_err().to_string();
    assert!(alone.contains("upload its program"), "{alone}");
}

fn error(source: &Vec<u8>, package: &Vec<u8>) -> String {
    let split = SplitFiles {
        package: Some(package),
        ..SplitFiles::none()
    };
    reduce_split(source, &split, &mut Vec::new())
        .unwrap_err()
        .to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a unit's file has: an error, or a table without contradictions.
    #[test]
    fn a_damaged_unit_costs_inlined_functions_only(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        static PROGRAM: std::sync::OnceLock<(Vec<u8>, Vec<u8>)> = std::sync::OnceLock::new();
        let (program, unit) = PROGRAM.get_or_init(|| {
            let split = Program::compile(&["-gsplit-dwarf", "-gdwarf-5"]);
            (split.read("program"), split.read("sum.dwo"))
        });
        let mut unit = unit.clone();
        for (at, value) in damage {
            let at = at.index(unit.len());
            unit[at] = value;
        }
        let open_unit = |_: &Path| Some(unit.clone());
        let split = SplitFiles { open_unit: &open_unit, ..SplitFiles::none() };
        let mut made = Vec::new();
        reduce_split(program, &split, &mut made).unwrap();
        // The file is not of this unit.
        prop_assert!(has(&all_names(made), &["main"]));
    }
}
