//! Commands for TLS.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `emberline tls`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline tls self-signed -o /etc/emberline  for this host and localhost\n  \
    emberline tls self-signed --name profiles.example -o tls\n\n\
    Clients trust such a certificate by its fingerprint, which is part of their URL.")]
pub(crate) struct TlsArgs {
    #[command(subcommand)]
    pub(crate) command: TlsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TlsCommand {
    /// Make a certificate and its key, and print the fingerprint for URLs.
    #[command(after_help = "Examples:\n  \
        emberline tls self-signed -o tls\n  \
        emberline tls self-signed --name profiles.example --name 10.1.2.3 -o tls")]
    SelfSigned(SelfSignedArgs),
}

/// `emberline tls self-signed`
#[derive(Args, Debug)]
pub(crate) struct SelfSignedArgs {
    /// Host name or IP address of the collector; may be repeated. `localhost`, 127.0.0.1 and ::1 are
    /// always included. Default: this host's name.
    #[arg(long = "name", value_name = "HOST")]
    pub(crate) names: Vec<String>,

    /// Folder for cert.pem and key.pem, created if it does not exist. Existing files are not replaced.
    #[arg(short, long = "out", value_name = "DIR")]
    pub(crate) out: PathBuf,
}
