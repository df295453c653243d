//! The page in a real browser: its types, and `collector/ui/check` against a live demo.
//!
//! What npm installs lies below `target/`, never beside the sources. Without a browser or npm this
//! step is left out, with a word on how to get them: nothing else depends on it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::announce;
use crate::root;

/// Where Debian's `chromium` is; another one is named by the environment.
const CHROMIUM: &str = "/usr/bin/chromium";
const CHROMIUM_VARIABLE: &str = "EMBERLINE_CHROMIUM";

/// Checks the page; `emberline` is the built command. Pictures of all pages are left in
/// `target/page-check/pictures`.
///
/// # Errors
/// If a type or a check is wrong, or what is there cannot be started.
pub(super) fn run(emberline: &Path) -> Result<()> {
    if let Some(reason) = missing() {
        announce(&format!("the page in a browser: left out, for {reason}"));
        return Ok(());
    }
    let folder = root().join("target/page-check");
    let ui = folder.join("ui");
    let pictures = folder.join("pictures");
    copy(&root().join("collector/ui"), &ui)?;
    fs::create_dir_all(&pictures)?;
    let check = ui.join("check");
    for packages in [&ui, &check] {
        npm_ci(packages)?;
    }
    announce("tsc -p collector/ui");
    finish(Command::new("node").current_dir(&ui).args([
        "check/node_modules/typescript/bin/tsc",
        "-p",
        ".",
    ]))
    .context("mend what the compiler says above")?;
    announce("the page's checks in a browser, against `emberline demo`");
    let demo = Demo::start(emberline)?;
    finish(Command::new("node").current_dir(&check).args(["run.mjs", &demo.url]).arg(&pictures))
        .context("the checks that failed are named above")
}

/// Why the page cannot be checked here.
fn missing() -> Option<String> {
    let chromium = env::var_os(CHROMIUM_VARIABLE).map_or(PathBuf::from(CHROMIUM), PathBuf::from);
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
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
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
        let mut process = Command::new(emberline)
            .args(["demo", "--listen", "127.0.0.1:0"])
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
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(demo);
            }
        }
        bail!("`emberline demo` ended without saying where its collector is")
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

/// The collector's address in the demo's first line.
fn url_in(line: &str) -> Option<String> {
    let rest = line.split_once("collector on ")?.1;
    rest.split(',').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_what_the_demo_says() {
        let line = "collector on http://127.0.0.1:4801, 4 workers with the process ids 1, 2, 3, 4";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4801"));
        assert_eq!(url_in("127.0.0.1:4747 is in use; taking a free port"), None);
    }
}
