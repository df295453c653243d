//! Programs of several linkers, which print where the system loaded them: each function has its name at the
//! offset in the file that a profiler computes from these mappings, as `nm` names it at its address.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_core::CodePlace;
use proptest::prelude::*;

use super::*;
use crate::{SymbolFile, reduce};

/// Prints its mappings, and the address of each function below.
const MAIN: &str = r#"
#include <stdio.h>
int main(void) {
    int byte;
    FILE *maps = fopen("/proc/self/maps", "r");
    while ((byte = getc(maps)) != EOF) putchar(byte);
    for (int n = 0; n < FUNCTIONS; n++) printf("function_%d %p\n", n, (void *)table[n]);
}
"#;
/// Functions of 64 bytes: an offset that is wrong by some pages is that of another one.
const FUNCTIONS: usize = 300;

const LLVM: &str = "/usr/lib/llvm-14/bin";

/// The options of the compiler. Those whose linker is missing are left out.
const LAYOUTS: [&[&str]; 11] = [
    &["-pie", "-fPIE"],
    &["-no-pie"],
    &["-pie", "-fPIE", "-Wl,-z,separate-code"],
    &["-no-pie", "-Wl,-z,noseparate-code"],
    &["-no-pie", "-Wl,-z,max-page-size=0x200000"],
    &["-no-pie", "-Wl,-Ttext-segment=0x10000000"],
    &["-static", "-no-pie"],
    &["-pie", "-fPIE", "-fuse-ld=gold"],
    &["-no-pie", "-fuse-ld=gold"],
    &["-pie", "-fPIE", "-fuse-ld=lld"],
    &["-no-pie", "-fuse-ld=lld"],
];

fn source() -> String {
    let mut source = String::from("__asm__(\".text\\n\"\n");
    for n in 0..FUNCTIONS {
        let name = format!("function_{n}");
        let _ = writeln!(
            source,
            "\".globl {name}\\n.type {name},@function\\n{name}: .skip 64, 0x90\\n.size {name}, 64\\n\""
        );
    }
    source.push_str(");\n");
    for n in 0..FUNCTIONS {
        let _ = writeln!(source, "extern void function_{n}(void);");
    }
    let names: Vec<String> = (0..FUNCTIONS).map(|n| format!("function_{n}")).collect();
    let _ = writeln!(source, "void (*table[])(void) = {{{}}};", names.join(","));
    source + &MAIN.replace("FUNCTIONS", &FUNCTIONS.to_string())
}

fn text_of(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).unwrap())
}

fn compile(folder: &Path, options: &[&str]) -> Option<PathBuf> {
    fs::write(folder.join("main.c"), source()).unwrap();
    let program = folder.join("program");
    let mut compiler = Command::new("cc");
    compiler
        .current_dir(folder)
        .args(["main.c", "-o", "program", "-Wl,--build-id"]);
    text_of(compiler.args(["-B", LLVM]).args(options))?;
    Some(program)
}

/// By function: an offset in the file, from its address in memory and the mapping there.
fn offsets(program: &Path) -> Vec<(String, u64)> {
    let printed = text_of(&mut Command::new(program)).unwrap();
    let mut mappings = Vec::new();
    let mut offsets = Vec::new();
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(address) = words.get(1).and_then(|word| word.strip_prefix("0x")) {
            let address = hexadecimal(address).unwrap();
            let (start, _, offset) = mappings
                .iter()
                .find(|mapping: &&(u64, u64, u64)| (mapping.0..mapping.1).contains(&address))
                .unwrap();
            offsets.push((words[0].to_owned(), address - start + offset + 1));
        } else if let Some((start, end)) = words[0].split_once('-') {
            let numbers = [start, end, words[2]].map(|digits| hexadecimal(digits).unwrap());
            mappings.push((numbers[0], numbers[1], numbers[2]));
        }
    }
    offsets
}

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

