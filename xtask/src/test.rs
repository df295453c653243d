//! `cargo xtask test`: what a change must pass, in the order in which it fails fastest; with `--all`, everything.
//!
//! All steps but `dist` use the profile `light`, so each crate is compiled once. Clippy and rustdoc use it because they
//! then share build scripts and procedural macros with the build: for xtask alone, after a build, clippy took 25 s of
//! CPU time instead of 54 s in the debug profile.

mod commands;
mod published;
mod setup;
pub(crate) mod table;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use xtask::{announce, light, page};

use self::commands::{
    BUILD, BUILD_BENCH, CLEAN_PACKAGES, CLIPPY, CLIPPY_BENCH, CLIPPY_SMALL_AGENT, CargoCommand,
    DENY, DOC, DOC_BENCH, FORMAT, FORMAT_BENCH, FORMAT_FUZZ, FORMAT_PEERS, PACKAGE, PUBLISHED,
    SIMULATION, SIMULATION_ALL, SYSTEM, SYSTEM_ALL, TEST, TEST_ALL, TEST_BENCH, TEST_CLUSTER,
    TEST_DOC, TEST_QUICK, has_subcommand,
};
use self::table::{Outcome, Row, Stopwatch};
use crate::{aarch64, clients, dist, fuzz, python, readers, sql, tidy};

/// Selection of the steps to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run every step, with all tests, random cases and seeds.
    #[arg(long, conflicts_with = "quick")]
    all: bool,
    /// Leave out what takes long: whole-system tests, kill loops, the browser.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Run only these steps.
    #[arg(long, value_name = "STEP", value_enum, value_delimiter = ',')]
    only: Vec<Step>,
    /// Leave out these steps.
    #[arg(long, value_name = "STEP", value_enum, value_delimiter = ',')]
    skip: Vec<Step>,
    /// Install the Debian packages and other tools that the steps need, and run nothing.
    #[arg(long, exclusive = true)]
    setup: bool,
    /// The collector that the steps `clients` and `python` run. Default: the one of the step `build`.
    #[arg(long, value_name = "FILE")]
    emberline: Option<PathBuf>,
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
    /// With `--all`: clippy on the whole workspace.
    Clippy,
    /// With `--all`: clippy on the agent without its network.
    ClippySmallAgent,
    /// With `--all`: rustdoc without warnings.
    Doc,
    /// With `--all`: licenses, sources and duplicate versions of dependencies, with cargo-deny.
    Deny,
    /// Programs, tests and examples, compiled.
    Build,
    /// All tests but those of other steps. With `--all`, also the longest, and 256 random cases each instead of 16.
    Test,
    /// With `--all`: examples in the documentation.
    DocTests,
    /// Tests of whole systems. With `--all`, also the loop of kills, and stores in buckets, on servers from PyPI.
    System,
    /// Simulated agents and collectors under 30 seeds of faults, with `--all` under 300.
    Simulation,
    /// The page in a browser.
    Page,
    /// With `--all`: lints, documentation and tests of the benchmarks, and `cargo xtask cluster` without Ballista.
    Bench,
    /// With `--all`: packages of the crates that are published.
    Package,
    /// With `--all`: the published crates, compiled with the oldest compiler that they support.
    OldestRust,
    /// With `--all`: the API of the published crates, compared with the newest release.
    Semver,
    /// With `--all`: the golden store, read with DuckDB; exported profiles, read with `go tool pprof` and others; the
    /// description of the HTTP API, read with a validator.
    Readers,
    /// With `--all`: clients of other profilers from PyPI, npm and Maven Central, against a collector.
    Clients,
    /// With `--all`: a build for aarch64, and the agent's tests under emulation.
    Aarch64,
    /// With `--all`: a short run of each fuzz target.
    Fuzz,
    /// With `--all`: the program as it is shipped, in the release profile; its Debian package, installed and removed
    /// in a copy of this machine's root; the systemd unit; the manifests of Kubernetes; the file of the container.
    Dist,
    /// With `--all`: a program with the feature `sql`.
    Sql,
    /// With `--all`: a Ballista cluster, and `cargo xtask cluster`.
    Cluster,
    /// With `--all`: the Python package, with every CPython from 3.9 that this machine has.
    Python,
}

/// Where tests say why an S3 server is missing.
const S3_SERVER_MISSING: &str = "s3-servers/missing";

