use expect_test::{Expect, expect};

use super::*;

/// A Rust program built with the recommended profile.
fn complete() -> Facts {
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
        modules: true,
        unwind_table: true,
        unwind_index: true,
        build_id: Some("ab12".to_owned()),
    }
}

fn check(facts: &Facts, expected: Expect) {
    let report = Report {
        subject: "worker".to_owned(),
        findings: findings(facts),
    };
    expected.assert_eq(&report.text());
}

#[test]
fn a_program_with_everything_has_no_warnings() {
    check(
        &complete(),
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            ok    functions          4711 names
            ok    source lines       line tables of 120 compilation units
            ok    inlined functions  recorded
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
}

#[test]
fn a_stripped_rust_program_gets_cargo_advice() {
    let stripped = Facts {
        functions: 0,
        units: None,
        library_units: 0,
        inlined: false,
        ..complete()
    };
    check(
        &stripped,
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            bad   functions          stripped: no names, only module and offset
                                     → Cargo.toml: [profile.release] strip = false; do not
                                       run `strip`
            warn  source lines       no line tables
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            warn  inlined functions  not recorded: their time counts for the enclosing
                                     function
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
}

#[test]
fn a_stripped_c_program_gets_compiler_advice() {
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
        ..complete()
    };
    check(
        &stripped,
        expect![[r#"
            worker
            bad   program            aarch64, statically linked
                                     → the agent samples x86-64 only; it stays off in this
                                       program
            bad   functions          stripped: no names, only module and offset, except 12
                                     exported ones
                                     → link without -s and do not run `strip`; or keep the
                                       names in a separate file:
                                     → objcopy --only-keep-debug PROGRAM PROGRAM.debug &&
                                       strip PROGRAM && objcopy
                                       --add-gnu-debuglink=PROGRAM.debug PROGRAM
            warn  source lines       no line tables
                                     → compile with -g1; it costs disk, not speed
            warn  inlined functions  not recorded: their time counts for the enclosing
                                     function
                                     → compile with -g1; it costs disk, not speed
            bad   unwind tables      no .eh_frame
                                     → compile with -fasynchronous-unwind-tables, Rust with
                                       -C force-unwind-tables=yes: stacks through this
                                       program are [truncated]
            warn  build id           none
                                     → link with -Wl,--build-id, so that builds can be
                                       distinguished and debug files found
        "#]],
    );
}

#[test]
fn lines_of_the_standard_library_alone_are_a_warning() {
    let facts = Facts {
        units: None,
        inlined: false,
        unwind_index: false,
        ..complete()
    };
    check(
        &facts,
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            ok    functions          4711 names
            warn  source lines       only of the Rust standard library, not of the program's
                                     code
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            warn  inlined functions  not recorded: their time counts for the enclosing
                                     function
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            warn  unwind tables      .eh_frame without .eh_frame_hdr
                                     → link with -Wl,--eh-frame-hdr: stacks through this
                                       program may be [truncated]
            ok    build id           ab12
        "#]],
    );
}

#[test]
fn line_tables_only_are_a_warning_in_a_rust_program() {
    let facts = Facts {
        modules: false,
        ..complete()
    };
    check(
        &facts,
        expect![[r#"
        worker
        ok    program            x86-64, dynamically linked
        ok    functions          4711 names
        ok    source lines       line tables of 120 compilation units
        warn  inlined functions  recorded without their modules (line tables only):
                                 names are guessed from files
                                 → Cargo.toml: [profile.release] debug = 1, strip =
                                   false; it costs disk, not speed
        ok    unwind tables      .eh_frame with its index
        ok    build id           ab12
    "#]],
    );
    let inlined = super::inlined(&Facts {
        is_rust: false,
        ..facts
    });
    assert_eq!(inlined.found, "recorded", "C has no modules");
}

#[test]
fn separate_debug_files_are_read_or_named() {
    let read = DebugFile::Read("/app/.debug/worker.debug".into());
    check(
        &Facts {
            debug_file: read,
            linking: Linking::StaticPie,
            compressed: true,
            ..complete()
        },
        expect![[r#"
            worker
            ok    program            x86-64, statically linked, position independent
            ok    functions          4711 names, in /app/.debug/worker.debug
            ok    source lines       compressed line tables
            ok    inlined functions  unknown: the tables are compressed
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
    let missing = DebugFile::Missing("worker.debug".to_owned());
    check(
        &Facts {
            debug_file: missing,
            functions: 0,
            units: None,
            inlined: false,
            ..complete()
        },
        expect![[r#"
            worker
            ok    program            x86-64, dynamically linked
            bad   functions          stripped, and its debug file worker.debug was not found
                                     → put worker.debug next to the program, or below
                                       /usr/lib/debug
            warn  source lines       only of the Rust standard library, not of the program's
                                     code
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            warn  inlined functions  not recorded: their time counts for the enclosing
                                     function
                                     → Cargo.toml: [profile.release] debug = 1, strip =
                                       false; it costs disk, not speed
            ok    unwind tables      .eh_frame with its index
            ok    build id           ab12
        "#]],
    );
}

/// The program of this test has names and unwind tables, whether found by path or by process id.
#[test]
fn this_program_is_read() {
    let path = std::env::current_exe().unwrap();
    for program in [path.to_str().unwrap(), &std::process::id().to_string()] {
        let (file, name) = find(program).unwrap();
        assert_eq!(name, path);
        let facts = Facts::read(&file, &name).unwrap();
        assert!(
            facts.functions > 1_000 && facts.is_rust && facts.inlined,
            "{facts:?}"
        );
        assert!(
            facts.units > Some(0) && facts.library_units > 0,
            "{facts:?}"
        );
        assert!(facts.unwind_table && facts.unwind_index, "{facts:?}");
        assert_eq!(facts.linking, Linking::Dynamic);
    }
}

#[test]
fn anything_but_a_program_is_rejected() {
    for (program, part) in [
        ("/no/such/file", "no such file"),
        ("4294967295", "no readable process"),
        ("/proc/self/status", "no 64-bit ELF program"),
        ("/", "could not read /"),
    ] {
        let error = examine(program).unwrap_err().to_string();
        assert!(error.contains(program) && error.contains(part), "{error}");
    }
}
