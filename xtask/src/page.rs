//! The page in a real browser: its types, and `collector/ui/check` against a live demo.
//!
//! npm installs below `target/`, never next to the sources. Without a browser or npm this step is
//! skipped, and the reason names how to get them; nothing else depends on it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, io, thread};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};

use crate::announce;
use crate::page_bundle::{self, npm_ci};

/// The path of Debian's `chromium`, unless the environment names another.
const CHROMIUM: &str = "/usr/bin/chromium";
const CHROMIUM_VARIABLE: &str = "EMBERLINE_CHROMIUM";

/// Limit on the checks, on a busy machine.
const CHECKS_MAX: Duration = Duration::from_secs(500);

/// Limit on a walk through the page.
const WALK_MAX: Duration = Duration::from_secs(400);

/// Limit on the benchmark: some of the peers are slow.
const BENCH_MAX: Duration = Duration::from_secs(900);

/// Time between SIGTERM and SIGKILL.
const TERMINATION_MAX: Duration = Duration::from_secs(10);

/// Checks the page's sources without a browser: the committed bundle, formatting, lints,
/// types and unit tests.
/// Returns why they cannot be checked here, if they cannot.
///
/// # Errors
/// If a check fails; names the command that fixes it.
pub fn check_sources() -> Result<Option<String>> {
    if let Some(reason) = missing_npm() {
        return Ok(Some(reason));
    }
    let ui = prepare()?;
    let node = |arguments: &[&str]| finish(Command::new("node").current_dir(&ui).args(arguments));
    announce("biome check collector/ui");
    node(&[
        "node_modules/@biomejs/biome/bin/biome",
        "check",
        "--error-on-warnings",
    ])
    .context("run `cargo xtask page --fix`, or fix the errors above")?;
    announce("tsc -p collector/ui");
    node(&["check/node_modules/typescript/bin/tsc", "-p", "."]).context("fix the errors above")?;
    announce("vitest run, in collector/ui");
    node(&["node_modules/vitest/vitest.mjs", "run"])
        .context("the failing tests are named above")?;
    announce("cargo xtask page --check");
    page_bundle::check()?;
    Ok(None)
}

/// Checks the page in a browser; `emberline` is the built command. Pictures of all pages are written to
/// `target/page-check/collector/pictures`. Returns why the page cannot be checked here, if it cannot.
///
/// # Errors
/// If a type or a check is wrong, or a program that is there cannot be started.
pub fn run(emberline: &Path) -> Result<Option<String>> {
    if let Some(reason) = missing() {
        return Ok(Some(reason));
    }
    announce("the page's checks in a browser, against `emberline demo`");
    run_with_demo(emberline, "run.mjs", CHECKS_MAX)
        .context("the checks that failed are named above")?;
    Ok(None)
}

/// Answers six questions on the page of a demo, at three widths in both themes. Prints clicks and seconds of
/// each, and writes pictures to `target/page-check/collector/pictures`.
///
/// # Errors
/// If a program is missing or an answer is not found.
pub fn walk(emberline: &Path) -> Result<()> {
    if let Some(reason) = missing() {
        bail!("the page needs a browser: {reason}");
    }
    announce("a walk through the page, against `emberline demo`");
    run_with_demo(emberline, "walk.mjs", WALK_MAX).context("the error is above")
}

/// Runs a script against a demo.
fn run_with_demo(emberline: &Path, script: &str, longest: Duration) -> Result<()> {
    let ui = prepare()?;
    let pictures = ui.with_file_name("pictures");
    fs::create_dir_all(&pictures)?;
    let demo = Collector::demo(emberline)?;
    let mut node = Command::new("node");
    // One check starts and kills a demo of its own.
    node.env("EMBERLINE_PROGRAM", emberline);
    node.current_dir(ui.join("check"))
        .args([script, &demo.url])
        .arg(&pictures);
    node.env(
        "EMBERLINE_TOKEN",
        demo.token.as_deref().context("the demo printed no token")?,
    );
    finish_within(&mut node, longest)
}

/// Measures the page's CPU time in a browser, against other flame graphs. The bench generates the
/// API's answers, so the collector serves only the page.
///
/// # Errors
/// If a program is missing or fails.
pub fn bench(emberline: &Path) -> Result<()> {
    if let Some(reason) = missing() {
        bail!("the page needs a browser: {reason}");
    }
    let ui = prepare()?;
    let check = ui.join("check");
    npm_ci(&check.join("peers"))?;
    announce("the page's CPU time in a browser");
    let arguments = ["serve", "--listen", "127.0.0.1:0"];
    let collector = Collector::start(emberline, &arguments)?;
    let mut node = Command::new("node");
    node.current_dir(check).args(["bench.mjs", &collector.url]);
    finish_within(&mut node, BENCH_MAX).context("the error is above")
}

/// Copies the page's sources below `target/` and installs the packages of its checks there.
fn prepare() -> Result<PathBuf> {
    let ui = page_bundle::prepare()?;
    npm_ci(&ui.join("check"))?;
    Ok(ui)
}

/// Why there is no page in a browser here: Chromium, which is installed if that is possible, or npm is missing.
#[must_use]
pub fn missing() -> Option<String> {
    let named = env::var_os(CHROMIUM_VARIABLE);
    if named.is_none() && !has_chromium() {
        install_chromium();
    }
    let chromium = chromium();
    if !chromium.exists() {
        return Some(format!(
            "there is no {}: install it (`apt-get install chromium`) or name another Chromium \
             with {CHROMIUM_VARIABLE}",
            chromium.display()
        ));
    }
    missing_npm()
}