/// Runs the steps in order, up to the first that fails, and prints a table of them, with those that were skipped
/// in its last lines.
///
/// # Errors
/// If a step fails; names it and the command that runs only that step.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.setup {
        return setup::run();
    }
    let mut rows = Vec::new();
    let mut failure = None;
    for step in options.steps() {
        let stopwatch = Stopwatch::start()?;
        let outcome = match failure {
            Some(_) => Outcome::Skipped("an earlier step failed".into()),
            None => step.run(options).unwrap_or_else(|error| {
                failure = Some(error.context(options.repeated(step)));
                Outcome::Failed
            }),
        };
        rows.push(stopwatch.stop(step.name(), outcome)?);
    }
    eprint!("\n{}", table::render(&rows));
    if failure.is_none() {
        eprint!("{}", skipped(&rows));
    }
    failure.map_or(Ok(()), Err)
}

/// Names the steps that were skipped, and how to run them.
fn skipped(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        if let Outcome::Skipped(reason) = &row.outcome {
            text += &format!("skipped: {}: {reason}\n", row.step);
        }
    }
    if !text.is_empty() {
        text += "`cargo xtask test --setup` installs the tools of all steps\n";
    }
    text
}

impl Options {
    /// The steps that are wanted, in their order.
    fn steps(&self) -> impl Iterator<Item = Step> {
        Step::value_variants()
            .iter()
            .copied()
            .filter(|&step| self.wants(step))
    }

    fn wants(&self, step: Step) -> bool {
        let is_chosen = if !self.only.is_empty() {
            self.only.contains(&step)
        } else if self.quick {
            step.is_quick()
        } else {
            self.all || step.is_short()
        };
        is_chosen && !self.skip.contains(&step)
    }

    /// Says that a step failed, with the command that runs only this step.
    fn repeated(&self, step: Step) -> String {
        let name = step.name();
        let all = if self.all { "--all " } else { "" };
        format!("the step {name} failed; `cargo xtask test {all}--only {name}` runs only that step")
    }
}

impl Step {
    /// The name on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value().expect("every step can be named");
        value.get_name().to_owned()
    }

    fn is_quick(self) -> bool {
        matches!(
            self,
            Step::Format | Step::Tidy | Step::PageSources | Step::Test
        )
    }

    /// Whether it runs without `--all`.
    fn is_short(self) -> bool {
        self.is_quick()
            || matches!(
                self,
                Step::Build | Step::System | Step::Simulation | Step::Page
            )
    }

    /// Whether it runs programs that the step `build` compiles.
    fn needs_programs(self) -> bool {
        matches!(
            self,
            Step::System | Step::Page | Step::Bench | Step::Readers | Step::Clients | Step::Python
        )
    }

    fn run(self, options: &Options) -> Result<Outcome> {
        let has_collector = self == Step::Python && options.emberline.is_some();
        if self.needs_programs() && !has_collector {
            BUILD.run()?;
        }
        match self {
            Step::Format => in_turn(&[FORMAT, FORMAT_BENCH, FORMAT_FUZZ, FORMAT_PEERS]),
            Step::Tidy => {
                announce("cargo xtask tidy");
                tidy::check().map(|()| Outcome::Passed)
            }
            Step::PageSources => page::check_sources().map(unless_missing),
            Step::Build => BUILD.run(),
            Step::Clippy => CLIPPY.run(),
            Step::ClippySmallAgent => CLIPPY_SMALL_AGENT.run(),
            Step::Doc => DOC.run(),
            Step::Deny if !has_subcommand("deny")? => Ok(Outcome::Skipped(
                "no cargo-deny: cargo install cargo-deny --locked".into(),
            )),
            Step::Deny => DENY.run(),
            Step::Test if options.quick => TEST_QUICK.run(),
            Step::Test if options.all => TEST_ALL.run(),
            Step::Test => TEST.run(),
            Step::DocTests => TEST_DOC.run(),
            Step::System if options.all => test_systems(),
            Step::System => SYSTEM.run(),
            Step::Simulation if options.all => SIMULATION_ALL.run(),
            Step::Simulation => SIMULATION.run(),
            Step::Page => page::run(&light()?.join("emberline")).map(unless_missing),
            Step::Bench => in_turn(&[
                CLIPPY_BENCH,
                DOC_BENCH,
                TEST_BENCH,
                BUILD_BENCH,
                TEST_CLUSTER,
            ]),
            Step::Package => {
                forget_packages(&cargo_home()?)?;
                in_turn(&[CLEAN_PACKAGES, PACKAGE])
            }
            Step::OldestRust => published::check_oldest_rust().map(unless_missing),
            Step::Semver => published::check_semver().map(unless_missing),
            Step::Readers => readers::run().map(unless_missing),
            Step::Clients => {
                let built = light()?.join("emberline");
                clients::run(options.emberline.as_deref().unwrap_or(&built)).map(unless_missing)
            }
            Step::Aarch64 => aarch64::run().map(unless_missing),
            Step::Fuzz => fuzz::run_short().map(|()| Outcome::Passed),
            Step::Dist => dist::check(&xtask::emberline()?).map(unless_missing),
            Step::Sql => sql::run().map(|()| Outcome::Passed),
            Step::Cluster => sql::run_cluster().map(|()| Outcome::Passed),
            Step::Python => {
                let built = light()?.join("emberline");
                python::run(options.emberline.as_deref().unwrap_or(&built)).map(unless_missing)
            }
        }
    }
}

