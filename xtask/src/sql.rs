//! The steps `sql` and `cluster` of `cargo xtask test`: the program `emberline-sql`, its lints and unit tests, and the
//! tests of whole systems that need it; and those that need Ballista. They are no part of the short form, because they
//! compile 150 crates more, and 250 more.

use std::env;
use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};
use xtask::{TEST_BUILD, announce, ballista, bench_cargo, cargo, root, test_programs};

/// Apart from the other builds, whose dependencies have fewer features.
const TARGET_FOLDER: &str = "target/sql";

/// The crate is a workspace of its own.
const MANIFEST: &str = "--manifest-path=sql/Cargo.toml";

const COMMANDS: [&[&str]; 4] = [
    &["fmt", MANIFEST, "--check"],
    &["build", "--release", MANIFEST],
    &[
        "clippy",
        "--release",
        MANIFEST,
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ],
    &["test", "--release", MANIFEST],
];

/// The tests of whole systems, built as in the step `test`.
const SYSTEM_TESTS: &[&str] = &["--test=system", "stores::sql::"];

/// Names the program that tests of whole systems run.
const PROGRAM_VARIABLE: &str = "EMBERLINE_TEST_PROGRAM";

/// Builds and tests.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run() -> Result<()> {
    for arguments in COMMANDS {
        // The optimizer takes most of the time, and the tests do not need it.
        let environment = [
            ("CARGO_TARGET_DIR", TARGET_FOLDER),
            ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
        ];
        run_cargo(
            arguments,
            &environment.map(|(name, value)| (name, value.as_ref())),
        )?;
    }
    let emberline = test_programs()?.emberline;
    let path = path_with_sql()?;
    test_systems(
        SYSTEM_TESTS,
        &[(PROGRAM_VARIABLE, emberline.as_os_str()), ("PATH", &path)],
    )
}

/// `PATH`, in which `emberline` finds the program.
fn path_with_sql() -> Result<OsString> {
    let folder = root().join(TARGET_FOLDER).join("release");
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(
        [folder].into_iter().chain(env::split_paths(&path)),
    )?)
}

/// The tests of Ballista clusters and of `cargo xtask cluster`.
const CLUSTER_TESTS: &[&str] = &["--test=system", "stores::sql_cluster::"];

/// Names the folder with the programs of Ballista for these tests.
const BALLISTA_VARIABLE: &str = "EMBERLINE_TEST_BALLISTA";

/// Builds the programs of a cluster, and tests with them.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run_cluster() -> Result<()> {
    let emberline = ballista::emberline()?;
    let programs = ballista::programs()?;
    // The tests start `emberline-bench`, which is next to them.
    announce("cargo build, of emberline-bench");
    let status =
        bench_cargo("build", &["--profile=light", "--package=emberline-bench"])?.status()?;
    if !status.success() {
        bail!("building emberline-bench failed ({status})");
    }
    let environment = [
        (PROGRAM_VARIABLE, emberline.as_os_str()),
        (BALLISTA_VARIABLE, programs.as_os_str()),
    ];
    test_systems(CLUSTER_TESTS, &environment)
}

fn test_systems(tests: &[&str], environment: &[(&str, &OsStr)]) -> Result<()> {
    run_cargo(&[&["test"], &TEST_BUILD[..], tests].concat(), environment)
}

fn run_cargo(arguments: &[&str], environment: &[(&str, &OsStr)]) -> Result<()> {
    let text = format!("cargo {}", arguments.join(" "));
    announce(&text);
    let status = cargo(arguments)
        .envs(environment.iter().copied())
        .status()?;
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}
