//! Shows what each rule finds, on small sources and on a small tree of files.

use expect_test::{Expect, expect};

use super::*;
use crate::proto;

fn check_source(path: &str, text: &str, expected: Expect) {
    expected.assert_eq(&printed(&source::check(path, text)));
}

#[test]
fn unsafe_lives_in_the_samplers_system_module_only() {
    let code = "fn f() {\n    unsafe { g() }\n}";
    check_source("agent/src/sampler/sys.rs", code, expect![""]);
    check_source("agent/src/sampler/sys/x86_64.rs", code, expect![""]);
    check_source(
        "agent/src/sampler/system.rs",
        code,
        expect![[r#"
        agent/src/sampler/system.rs:2: `unsafe` belongs in agent/src/sampler/sys, tests/src/hostile/sys only [unsafe]
    "#]],
    );
}

#[test]
fn comments_strings_and_lints_are_not_code() {
    let code = "//! unsafe\n#![deny(unsafe_code)]\n/* unsafe /* inferno:: */ */\nconst A: &str = \
                \"unsafe inferno::x\";\nconst B: char = '\"'; // axum::\nconst C: &str = r#\"dbg!(\"#;";
    check_source("collector/src/lib.rs", code, expect![""]);
}

#[test]
fn protocols_signals_and_formats_have_a_home() {
    let code = "use tonic::Status;\nuse ::axum::Router;";
    check_source("collector/src/serve/http.rs", code, expect![""]);
    check_source("cli/src/main.rs", code, expect![""]);
    check_source(
        "collector/src/store.rs",
        code,
        expect![[r#"
        collector/src/store.rs:1: `tonic::` belongs in collector/src/serve only [protocols]
        collector/src/store.rs:2: `axum::` belongs in collector/src/serve only [protocols]
    "#]],
    );
    let code = "use nix::sys::signal::SigSet;";
    check_source("cli/src/main.rs", code, expect![""]);
    let ours = "use super::sys::signal::Ticket;";
    check_source("agent/src/sampler/look.rs", ours, expect![""]);
    check_source("agent/src/sampler/sys/mask.rs", code, expect![""]);
    check_source(
        "agent/src/folder.rs",
        code,
        expect![[r#"
            agent/src/folder.rs:1: `SigSet` belongs in agent/src/sampler/sys only [signals]
            agent/src/folder.rs:1: `nix::sys::signal` belongs in agent/src/sampler/sys only [signals]
        "#]],
    );
    check_source("flamegraph/src/svg.rs", "use inferno::flamegraph;", expect![""]);
    check_source(
        "cli/src/svg.rs",
        "use inferno::flamegraph;",
        expect![[r#"
        cli/src/svg.rs:1: `inferno::` belongs in flamegraph only [inferno]
    "#]],
    );
    check_source(
        "profiler-core/src/time.rs",
        "use std::time::Instant;",
        expect![[r#"
        profiler-core/src/time.rs:1: `Instant` does not belong in profiler-core/src [plain-values]
    "#]],
    );
}

#[test]
fn long_files_are_found_and_generated_ones_are_not() {
    check_source("cli/src/main.rs", &"\n".repeat(600), expect![""]);
    check_source(
        "cli/src/main.rs",
        &"\n".repeat(601),
        expect![[r#"
        cli/src/main.rs: has 601 lines; at most 600 are allowed [length]
    "#]],
    );
    check_source(proto::GENERATED_PATHS[0], &"\n".repeat(9_000), expect![""]);
    check_source("tests/golden/profile.svg", &"\n".repeat(9_000), expect![""]);
}

#[test]
fn unfinished_work_is_found_in_code_and_comments() {
    let code = "// TODO: later\nfn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() {\n    \
                dbg!(1);\n}\n/// ```ignore\nfn h() {}";
    check_source(
        "cli/src/main.rs",
        code,
        expect![[r#"
            cli/src/main.rs:1: `TODO` must not stay [unfinished]
            cli/src/main.rs:9: ````ignore` must not stay [unfinished]
            cli/src/main.rs:3: `todo!` must not stay [unfinished]
            cli/src/main.rs:7: `dbg!` must not stay [unfinished]
            cli/src/main.rs:5: `#[ignore` must not stay [unfinished]
        "#]],
    );
    check_source(
        "collector/ui/src/app.tsx",
        "// FIXME",
        expect![[r#"
        collector/ui/src/app.tsx:1: `FIXME` must not stay [unfinished]
    "#]],
    );
}

#[test]
fn tests_do_not_sleep_but_programs_may() {
    let code = "fn pause() {\n    thread::sleep(second);\n}\n#[cfg(test)]\nmod tests {\n    fn f() {\n        \
                std::thread::sleep(second);\n    }\n}\nfn again() { thread::sleep(second); }\n\
                #[cfg(test)]\nuse a::b;\nfn more() { thread::sleep(second); }\n#[test]\nfn t() { \
                thread::sleep(second); }";
    check_source(
        "agent/src/lib.rs",
        code,
        expect![[r#"
        agent/src/lib.rs:7: a test must wait for what it waits for, not sleep [sleep]
        agent/src/lib.rs:15: a test must wait for what it waits for, not sleep [sleep]
    "#]],
    );
    let code = "fn f() { thread::sleep(second); }";
    check_source("examples/examples/work.rs", code, expect![""]);
    for path in ["tests/src/lib.rs", "agent/tests/signals.rs", "agent/src/task/tests.rs"] {
        assert_eq!(source::check(path, code).len(), 1, "{path}");
    }
}

#[test]
fn what_is_not_rust_is_found() {
    check_source(
        "cli/src/main.rs",
        "fn f() {\n    (]\n}",
        expect![[r#"
            cli/src/main.rs:2: is not Rust from here [syntax]
        "#]],
    );
}

#[test]
fn links_must_lead_to_files() {
    let text = "[a](ARCHITECTURE.md) [b](../README.md#top) [c](https://example.org/x.md) [d](#here)\n\
                ![e](images/page.png \"title\") `[f](code.md)`\n```\n[g](code.md)\n```\n[h]: /gone.md\n\
                <img src=\"lost.svg\"> [i](../../secret.md)";
    let there = ["docs/ARCHITECTURE.md", "README.md"];
    let findings = markdown::check_links("docs/GUIDE.md", text, |path| there.contains(&path));
    expect![[r#"
        docs/GUIDE.md:2: links to `images/page.png`, which does not exist [links]
        docs/GUIDE.md:6: links to `/gone.md`, which does not exist [links]
        docs/GUIDE.md:7: links to `../../secret.md`, which does not exist [links]
        docs/GUIDE.md:7: links to `lost.svg`, which does not exist [links]
    "#]]
    .assert_eq(&printed(&findings));
}

#[test]
fn the_readme_needs_two_commands_and_no_third() {
    let check = |text: &str, expected: Expect| {
        expected.assert_eq(&printed(&markdown::check_readme(text)));
    };
    let good = "# E\n```text\na picture\n```\n## Try\n```sh\ngit clone x\n$ cargo run --release -- \
                demo  # opens\n# more\ncargo xtask test\n```\nand\n```sh\nemberline workers\n```";
    check(good, expect![""]);
    check(
        "# E\n```sh\nnpm ci\ncargo xtask test\n```",
        expect![[r#"
            README.md: the first block of commands lacks `cargo run --release -- demo` [readme]
            README.md: `npm ci` is a third command to set up; two must do [readme]
        "#]],
    );
}

#[test]
fn what_is_allowed_passes_and_an_idle_allowance_does_not() {
    let allowed = |path| Allowed { rule: "sleep", path, reason: "it shows a wait" };
    let finding =
        |path: &str| Finding { rule: "sleep", path: path.into(), line: 1, text: "x".into() };
    let findings = vec![finding("tests/src/a.rs"), finding("tests/src/ab.rs")];
    let rest = without_allowed(findings, &[allowed("tests/src/a.rs"), allowed("cli")]);
    expect![[r#"
        tests/src/ab.rs:1: x [sleep]
        cli: is allowed (it shows a wait) and need not be [sleep]
    "#]]
    .assert_eq(&printed(&rest));
}

/// Shows that a tree is read whole, but for folders that hold nothing of ours.
#[test]
fn a_tree_is_read_whole() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &[u8]| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("README.md", b"[guide](docs/GUIDE.md) [lost](docs/LOST.md)");
    write("docs/GUIDE.md", b"[back](../README.md)");
    write("cli/src/deep/er.rs", b"fn f() { unsafe {} }");
    write("collector/ui/node_modules/x/index.js", b"// TODO");
    write("target/x.rs", b"fn f() { unsafe {} }");
    write("tests/golden/noise.rs", &[0xff, 0xfe]);
    expect![[r#"
        README.md:1: links to `docs/LOST.md`, which does not exist [links]
        README.md: the first block of commands lacks `cargo run --release -- demo` [readme]
        README.md: the first block of commands lacks `cargo xtask test` [readme]
        cli/src/deep/er.rs:1: `unsafe` belongs in agent/src/sampler/sys, tests/src/hostile/sys only [unsafe]
    "#]]
    .assert_eq(&printed(&check_files(root.path()).unwrap()));
}
