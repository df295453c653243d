//! How long a collector retains data.

use std::time::Duration;

use clap::Args;
use collector::Retention;
use collector::limits::{RETENTION_BYTES_LEAST, RETENTION_MAX, RETENTION_MIN};

/// Retention by tier.
#[derive(Args, Debug)]
#[command(next_help_heading = "Retention")]
pub(crate) struct RetentionArgs {
    /// Retention of samples by second, and of resources, 1h to 3650d. A gap in the data counts as at most
    /// a day.
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age)]
    pub(crate) retention_seconds: Duration,

    /// Retention of single tasks and transfers, 1h to 3650d.
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
    pub(crate) retention_tasks: Duration,

    /// Retention of samples by minute, hour and day, 1h to 3650d.
    #[arg(long, value_name = "AGE", default_value = "365d", value_parser = age)]
    pub(crate) retention_rollups: Duration,

    /// Maximum size of all tables, at least 10MB; beyond it the oldest detail is deleted first. 1GB is
    /// 1000MB, 1GiB is 1024MiB.
    #[arg(long, value_name = "SIZE", default_value = "10GB", value_parser = size)]
    pub(crate) retention_size: u64,
}

impl From<&RetentionArgs> for Retention {
    fn from(args: &RetentionArgs) -> Retention {
        Retention {
            seconds: args.retention_seconds,
            rollups: args.retention_rollups,
            tasks: args.retention_tasks,
            bytes_max: args.retention_size,
        }
    }
}

/// Splits a text into a number and the factor of its unit.
pub(super) fn split_unit(text: &str, units: &[(&str, u64)]) -> Option<(u64, u64)> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let (_, factor) = units
        .iter()
        .find(|(unit, _)| *unit == &text[digits.len()..])?;
    Some((digits.parse().ok()?, *factor))
}

/// An age such as `12h`, `7d` or `1y`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [
        ("h", 3_600),
        ("d", 86_400),
        ("w", 7 * 86_400),
        ("y", 365 * 86_400),
    ];
    let (number, factor) = split_unit(text, &UNITS).ok_or_else(|| {
        "an age is a whole number with its unit (h, d, w, y), such as 12h or 30d".to_owned()
    })?;
    let age = Duration::from_secs(number.saturating_mul(factor));
    if !(RETENTION_MIN..=RETENTION_MAX).contains(&age) {
        return Err("it must be from 1h to 3650d".to_owned());
    }
    Ok(age)
}

/// A size such as `500MB` or `2GiB`, in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    match any_size(text)? {
        bytes if bytes >= RETENTION_BYTES_LEAST => Ok(bytes),
        _ => Err("it must be at least 10MB".to_owned()),
    }
}

/// The same without a least size.
pub(super) fn any_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 6] = [
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let (number, factor) = split_unit(text, &UNITS).ok_or_else(|| {
        "a size is a whole number with its unit (MB, GB, TB, MiB, GiB, TiB), such as 500MB or 2GiB"
            .to_owned()
    })?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "it must be at most 16777215TiB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    fn retention(words: &str) -> Result<Retention, clap::Error> {
        let words = ["emberline"].into_iter().chain(words.split(' '));
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Command::Serve(args) => Retention::from(&args.retention),
            Command::Demo(args) => Retention::from(&args.retention),
            other => panic!("{other:?} has no store"),
        })
    }

    #[test]
    fn defaults_are_those_of_the_collector() {
        for command in ["serve", "demo"] {
            assert_eq!(retention(command).unwrap(), Retention::default());
        }
    }

    #[test]
    fn ages_and_sizes_have_units() {
        let typed = "--retention-seconds 12h --retention-tasks 2w --retention-rollups 2y";
        for command in ["serve", "demo"] {
            let typed = format!("{command} {typed} --retention-size 2GiB");
            let expected = Retention {
                seconds: days(1) / 2,
                tasks: days(14),
                rollups: days(730),
                bytes_max: 2 << 30,
            };
            assert_eq!(retention(&typed).unwrap(), expected);
        }
        assert_eq!(size("10MB"), Ok(RETENTION_BYTES_LEAST));
        assert_eq!(
            [age("1h"), age("3650d")],
            [Ok(RETENTION_MIN), Ok(RETENTION_MAX)]
        );
    }

    fn days(count: u64) -> Duration {
        Duration::from_secs(count * 86_400)
    }

    #[test]
    fn invalid_ages_and_sizes_are_rejected_with_a_hint() {
        for (typed, hint) in [
            ("--retention-seconds 604800", "such as 12h or 30d"),
            ("--retention-seconds 7days", "such as 12h or 30d"),
            ("--retention-seconds 1.5d", "such as 12h or 30d"),
            ("--retention-tasks d", "such as 12h or 30d"),
            ("--retention-tasks 0h", "from 1h to 3650d"),
            ("--retention-rollups 11y", "from 1h to 3650d"),
            (
                "--retention-rollups 18446744073709551615y",
                "from 1h to 3650d",
            ),
            ("--retention-size 10", "such as 500MB or 2GiB"),
            ("--retention-size 10gb", "such as 500MB or 2GiB"),
            ("--retention-size 9MB", "at least 10MB"),
            (
                "--retention-size 18446744073709551615TB",
                "at most 16777215TiB",
            ),
        ] {
            let error = retention(&format!("serve {typed}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{typed}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
