//! How many connections are open, and for how long.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::Mode;
use rustix::process::umask;

use base::limits::{
    CONNECTIONS_MAX, CONNECTIONS_MIN, DESCRIPTORS_RESERVED, HEAD_TIMEOUT, IDLE_TIMEOUT,
    STALL_TIMEOUT, UPLOAD_TIMEOUT,
};

/// An address holds at most this part of all connections.
const ADDRESS_SHARE: usize = 8;

/// The limits on connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Most open connections.
    pub open_max: usize,
    /// Most open connections of one address of another machine.
    pub address_max: usize,
    /// Longest time until a connection's first request, and for the head of each request.
    pub head_timeout: Duration,
    /// Longest time for the body of a reader's request.
    pub upload_timeout: Duration,
    /// Longest time without a request.
    pub idle_timeout: Duration,
    /// Longest time in which the peer takes nothing of what is sent to it.
    pub stall_timeout: Duration,
}

impl ConnectionLimits {
    /// The limits of a process with this many descriptors, of which the store needs
    /// [`DESCRIPTORS_RESERVED`].
    pub fn for_descriptors(descriptors: u64) -> ConnectionLimits {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let unreserved = descriptors.saturating_sub(DESCRIPTORS_RESERVED);
        let open_max = unreserved.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        ConnectionLimits {
            open_max,
            address_max: open_max / ADDRESS_SHARE,
            head_timeout: HEAD_TIMEOUT,
            upload_timeout: UPLOAD_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
        }
    }

    /// The limits of this process.
    pub fn of_process() -> ConnectionLimits {
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        // The usual limit, if the system does not tell.
        let descriptors = limit.map_or(1_024, |(soft, _)| soft);
        let limits = ConnectionLimits::for_descriptors(descriptors);
        if limits.open_max < CONNECTIONS_MAX {
            tracing::debug!(
                "at most {} connections, because the process may have {descriptors} descriptors; \
                 raise it with `ulimit -n`",
                limits.open_max
            );
        }
        limits
    }
}

/// Raises the process's soft limit on descriptors to the hard one. Shells usually set 1,024, which a
/// store and a fleet exceed.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit on descriptors stays as it is");
    }
}

/// Makes all new files of the process private to its user: also those of a data folder that others may
/// enter.
pub fn keep_files_private() {
    // The mask before does not matter: the process keeps this one.
    let _ = umask(Mode::RWXG | Mode::RWXO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_store() {
        check(1_024, 424, 53);
        check(4_096, 3_496, 437);
        check(1 << 20, CONNECTIONS_MAX, CONNECTIONS_MAX / 8);
        check(u64::MAX, CONNECTIONS_MAX, CONNECTIONS_MAX / 8);
        check(64, CONNECTIONS_MIN, CONNECTIONS_MIN / 8);
    }

    fn check(descriptors: u64, open_max: usize, address_max: usize) {
        let limits = ConnectionLimits::for_descriptors(descriptors);
        assert_eq!(
            (limits.open_max, limits.address_max),
            (open_max, address_max)
        );
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_descriptor_limit();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
    }
}
