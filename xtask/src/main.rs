//! Developer commands: `cargo xtask --help`.

mod proto;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands of Emberline.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Proto => proto::write(),
    }
}
