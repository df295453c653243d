//! `cargo xtask test`: everything that a change must pass, in the order in which it fails fastest.
//!
//! All steps use the release profile. Tests need it, because the demo's linear algebra and the
//! sampler are too slow without. Only unit tests are compiled without optimization ([`compiler`]).
//! Clippy and rustdoc use it because they then share build scripts and procedural macros with the
//! build: for xtask alone, after a build, clippy took 25 s of CPU time instead of 54 s in the debug
//! profile.

mod background;
mod commands;
pub(crate) mod compiler;
pub(crate) mod table;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use xtask::{announce, page, root};

use self::background::Background;
use self::commands::{
    BUILD, BUILD_SHIPPED, CLEAN_PACKAGES, CLIPPY, CLIPPY_SMALL_AGENT, DENY, DOC, FORMAT,
    FORMAT_FUZZ, FORMAT_PEERS, PACKAGE, PUBLISHED, SIMULATION, SYSTEM, TEST, TEST_DOC, TEST_QUICK,
    has_subcommand,
};
use self::table::{Outcome, Row, Stopwatch};
use crate::{aarch64, clients, dist, fuzz, readers, sql, tidy};

/// Selection of the steps to run.
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
    /// Compile and install what these steps need, and run only those of `--only`.
    #[arg(long, value_name = "STEP", value_enum, value_delimiter = ',', conflicts_with = "quick")]
    prepare: Vec<Step>,
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
    /// Packages of the crates that are published.
    Package,
    /// rustdoc without warnings.
    Doc,
    /// Licenses, sources and duplicate versions of dependencies, with cargo-deny.
    Deny,
    /// A release build of everything.
    Build,
    /// The golden store, read with DuckDB; exported profiles, read with `go tool pprof` and others.
    Readers,
    /// All tests of the workspace but those of the next two steps.
    Test,
    /// Tests of whole systems, with a program that has the feature `s3`.
    System,
    /// Simulated agents and collectors under 300 seeds of faults.
    Simulation,
    /// The page in a browser.
    Page,
    /// A build for aarch64, and the agent's tests under emulation.
    Aarch64,
    /// A short run of each fuzz target.
    Fuzz,
    /// Clients of other profilers from PyPI and npm, against a collector.
    Clients,
    /// The program without the feature `s3`, as it is shipped; its Debian package, installed and removed in a
    /// copy of this machine's root; the systemd unit; the manifests of Kubernetes; the file of the container.
    Dist,
    /// A program with the feature `sql`; only if it is requested.
    Sql,
    /// A Ballista cluster, and `cargo xtask cluster`; only if it is requested.
    Cluster,
}

/// Where tests say why an S3 server is missing.
const S3_SERVER_MISSING: &str = "target/release/s3-servers/missing";

/// Runs the steps in order, up to the first that fails, and prints a table of them.
///
/// # Errors
/// If a step fails; names it and the command that runs only that step.
pub(crate) fn run(options: &Options) -> Result<()> {
    let steps: Vec<Step> = options.steps().collect();
    let has_tests = steps.contains(&Step::Test);
    let (aside, front): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| has_tests && step.runs_in_background());
    let mut run = Run::default();
    for &step in &front {
        if step == Step::Test && run.failure.is_none() {
            let later: Vec<Step> =
                front.iter().copied().filter(|step| step.can_be_prepared()).collect();
            run.start_background(&later, &aside)?;
        }
        if step.can_be_prepared() {
            run.wait_for_background()?;
        }
        run.step(&step.name(), || step.run(options).map_err(|error| step.failed(error)))?;
    }
    run.wait_for_background()?;
    for step in &options.prepare {
        // The step itself will do it again and say what is wrong.
        if let Err(error) = step.prepare() {
            eprintln!("{} is not prepared: {error:#}", step.name());
        }
    }
    run.finish()
}

/// The steps so far.
#[derive(Default)]
struct Run {
    rows: Vec<Row>,
    failure: Option<anyhow::Error>,
    background: Option<Background>,
}

