//! The page in a real browser: its types, and `collector/ui/check` against a live demo.
//!
//! What npm installs lies below `target/`, never beside the sources. Without a browser or npm this
//! step is left out, with a word on how to get them: nothing else depends on it.

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

use crate::{announce, root};

/// Where Debian's `chromium` is; another one is named by the environment.
const CHROMIUM: &str = "/usr/bin/chromium";
const CHROMIUM_VARIABLE: &str = "EMBERLINE_CHROMIUM";

/// How long the checks may take on a busy machine; what hangs longer is ended and failed.
const CHECKS_MAX: Duration = Duration::from_secs(500);

/// The same of measuring: some of the peers are slow.
const BENCH_MAX: Duration = Duration::from_secs(900);

/// How long what is told to end may take to do so.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Checks the page; `emberline` is the built command. Pictures of all pages are left in
/// `target/page-check/pictures`.
///
/// # Errors
/// If a type or a check is wrong, or what is there cannot be started.
pub fn run(emberline: &Path) -> Result<()> {
    let Some(ui) = prepared()? else { return Ok(()) };
    let pictures = ui.with_file_name("pictures");
    fs::create_dir_all(&pictures)?;
    announce("tsc -p collector/ui");
    finish(Command::new("node").current_dir(&ui).args([
        "check/node_modules/typescript/bin/tsc",
        "-p",
        ".",
    ]))
    .context("mend what the compiler says above")?;
    announce("the page's checks in a browser, against `emberline demo`");
    let demo = Demo::start(emberline)?;
    let mut node = Command::new("node");
    node.current_dir(ui.join("check")).args(["run.mjs", &demo.url]).arg(&pictures);
    finish_within(&mut node, CHECKS_MAX).context("the checks that failed are named above")
}

/// Measures what the page costs its reader, beside other flame graphs in a browser. Answers are made,
/// so the collector serves the page only.
///
/// # Errors
/// If what is there cannot be started or measured.
pub fn bench(emberline: &Path) -> Result<()> {
    let Some(ui) = prepared()? else { return Ok(()) };
    let check = ui.join("check");
    npm_ci(&check.join("peers"))?;
    announce("what the page costs its reader's processor");
    let arguments = ["serve", "--listen", "127.0.0.1:0"];
    let collector = Demo::start_with(emberline, &arguments)?;
    let mut node = Command::new("node");
    node.current_dir(check).args(["bench.mjs", &collector.url]);
    finish_within(&mut node, BENCH_MAX).context("what went wrong is told above")
}

/// The page's sources and the packages of its checks, below `target/`; `None` if they cannot run.
fn prepared() -> Result<Option<PathBuf>> {
    if let Some(reason) = missing() {
        announce(&format!("the page in a browser: left out, for {reason}"));
        return Ok(None);
    }
    let ui = root().join("target/page-check/ui");
    copy(&root().join("collector/ui"), &ui)?;
    for packages in [&ui, &ui.join("check")] {
        npm_ci(packages)?;
    }
    Ok(Some(ui))
}

/// Why the page cannot be checked here.
fn missing() -> Option<String> {
    let named = env::var_os(CHROMIUM_VARIABLE);
    if named.is_none() && !Path::new(CHROMIUM).exists() {
        install_chromium();
    }
    let chromium = named.map_or(PathBuf::from(CHROMIUM), PathBuf::from);
    if !chromium.exists() {
        return Some(format!(
            "there is no {}: install it (`apt-get install chromium`) or name another Chromium \
             with {CHROMIUM_VARIABLE}",
            chromium.display()
        ));
    }
    let has_npm = Command::new("npm").arg("--version").output().is_ok();
    (!has_npm).then(|| "npm was not found: install Node.js 20.19 or newer".to_owned())
}

/// Installs Debian's Chromium where we may: as root, and where there is apt-get. What fails is told by
/// apt-get, and the step is left out then.
fn install_chromium() {
    let apt_get = Path::new("/usr/bin/apt-get");
    if !geteuid().is_root() || !apt_get.exists() {
        return;
    }
    announce("apt-get install chromium");
    let mut command = Command::new(apt_get);
    command.args(["install", "--yes", "--no-install-recommends", "chromium"]);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    if let Err(error) = command.status() {
        eprintln!("apt-get could not be started: {error}");
    }
}

