//! Validation of Hello messages.

use profiler_core::limits::{LABELS_MAX, NAME_BYTES_MAX, WORKER_BYTES_MAX};
use profiler_core::wire::{PROTOCOL, v1};
use profiler_core::{Epoch, Timestamp, WorkerId};

use store::rows::AgentInfo;

/// A rejected Hello; the stream ends with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    #[error("the agent speaks protocol {given}; this collector speaks protocol {PROTOCOL} only")]
    Protocol { given: u32 },
    #[error("the worker's id has {bytes} bytes; it must have 1 to {WORKER_BYTES_MAX}")]
    Worker { bytes: usize },
    #[error("{what} has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong { what: &'static str, bytes: usize },
    #[error(
        "the session key does not belong to the epoch: another agent has it, or the key is wrong"
    )]
    Key,
    #[error("the worker has {count} labels; at most {LABELS_MAX} are allowed")]
    TooManyLabels { count: usize },
}

/// Validates a Hello. Returns the session's key and the agent's description.
pub fn check_hello(hello: v1::Hello) -> Result<(WorkerId, Epoch, AgentInfo), HelloError> {
    if hello.protocol != PROTOCOL {
        return Err(HelloError::Protocol {
            given: hello.protocol,
        });
    }
    let bytes = hello.worker.len();
    if bytes == 0 || bytes > WORKER_BYTES_MAX {
        return Err(HelloError::Worker { bytes });
    }
    let epoch = Epoch(hello.epoch);
    if !epoch.is_owned_by(&hello.session_key) {
        return Err(HelloError::Key);
    }
    let texts = [
        ("the host's name", &hello.host),
        ("the agent's version", &hello.agent_version),
        ("the sampler's mode", &hello.sampler_mode),
    ];
    let labels = hello
        .labels
        .iter()
        .flat_map(|(key, value)| [("a label's key", key), ("a label's value", value)]);
    for (what, text) in texts.into_iter().chain(labels) {
        if text.len() > NAME_BYTES_MAX {
            return Err(HelloError::TooLong {
                what,
                bytes: text.len(),
            });
        }
    }
    if hello.labels.len() > LABELS_MAX {
        return Err(HelloError::TooManyLabels {
            count: hello.labels.len(),
        });
    }
    let agent = AgentInfo {
        labels: hello.labels.into_iter().collect(),
        host: hello.host,
        pid: hello.pid,
        agent_version: hello.agent_version,
        sampler_mode: hello.sampler_mode,
        interval_ns: hello.interval_ns,
        started_at: Timestamp::from_unix_ns(hello.started_at_ns),
    };
    Ok((WorkerId(hello.worker.into()), epoch, agent))
}
