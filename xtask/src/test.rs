//! `cargo xtask test`: everything that a change must pass, in the order in which it fails fastest.
//!
//! All steps use the release profile. Tests need it, because the demo's linear algebra and the
//! sampler are too slow without; clippy and rustdoc use it because they then share build scripts
//! and procedural macros with the build: for xtask alone, after a build, clippy took 25 s of CPU
//! time instead of 54 s in the debug profile.

mod ahead;
pub(crate) mod table;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::{env, fs, io};

use anyhow::{Context, Result, bail};
use clap::ValueEnum as _;
use xtask::{announce, cargo, page, root};

use self::ahead::Ahead;
use self::table::{Outcome, Stopwatch};
use crate::{aarch64, clients, dist, fuzz, readers, sql, tidy};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out what takes long: whole-system tests, kill loops, the browser, documentation and
    /// packages.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Run only these steps. They use what earlier steps have built.
    #[arg(long, value_name = "STEP", value_enum, value_delimiter = ',')]
    only: Vec<Step>,
    /// Run only the step `clients`.
    #[arg(long, conflicts_with_all = ["quick", "only"])]
    clients: bool,
    /// Run only the step `readers`.
    #[arg(long, conflicts_with_all = ["quick", "only", "clients"])]
    readers: bool,
    /// Run only the step `sql`, which is no part of the whole.
    #[arg(long, conflicts_with_all = ["quick", "only", "clients", "readers"])]
    sql: bool,
    /// Run only the step `cluster`, which is no part of the whole.
    #[arg(long, conflicts_with_all = ["quick", "only", "clients", "readers", "sql"])]
    cluster: bool,
    /// The collector that the step `clients` runs. Default: target/release/emberline.
    #[arg(long, value_name = "FILE")]
    emberline: Option<PathBuf>,
    /// Leave out these steps.
    #[arg(long, value_name = "STEP", value_enum, value_delimiter = ',')]
    skip: Vec<Step>,
    /// Only compile and install what the steps `aarch64`, `fuzz` and `clients` need.
    #[arg(long, conflicts_with = "quick")]
    prepare: bool,
}

/// The steps, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// rustfmt.
    Format,
    /// `cargo xtask tidy`.
    Tidy,
    /// The page's sources: bundle, formatting, lints, types, unit tests.
    PageSources,
    /// clippy on the whole workspace.
    Clippy,
    /// clippy on the agent without its network.
    ClippySmallAgent,
    /// rustdoc without warnings.
    Doc,
    /// Packages of the crates that are published.
    Package,
    /// Licenses, sources and duplicate versions of dependencies, with cargo-deny.
    Deny,
    /// A release build of everything.
    Build,
    /// The golden store, read with DuckDB; exported profiles, read with `go tool pprof` and others.
    Readers,
    /// The program without the feature `s3`, as it is shipped; its Debian package, installed and removed in a
    /// copy of this machine's root; the systemd unit; the manifests of Kubernetes; the file of the container.
    Dist,
    /// All tests of the workspace, with a program that has the feature `s3`.
    Test,
    /// The page in a browser.
    Page,
    /// A build for aarch64, and the agent's tests under emulation.
    Aarch64,
    /// A short run of each fuzz target.
    Fuzz,
    /// Clients of other profilers from PyPI and npm, against a collector.
    Clients,
    /// A program with the feature `sql`; only if it is asked for.
    Sql,
    /// A Ballista cluster, and `cargo xtask cluster`; only if it is asked for.
    Cluster,
}

/// The client of S3 servers. All steps select it but the build of the program that is shipped, which does not have it.
/// Only the program's own crate differs.
const S3: &str = "emberline-cli/s3";

/// Where tests say why an S3 server is missing.
const S3_SERVER_MISSING: &str = "target/release/s3-servers/missing";

/// A command of cargo's.
struct CargoCommand {
    arguments: &'static [&'static str],
    /// The component of the toolchain that it needs.
    component: Option<&'static str>,
    environment: Option<(&'static str, &'static str)>,
    /// What to do when it fails.
    advice: &'static str,
}

const FORMAT: CargoCommand = CargoCommand {
    arguments: &["fmt", "--all", "--check"],
    component: Some("rustfmt"),
    environment: None,
    advice: "run `cargo fmt --all`",
};

