//! `cargo xtask test`: everything that a change must pass, in the order in which it fails fastest.
//!
//! All steps use the release profile. Tests need it, because the demo's linear algebra and the
//! sampler are too slow without; clippy uses it because it then shares build scripts and procedural
//! macros with the build: for xtask alone, after a build, it took 25 s of processor time against 54 s
//! in the debug profile.

use std::process::ExitStatus;

use anyhow::{Context, Result, bail};

use xtask::{announce, cargo, page, root};

use crate::{readers, tidy};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Skip formatting and clippy, for a quick loop.
    #[arg(long)]
    no_lint: bool,
    /// Check the page in a browser, and nothing else, with the `emberline` that was built last.
    #[arg(long)]
    page: bool,
}

/// One step: a command of cargo's.
struct Step {
    arguments: &'static [&'static str],
    /// The component of the toolchain that it needs, beside cargo.
    component: Option<&'static str>,
    /// What to do when it fails.
    advice: &'static str,
}

const FORMAT: Step = Step {
    arguments: &["fmt", "--all", "--check"],
    component: Some("rustfmt"),
    advice: "run `cargo fmt --all`",
};

/// The one package outside the workspace.
const FORMAT_PEERS: Step = Step {
    arguments: &["fmt", "--manifest-path", "xtask/peers/Cargo.toml", "--check"],
    component: Some("rustfmt"),
    advice: "run `cargo fmt --manifest-path xtask/peers/Cargo.toml`",
};

const LINT: Step = Step {
    arguments: &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"],
    component: Some("clippy"),
    advice: "mend what clippy says above",
};

/// The agent that profiles to a file, without a network.
const LINT_SMALL_AGENT: Step = Step {
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
    component: Some("clippy"),
    advice: "what only `ship` needs must stand behind that feature",
};

/// Whole-system tests run the binary. All targets at once, so that the features of what we depend on
/// are those of the tests: on its own the binary asks for fewer, and 61 crates would be compiled twice,
/// among them the largest.
const BUILD: Step = Step {
    arguments: &["build", "--release", "--workspace", "--all-targets"],
    component: None,
    advice: "mend the build",
};

const TEST: Step = Step {
    arguments: &["test", "--release", "--workspace"],
    component: None,
    advice: "the failing tests are named above",
};

/// Runs the steps in order.
///
/// # Errors
/// At the first step that fails, with its command and what to do.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.page {
        return page::run(&root().join("target/release/emberline"));
    }
    if !options.no_lint {
        FORMAT.run()?;
        FORMAT_PEERS.run()?;
    }
    announce("cargo xtask tidy");
    tidy::check()?;
    if !options.no_lint {
        LINT.run()?;
        LINT_SMALL_AGENT.run()?;
    }
    BUILD.run()?;
    announce("reading the golden store with DuckDB");
    readers::run()?;
    TEST.run()?;
    page::run(&root().join("target/release/emberline"))
}

impl Step {
    fn run(&self) -> Result<()> {
        announce(&self.command());
        if let Some(component) = self.component {
            check_component(self.arguments[0], component)?;
        }
        let status = cargo(self.arguments)
            .status()
            .with_context(|| format!("starting `{}`", self.command()))?;
        self.judge(status)
    }

    fn judge(&self, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        bail!("`{}` failed ({status}): {}", self.command(), self.advice)
    }

    /// What a person would type.
    fn command(&self) -> String {
        format!("cargo {}", self.arguments.join(" "))
    }
}

/// Says how to get a component that is not installed, which cargo does only with rustup.
fn check_component(subcommand: &str, component: &str) -> Result<()> {
    let probe = cargo(&[subcommand, "--version"]).output().context("starting cargo")?;
    if !probe.status.success() {
        bail!(
            "`cargo {subcommand}` is not installed: run `rustup component add {component}`, or \
             skip the lints with `cargo xtask test --no-lint`"
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
        let error = FORMAT.judge(failed).unwrap_err().to_string();
        assert_eq!(
            error,
            "`cargo fmt --all --check` failed (exit status: 101): run `cargo fmt --all`"
        );
        assert!(FORMAT.judge(ExitStatus::default()).is_ok());
    }
}
