//! The commands of cargo's that are steps.

use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use xtask::{BENCH_MANIFEST, TARGET_VARIABLE, TEST_BUILD, announce, cargo, target};

use super::table::Outcome;

/// A command of cargo's.
pub(super) struct CargoCommand {
    subcommand: &'static str,
    scope: Scope,
    /// Follow those of the scope.
    arguments: &'static [&'static str],
    /// Follow the arguments, each after `--package`.
    packages: &'static [&'static str],
    /// Follow `--`: for the tests or the compiler that cargo runs.
    inner_arguments: &'static [&'static str],
    /// The component of the toolchain that it needs.
    component: Option<&'static str>,
    environment: &'static [(&'static str, &'static str)],
    /// Advice for a failure.
    advice: &'static str,
}

/// The crates that a command is for, and so the profile and the features of their dependencies: those of one
/// scope share what is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// As the arguments say.
    Named,
    /// The features of dependencies are those of the whole workspace.
    Workspace,
    /// The workspace of the benchmarks.
    Bench,
}

impl Scope {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Scope::Named => &[],
            Scope::Workspace => &TEST_BUILD,
            Scope::Bench => &[BENCH_MANIFEST, "--profile=light", "--workspace"],
        }
    }
}

pub(super) const FORMAT: CargoCommand = CargoCommand {
    subcommand: "fmt",
    scope: Scope::Named,
    arguments: &["--all", "--check"],
    packages: &[],
    inner_arguments: &[],
    component: Some("rustfmt"),
    environment: &[],
    advice: "run `cargo fmt --all`",
};

