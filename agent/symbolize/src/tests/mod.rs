//! Names of a small library that is compiled here, in each form that a compiler can give it; and of
//! the same library with damage.

#[cfg(target_arch = "x86_64")]
mod assembly;
mod damage;
mod left_to_collector;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use expect_test::{Expect, expect};

use super::*;

/// Compiles `golden.rs` with these options, once per test.
fn compiled(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden.rs");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/golden-symbols");
    fs::create_dir_all(&folder).unwrap();
    let library = folder.canonicalize().unwrap().join(name);
    let fixed = [
        "--edition=2021",
        "--crate-type=cdylib",
        "-Copt-level=2",
        "-Cpanic=abort",
    ];
    let linked = ["-Clink-arg=-nostdlib", "-Clink-arg=-Wl,--build-id", "-o"];
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(fixed)
        .args(options)
        .args(linked)
        .args([library.as_os_str(), source.as_os_str()])
        .status();
    assert!(status.unwrap().success());
    library
}

fn run(program: &str, arguments: &[&dyn AsRef<OsStr>]) {
    let status = Command::new(program)
        .args(arguments.iter().map(AsRef::as_ref))
        .status();
    assert!(status.unwrap().success(), "{program}");
}

fn module(path: &Path) -> Arc<CodeModule> {
    let cache = ChunkCache::new(None).unwrap();
    let build_id = Elf::open(path, &cache)
        .and_then(|elf| elf.build_id())
        .unwrap_or_default();
    let path = path.to_str().unwrap().into();
    Arc::new(CodeModule {
        path,
        build_id: build_id.into(),
        ..CodeModule::default()
    })
}

/// The addresses of all functions that the library has symbols for.
fn code_of(path: &Path) -> std::ops::Range<u64> {
    let cache = ChunkCache::new(None).unwrap();
    let elf = Elf::open(path, &cache).unwrap();
    let text = elf.section(".text").unwrap();
    // The library's segments are mapped where its file says.
    text.address..text.address + text.bytes
}

fn resolved_by(
    mut resolver: Resolver,
    module: &Arc<CodeModule>,
    addresses: impl Iterator<Item = u64>,
) -> Vec<Vec<Frame<String>>> {
    let addresses: Vec<_> = addresses
        .map(|address| Address {
            address,
            module: Some(module),
        })
        .collect();
    let mut found = vec![Vec::new(); addresses.len()];
    resolver.resolve(&addresses, |index, frames| found[index] = frames.to_vec());
    found
}

/// Every stack of functions in the library, with the file of each.
fn stacks(path: &Path) -> String {
    stacks_by(Resolver::default(), path)
}

fn stacks_by(resolver: Resolver, path: &Path) -> String {
    stacks_of(resolved_by(resolver, &module(path), code_of(path)))
}

fn stacks_of(named: Vec<Vec<Frame<String>>>) -> String {
    let has_symbol = |frames: &Vec<Frame<String>>| frames[0].kind == FrameKind::Function;
    let stacks = named.into_iter().filter(has_symbol).map(|frames| {
        let frames = frames.iter().map(|frame| {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            let inlined = if frame.inlined { "+ " } else { "" };
            format!("{inlined}{} ({file})", frame.function)
        });
        frames.collect::<Vec<_>>().join(" ")
    });
    let all: BTreeSet<String> = stacks.collect();
    all.into_iter().map(|stack| stack + "\n").collect()
}

fn check(name: &str, options: &[&str], expected: &Expect) {
    expected.assert_eq(&stacks(&compiled(name, options)));
}

