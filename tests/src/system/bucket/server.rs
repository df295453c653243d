//! S3 servers as processes. They are installed into the build's folder when a test first needs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use simulation::s3_server::install;
pub(crate) use simulation::s3_server::{AUTHORIZATION, BUCKET, S3Server as Server, environment};

use crate::harness::TEST_WORKER;

/// The folder next to the programs with the servers, and the reason if one is missing.
const SERVERS: &str = "s3-servers";

/// Starts moto; `None`, with a line that says why, if it cannot be installed.
pub(crate) fn start() -> Option<Server> {
    start_with(&[])
}

/// A server that knows no credentials, so it rejects all.
pub(crate) fn start_strict() -> Option<Server> {
    // The creation of the bucket is admitted.
    start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")])
}

fn start_with(environment: &[(&str, &str)]) -> Option<Server> {
    static MOTO_SERVER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match MOTO_SERVER.get_or_init(installed) {
        Ok(program) => Some(Server::start(program, environment).unwrap()),
        Err(reason) => {
            println!("skipped: no S3 server: {reason}");
            None
        }
    }
}

fn installed() -> Result<PathBuf, String> {
    let build = Path::new(TEST_WORKER).parent().expect("it is in a folder");
    let servers = build.join(SERVERS);
    install(&servers).map_err(|error| {
        let reason = format!("{error:#}");
        // `cargo xtask test` reads it.
        fs::create_dir_all(&servers)
            .and_then(|()| fs::write(servers.join("missing"), &reason))
            .map_or_else(|error| error.to_string(), |()| reason)
    })
}
