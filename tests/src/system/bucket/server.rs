//! S3 servers as processes. They are installed into the build's folder when a test first needs them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{Running, TEST_WORKER, try_output, wait_for};

/// The version of moto that is tested with. It honors `If-None-Match: *`.
const MOTO: &str = "moto[server,s3]==5.2.5";

/// The folder next to the programs with the servers, and the reason if one is missing.
const SERVERS: &str = "s3-servers";

/// A running server with one bucket.
pub(crate) struct Server {
    _process: Running,
    pub(crate) port: u16,
}

/// The bucket's name.
pub(crate) const BUCKET: &str = "profiles";

impl Server {
    /// Starts moto; `None`, with a line that says why, if it cannot be installed.
    pub(crate) fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    /// A server that knows no credentials, so it rejects all.
    pub(crate) fn start_strict() -> Option<Server> {
        // The creation of the bucket is admitted.
        Server::start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")])
    }

    fn start_with(environment: &[(&str, &str)]) -> Option<Server> {
        static MOTO_SERVER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let program = match MOTO_SERVER.get_or_init(install) {
            Ok(program) => program,
            Err(reason) => {
                println!("skipped: no S3 server: {reason}");
                return None;
            }
        };
        let port = free_port();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { _process: Running::without_limit(child), port };
        wait_for("the S3 server", || {
            let made = ureq::put(&server.url(&format!("/{BUCKET}")))
                .header("Authorization", AUTHORIZATION)
                .send_empty();
            made.ok()
        });
        Some(server)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Whether the bucket has this object.
    pub(crate) fn has(&self, path: &str) -> bool {
        let url = self.url(&format!("/{BUCKET}/{path}"));
        ureq::get(&url).header("Authorization", AUTHORIZATION).call().is_ok()
    }

    /// The variables of a client.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        environment(self.port)
    }
}

/// moto takes any signature.
pub(crate) const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=a";

/// The variables of a client of the server at this port.
pub(crate) fn environment(port: u16) -> Vec<(String, String)> {
    [
        ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "a".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "a".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Installs moto with Python's own tools. Returns its server.
fn install() -> Result<PathBuf, String> {
    let build = Path::new(TEST_WORKER).parent().expect("it is in a folder");
    let folder = build.join(SERVERS).join(MOTO.replace(['[', ']', ',', '='], "-"));
    let program = folder.join("bin/moto_server");
    let marker = folder.join("installed");
    if marker.exists() {
        return Ok(program);
    }
    let installed = install_in(&folder);
    match &installed {
        Ok(()) => fs::write(marker, ""),
        // `cargo xtask test` reads it.
        Err(reason) => fs::create_dir_all(build.join(SERVERS))
            .and_then(|()| fs::write(build.join(SERVERS).join("missing"), reason)),
    }
    .map_err(|error| error.to_string())?;
    installed.map(|()| program)
}

fn install_in(folder: &Path) -> Result<(), String> {
    let run = |program: &Path, arguments: &[&str]| {
        let done = try_output(Command::new(program).args(arguments).stdin(Stdio::null()));
        match done {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let shown = folder.display().to_string();
    run(Path::new("python3"), &["-m", "venv", "--clear", &shown])
        .map_err(|error| format!("python3 -m venv fails: {error}"))?;
    run(&folder.join("bin/pip"), &["install", "--quiet", MOTO])
        .map_err(|error| format!("pip install {MOTO} fails: {error}"))
}
