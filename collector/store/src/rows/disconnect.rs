//! How the stream of an agent ended.

use profiler_core::Timestamp;

/// The end of an agent's stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Disconnect {
    pub at: Timestamp,
    pub reason: DisconnectReason,
}

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DisconnectReason {
    /// With Goodbye: the agent reported the end of its tasks.
    Clean,
    /// The connection closed without Goodbye, shortly after a message. A killed process ends so: its
    /// system closes the connection.
    Crashed,
    /// Nothing arrived for a while: a dead machine closes no connection.
    Silent,
    /// The collector ended the stream, because of its token or an invalid message.
    Rejected,
    /// The collector stopped or was restarted, and the agent did not return.
    Unknown,
}

impl DisconnectReason {
    pub const ALL: [DisconnectReason; 5] = [
        DisconnectReason::Clean,
        DisconnectReason::Crashed,
        DisconnectReason::Silent,
        DisconnectReason::Rejected,
        DisconnectReason::Unknown,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            DisconnectReason::Clean => "clean",
            DisconnectReason::Crashed => "crashed",
            DisconnectReason::Silent => "silent",
            DisconnectReason::Rejected => "rejected",
            DisconnectReason::Unknown => "unknown",
        }
    }

    /// The reason in words.
    pub const fn cause(self) -> &'static str {
        match self {
            DisconnectReason::Clean => "the agent disconnected",
            DisconnectReason::Crashed => {
                "the connection closed without a clean disconnect: the process crashed or was killed"
            }
            DisconnectReason::Silent => {
                "messages stopped: the machine, its network or the whole process is down"
            }
            DisconnectReason::Rejected => "the collector ended the stream",
            DisconnectReason::Unknown => "no reconnect after the collector stopped",
        }
    }

    /// Recommended action for a person; `None` if there is none.
    pub fn next_step(self, pid: u32, host: &str) -> Option<String> {
        let process = format!("process {pid} on {host}");
        match self {
            DisconnectReason::Clean => None,
            DisconnectReason::Crashed => Some(format!(
                "check the exit status of {process}, and the system log there for the \
                 out-of-memory killer"
            )),
            DisconnectReason::Silent => Some(format!(
                "check that the host is reachable and that {process} runs"
            )),
            DisconnectReason::Rejected => {
                Some("read the reason in the collector's log, or run: emberline doctor".to_owned())
            }
            DisconnectReason::Unknown => Some(format!("check whether {process} still runs")),
        }
    }
}