#[test]
fn names_with_line_tables_only() {
    check(
        "lines.so",
        &["-Cdebuginfo=line-tables-only"],
        &expect![[r#"
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs) + golden::tests::golden::rotate (golden.rs) + core::hint::black_box (hint.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs) + golden::tests::golden::rotate (golden.rs) + core::num::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            entry (golden.rs)
            entry (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + core::convert::into (mod.rs) + core::convert::num::from (num.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + symbolize::tests::golden::rotate (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + symbolize::tests::golden::rotate (golden.rs) + core::num::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            golden::shapes::digest (golden.rs)
            golden::shapes::digest (golden.rs) + core::slice::iter::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs)
            golden::shapes::digest (golden.rs) + core::slice::iter::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::largest (golden.rs)
            golden::shapes::largest (golden.rs) + core::slice::iter::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs)
            golden::shapes::largest (golden.rs) + core::slice::iter::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs) + core::cmp::gt (cmp.rs)
        "#]],
    );
}

#[test]
fn names_with_line_tables_only_and_v0_mangling() {
    let options = [
        "-Cdebuginfo=line-tables-only",
        "-Csymbol-mangling-version=v0",
    ];
    check(
        "lines-v0.so",
        &options,
        &expect![[r#"
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs) + golden::tests::golden::rotate (golden.rs) + core::hint::black_box (hint.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + golden::tests::golden::mixed (golden.rs) + golden::tests::golden::rotate (golden.rs) + core::num::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            entry (golden.rs)
            entry (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + core::convert::into (mod.rs) + core::convert::num::from (num.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + symbolize::tests::golden::rotate (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + symbolize::tests::golden::mixed (golden.rs) + symbolize::tests::golden::rotate (golden.rs) + core::num::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            golden::shapes::digest (golden.rs)
            golden::shapes::digest (golden.rs) + core::slice::iter::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs)
            golden::shapes::digest (golden.rs) + core::slice::iter::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::largest (golden.rs)
            golden::shapes::largest (golden.rs) + core::slice::iter::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs)
            golden::shapes::largest (golden.rs) + core::slice::iter::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs) + core::cmp::gt (cmp.rs)
        "#]],
    );
}

#[test]
fn names_with_limited_debug_information() {
    check(
        "limited.so",
        &["-Cdebuginfo=1"],
        &expect![[r#"
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + <u64>::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            <golden::shapes::Pair<T> as golden::shapes::Sum>::sum (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs)
            entry (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs) + <T as core::convert::Into<U>>::into (mod.rs) + <u64 as core::convert::From<u32>>::from (num.rs)
            entry (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + <u64>::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            entry (golden.rs) + golden::shapes::Pair<T>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::digest (golden.rs)
            golden::shapes::digest (golden.rs) + <core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs)
            golden::shapes::digest (golden.rs) + <core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::largest (golden.rs)
            golden::shapes::largest (golden.rs) + <core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs)
            golden::shapes::largest (golden.rs) + <core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs) + <u64 as core::cmp::PartialOrd>::gt (cmp.rs)
        "#]],
    );
}

#[test]
fn names_with_limited_debug_information_and_v0_mangling() {
    let options = ["-Cdebuginfo=1", "-Csymbol-mangling-version=v0"];
    check(
        "limited-v0.so",
        &options,
        &expect![[r#"
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + <u64>::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            <golden::shapes::Pair<u32> as golden::shapes::Sum>::sum (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs)
            entry (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs) + <u32 as core::convert::Into<u64>>::into (mod.rs) + <u64 as core::convert::From<u32>>::from (num.rs)
            entry (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + <u64>::rotate_left (uint_macros.rs) + core::intrinsics::rotate_left (mod.rs)
            entry (golden.rs) + <golden::shapes::Pair<u32>>::mixed (golden.rs) + golden::shapes::rotate (golden.rs) + core::hint::black_box (hint.rs)
            entry (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::digest (golden.rs)
            golden::shapes::digest (golden.rs) + <core::slice::iter::Iter<u64> as core::iter::traits::iterator::Iterator>::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs)
            golden::shapes::digest (golden.rs) + <core::slice::iter::Iter<u64> as core::iter::traits::iterator::Iterator>::for_each (macros.rs) + golden::shapes::digest::{closure#0} (golden.rs) + core::hint::black_box (hint.rs)
            golden::shapes::largest (golden.rs)
            golden::shapes::largest (golden.rs) + <core::slice::iter::Iter<u64> as core::iter::traits::iterator::Iterator>::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs)
            golden::shapes::largest (golden.rs) + <core::slice::iter::Iter<u64> as core::iter::traits::iterator::Iterator>::fold (macros.rs) + golden::shapes::largest::{closure#0} (golden.rs) + <u64 as core::cmp::PartialOrd>::gt (cmp.rs)
        "#]],
    );
}

#[test]
fn names_without_debug_information() {
    check(
        "bare.so",
        &["-Cdebuginfo=0"],
        &expect![[r#"
        <golden::shapes::Pair<T> as golden::shapes::Sum>::sum ()
        entry ()
        golden::shapes::digest ()
        golden::shapes::largest ()
    "#]],
    );
}

#[test]
fn a_function_is_found_with_its_file_and_line() {
    let source = include_str!("golden.rs");
    let declared = source
        .lines()
        .position(|line| line.contains("fn digest"))
        .unwrap() as u32
        + 1;
    for level in ["line-tables-only", "1", "2"] {
        let library = compiled(
            &format!("line-{level}.so"),
            &[&format!("-Cdebuginfo={level}")],
        );
        let found = resolved_by(Resolver::default(), &module(&library), code_of(&library));
        let mut frames = found.iter().flatten().filter(|frame| frame.line > 0);
        let is_digest = |frame: &&Frame<String>| frame.function == "golden::shapes::digest";
        let frame = frames.find(is_digest).unwrap();
        assert!(frame.file.ends_with("src/tests/golden.rs"), "{frame:?}");
        assert!((declared..declared + 8).contains(&frame.line), "{frame:?}");
    }
}

/// A stripped library has one name for all addresses of a function, and other names for other functions.
#[test]
fn functions_of_a_stripped_library_are_named_by_their_starts() {
    let library = compiled("named.so", &["-Cdebuginfo=0"]);
    let stripped = library.with_file_name("stripped.so");
    run("objcopy", &[&"--strip-all", &library, &stripped]);
    let named = resolved_by(Resolver::default(), &module(&library), code_of(&library));
    let module_of_stripped = module(&stripped);
    let addresses = code_of(&stripped);
    let by_start = resolved_by(Resolver::default(), &module_of_stripped, addresses.clone());
    let mut starts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((address, frames), known) in addresses.zip(&by_start).zip(&named) {
        let [frame] = &frames[..] else {
            panic!("{frames:?}");
        };
        // Symbols of the dynamic linker stay.
        if frame.kind == FrameKind::Unresolved && known[0].kind == FrameKind::Function {
            assert_eq!(frame.offset, address);
            let function = &*known[0].function;
            starts.entry(function).or_default().insert(&frame.function);
        }
    }
    let names: BTreeSet<&str> = starts.values().flatten().copied().collect();
    assert!(starts.len() >= 3, "{starts:?}");
    assert_eq!(names.len(), starts.len(), "{starts:?}");
    assert!(
        names.iter().all(|name| name.starts_with("stripped.so+0x")),
        "{names:?}"
    );
}

#[test]
fn an_address_without_a_symbol_keeps_module_and_offset() {
    let module = CodeModule {
        path: "/opt/x.so".into(),
        build_id: "ab".into(),
        base: 0x10,
        file: None,
    };
    let found = resolved_by(Resolver::default(), &Arc::new(module), 0x30..0x31);
    let [frames] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(frames.len(), 1);
    assert_eq!(
        (frames[0].kind, frames[0].offset),
        (FrameKind::Unresolved, 0x20)
    );
    assert_eq!(
        (&*frames[0].module, &*frames[0].build_id),
        ("/opt/x.so", "ab")
    );
}

/// Debug information in another file, found by its link, plain and compressed.
#[test]
fn a_separate_debug_file_has_the_same_names() {
    let whole = compiled("whole.so", &["-Cdebuginfo=1"]);
    let expected = stacks(&whole);
    let folder = tempfile::tempdir().unwrap();
    for compression in ["none", "zlib", "zlib-gnu"] {
        let debug = folder.path().join(format!("{compression}.debug"));
        let stripped = folder.path().join(format!("{compression}.so"));
        let compress = format!("--compress-debug-sections={compression}");
        run(
            "objcopy",
            &[&"--only-keep-debug", &compress, &whole, &debug],
        );
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run("objcopy", &[&"--strip-all", &link, &whole, &stripped]);
        let program = Resolver {
            program: Some(stripped.clone()),
            ..Resolver::default()
        };
        assert_eq!(stacks_by(program, &stripped), expected, "{compression}");
        // Of libraries nothing is decompressed.
        let as_library = stacks(&stripped);
        assert_eq!(
            as_library == expected,
            compression == "none",
            "{as_library}"
        );
        assert!(
            as_library.contains("golden::shapes::digest"),
            "{as_library}"
        );
        fs::remove_file(&debug).unwrap();
        let without = stacks(&stripped);
        assert!(
            without.contains("entry ()") && !without.contains("digest"),
            "{without}"
        );
    }
}

/// Names by a symbol file, completed as the collector completes them.
fn named_by_file(library: &Path, code: std::ops::Range<u64>) -> Vec<Vec<Frame<String>>> {
    named_with_split(library, &symbol_files::SplitFiles::none(), code)
}

fn named_with_split(
    library: &Path,
    split: &symbol_files::SplitFiles<'_, fs::File>,
    code: std::ops::Range<u64>,
) -> Vec<Vec<Frame<String>>> {
    let mut file = Vec::new();
    let source = fs::File::open(library).unwrap();
    let reduced = symbol_files::reduce_split(&source, split, &mut file).unwrap();
    assert_eq!((reduced.damaged_units, reduced.missing_units), (0, 0));
    let file = symbol_files::SymbolFile::open(file).unwrap();
    file.verify().unwrap();
    let names = file.lookup(code).unwrap();
    let module = module(library);
    let named = names.into_iter().map(|(address, frames)| {
        let frames = frames
            .iter()
            .map(|frame| frame.map(str::to_owned))
            .collect();
        completed(frames, address, Some(&module))
    });
    named.collect()
}

/// Every address of the library, in each form of debug information.
#[test]
fn a_symbol_file_names_every_address_as_the_agent_does() {
    let forms: [(&str, &[&str]); 6] = [
        ("line-tables-only", &[]),
        ("line-tables-only", &["-Csymbol-mangling-version=v0"]),
        ("1", &[]),
        ("2", &["-Csymbol-mangling-version=v0"]),
        ("2", &["-Clink-arg=-Wl,--compress-debug-sections=zlib"]),
        ("0", &[]),
    ];
    for (number, (level, options)) in forms.iter().enumerate() {
        let level = format!("-Cdebuginfo={level}");
        let options = [&[level.as_str()], *options].concat();
        let library = compiled(&format!("file-{number}.so"), &options);
        let code = code_of(&library);
        let agent = Resolver {
            program: Some(library.clone()),
            ..Resolver::default()
        };
        let expected = resolved_by(agent, &module(&library), code.clone());
        let found = named_by_file(&library, code.clone());
        assert_eq!(found.len(), expected.len());
        for ((address, found), expected) in code.zip(found).zip(expected) {
            let expected = without_labels(expected);
            assert_eq!(found, expected, "{address:#x} of {options:?}");
        }
    }
}

/// The start of a function without a name is not in a symbol file.
fn without_labels(mut frames: Vec<Frame<String>>) -> Vec<Frame<String>> {
    let unnamed = frames
        .iter_mut()
        .filter(|frame| frame.kind == FrameKind::Unresolved);
    unnamed.for_each(|frame| frame.function.clear());
    frames
}

/// In a package, and in files of units.
#[test]
fn split_debug_information_has_the_names_of_whole_debug_information() {
    for version in ["4", "5"] {
        let form = |name: &str, split: &str| {
            let split = format!("-Csplit-debuginfo={split}");
            let dwarf = format!("-Cdwarf-version={version}");
            compiled(
                &format!("{name}-{version}.so"),
                &["-Cdebuginfo=2", &split, &dwarf],
            )
        };
        let whole = form("whole", "off");
        let expected = stacks_of(named_by_file(&whole, code_of(&whole)));
        assert!(expected.contains("+ golden::shapes::rotate"), "{expected}");

        let packed = form("packed", "packed");
        let package = fs::File::open(packed.with_added_extension("dwp")).unwrap();
        let split = symbol_files::SplitFiles {
            package: Some(&package),
            ..symbol_files::SplitFiles::none()
        };
        assert_eq!(
            stacks_of(named_with_split(&packed, &split, code_of(&packed))),
            expected
        );

        let unpacked = form("unpacked", "unpacked");
        let open_unit = |path: &Path| fs::File::open(path).ok();
        let split = symbol_files::SplitFiles {
            open_unit: &open_unit,
            ..symbol_files::SplitFiles::none()
        };
        assert_eq!(
            stacks_of(named_with_split(&unpacked, &split, code_of(&unpacked))),
            expected
        );
    }
}

/// A program of a megabyte of code: the test itself.
#[test]
fn a_symbol_file_names_this_program_as_the_agent_does() {
    let program = fs::read_link("/proc/self/exe").unwrap();
    let code = code_of(&program);
    let addresses: Vec<u64> = code.step_by(61).take(20_000).collect();
    let agent = Resolver::of_this_process(LeftToCollector::None);
    let expected = resolved_by(agent, &module(&program), addresses.iter().copied());
    let mut file = Vec::new();
    symbol_files::reduce(&fs::File::open(&program).unwrap(), &mut file).unwrap();
    let names = symbol_files::SymbolFile::open(file)
        .unwrap()
        .lookup(addresses.clone())
        .unwrap();
    for (address, expected) in addresses.iter().zip(expected) {
        let found = names[address]
            .iter()
            .map(|frame| frame.map(str::to_owned))
            .collect();
        assert_eq!(
            completed(found, *address, Some(&module(&program))),
            without_labels(expected),
            "{address:#x}"
        );
    }
}

/// The address of the vDSO in this process.
fn vdso_base() -> Option<u64> {
    const AT_SYSINFO_EHDR: u64 = 33;
    let entries = fs::read("/proc/self/auxv").unwrap();
    let mut words = entries
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == AT_SYSINFO_EHDR {
            return Some(value);
        }
    }
    None
}

/// Always by the agent: there is no file for the collector.
#[test]
fn functions_of_the_vdso_are_named_from_its_copy_in_memory() {
    // An emulator may have none.
    let Some(base) = vdso_base() else { return };
    let module = |build_id: &str| {
        let path = "linux-vdso.so.1".into();
        Arc::new(CodeModule {
            path,
            build_id: build_id.into(),
            base,
            file: None,
        })
    };
    for left in [
        LeftToCollector::None,
        LeftToCollector::All,
        LeftToCollector::Stripped,
    ] {
        let resolver = Resolver {
            left,
            ..Resolver::default()
        };
        let named = resolved_by(resolver, &module(""), base..base + 0x2000);
        let names: BTreeSet<String> = named
            .into_iter()
            .flatten()
            .map(|frame| frame.function)
            .collect();
        let clock = if cfg!(target_arch = "x86_64") {
            "__vdso"
        } else {
            "__kernel"
        };
        assert!(
            names.contains(&format!("{clock}_clock_gettime")),
            "{left:?}: {names:?}"
        );
    }
    let other = resolved_by(
        Resolver::default(),
        &module("0123"),
        base + 0x800..base + 0x801,
    );
    assert_eq!(other[0][0].kind, FrameKind::Unresolved, "of another kernel");
}

#[test]
fn a_file_of_another_build_gives_no_names() {
    let library = compiled("replaced.so", &["-Cdebuginfo=1"]);
    let loaded = CodeModule {
        build_id: "0123".into(),
        ..(*module(&library)).clone()
    };
    let code = code_of(&library);
    let frames = resolved_by(
        Resolver::default(),
        &Arc::new(loaded),
        code.start..code.start + 1,
    );
    assert_eq!(frames[0][0].kind, FrameKind::Unresolved);
    assert_eq!(frames[0][0].offset, code.start);
}

/// A plug-in that was built again, at the same path.
#[test]
fn another_file_at_the_path_of_a_module_without_build_id_gives_no_names() {
    let library = compiled(
        "again.so",
        &["-Cdebuginfo=1", "-Clink-arg=-Wl,--build-id=none"],
    );
    let loaded = Arc::new(CodeModule {
        path: library.to_str().unwrap().into(),
        file: FileIdentity::at(&library),
        ..CodeModule::default()
    });
    let code = code_of(&library);
    let kind = || {
        let frames = resolved_by(Resolver::default(), &loaded, code.start..code.start + 1);
        frames[0][0].kind
    };
    assert_eq!(kind(), FrameKind::Function);
    let copy = library.with_extension("copy");
    std::fs::copy(&library, &copy).unwrap();
    std::fs::rename(&copy, &library).unwrap();
    assert_eq!(kind(), FrameKind::Unresolved);
}

#[test]
fn indexes_are_freed_when_no_address_needs_them() {
    let library = compiled("idle.so", &["-Cdebuginfo=1"]);
    let module = module(&library);
    let mut resolver = Resolver::default();
    let start = code_of(&library).start;
    resolver.resolve(
        &[Address {
            address: start,
            module: Some(&module),
        }],
        |_, _| {},
    );
    assert_eq!(resolver.indexes.len(), 1);
    for _ in 0..IDLE_BATCHES_MAX {
        resolver.resolve(&[], |_, _| {});
    }
    assert!(resolver.indexes.is_empty());
}
