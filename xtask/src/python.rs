//! The step `python` of `cargo xtask test`: the Python package, built once and tested with every CPython that this
//! machine has, against a real collector; then with the frameworks that it has hooks for. It is no part of the short form:
//! PyO3 is compiled for it alone.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::{announce, cargo, root};

use crate::packages;

/// Apart from the other builds: a workspace of its own.
const TARGET_FOLDER: &str = "target/python";

const MANIFEST: &str = "--manifest-path=python/Cargo.toml";

const COMMANDS: [&[&str]; 2] = [
    &["fmt", MANIFEST, "--all", "--check"],
    &[
        "clippy",
        "--release",
        MANIFEST,
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ],
];

/// Minor versions of CPython 3 that are tested.
const VERSIONS: std::ops::RangeInclusive<u32> = 9..=14;

/// Frameworks that the package has hooks for, with what their tests compute.
const FRAMEWORKS: [&str; 9] = [
    "dask[array,distributed]==2026.8.0",
    "celery[redis]==5.7.0",
    "eventlet==0.41.3",
    "gevent==26.9.0",
    "ipython>=8",
    "joblib==1.6.0",
    "prefect==3.9.1",
    "ray==2.60.0",
    "rq==3.0.0",
];

/// The broker of the tests of Celery and RQ, which are skipped without it.
pub(crate) const REDIS: &str = "redis-server";

/// Builds and tests with the program `collector`. Returns which versions this machine lacks.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run(collector: &Path) -> Result<Option<String>> {
    for arguments in COMMANDS {
        announce(&format!("cargo {}", arguments.join(" ")));
        let status = cargo(arguments)
            .env("CARGO_TARGET_DIR", root().join(TARGET_FOLDER))
            .status()
            .context("starting cargo")?;
        if !status.success() {
            bail!("cargo {} failed", arguments[0]);
        }
    }
    let mut wheel = None;
    let mut missing = Vec::new();
    for minor in VERSIONS {
        let interpreters = interpreters(minor);
        if interpreters.is_empty() {
            missing.push(format!("CPython 3.{minor}"));
        }
        for (number, interpreter) in interpreters.iter().enumerate() {
            let wheel = match &wheel {
                Some(wheel) => wheel,
                None => wheel.insert(build_wheel(interpreter, collector)?),
            };
            let environment = format!("venv-3.{minor}-{number}");
            test_with(interpreter, &environment, wheel, collector)?;
        }
    }
    let Some(wheel) = wheel else {
        return Ok(Some("no CPython was found".into()));
    };
    if let Err(error) = test_frameworks(&wheel, collector)? {
        missing.push(format!(
            "Dask, Celery, Prefect, RQ, Ray, joblib and IPython ({error:#})"
        ));
    }
    if Command::new(REDIS).arg("--version").output().is_err() {
        missing.push(REDIS.into());
    }
    let without = missing.join(", ");
    Ok((!missing.is_empty()).then(|| format!("only without {without}: not on this machine")))
}

/// The interpreters of this version, from pyenv and the path: some have the interpreter in a library, as pyenv builds it,
/// and some in the program, as Debian does.
fn interpreters(minor: u32) -> Vec<PathBuf> {
    let name = format!("python3.{minor}");
    let mut folders: Vec<PathBuf> = Vec::new();
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".pyenv")));
    if let Some(versions) = pyenv.and_then(|pyenv| fs::read_dir(pyenv.join("versions")).ok()) {
        let of_minor = format!("3.{minor}.");
        let versions = versions
            .flatten()
            .filter(|version| version.file_name().to_string_lossy().starts_with(&of_minor));
        folders.extend(versions.map(|version| version.path().join("bin")));
    }
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut programs: Vec<PathBuf> = folders
        .into_iter()
        // pyenv's own programs choose a version by the folder.
        .filter(|folder| !folder.ends_with("shims"))
        .filter_map(|folder| fs::canonicalize(folder.join(&name)).ok())
        .collect();
    programs.sort();
    programs.dedup();
    programs
}

/// Builds the wheel, which serves every version, with the program `collector`.
fn build_wheel(interpreter: &Path, collector: &Path) -> Result<PathBuf> {
    let folder = root().join(TARGET_FOLDER).join("wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the old wheel")?;
    }
    run_program(
        Command::new(interpreter)
            .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"])
            .arg(&folder)
            .arg(root().join("python"))
            .env("EMBERLINE_PROGRAM", collector)
            .env("CARGO_TARGET_DIR", root().join(TARGET_FOLDER)),
    )?;
    let mut files = fs::read_dir(&folder)
        .context("listing the wheel")?
        .flatten();
    let wheel = files.next().context("pip made no wheel")?;
    Ok(wheel.path())
}

/// Installs the wheel in an environment of its own and runs the tests there.
fn test_with(interpreter: &Path, environment: &str, wheel: &Path, collector: &Path) -> Result<()> {
    let environment = root().join(TARGET_FOLDER).join(environment);
    let python = environment.join("bin/python");
    run_program(
        Command::new(interpreter)
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
    )?;
    run_program(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"])
            .arg(wheel),
    )?;
    run_program(
        Command::new(&python)
            .args(["-m", "unittest", "discover", "--start-directory"])
            .arg(root().join("python/tests"))
            .env("EMBERLINE_PROGRAM", collector),
    )
}

/// Installs the frameworks, once, and the wheel, and runs their tests. The inner error is why they cannot be installed.
fn test_frameworks(wheel: &Path, collector: &Path) -> Result<Result<()>> {
    let environment = root().join(TARGET_FOLDER).join("frameworks");
    let python = match packages::python(&environment, &FRAMEWORKS) {
        Ok(python) => python,
        Err(error) => return Ok(Err(error)),
    };
    run_program(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-index"])
            .args(["--no-deps", "--force-reinstall"])
            .arg(wheel),
    )?;
    let tests = root().join("python/tests");
    run_program(
        Command::new(&python)
            .args(["-m", "unittest", "discover", "--start-directory"])
            .arg(tests.join("frameworks"))
            .env("PYTHONPATH", &tests)
            .env("EMBERLINE_PROGRAM", collector),
    )?;
    Ok(Ok(()))
}

fn run_program(command: &mut Command) -> Result<()> {
    announce(&format!("{command:?}"));
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}
