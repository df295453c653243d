//! The commands of cargo's that are steps.

use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use xtask::{announce, cargo};

use super::compiler;
use super::table::Outcome;

/// The client of S3 servers. All steps select it but the build of the program that is shipped, which does not have it.
/// Only the program's own crate differs.
const S3: &str = "emberline-cli/s3";

/// A command of cargo's.
pub(super) struct CargoCommand {
    arguments: &'static [&'static str],
    /// Follow the arguments, each after `--package`.
    packages: &'static [&'static str],
    /// The component of the toolchain that it needs.
    component: Option<&'static str>,
    environment: Option<(&'static str, &'static str)>,
    /// Advice for a failure.
    advice: &'static str,
}

pub(super) const FORMAT: CargoCommand = CargoCommand {
    arguments: &["fmt", "--all", "--check"],
    packages: &[],
    component: Some("rustfmt"),
    environment: None,
    advice: "run `cargo fmt --all`",
};

/// The packages outside the workspace.
pub(super) const FORMAT_FUZZ: CargoCommand = CargoCommand {
    arguments: &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path fuzz/Cargo.toml`",
    ..FORMAT
};
pub(super) const FORMAT_PEERS: CargoCommand = CargoCommand {
    arguments: &["fmt", "--manifest-path", "xtask/peers/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path xtask/peers/Cargo.toml`",
    ..FORMAT
};

pub(super) const CLIPPY: CargoCommand = CargoCommand {
    arguments: &[
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--features",
        S3,
        "--",
        "-D",
        "warnings",
    ],
    packages: &[],
    component: Some("clippy"),
    environment: None,
    advice: "fix the warnings above",
};

/// The agent that profiles to a file, without a network.
pub(super) const CLIPPY_SMALL_AGENT: CargoCommand = CargoCommand {
    arguments: &[
        "clippy",
        "--release",
        "--package",
        "emberline-agent",
        "--no-default-features",
        "--",
        "-D",
        "warnings",
    ],
    advice: "code that only `ship` needs must be behind that feature",
    ..CLIPPY
};

pub(super) const DOC: CargoCommand = CargoCommand {
    arguments: &["doc", "--release", "--workspace", "--no-deps", "--features", S3],
    packages: &[],
    component: None,
    environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    advice: "fix the warnings above",
};

/// The crates that a user's program depends on.
pub(super) const PUBLISHED: [&str; 4] =
    ["emberline-profiler-core", "emberline-symbols", "emberline-tls", "emberline-agent"];

/// Removes what [`PACKAGE`] compiled before. Cargo takes a version of a package for unchangeable.
pub(super) const CLEAN_PACKAGES: CargoCommand = CargoCommand {
    arguments: &["clean", "--quiet", "--profile", "dev"],
    packages: &PUBLISHED,
    component: None,
    environment: None,
    advice: "the folder `target` must be writable",
};

/// Packages of [`PUBLISHED`].
pub(super) const PACKAGE: CargoCommand = CargoCommand {
    arguments: &["package", "--allow-dirty"],
    // cargo builds packages in the dev profile: without debug information it takes half as long.
    environment: Some(("CARGO_PROFILE_DEV_DEBUG", "0")),
    advice: "a published crate needs metadata, files and dependencies of its own",
    ..CLEAN_PACKAGES
};

/// Without advisories, whose list must be downloaded: the hosted workflow checks them.
pub(super) const DENY: CargoCommand = CargoCommand {
    arguments: &["deny", "check", "bans", "licenses", "sources"],
    packages: &[],
    component: None,
    environment: None,
    advice: "see deny.toml",
};

/// Whole-system tests run the binary. All targets at once, so that dependencies have the features
/// that the tests need: the binary alone needs fewer, and 61 crates would be compiled twice, among
/// them the largest.
pub(super) const BUILD: CargoCommand = CargoCommand {
    arguments: &["build", "--release", "--workspace", "--all-targets", "--features", S3],
    packages: &[],
    component: None,
    environment: None,
    advice: "fix the errors above",
};

/// All but the tests of `SYSTEM` and `SIMULATION`, which are excluded by the first letters of their files.
pub(super) const TEST: CargoCommand = CargoCommand {
    arguments: &[
        "test",
        "--release",
        "--workspace",
        "--features",
        S3,
        "--lib",
        "--bins",
        "--test=[!s]*",
        "--test=s[!ey]*",
    ],
    packages: &[],
    component: None,
    environment: None,
    advice: "the failing tests are named above",
};

pub(super) const TEST_DOC: CargoCommand = CargoCommand {
    arguments: &["test", "--release", "--workspace", "--features", S3, "--doc"],
    ..TEST
};