/// The packages outside the workspace.
pub(super) const FORMAT_FUZZ: CargoCommand = CargoCommand {
    arguments: &["--manifest-path", "fuzz/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path fuzz/Cargo.toml`",
    ..FORMAT
};
pub(super) const FORMAT_BENCH: CargoCommand = CargoCommand {
    arguments: &[BENCH_MANIFEST, "--check"],
    packages: &["emberline-bench", "emberline-load"],
    advice: "run `cargo fmt` in xtask/bench",
    ..FORMAT
};
pub(super) const FORMAT_PEERS: CargoCommand = CargoCommand {
    arguments: &["--manifest-path", "xtask/peers/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path xtask/peers/Cargo.toml`",
    ..FORMAT
};

pub(super) const CLIPPY: CargoCommand = CargoCommand {
    subcommand: "clippy",
    scope: Scope::Workspace,
    arguments: &["--all-targets"],
    packages: &[],
    inner_arguments: &["-D", "warnings"],
    component: Some("clippy"),
    environment: &[],
    advice: "fix the warnings above",
};

/// The agent that profiles to a file, without a network.
pub(super) const CLIPPY_SMALL_AGENT: CargoCommand = CargoCommand {
    scope: Scope::Named,
    arguments: &[
        "--profile=light",
        "--package=emberline-agent",
        "--no-default-features",
    ],
    advice: "code that only `ship` needs must be behind that feature",
    ..CLIPPY
};

pub(super) const DOC: CargoCommand = CargoCommand {
    subcommand: "doc",
    scope: Scope::Workspace,
    arguments: &["--no-deps"],
    packages: &[],
    inner_arguments: &[],
    component: None,
    // Most crates are read with their sources: their summaries name private modules.
    environment: &[(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links",
    )],
    advice: "fix the warnings above",
};

/// The crates that a user's program depends on.
pub(super) const PUBLISHED: [&str; 8] = [
    "emberline-profiler-core",
    "emberline-symbols",
    "emberline-tls",
    "emberline-system",
    "emberline-symbolize",
    "emberline-ship",
    "emberline-agent",
    "emberline-diagnostics",
];

/// Removes what [`PACKAGE`] compiled before. Cargo takes a version of a package for unchangeable.
pub(super) const CLEAN_PACKAGES: CargoCommand = CargoCommand {
    subcommand: "clean",
    scope: Scope::Named,
    arguments: &["--quiet", "--profile", "dev"],
    packages: &PUBLISHED,
    inner_arguments: &[],
    component: None,
    environment: &[],
    advice: "the folder `target` must be writable",
};

/// Packages of [`PUBLISHED`].
pub(super) const PACKAGE: CargoCommand = CargoCommand {
    subcommand: "package",
    arguments: &["--allow-dirty"],
    // cargo builds packages in the dev profile: without debug information it takes half as long.
    environment: &[("CARGO_PROFILE_DEV_DEBUG", "0")],
    advice: "a published crate needs metadata, files and dependencies of its own",
    ..CLEAN_PACKAGES
};

/// Without advisories, whose list must be downloaded: the hosted workflow checks them.
pub(super) const DENY: CargoCommand = CargoCommand {
    subcommand: "deny",
    scope: Scope::Named,
    arguments: &["check", "bans", "licenses", "sources"],
    packages: &[],
    inner_arguments: &[],
    component: None,
    environment: &[],
    advice: "see deny.toml",
};

/// Programs, tests and examples. All at once, so that dependencies have the features that tests need: the
/// program alone needs fewer, and 61 crates would be compiled twice, among them the largest.
pub(super) const BUILD: CargoCommand = CargoCommand {
    subcommand: "build",
    scope: Scope::Workspace,
    arguments: &["--all-targets"],
    packages: &[],
    inner_arguments: &[],
    component: None,
    environment: &[],
    advice: "fix the errors above",
};

/// All but the tests of [`SYSTEM`] and [`SIMULATION`], which are excluded by the first letters of their files.
pub(super) const TEST_ALL: CargoCommand = CargoCommand {
    subcommand: "test",
    arguments: &["--lib", "--bins", "--test=[!s]*", "--test=s[!ey]*"],
    inner_arguments: &["--include-ignored"],
    advice: "the failing tests are named above",
    ..BUILD
};

/// The same with fewer random cases, and without the tests that are marked as long.
pub(super) const TEST: CargoCommand = CargoCommand {
    environment: &[("PROPTEST_CASES", "16")],
    inner_arguments: &[],
    ..TEST_ALL
};

/// Also without the tests of simulated crashes, and those that sample for 10 s or more, which are excluded by the
/// first letter of their file. Their packages are not excluded, because dependencies would then have other
/// features and be compiled again.
pub(super) const TEST_QUICK: CargoCommand = CargoCommand {
    arguments: &["--lib", "--bins", "--test=[!agmsw]*", "--test=memory"],
    ..TEST
};

pub(super) const TEST_DOC: CargoCommand = CargoCommand {
    arguments: &["--doc"],
    ..TEST_ALL
};

/// Tests whose figures or deadlines depend on the machine take turns, so most of the four threads may wait for one.
pub(super) const SYSTEM_ALL: CargoCommand = CargoCommand {
    arguments: &["--test=system"],
    inner_arguments: &["--test-threads=4", "--include-ignored"],
    ..TEST_ALL
};

/// The same without the tests that are marked as long.
pub(super) const SYSTEM: CargoCommand = CargoCommand {
    inner_arguments: &["--test-threads=4"],
    ..SYSTEM_ALL
};

pub(super) const SIMULATION_ALL: CargoCommand = CargoCommand {
    arguments: &["--test=seeds"],
    ..TEST_ALL
};

pub(super) const SIMULATION: CargoCommand = CargoCommand {
    environment: &[("EMBERLINE_SEEDS", "30")],
    ..SIMULATION_ALL
};

pub(super) const CLIPPY_BENCH: CargoCommand = CargoCommand {
    scope: Scope::Bench,
    ..CLIPPY
};

pub(super) const DOC_BENCH: CargoCommand = CargoCommand {
    scope: Scope::Bench,
    ..DOC
};

pub(super) const TEST_BENCH: CargoCommand = CargoCommand {
    scope: Scope::Bench,
    arguments: &["--lib", "--bins"],
    ..TEST_ALL
};

pub(super) const BUILD_BENCH: CargoCommand = CargoCommand {
    scope: Scope::Bench,
    arguments: &["--bin=emberline-bench"],
    ..BUILD
};

/// `cargo xtask cluster` without Ballista, by the program of [`BUILD_BENCH`].
pub(super) const TEST_CLUSTER: CargoCommand = CargoCommand {
    inner_arguments: &["a_cluster_of_all_parts_starts_and_ends_without_a_trace"],
    ..SYSTEM
};

impl CargoCommand {
    /// # Errors
    /// If it fails; says what to do.
    pub(super) fn run(&self) -> Result<Outcome> {
        announce(&self.text());
        if let Some(component) = self.component {
            check_component(self.subcommand, component)?;
        }
        let mut command = cargo(&self.arguments());
        command.envs(self.environment.iter().copied());
        if self.scope == Scope::Bench {
            command.env(TARGET_VARIABLE, target()?);
        }
        let status = command
            .status()
            .with_context(|| format!("starting `{}`", self.text()))?;
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
        let variables: String = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\" "))
            .collect();
        format!("{variables}cargo {}", self.arguments().join(" "))
    }

    /// Returns the subcommand, and what follows it.
    fn arguments(&self) -> Vec<&'static str> {
        let packages = self
            .packages
            .iter()
            .flat_map(|package| ["--package", package]);
        let mut arguments = vec![self.subcommand];
        arguments.extend(self.scope.arguments());
        arguments.extend(self.arguments);
        arguments.extend(packages);
        if !self.inner_arguments.is_empty() {
            arguments.push("--");
            arguments.extend(self.inner_arguments);
        }
        arguments
    }
}

/// Whether cargo has a subcommand, which may be a component or a program in the path.
pub(super) fn has_subcommand(name: &str) -> Result<bool> {
    let probe = cargo(&[name, "--version"])
        .output()
        .context("starting cargo")?;
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
        assert!(
            error.to_string().contains("rustup component add rustfmt"),
            "{error}"
        );
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