fn chromium() -> PathBuf {
    env::var_os(CHROMIUM_VARIABLE).map_or(CHROMIUM.into(), PathBuf::from)
}

/// Whether there is a Chromium.
#[must_use]
pub fn has_chromium() -> bool {
    chromium().exists()
}

fn missing_npm() -> Option<String> {
    let has_npm = Command::new("npm").arg("--version").output().is_ok();
    (!has_npm).then(|| "npm was not found: install Node.js 20.19 or newer".to_owned())
}

/// Installs Debian's Chromium if we are root and there is apt-get. Its errors are on standard error,
/// and the step is skipped then.
fn install_chromium() {
    let apt_get = Path::new("/usr/bin/apt-get");
    if !geteuid().is_root() || !apt_get.exists() {
        return;
    }
    announce("apt-get install chromium");
    let mut command = Command::new(apt_get);
    command.args(["install", "--yes", "--no-install-recommends", "chromium"]);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    if let Err(error) = command.status() {
        eprintln!("apt-get could not be started: {error}");
    }
}

fn finish(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null());
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    judge(command, status)
}

fn judge(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

/// Runs a command that may start others, such as a browser, and terminates all of them after
/// `longest`. It has its own process group, so that it never waits for a terminal.
fn finish_within(command: &mut Command, longest: Duration) -> Result<()> {
    command.stdin(Stdio::null()).process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let group = Pid::from_raw(child.id().cast_signed());
    let (sender, ended) = mpsc::channel::<io::Result<ExitStatus>>();
    // Sending fails only if the receiver has given up.
    thread::spawn(move || sender.send(child.wait()).is_ok());
    if let Ok(status) = ended.recv_timeout(longest) {
        return judge(command, status?);
    }
    // SIGTERM lets it terminate its browser, which has its own process group.
    let _ = killpg(group, Signal::SIGTERM);
    if ended.recv_timeout(TERMINATION_MAX).is_err() {
        let _ = killpg(group, Signal::SIGKILL);
    }
    bail!("{command:?} was terminated: it took longer than {longest:?}")
}

/// A collector, perhaps with a live fleet, terminated cleanly when it is dropped.
pub struct Collector {
    process: Child,
    /// Its address.
    pub url: String,
    /// A demo's token of role operator.
    token: Option<String>,
}

impl Collector {
    /// Starts a demo at a free port. Its fleet would use 70% of the processors, for which the browser waits.
    fn demo(emberline: &Path) -> Result<Collector> {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(emberline);
        Collector::start_by(command.args(["demo", "--listen", "127.0.0.1:0"]))
    }

    /// Starts it and reads its address, and the token in its link, from its first lines.
    ///
    /// # Errors
    /// If it cannot be started, or ends without printing its address.
    pub fn start(emberline: &Path, arguments: &[&str]) -> Result<Collector> {
        Collector::start_by(Command::new(emberline).args(arguments))
    }

    fn start_by(command: &mut Command) -> Result<Collector> {
        let mut process = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let stderr = process
            .stderr
            .take()
            .context("its standard error is piped")?;
        let mut collector = Collector {
            process,
            url: String::new(),
            token: None,
        };
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next() {
            let line = line?;
            if line.starts_with("Open ") {
                collector.token = token_in(&line);
            }
            if let Some(url) = url_in(&line) {
                collector.url = url;
                // A later write to a closed pipe would fail.
                thread::spawn(move || lines.for_each(drop));
                return Ok(collector);
            }
        }
        bail!("`emberline` ended without printing its collector's address")
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        // This fails if it has ended by itself.
        if kill(pid, Signal::SIGTERM).is_ok() {
            let _ = self.process.wait();
        }
    }
}

/// The collector's address in the second line that `demo` or `serve` prints.
fn url_in(line: &str) -> Option<String> {
    let rest = line.split_once("collector on ")?.1;
    rest.split([',', ';']).next().map(str::to_owned)
}

/// The token in the link that `demo` prints first.
fn token_in(line: &str) -> Option<String> {
    let rest = line.split_once("#token=")?.1;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_command_is_terminated_with_its_children_and_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]);
        let error = finish_within(&mut command, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("was terminated"), "{error}");
        assert!(finish_within(&mut Command::new("true"), CHECKS_MAX).is_ok());
        let failed = finish_within(&mut Command::new("false"), CHECKS_MAX).unwrap_err();
        assert!(failed.to_string().contains("failed"), "{failed}");
    }

    #[test]
    fn the_address_is_read_from_the_output_of_the_demo() {
        let line = "collector on http://127.0.0.1:4801, 4 workers with the process ids 1, 2, 3, 4";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4801"));
        let line = "collector on http://127.0.0.1:4801; agents report there";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4801"));
        assert_eq!(url_in("127.0.0.1:4747 is in use; taking a free port"), None);
        let line = "Open http://127.0.0.1:4801/login#token=emb_1_2 in a browser";
        assert_eq!(token_in(line).as_deref(), Some("emb_1_2"));
        assert_eq!(token_in("Open http://127.0.0.1:4801 in a browser"), None);
    }
}