fn symbols(path: &Path) -> SymbolFile<Vec<u8>> {
    let mut made = Vec::new();
    reduce(&fs::read(path).unwrap(), &mut made).unwrap();
    let file = SymbolFile::open(made).unwrap();
    file.verify().unwrap();
    file
}

/// The name at each place; empty for none.
fn names_at(file: &SymbolFile<Vec<u8>>, places: &[CodePlace]) -> Vec<String> {
    let names = file
        .lookup(places.iter().map(|place| place.number()))
        .unwrap();
    let name = |place: &CodePlace| names[&place.number()].first();
    let name = |place| name(place).map(|frame| frame.function.to_string());
    places
        .iter()
        .map(|place| name(place).unwrap_or_default())
        .collect()
}

fn name_at(file: &SymbolFile<Vec<u8>>, place: CodePlace) -> String {
    names_at(file, &[place]).remove(0)
}

#[test]
fn offsets_in_files_of_all_linkers_have_the_names_of_their_functions() {
    let mut checked = 0;
    for options in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = compile(folder.path(), options) else {
            continue;
        };
        let mut files = vec![program.clone()];
        for copier in ["objcopy", "llvm-objcopy"] {
            let debug = folder.path().join(copier);
            let mut command = Command::new(copier);
            command.arg("--only-keep-debug").args([&program, &debug]);
            files.extend(text_of(&mut command).map(|_| debug));
        }
        let (expected, offsets): (Vec<_>, Vec<_>) = offsets(&program).into_iter().unzip();
        assert_eq!(expected.len(), FUNCTIONS);
        let places: Vec<_> = offsets.into_iter().map(CodePlace::FileOffset).collect();
        let end = CodePlace::FileOffset(fs::metadata(&program).unwrap().len());
        for file in &files {
            let symbols = symbols(file);
            assert!(
                symbols.facts().has_segments,
                "{options:?} {}",
                file.display()
            );
            assert_eq!(
                names_at(&symbols, &places),
                expected,
                "{options:?} {}",
                file.display()
            );
            assert_eq!(name_at(&symbols, end), "");
        }
        let listed = text_of(Command::new("nm").arg(&program)).unwrap();
        let functions = listed
            .lines()
            .filter_map(|line| line.split_once(" T function_"));
        let (addresses, numbers): (Vec<_>, Vec<_>) = functions.unzip();
        let expected: Vec<_> = numbers
            .iter()
            .map(|number| format!("function_{number}"))
            .collect();
        let places: Vec<_> = addresses
            .iter()
            .map(|digits: &&str| u64::from_str_radix(digits, 16).unwrap())
            .map(CodePlace::Address)
            .collect();
        assert_eq!(
            (names_at(&symbols(&program), &places), places.len()),
            (expected, FUNCTIONS)
        );
        checked += 1;
    }
    assert!(
        checked >= 7,
        "layouts of the system's own linker: {checked}"
    );
}

/// Tables of agents of earlier versions.
#[test]
fn without_program_headers_offsets_have_no_names_and_addresses_keep_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), &["-no-pie"]).unwrap();
    let mut file = fs::read(&program).unwrap();
    file[56..58].fill(0);
    let path = folder.path().join("without");
    fs::write(&path, file).unwrap();
    let symbols = symbols(&path);
    assert!(!symbols.facts().has_segments);
    let (function, offset) = offsets(&program).swap_remove(0);
    assert_eq!(name_at(&symbols, CodePlace::FileOffset(offset)), "");
    let address = CodePlace::Address(0x40_0000 + offset);
    assert_eq!(name_at(&symbols, address), function);
}

proptest! {
    #[test]
    fn any_table_of_headers_is_read_and_comes_back_from_its_text(
        table in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 5, 16, 0xff]), 0..1_200),
        offset in any::<u64>(),
    ) {
        let segments = Segments::of_headers(&table);
        prop_assert_eq!(Segments::parse(&segments.to_text()), Some(segments.clone()));
        let _ = segments.address_of(offset);
    }
}
