//! Fetches debug information from Debian's debuginfod, which serves a folder of this machine. Server and
//! client are in a network namespace of their own, because the server listens on all addresses.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use xtask::light;

use super::emberline;

/// Longest wait until the server has read the folder.
const INDEX_MAX: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// Exit code of `emberline symbols reduce` if a server does not have the file.
const NOT_FOUND_CODE: i32 = 3;

const URL: &str = "http://127.0.0.1:8002/buildid";
/// Starts the server with the arguments that follow.
const SCRIPT: &str = r#"ip link set lo up && exec debuginfod "$@""#;

/// The server, which ends with the comparison.
struct Server(Child);

impl Server {
    fn start(folder: &Path, log: &Path) -> Result<Server> {
        let mut server = unshare();
        server.args([
            "sh",
            "-c",
            SCRIPT,
            "debuginfod",
            "--database=:memory:",
            "-F",
            "-L",
        ]);
        server.arg(folder).env_remove("DEBUGINFOD_URLS");
        server.stdout(Stdio::null()).stderr(fs::File::create(log)?);
        Ok(Server(server.spawn().context("starting debuginfod")?))
    }

    /// `emberline symbols reduce` in the namespace of the server.
    fn reduce(&self, build_id: &str, output: &Path) -> Result<Output> {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.0.id().to_string()]);
        enter
            .args(["--user", "--net", "--preserve-credentials"])
            .arg(emberline()?);
        reduce(enter, &format!("{URL}/{build_id}/debuginfo"), output)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compares symbols that come from a server with those of the file itself. Returns how to get the
/// server if it is missing.
pub(super) fn run(folder: &Path) -> Result<Option<String>> {
    if Command::new("debuginfod")
        .arg("--version")
        .output()
        .is_err()
    {
        return Ok(Some("no debuginfod: apt-get install debuginfod".to_owned()));
    }
    if !unshare()
        .args(["ip", "link"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return Ok(Some(
            "debuginfod: no network namespace, or no ip (iproute2)".to_owned(),
        ));
    }
    let folder = folder.join("debuginfod");
    let served = folder.join("served");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&served)?;
    let program = light()?.join("test-worker");
    symlink(&program, served.join("worker"))?;
    let expected = folder.join("expected.symbols");
    let program = program
        .to_str()
        .context("the folder of the checkout is not UTF-8")?;
    let printed = reduce(Command::new(emberline()?), program, &expected)?;
    ensure!(
        printed.status.success(),
        "{}",
        String::from_utf8_lossy(&printed.stderr)
    );
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let build_id = printed
        .split_once("build id ")
        .and_then(|(_, rest)| rest.split_once(','));
    let (build_id, _) = build_id.with_context(|| format!("no build id in {printed:?}"))?;

    let log = folder.join("debuginfod.log");
    let server = Server::start(&served, &log)?;
    let fetched = folder.join("fetched.symbols");
    let deadline = Instant::now() + INDEX_MAX;
    loop {
        let done = server.reduce(build_id, &fetched)?;
        if done.status.success() {
            break;
        }
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        if Instant::now() > deadline {
            bail!(
                "debuginfod does not serve {program}: {error}; its log: {}",
                log.display()
            );
        }
        std::thread::sleep(RETRY_EVERY);
    }
    ensure!(
        fs::read(&expected)? == fs::read(&fetched)?,
        "other symbols come from debuginfod"
    );
    let none = server.reduce("00112233", &fetched)?;
    ensure!(
        none.status.code() == Some(NOT_FOUND_CODE),
        "a missing build id: {none:?}"
    );
    println!("debuginfod serves the symbols of {build_id}");
    Ok(None)
}

/// Runs the command that follows in a network namespace of its own.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net"]);
    unshare
}

fn reduce(mut emberline: Command, from: &str, output: &Path) -> Result<Output> {
    emberline
        .args(["symbols", "reduce", from, "--output"])
        .arg(output);
    emberline
        .output()
        .with_context(|| format!("starting {emberline:?}"))
}