/// Tests whose figures or deadlines depend on the machine take turns. Without a third thread, two of them
/// would often wait for each other while all others wait for both.
pub(super) const SYSTEM: CargoCommand = CargoCommand {
    arguments: &[
        "test",
        "--release",
        "--workspace",
        "--features",
        S3,
        "--test=system",
        "--",
        "--test-threads=3",
    ],
    ..TEST
};

pub(super) const SIMULATION: CargoCommand = CargoCommand {
    arguments: &["test", "--release", "--workspace", "--features", S3, "--test=seeds"],
    ..TEST
};

/// The program as it is shipped. An example among the targets selects the features of dependencies that tests
/// need, so that no crate but the program's own is compiled again.
pub(super) const BUILD_SHIPPED: CargoCommand = CargoCommand {
    arguments: &[
        "build",
        "--release",
        "--workspace",
        "--bin",
        "emberline",
        "--example",
        "async_tasks",
    ],
    ..BUILD
};

/// Without the tests of whole systems, of simulated crashes, and those that sample for 10 s or more. They
/// are excluded by the first letter of their file. Their packages are not excluded, because dependencies
/// would then have other features and be compiled again.
pub(super) const TEST_QUICK: CargoCommand = CargoCommand {
    arguments: &[
        "test",
        "--release",
        "--workspace",
        "--features",
        S3,
        "--lib",
        "--bins",
        "--test=[!agmsw]*",
        "--test=memory",
        "--",
        // The longest unit tests, which take more than half of the time of all.
        "--skip=a_crash_at_any_point_leaves_a_whole_version",
        "--skip=a_million_names_and_stacks_sum_exactly",
        "--skip=every_tier_has_the_sealed_data_also_after_a_restart",
        "--skip=files_of_a_damaged_version_are_kept_for_a_month_or_until_it_is_deleted",
        "--skip=merging_keeps_all_sums_and_leaves_one_file_a_partition",
        "--skip=the_newest_tasks_are_those_of_a_full_scan",
    ],
    ..TEST
};

impl CargoCommand {
    /// # Errors
    /// If it fails; says what to do.
    pub(super) fn run(&self) -> Result<Outcome> {
        announce(&self.text());
        if let Some(component) = self.component {
            check_component(self.arguments[0], component)?;
        }
        let mut command = cargo(self.arguments);
        command.args(self.package_options());
        command.envs(self.environment);
        if matches!(self.arguments[0], "build" | "test") {
            compiler::compile_unit_tests_fast(&mut command);
        }
        let status = command.status().with_context(|| format!("starting `{}`", self.text()))?;
        self.judge(status)
    }

    fn judge(&self, status: ExitStatus) -> Result<Outcome> {
        if status.success() {
            return Ok(Outcome::Passed);
        }
        bail!("`{}` failed ({status}): {}", self.text(), self.advice)
    }

    /// Returns the command line, as a person would type it.
    fn text(&self) -> String {
        let environment = self.environment.map(|(name, value)| format!("{name}=\"{value}\" "));
        let arguments: Vec<&str> =
            self.arguments.iter().copied().chain(self.package_options()).collect();
        format!("{}cargo {}", environment.unwrap_or_default(), arguments.join(" "))
    }

    fn package_options(&self) -> impl Iterator<Item = &'static str> {
        self.packages.iter().flat_map(|package| ["--package", package])
    }
}

/// Whether cargo has a subcommand, which may be a component or a program in the path.
pub(super) fn has_subcommand(name: &str) -> Result<bool> {
    let probe = cargo(&[name, "--version"]).output().context("starting cargo")?;
    Ok(probe.status.success())
}

/// Names the command that installs a missing component, which cargo does only with rustup.
fn check_component(subcommand: &str, component: &str) -> Result<()> {
    if !has_subcommand(subcommand)? {
        bail!(
            "`cargo {subcommand}` is not installed: run `rustup component add {component}`, or \
             leave the step out with `cargo xtask test --skip STEP`"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_missing_component_is_named_with_the_way_to_get_it() {
        let error = check_component("no-such-command", "rustfmt").unwrap_err();
        assert!(error.to_string().contains("rustup component add rustfmt"), "{error}");
    }

    #[test]
    fn a_failing_step_is_named_with_its_command_and_advice() {
        let failed = ExitStatus::from_raw(101 << 8);
        let error = FORMAT.judge(failed).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            error,
            "`cargo fmt --all --check` failed (exit status: 101): run `cargo fmt --all`"
        );
        assert!(FORMAT.judge(ExitStatus::default()).is_ok());
    }
}
