//! An S3 server as a process. It is installed into a folder when it is first needed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::pypi;

/// The version of moto that is tested with. It honors `If-None-Match: *`.
const MOTO: &str = "moto[server,s3]==5.2.5";

/// The bucket's name.
pub const BUCKET: &str = "profiles";

/// moto takes any signature.
pub const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=a";

/// Longest wait until it answers.
const START_MAX: Duration = Duration::from_secs(120);

/// A running server with one bucket; killed when it is dropped.
#[derive(Debug)]
pub struct S3Server {
    process: Child,
    /// Its port on this machine.
    pub port: u16,
}

impl S3Server {
    /// Starts the server that [`install`] returned, with these variables, and makes the bucket.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(program: &Path, environment: &[(&str, &str)]) -> Result<S3Server> {
        let port = free_port()?;
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let server = S3Server { process, port };
        let begin = Instant::now();
        while let Err(error) = server.make_bucket() {
            if begin.elapsed() > START_MAX {
                return Err(error).context("the S3 server does not answer");
            }
            // Paces requests; does not replace one.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn make_bucket(&self) -> Result<()> {
        let request = ureq::put(self.url(&format!("/{BUCKET}")));
        request.header("Authorization", AUTHORIZATION).send_empty()?;
        Ok(())
    }

    /// Its address, with a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The variables of a client.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        environment(self.port)
    }

    /// The process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The variables of a client of the server at this port.
#[must_use]
pub fn environment(port: u16) -> Vec<(String, String)> {
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
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Installs moto below `folder`, once. Returns its server.
///
/// # Errors
/// If it cannot be installed.
pub fn install(folder: &Path) -> Result<PathBuf> {
    Ok(pypi::install(folder, MOTO)?.join("moto_server"))
}
