//! Options of the cluster that computes large sums of queries in SQL.

use std::fmt;
use std::str::FromStr;

use clap::Args;

use super::retention::any_size;

/// Options of queries in SQL.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArgs {
    /// Scheduler of a Ballista cluster that takes sums over large tables, HOST:PORT. Its executors read the
    /// store's files: they need access to the bucket. Needs an emberline-sql with the feature `ballista`.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Cluster")]
    pub(crate) scheduler: Option<SchedulerAddress>,

    /// Size of the files that a query sums from which on the cluster takes it. Default: 2GiB.
    #[arg(long, value_name = "SIZE", requires = "scheduler", value_parser = any_size,
        help_heading = "Cluster")]
    distribute_over: Option<u64>,
}

/// Smaller sums are faster in one process.
const DISTRIBUTE_OVER_DEFAULT: u64 = 2 << 30;

impl ClusterArgs {
    pub(crate) fn distribute_over(&self) -> u64 {
        self.distribute_over.unwrap_or(DISTRIBUTE_OVER_DEFAULT)
    }
}

/// The address of a scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SchedulerAddress(String);

/// The address of a scheduler is malformed.
#[derive(Debug, thiserror::Error)]
#[error("expected HOST:PORT, such as cluster.example:50050 or [::1]:50050")]
pub(crate) struct NoAddress;

impl FromStr for SchedulerAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<SchedulerAddress, NoAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NoAddress)?;
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty()
                    && host
                        .bytes()
                        .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            }
        };
        (is_port && is_host)
            .then(|| SchedulerAddress(text.to_owned()))
            .ok_or(NoAddress)
    }
}

impl fmt::Display for SchedulerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_a_host_and_a_port() {
        for text in [
            "localhost:50050",
            "10.0.0.1:1",
            "[::1]:50050",
            "s-1.example:65535",
        ] {
            assert_eq!(text.parse::<SchedulerAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "host",
            "host:",
            ":1",
            "host:0",
            "host:65536",
            "http://host:1",
            "::1:5",
            "a/b:1",
        ] {
            assert!(text.parse::<SchedulerAddress>().is_err(), "{text}");
        }
    }
}
