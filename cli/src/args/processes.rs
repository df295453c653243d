//! Processes that already run.

use std::time::Duration;

use clap::Args;
use regex_lite::Regex;

/// Longest recording of a process.
const DURATION_MAX_S: f64 = 604_800.0;

/// Highest id that Linux gives to a process.
const PROCESS_MAX: u32 = 1 << 22;

/// Processes that already run.
#[derive(Args, Debug)]
pub(crate) struct ProcessArgs {
    /// Profile the process with this id from outside, until it ends; may be repeated.
    #[arg(long, value_name = "PID", conflicts_with = "program", value_parser = parse_process)]
    pub(crate) pid: Vec<u32>,

    /// Profile from outside the processes of this user whose name or program file matches:
    /// those that run, at least one, and others that start later.
    #[arg(long, value_name = "REGEX", conflicts_with = "program")]
    pub(crate) name: Option<Regex>,

    /// End after this time.
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "program", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// Sample running threads by stopping each 100 times a second for some 40 us: where the kernel
    /// refuses to sample them, and for functions of Python. System calls that wait may fail with EINTR.
    #[arg(long, conflicts_with = "program")]
    pub(crate) ptrace: bool,
}

impl ProcessArgs {
    /// Whether processes that already run are wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.pid.is_empty() || self.name.is_some()
    }
}

fn parse_process(text: &str) -> Result<u32, String> {
    let id = text.parse().ok();
    id.filter(|id| (1..=PROCESS_MAX).contains(id))
        .ok_or_else(|| format!("expected the id of a process, 1 to {PROCESS_MAX}; see: ps -e"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    match seconds {
        Some(seconds) if seconds > 0.0 && seconds <= DURATION_MAX_S => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!(
            "expected seconds, more than 0 and at most {DURATION_MAX_S}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_id() {
        assert_eq!(parse_process("1"), Ok(1));
        assert_eq!(parse_process("4194304"), Ok(4_194_304));
        for invalid in ["", "0", "-1", "bash", "4194305", "1 2"] {
            let error = parse_process(invalid).unwrap_err();
            assert!(error.contains("1 to 4194304"), "{invalid}: {error}");
        }
    }

    #[test]
    fn a_duration_is_a_number_of_seconds() {
        assert_eq!(parse_duration("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        for invalid in ["", "0", "-1", "nan", "1e9", "1m"] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
    }
}
