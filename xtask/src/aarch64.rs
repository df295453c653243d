//! The step `aarch64` of `cargo xtask test --all`: a cross build, and the agent's tests under emulation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use xtask::{announce, cargo};

pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";
pub(crate) const LINKER: &str = "aarch64-linux-gnu-gcc";
pub(crate) const EMULATOR: &str = "qemu-aarch64";
/// The emulator's arguments: a processor with pointer authentication, and the C library of the
/// compiler's packages.
const EMULATED: &str = "-cpu max -L /usr/aarch64-linux-gnu";

/// The agent's tests of what differs between processors, two of whole agents with real timers and
/// signals, and those of the formats. Under emulation others depend on how fast it is; `docs/design/sampling.md` says what passed.
const COMMANDS: [&[&str]; 4] = [
    &["build", "--package=emberline-cli", "--target", TARGET],
    &[
        "test",
        "--package=emberline-agent",
        "--lib",
        "--target",
        TARGET,
        "--",
        "processor",
        "unwind",
        "differential",
        // The emulator has no `process_vm_readv`.
        "--skip",
        "unmapped_memory_is_not_read_and_errno_stays",
    ],
    &[
        "test",
        "--package=emberline-agent",
        "--test=pools",
        "--test=poll_path",
        "--target",
        TARGET,
    ],
    // Random histories: compiled with optimization and with fewer cases they take 11 s of CPU time.
    &[
        "test",
        "--config=profile.dev.opt-level=1",
        "--config=env.PROPTEST_CASES=\"16\"",
        "--package=emberline-flamegraph",
        "--package=emberline-import",
        "--lib",
        "--target",
        TARGET,
    ],
];

/// Builds `emberline` for aarch64 and runs tests of the agent. Returns what is missing, if anything, and
/// the command that installs it.
///
/// # Errors
/// If the build or a test fails.
pub(crate) fn run() -> Result<Option<String>> {
    if let Some(missing) = missing()? {
        return Ok(Some(missing));
    }
    for arguments in COMMANDS {
        cargo_for_target(arguments)?;
    }
    Ok(None)
}

fn cargo_for_target(arguments: &[&str]) -> Result<()> {
    // Compiled for emulation, where nothing is fast: without debug information the build is faster.
    let environment = [
        (
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            LINKER.to_owned(),
        ),
        (
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{EMULATOR} {EMULATED}"),
        ),
        (
            "CXX_aarch64_unknown_linux_gnu",
            "aarch64-linux-gnu-g++".to_owned(),
        ),
        ("CARGO_PROFILE_DEV_DEBUG", "0".to_owned()),
        // Of the comparison with libgcc's unwinder, for each workload.
        ("SAMPLES", "100".to_owned()),
    ];
    let text = format!("cargo {}", arguments.join(" "));
    announce(&text);
    let status = cargo(arguments).envs(environment).status()?;
    if !status.success() {
        bail!("`{text}` failed ({status}) for aarch64; CONTRIBUTING.md has the environment");
    }
    Ok(())
}

/// Returns a requirement of the step that this machine lacks, with the command that installs it.
fn missing() -> Result<Option<String>> {
    let programs = [LINKER, "aarch64-linux-gnu-g++", EMULATOR];
    if let Some(program) = programs.into_iter().find(|program| find(program).is_none()) {
        let install = "apt-get install qemu-user g++-aarch64-linux-gnu";
        return Ok(Some(format!("no {program}: {install}")));
    }
    Ok((!has_target()?).then(|| format!("no {TARGET}: rustup target add {TARGET}")))
}

/// Whether the compiler has a standard library for the target.
///
/// # Errors
/// If there is no compiler.
pub(crate) fn has_target() -> Result<bool> {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = rustc.context("starting rustc")?.stdout;
    let sysroot = String::from_utf8(sysroot)?;
    Ok(Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(TARGET)
        .exists())
}

/// The path of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
}