impl Run {
    /// Runs a step, unless an earlier one failed.
    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome>) -> Result<()> {
        let stopwatch = Stopwatch::start()?;
        let outcome = match self.failure {
            Some(_) => Outcome::Skipped("an earlier step failed".into()),
            None => step().unwrap_or_else(|error| {
                self.failure = Some(error);
                Outcome::Failed
            }),
        };
        self.rows.push(stopwatch.stop(name.to_owned(), outcome)?);
        Ok(())
    }

    fn start_background(&mut self, prepared: &[Step], steps: &[Step]) -> Result<()> {
        let names = |steps: &[Step]| steps.iter().map(|step| step.name()).collect::<Vec<_>>();
        if !(prepared.is_empty() && steps.is_empty()) {
            self.background = Some(Background::start(&names(prepared), &names(steps))?);
        }
        Ok(())
    }

    /// Its row has the seconds of the wait, and the CPU seconds of all that it did.
    fn wait_for_background(&mut self) -> Result<()> {
        match self.background.take() {
            Some(background) => {
                self.step("background", || background.wait().map(|()| Outcome::Passed))
            }
            None => Ok(()),
        }
    }

    /// Prints the table.
    fn finish(self) -> Result<()> {
        eprint!("\n{}", table::render(&self.rows));
        self.failure.map_or(Ok(()), Err)
    }
}

impl Options {
    /// The steps that are wanted, in their order.
    fn steps(&self) -> impl Iterator<Item = Step> {
        Step::value_variants().iter().copied().filter(|&step| self.wants(step))
    }

    fn wants(&self, step: Step) -> bool {
        let is_named =
            self.only.contains(&step) || (self.only.is_empty() && self.prepare.is_empty());
        let is_quick = matches!(
            step,
            Step::Format | Step::Tidy | Step::PageSources | Step::Clippy | Step::Test
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

    /// Adds to an error the command that runs only this step.
    fn failed(self, error: anyhow::Error) -> anyhow::Error {
        let name = self.name();
        error.context(format!(
            "the step {name} failed; `cargo xtask test --only {name}` runs only that step"
        ))
    }

    fn can_be_prepared(self) -> bool {
        matches!(self, Step::Aarch64 | Step::Fuzz | Step::Clients | Step::Dist)
    }

    /// Whether it may run while tests run: nothing in it is measured by a clock.
    fn runs_in_background(self) -> bool {
        matches!(self, Step::Package | Step::Doc | Step::Simulation)
    }

    /// Compiles and installs what the step needs.
    fn prepare(self) -> Result<()> {
        match self {
            Step::Aarch64 => aarch64::prepare(),
            Step::Fuzz => fuzz::prepare_short(),
            Step::Clients => clients::prepare(),
            Step::Dist => dist::prepare(),
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
                CLEAN_PACKAGES.run()?;
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
                TEST.run()?;
                TEST_DOC.run()
            }
            Step::System => {
                // The step `dist` replaces the program that the tests run. Nothing is compiled again.
                BUILD.run()?;
                test_systems()
            }
            Step::Simulation => SIMULATION.run(),
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

/// Tests of stores in buckets are left out if their servers cannot be installed.
fn test_systems() -> Result<Outcome> {
    let missing = root().join(S3_SERVER_MISSING);
    if missing.exists() {
        fs::remove_file(&missing)?;
    }
    let outcome = SYSTEM.run()?;
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
            let folder = package.file_name();
            let name = folder.to_string_lossy();
            // The version follows.
            if PUBLISHED.iter().any(|published| name.starts_with(&format!("{published}-"))) {
                fs::remove_dir_all(package.path())
                    .with_context(|| format!("removing {}", package.path().display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(steps(&["--prepare", "fuzz", "--only", "package"]), ["package"]);
        assert!(steps(&["--prepare", "fuzz"]).is_empty());
        assert_eq!(steps(&["--quick"]), ["format", "tidy", "page-sources", "clippy", "test"]);
        assert_eq!(
            steps(&["--quick", "--skip", "format,clippy"]),
            ["tidy", "page-sources", "test"]
        );
    }
}
