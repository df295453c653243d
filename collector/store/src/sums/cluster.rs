//! A cluster that sums tables in place of this process: what it is asked, and what it answers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Samples of stores to sum by store, node and state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRequest {
    /// Sums have the place of their store in this list.
    pub stores: Vec<StoreSamples>,
}

/// Samples of one store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSamples {
    /// Ranges of time with the files that have them.
    pub pieces: Vec<SamplePiece>,
    /// Numbers of tasks; `None` for all.
    pub tasks: Option<Vec<u32>>,
    /// Numbers of workers; `None` for all, and then files may be without that column.
    pub workers: Option<Vec<u32>>,
}

/// A range of time in one table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplePiece {
    /// Paths below the place of the stores, or below the store's folder if it is alone.
    pub files: Vec<String>,
    /// The first millisecond since the Unix epoch.
    pub from_ms: i64,
    /// The millisecond after the last one.
    pub to_ms: i64,
}

/// Time at a node in a state. As text it is `store node state weight_ns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterSum {
    /// The place of the store in the request.
    pub store: u32,
    /// The store's number of the node.
    pub node: u32,
    /// The number of the state.
    pub state: u8,
    /// Nanoseconds.
    pub weight_ns: u64,
}

/// A line that is no sum.
#[derive(Debug, thiserror::Error)]
#[error("expected four numbers: store node state weight_ns")]
pub struct NoClusterSum;

impl fmt::Display for ClusterSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.store, self.node, self.state, self.weight_ns
        )
    }
}

impl FromStr for ClusterSum {
    type Err = NoClusterSum;

    fn from_str(line: &str) -> Result<ClusterSum, NoClusterSum> {
        fn number<T: FromStr>(text: Option<&str>) -> Result<T, NoClusterSum> {
            text.and_then(|text| text.parse().ok()).ok_or(NoClusterSum)
        }
        let mut numbers = line.split(' ');
        let sum = ClusterSum {
            store: number(numbers.next())?,
            node: number(numbers.next())?,
            state: number(numbers.next())?,
            weight_ns: number(numbers.next())?,
        };
        numbers.next().is_none().then_some(sum).ok_or(NoClusterSum)
    }
}

/// A cluster that sums files.
pub trait SumCluster: fmt::Debug + Send + Sync {
    /// Bytes of files from which on it is asked.
    fn bytes_min(&self) -> u64;

    /// The sums of a request, in any order.
    ///
    /// # Errors
    /// The reason why there are no sums.
    fn sums(
        &self,
        asked: &ClusterRequest,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<ClusterSum>, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_a_line_of_four_numbers() {
        let sum = ClusterSum {
            store: 1,
            node: 70_000,
            state: 6,
            weight_ns: u64::MAX,
        };
        assert_eq!(sum.to_string(), "1 70000 6 18446744073709551615");
        assert_eq!(sum.to_string().parse::<ClusterSum>().unwrap(), sum);
        for line in [
            "",
            "1 2 3",
            "1 2 3 4 5",
            "1 2 3 -4",
            "1 2 256 4",
            "1  2 3 4",
            "a 2 3 4",
        ] {
            assert!(line.parse::<ClusterSum>().is_err(), "{line:?}");
        }
    }
}