/// The packages outside the workspace.
const FORMAT_FUZZ: CargoCommand = CargoCommand {
    arguments: &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path fuzz/Cargo.toml`",
    ..FORMAT
};
const FORMAT_PEERS: CargoCommand = CargoCommand {
    arguments: &["fmt", "--manifest-path", "xtask/peers/Cargo.toml", "--check"],
    advice: "run `cargo fmt --manifest-path xtask/peers/Cargo.toml`",
    ..FORMAT
};

const CLIPPY: CargoCommand = CargoCommand {
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
    component: Some("clippy"),
    environment: None,
    advice: "fix the warnings above",
};

/// The agent that profiles to a file, without a network.
const CLIPPY_SMALL_AGENT: CargoCommand = CargoCommand {
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

const DOC: CargoCommand = CargoCommand {
    arguments: &["doc", "--release", "--workspace", "--no-deps", "--features", S3],
    component: None,
    environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    advice: "fix the warnings above",
};

/// The crates that a user's program depends on.
const PACKAGE: CargoCommand = CargoCommand {
    arguments: &[
        "package",
        "--allow-dirty",
        "--package",
        "emberline-profiler-core",
        "--package",
        "emberline-symbols",
        "--package",
        "emberline-tls",
        "--package",
        "emberline-agent",
    ],
    component: None,
    // cargo builds packages in the dev profile: without debug information it takes half as long.
    environment: Some(("CARGO_PROFILE_DEV_DEBUG", "0")),
    advice: "a published crate needs metadata, files and dependencies of its own",
};

/// Without advisories, whose list must be downloaded: the hosted workflow checks them.
const DENY: CargoCommand = CargoCommand {
    arguments: &["deny", "check", "bans", "licenses", "sources"],
    component: None,
    environment: None,
    advice: "see deny.toml",
};

/// Whole-system tests run the binary. All targets at once, so that dependencies have the features
/// that the tests need: the binary alone needs fewer, and 61 crates would be compiled twice, among
/// them the largest.
const BUILD: CargoCommand = CargoCommand {
    arguments: &["build", "--release", "--workspace", "--all-targets", "--features", S3],
    component: None,
    environment: None,
    advice: "fix the errors above",
};

const TEST: CargoCommand = CargoCommand {
    arguments: &["test", "--release", "--workspace", "--features", S3],
    component: None,
    environment: None,
    advice: "the failing tests are named above",
};

/// The program as it is shipped. An example among the targets selects the features of dependencies that tests
/// need, so that no crate but the program's own is compiled again.
const BUILD_SHIPPED: CargoCommand = CargoCommand {
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
const TEST_QUICK: CargoCommand = CargoCommand {
    arguments: &[
        "test",
        "--release",
        "--workspace",
        "--features",
        S3,
        "--lib",
        "--bins",
        "--test=[!gmsw]*",
        "--test=memory",
    ],
    ..TEST
};

/// Runs the steps in order, up to the first that fails, and prints a table of them.
///
/// # Errors
/// If a step fails; names it and the command that runs only that step.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.prepare {
        return options.steps().try_for_each(Step::prepare);
    }
    let mut rows = Vec::new();
    let mut failure = None;
    let mut ahead = None;
    for step in options.steps() {
        let stopwatch = Stopwatch::start()?;
        if failure.is_none() && step == Step::Test {
            let later: Vec<String> =
                options.steps().filter(|step| step.can_be_prepared()).map(Step::name).collect();
            ahead = (!later.is_empty()).then(|| Ahead::start(&later)).transpose()?;
        }
        if step.can_be_prepared() {
            ahead.take().map_or(Ok(()), Ahead::wait)?;
        }
        let outcome = match failure {
            Some(_) => Outcome::Skipped("an earlier step failed".into()),
            None => step.run(options).unwrap_or_else(|error| {
                failure = Some((step, error));
                Outcome::Failed
            }),
        };
        rows.push(stopwatch.stop(step.name(), outcome)?);
    }
    eprint!("\n{}", table::render(&rows));
    match failure {
        None => Ok(()),
        Some((step, error)) => {
            let name = step.name();
            Err(error.context(format!(
                "the step {name} failed; `cargo xtask test --only {name}` runs only that step"
            )))
        }
    }
}

impl Options {
    /// The steps that are wanted, in their order.
    fn steps(&self) -> impl Iterator<Item = Step> {
        Step::value_variants().iter().copied().filter(|&step| self.wants(step))
    }

    fn wants(&self, step: Step) -> bool {
        let is_named = self.only.is_empty() || self.only.contains(&step);
        let is_quick = !matches!(
            step,
            Step::ClippySmallAgent
                | Step::Doc
                | Step::Package
                | Step::Deny
                | Step::Build
                | Step::Readers
                | Step::Dist
                | Step::Clients
                | Step::Page
                | Step::Aarch64
                | Step::Fuzz
        );
        if self.clients {
            return step == Step::Clients;
        }
        if self.readers {
            return step == Step::Readers;
        }
        if self.sql || self.cluster {
            return step == if self.sql { Step::Sql } else { Step::Cluster };
        }
        if matches!(step, Step::Sql | Step::Cluster) {
            return self.only.contains(&step);
        }
        is_named && !self.skip.contains(&step) && (is_quick || !self.quick)
    }
}

impl Step {
    /// The name on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value().expect("every step can be named");
        value.get_name().to_owned()
    }

    fn can_be_prepared(self) -> bool {
        matches!(self, Step::Aarch64 | Step::Fuzz | Step::Clients)
    }

    /// Compiles and installs what the step needs.
    fn prepare(self) -> Result<()> {
        match self {
            Step::Aarch64 => aarch64::prepare(),
            Step::Fuzz => fuzz::prepare_short(),
            Step::Clients => clients::prepare(),
            _ => Ok(()),
        }
    }

    fn run(self, options: &Options) -> Result<Outcome> {
        match self {
            Step::Format => {
                let commands = [FORMAT, FORMAT_FUZZ, FORMAT_PEERS];
                commands.iter().try_for_each(|command| command.run().map(drop))?;
                Ok(Outcome::Passed)
            }
            Step::Tidy => {
                announce("cargo xtask tidy");
                tidy::check().map(|()| Outcome::Passed)
            }
            Step::PageSources => {
                let missing = page::check_sources()?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Clippy => CLIPPY.run(),
            Step::ClippySmallAgent => CLIPPY_SMALL_AGENT.run(),
            Step::Doc => DOC.run(),
            Step::Package => {
                forget_packages(&cargo_home()?)?;
                PACKAGE.run()
            }
            Step::Deny if !has_subcommand("deny")? => {
                Ok(Outcome::Skipped("no cargo-deny: cargo install cargo-deny --locked".into()))
            }
            Step::Deny => DENY.run(),
            Step::Build => BUILD.run(),
            Step::Readers => {
                let missing = readers::run()?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Dist => {
                BUILD_SHIPPED.run()?;
                let missing = dist::check(&root().join("target/release/emberline"))?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Test if options.quick => TEST_QUICK.run(),
            Step::Test => {
                // The step `dist` replaces the program that the tests run. Nothing is compiled again.
                BUILD.run()?;
                test_all()
            }
            Step::Page => {
                let missing = page::run(&root().join("target/release/emberline"))?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Aarch64 => {
                let missing = aarch64::run()?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Fuzz => fuzz::run_short().map(|()| Outcome::Passed),
            Step::Clients => {
                let built = || root().join("target/release/emberline");
                let missing = clients::run(&options.emberline.clone().unwrap_or_else(built))?;
                Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
            }
            Step::Sql => sql::run().map(|()| Outcome::Passed),
            Step::Cluster => sql::run_cluster().map(|()| Outcome::Passed),
        }
    }
}

impl CargoCommand {
    fn run(&self) -> Result<Outcome> {
        announce(&self.text());
        if let Some(component) = self.component {
            check_component(self.arguments[0], component)?;
        }
        let mut command = cargo(self.arguments);
        command.envs(self.environment);
        let status = command.status().with_context(|| format!("starting `{}`", self.text()))?;
        self.judge(status)
    }

    fn judge(&self, status: ExitStatus) -> Result<Outcome> {
        if status.success() {
            return Ok(Outcome::Passed);
        }
        bail!("`{}` failed ({status}): {}", self.text(), self.advice)
    }

    /// What a person would type.
    fn text(&self) -> String {
        let environment = self.environment.map(|(name, value)| format!("{name}=\"{value}\" "));
        format!("{}cargo {}", environment.unwrap_or_default(), self.arguments.join(" "))
    }
}

/// Runs all tests. Tests of stores in buckets are left out if their servers cannot be installed.
fn test_all() -> Result<Outcome> {
    let missing = root().join(S3_SERVER_MISSING);
    if missing.exists() {
        fs::remove_file(&missing)?;
    }
    let outcome = TEST.run()?;
    match fs::read_to_string(missing) {
        Ok(reason) => {
            let reason = reason.lines().next_back().unwrap_or_default().to_owned();
            Ok(Outcome::Skipped(format!("only the tests of stores in buckets: {reason}")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(outcome),
        Err(error) => Err(error).context("reading which server of the tests is missing"),
    }
}

/// The folder in which cargo unpacks what it downloads.
fn cargo_home() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("CARGO_HOME") {
        return Ok(folder.into());
    }
    let home = env::home_dir().context("neither CARGO_HOME nor a home folder is set")?;
    Ok(home.join(".cargo"))
}

/// Removes our packages as an earlier run unpacked them. Cargo takes an unpacked version for
/// unchangeable, and would verify the agent with the `emberline-profiler-core` of that run.
fn forget_packages(cargo_home: &Path) -> Result<()> {
    let registries = match fs::read_dir(cargo_home.join("registry/src")) {
        Ok(registries) => registries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("listing cargo's unpacked packages"),
    };
    for registry in registries {
        let registry = registry?;
        // Registries with a host name were downloaded.
        if !registry.file_name().to_string_lossy().starts_with('-') {
            continue;
        }
        for package in fs::read_dir(registry.path())? {
            let package = package?;
            if package.file_name().to_string_lossy().starts_with("emberline-") {
                fs::remove_dir_all(package.path())
                    .with_context(|| format!("removing {}", package.path().display()))?;
            }
        }
    }
    Ok(())
}

/// Whether cargo has a subcommand, which may be a component or a program in the path.
fn has_subcommand(name: &str) -> Result<bool> {
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

    use clap::Parser;

    use super::*;

    #[test]
    fn packages_of_an_earlier_run_are_unpacked_again() {
        let home = tempfile::tempdir().unwrap();
        let sources = home.path().join("registry/src");
        let stale = sources.join("-0123/emberline-agent-0.1.0/src");
        let others = [
            sources.join("-0123/anyhow-1.0.0"),
            sources.join("index.crates.io-4567/emberline-agent-0.1.0"),
        ];
        for folder in others.iter().chain([&stale]) {
            fs::create_dir_all(folder).unwrap();
        }
        forget_packages(home.path()).unwrap();
        assert!(!stale.exists());
        assert!(others.iter().all(|folder| folder.exists()));
        forget_packages(&home.path().join("new")).unwrap();
    }

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

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: Options,
    }

    /// The steps that a command line asks for.
    fn steps(arguments: &[&str]) -> Vec<String> {
        let words = ["test"].iter().chain(arguments);
        let options = CommandLine::try_parse_from(words).unwrap().options;
        let wanted = Step::value_variants().iter().filter(|step| options.wants(**step));
        wanted.map(|step| step.name()).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(steps(&[]).len(), Step::value_variants().len() - 2, "all but `sql`, `cluster`");
        assert_eq!(steps(&["--sql"]), ["sql"]);
        assert_eq!(steps(&["--cluster"]), ["cluster"]);
        assert_eq!(steps(&["--only", "page,sql"]), ["page", "sql"]);
        assert_eq!(steps(&["--clients"]), ["clients"]);
        assert_eq!(steps(&["--only", "clients"]), ["clients"]);
        assert_eq!(steps(&["--readers"]), ["readers"]);
        assert_eq!(steps(&["--only", "clippy-small-agent,page"]), ["clippy-small-agent", "page"]);
        assert_eq!(steps(&["--quick"]), ["format", "tidy", "page-sources", "clippy", "test"]);
        assert_eq!(
            steps(&["--quick", "--skip", "format,clippy"]),
            ["tidy", "page-sources", "test"]
        );
    }
}