fn in_turn(commands: &[CargoCommand]) -> Result<Outcome> {
    commands
        .iter()
        .try_for_each(|command| command.run().map(drop))?;
    Ok(Outcome::Passed)
}

/// A step was skipped in whole or in part if something is missing.
fn unless_missing(missing: Option<String>) -> Outcome {
    missing.map_or(Outcome::Passed, Outcome::Skipped)
}

/// Tests of stores in buckets are left out if their servers cannot be installed.
fn test_systems() -> Result<Outcome> {
    let missing = light()?.join(S3_SERVER_MISSING);
    if missing.exists() {
        fs::remove_file(&missing)?;
    }
    let outcome = SYSTEM_ALL.run()?;
    match fs::read_to_string(missing) {
        Ok(reason) => {
            let reason = reason.lines().next_back().unwrap_or_default().to_owned();
            Ok(Outcome::Skipped(format!(
                "only the tests of stores in buckets: {reason}"
            )))
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
            if PUBLISHED
                .iter()
                .any(|published| name.starts_with(&format!("{published}-")))
            {
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
        options.steps().map(Step::name).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        let short = [
            "format",
            "tidy",
            "page-sources",
            "build",
            "test",
            "system",
            "simulation",
            "page",
        ];
        assert_eq!(steps(&[]), short);
        assert_eq!(steps(&["--all"]).len(), Step::value_variants().len());
        assert_eq!(steps(&["--only", "page,sql"]), ["page", "sql"]);
        assert_eq!(steps(&["--all", "--only", "test"]), ["test"]);
        assert_eq!(
            steps(&["--only", "clippy-small-agent,page"]),
            ["clippy-small-agent", "page"]
        );
        assert_eq!(
            steps(&["--quick"]),
            ["format", "tidy", "page-sources", "test"]
        );
        assert_eq!(
            steps(&["--quick", "--skip", "format,test"]),
            ["tidy", "page-sources"]
        );
        let all_but_two = steps(&["--all", "--skip", "sql,cluster"]);
        assert_eq!(all_but_two.len(), Step::value_variants().len() - 2);
        for excluded in [["--all", "--quick"], ["--setup", "--all"]] {
            let words = ["test"].iter().chain(&excluded);
            assert!(CommandLine::try_parse_from(words).is_err(), "{excluded:?}");
        }
    }

    #[test]
    fn a_failed_step_is_named_with_the_command_that_repeats_it() {
        assert!(repeated_with(&[]).contains("`cargo xtask test --only test`"));
        assert!(repeated_with(&["--all"]).contains("`cargo xtask test --all --only test`"));
    }

    fn repeated_with(arguments: &[&str]) -> String {
        let words = ["test"].iter().chain(arguments);
        CommandLine::try_parse_from(words)
            .unwrap()
            .options
            .repeated(Step::Test)
    }

    #[test]
    fn skipped_steps_are_named_with_their_tools() {
        let passed = row("page", Outcome::Passed);
        let deny = row("deny", Outcome::Skipped("no cargo-deny".into()));
        assert_eq!(
            skipped(&[passed, deny]),
            "skipped: deny: no cargo-deny\n`cargo xtask test --setup` installs the tools of all steps\n"
        );
        assert_eq!(skipped(&[row("page", Outcome::Passed)]), "");
    }

    fn row(step: &str, outcome: Outcome) -> Row {
        Row {
            step: step.into(),
            seconds: 0.0,
            cpu_seconds: 0.0,
            outcome,
        }
    }

    /// The hosted workflow runs the short form as a whole, and each other step in a job.
    #[test]
    fn the_hosted_workflow_runs_every_step() {
        let workflow = fs::read_to_string(xtask::root().join(".github/workflows/ci.yml")).unwrap();
        let jobs: Vec<&str> = workflow
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- steps: "))
            .collect();
        let named: Vec<&str> = jobs.iter().flat_map(|job| job.split(',')).collect();
        for step in Step::value_variants() {
            // Those whose long form is longer have a job of their own.
            let is_whole =
                step.is_short() && !matches!(step, Step::Test | Step::System | Step::Simulation);
            let count = named.iter().filter(|name| **name == step.name()).count();
            assert_eq!(count, usize::from(!is_whole), "{}", step.name());
        }
    }
}
