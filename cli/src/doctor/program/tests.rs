use expect_test::{Expect, expect};

use super::*;

/// A Rust program as `cargo build --release` makes it with the lines that we advise.
fn whole() -> Facts {
    Facts {
        machine: "x86-64".to_owned(),
        linking: Linking::Dynamic,
        is_rust: true,
        functions: 4711,
        exported: 0,
        debug_file: DebugFile::None,
        compressed: false,
        units: Some(120),
        library_units: 20,
        inlined: true,
        unwind_table: true,
        unwind_index: true,
        build_id: Some("ab12".to_owned()),
    }
}

fn check(facts: &Facts, expected: Expect) {
    let report = Report { subject: "worker".to_owned(), findings: findings(facts) };
    expected.assert_eq(&report.text());
}

#[test]
fn a_whole_program_is_fine() {
    check(
        &whole(),
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            ok    functions          4711 names
            ok    files and lines    line tables; units of code: 120
            ok    inlined functions  are known
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
}

#[test]
fn a_stripped_rust_program_is_told_what_to_set() {
    let stripped = Facts { functions: 0, units: None, library_units: 0, inlined: false, ..whole() };
    check(
        &stripped,
        expect![[r#"
        worker
        ok    program            x86-64, dynamically linked
        bad   functions          stripped: they have no names, only module and offset
                                 → Cargo.toml: [profile.release] strip = false; and do not run `strip` on it
        warn  files and lines    no line tables
                                 → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
        warn  inlined functions  are not known: their time counts for the function around them
                                 → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
        ok    unwind tables      .eh_frame with its index
        ok    build id           ab12
    "#]],
    );
}

#[test]
fn a_stripped_c_program_is_told_what_to_keep() {
    let stripped = Facts {
        machine: "aarch64".to_owned(),
        linking: Linking::Static,
        is_rust: false,
        functions: 0,
        exported: 12,
        units: None,
        library_units: 0,
        inlined: false,
        unwind_table: false,
        build_id: None,
        ..whole()
    };
    check(
        &stripped,
        expect![[r#"
        worker
        bad   program            aarch64, statically linked
                                 → the agent samples x86-64 only; it stays off in this program
        bad   functions          stripped: they have no names, only module and offset, but for 12 exported ones
                                 → link without -s and do not run `strip`; or keep the names in a file beside it:
                                 → objcopy --only-keep-debug PROGRAM PROGRAM.debug && strip PROGRAM && objcopy --add-gnu-debuglink=PROGRAM.debug PROGRAM
        warn  files and lines    no line tables
                                 → compile with -g1; it costs disk, not speed
        warn  inlined functions  are not known: their time counts for the function around them
                                 → compile with -g1; it costs disk, not speed
        bad   unwind tables      no .eh_frame
                                 → compile with -fasynchronous-unwind-tables, Rust with -C force-unwind-tables=yes: stacks through this program are [truncated]
        warn  build id           none
                                 → link with -Wl,--build-id, so that builds can be told apart and debug files found
    "#]],
    );
}

#[test]
fn lines_of_rusts_library_alone_are_not_enough() {
    let facts = Facts { units: None, inlined: false, unwind_index: false, ..whole() };
    check(
        &facts,
        expect![[r#"
        worker
        ok    program            x86-64, dynamically linked
        ok    functions          4711 names
        warn  files and lines    of Rust's own library only, not of the program's code
                                 → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
        warn  inlined functions  are not known: their time counts for the function around them
                                 → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
        warn  unwind tables      .eh_frame without .eh_frame_hdr
                                 → link with -Wl,--eh-frame-hdr: stacks through this program may be [truncated]
        ok    build id           ab12
    "#]],
    );
}

#[test]
fn debug_files_are_followed_or_asked_for() {
    let read = DebugFile::Read("/app/.debug/worker.debug".into());
    check(
        &Facts { debug_file: read, linking: Linking::StaticPie, compressed: true, ..whole() },
        expect![[r#"
            worker
            ok    program            x86-64, statically linked, at any address
            ok    functions          4711 names, in /app/.debug/worker.debug
            ok    files and lines    compressed line tables
            ok    inlined functions  not looked for in compressed tables
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
    let missing = DebugFile::Missing("worker.debug".to_owned());
    check(
        &Facts { debug_file: missing, functions: 0, units: None, inlined: false, ..whole() },
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            bad   functions          stripped, and its debug file worker.debug is not found
                                     → put worker.debug beside the program, or below /usr/lib/debug
            warn  files and lines    of Rust's own library only, not of the program's code
                                     → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
            warn  inlined functions  are not known: their time counts for the function around them
                                     → Cargo.toml: [profile.release] debug = "line-tables-only", strip = false; it costs disk, not speed
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
}

/// This test's own program has names and unwind tables, found by path and by process.
#[test]
fn this_program_is_read() {
    let path = std::env::current_exe().unwrap();
    for asked in [path.to_str().unwrap(), &std::process::id().to_string()] {
        let (file, name) = find(asked).unwrap();
        assert_eq!(name, path);
        let facts = Facts::read(&file, &name).unwrap();
        assert!(facts.functions > 1_000 && facts.is_rust && facts.inlined, "{facts:?}");
        assert!(facts.units > Some(0) && facts.library_units > 0, "{facts:?}");
        assert!(facts.unwind_table && facts.unwind_index, "{facts:?}");
        assert_eq!(facts.linking, Linking::Dynamic);
    }
}

#[test]
fn what_is_no_program_is_refused() {
    for (asked, part) in [
        ("/no/such/file", "there is no such file"),
        ("4294967295", "no process"),
        ("/proc/self/status", "no 64-bit ELF program"),
        ("/", "cannot be looked at"),
    ] {
        let error = examine(asked).unwrap_err().to_string();
        assert!(error.contains(asked) && error.contains(part), "{error}");
    }
}
