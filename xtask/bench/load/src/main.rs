//! The load program without any peer: no profiler, or Emberline's agent.

use std::process::ExitCode;

fn main() -> ExitCode {
    emberline_load::main(&[])
}
