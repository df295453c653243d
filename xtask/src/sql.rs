//! The steps `sql` and `cluster` of `cargo xtask test`: a program with the feature `sql`, its lints and unit tests, and
//! the tests of whole systems that need it; and those that need Ballista. They are no part of the short form,
//! because they compile 150 crates more, and 250 more.

use anyhow::{Result, bail};
use xtask::{TEST_BUILD, announce, ballista, cargo, root};

/// Apart from the other builds, whose dependencies have fewer features.
const TARGET_FOLDER: &str = "target/sql";

const COMMANDS: [&[&str]; 3] = [
    &["build", "--release", "--package=emberline-cli", "--features=s3,sql"],
    &[
        "clippy",
        "--release",
        "--package=emberline-cli",
        "--all-targets",
        "--features=s3,sql",
        "--",
        "-D",
        "warnings",
    ],
    &[
        "test",
        "--release",
        "--package=emberline-cli",
        "--features=s3,sql",
        "--bin=emberline",
        "sql",
    ],
];

/// The tests of whole systems, built as in the step `test`.
const SYSTEM_TESTS: &[&str] = &["--test=system", "sql::"];

/// Names the program that tests of whole systems run.
const PROGRAM_VARIABLE: &str = "EMBERLINE_TEST_PROGRAM";

/// Builds and tests.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run() -> Result<()> {
    for arguments in COMMANDS {
        // The optimizer takes most of the time, and the tests do not need it.
        let environment =
            [("CARGO_TARGET_DIR", TARGET_FOLDER), ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")];
        run_cargo(arguments, &environment)?;
    }
    let program = root().join(TARGET_FOLDER).join("release/emberline");
    test_systems(SYSTEM_TESTS, &[(PROGRAM_VARIABLE, &program.display().to_string())])
}

/// The tests of Ballista clusters and of `cargo xtask cluster`.
const CLUSTER_TESTS: &[&str] = &["--test=system", "sql_cluster::"];

/// Names the folder with the programs of Ballista for these tests.
const BALLISTA_VARIABLE: &str = "EMBERLINE_TEST_BALLISTA";

/// Builds the programs of a cluster, and tests with them.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run_cluster() -> Result<()> {
    let emberline = ballista::emberline()?.display().to_string();
    let programs = ballista::programs()?.display().to_string();
    // The tests start `emberline-bench`, which is next to them.
    run_cargo(
        &[
            "build",
            "--profile=light",
            "--workspace",
            "--all-targets",
            "--features=emberline-cli/s3",
        ],
        &[],
    )?;
    let environment = [(PROGRAM_VARIABLE, &*emberline), (BALLISTA_VARIABLE, &*programs)];
    test_systems(CLUSTER_TESTS, &environment)
}

fn test_systems(tests: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    run_cargo(&[&["test"], &TEST_BUILD[..], tests].concat(), environment)
}

fn run_cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let text = format!("cargo {}", arguments.join(" "));
    announce(&text);
    let status = cargo(arguments).envs(environment.iter().copied()).status()?;
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}