/// Installs the locked packages without running scripts of theirs, unless they are there.
fn npm_ci(folder: &Path) -> Result<()> {
    let lock = fs::read(folder.join("package-lock.json"))?;
    let stamp = folder.join("installed.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    announce(&format!("npm ci, in {}", folder.display()));
    let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
    finish(Command::new("npm").current_dir(folder).args(options))?;
    Ok(fs::write(stamp, lock)?)
}

fn finish(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null());
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    judge(command, status)
}

fn judge(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

/// Runs a command that may start others, such as a browser, and ends all of them when it takes too
/// long. It has a group of processes of its own, so that it never waits for a terminal.
fn finish_within(command: &mut Command, longest: Duration) -> Result<()> {
    command.stdin(Stdio::null()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let group = Pid::from_raw(child.id().cast_signed());
    let (sender, ended) = mpsc::channel::<io::Result<ExitStatus>>();
    // It fails to send only to nobody, and then nobody need know.
    thread::spawn(move || sender.send(child.wait()).is_ok());
    if let Ok(status) = ended.recv_timeout(longest) {
        return judge(command, status?);
    }
    // Told to end, it takes its browser along, which has a group of its own.
    let _ = killpg(group, Signal::SIGTERM);
    if ended.recv_timeout(ENDING_MAX).is_err() {
        let _ = killpg(group, Signal::SIGKILL);
    }
    bail!("{command:?} was ended: it took longer than {longest:?}")
}

/// Copies the sources over those of the last time; packages and stamps stay.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let kept = to.join("src");
    if kept.exists() {
        // A file that was taken away must not be compiled any more.
        fs::remove_dir_all(kept)?;
    }
    copy_all(from, to)
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            fs::copy(entry.path(), target)?;
        } else if entry.file_name() != "node_modules" {
            copy_all(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A collector with a live fleet, ended in good order when it is dropped.
struct Demo {
    process: Child,
    url: String,
}

impl Demo {
    /// Starts it at a free port and reads from what it says where it is.
    fn start(emberline: &Path) -> Result<Demo> {
        Demo::start_with(emberline, &["demo", "--listen", "127.0.0.1:0"])
    }

    fn start_with(emberline: &Path, arguments: &[&str]) -> Result<Demo> {
        let mut process = Command::new(emberline)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", emberline.display()))?;
        let said = process.stderr.take().context("its errors are piped")?;
        let mut demo = Demo { process, url: String::new() };
        let mut lines = BufReader::new(said).lines();
        while let Some(line) = lines.next() {
            if let Some(url) = url_in(&line?) {
                demo.url = url;
                // What it says at its end must find a reader.
                thread::spawn(move || lines.for_each(drop));
                return Ok(demo);
            }
        }
        bail!("`emberline` ended without saying where its collector is")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        // It fails if the demo has ended by itself, and then there is nothing left to do.
        if kill(pid, Signal::SIGTERM).is_ok() {
            let _ = self.process.wait();
        }
    }
}

/// The collector's address in the first line of what `demo` or `serve` says.
fn url_in(line: &str) -> Option<String> {
    let rest = line.split_once("collector on ")?.1;
    rest.split([',', ';']).next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_ended_with_what_it_started_and_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]);
        let error = finish_within(&mut command, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("was ended"), "{error}");
        assert!(finish_within(&mut Command::new("true"), CHECKS_MAX).is_ok());
        let failed = finish_within(&mut Command::new("false"), CHECKS_MAX).unwrap_err();
        assert!(failed.to_string().contains("failed"), "{failed}");
    }

    #[test]
    fn the_address_is_read_from_what_the_demo_says() {
        let line = "collector on http://127.0.0.1:4801, 4 workers with the process ids 1, 2, 3, 4";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4801"));
        let line = "collector on http://127.0.0.1:4801; agents report there";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4801"));
        assert_eq!(url_in("127.0.0.1:4747 is in use; taking a free port"), None);
    }
}
