//! `cargo xtask soak`: runs the fault simulation with many seeds, then builds the workers in every form
//! and stresses the sampler with them.

use anyhow::{Context, Result, bail};

use xtask::cargo;

/// Length.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A twentieth of the length, and only the builds that the tests need.
    #[arg(long)]
    short: bool,
    /// Number of seeds of the fault simulation [default: 6000, or 300 with --short].
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of these seeds.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Run without an agent, as a reference.
    #[arg(long)]
    unsampled: bool,
}

/// Seeds of the fault simulation.
const SEEDS: u64 = 6_000;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// One worker, in forms that the tests do not build.
const WORKER: &[&str] = &[
    "build",
    "--package",
    "emberline-tests",
    "--bin",
    "hostile-worker",
];
/// All workers, the one with another allocator too.
const WORKERS: &[&str] = &[
    "build",
    "--release",
    "--package",
    "emberline-tests",
    "--bins",
    "--features",
    "jemalloc",
];

/// Runs the soak.
///
/// # Errors
/// If a build fails or the soak finds an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    let seeds = options
        .seeds
        .unwrap_or(if options.short { SEEDS / 20 } else { SEEDS });
    let first = options.first_seed;
    crate::simulate(&[
        format!("--seeds={seeds}").into(),
        format!("--first={first}").into(),
    ])?;
    check(cargo(WORKERS))?;
    let target = xtask::target()?;
    let mut soak = std::process::Command::new(target.join("release/soak"));
    let jemalloc_path = target.join("release/hostile-worker-jemalloc");
    soak.arg("--also")
        .arg(format!("jemalloc={}", jemalloc_path.display()));
    if options.short {
        soak.arg("--short");
    } else {
        // Each form has a target directory of its own, so that the ordinary build is not replaced.
        let mut aborting = cargo(WORKER);
        aborting
            .args(["--release", "--target-dir"])
            .arg(target.join("soak-abort"));
        aborting.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
        check(aborting)?;
        let mut fixed = cargo(WORKER);
        fixed.args(["--release", "--target", TARGET, "--target-dir"]);
        fixed.arg(target.join("soak-static"));
        fixed.env("RUSTFLAGS", "-C target-feature=+crt-static");
        check(fixed)?;
        let abort_path = target.join("soak-abort/release/hostile-worker");
        let static_path = target.join(format!("soak-static/{TARGET}/release/hostile-worker"));
        soak.arg("--also")
            .arg(format!("panic=abort={}", abort_path.display()));
        soak.arg("--also")
            .arg(format!("static-pie={}", static_path.display()));
    }
    if options.unsampled {
        soak.arg("--unsampled");
    }
    check(soak)
}

fn check(mut command: std::process::Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
