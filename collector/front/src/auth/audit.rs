//! Lines of the audit log whose number strangers could choose.

use std::collections::HashMap;
use std::time::Instant;

use profiler_core::limits::bounded;

use base::limits::{
    AUDIT_TEXT_BYTES_MAX, DENIALS_LOGGED, DENIALS_LOGGED_PER_PEER, DENIED_PEERS_MAX, DENIED_PERIOD,
};
use base::sync::{Mutex, lock, rank};

/// Logs rejected requests: each of the first of a peer in a period, later ones as a number.
#[derive(Debug, Default)]
pub struct DeniedLog {
    state: Mutex<State, rank::AuditState>,
}

#[derive(Debug, Default)]
struct State {
    period_start: Option<Instant>,
    /// Lines of each peer in this period.
    lines: HashMap<String, u32>,
    logged: u32,
    omitted: u64,
}

/// Outcome for a line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Omitted,
    Logged { omitted_before: u64 },
}

impl DeniedLog {
    /// Logs that a request was rejected.
    pub fn report(&self, peer: &str, reason: &str, method: &str, path: &str) {
        let line = lock(&self.state).admit(peer, Instant::now());
        match line {
            Line::Omitted => {}
            Line::Logged { omitted_before } => {
                let [peer, reason, method, path] =
                    [peer, reason, method, path].map(|text| bounded(text, AUDIT_TEXT_BYTES_MAX));
                let [peer, reason, method, path] = [&*peer, &*reason, &*method, &*path];
                tracing::warn!(
                    target: "audit", peer, reason, method, path, omitted_before, "request rejected"
                );
            }
        }
    }
}

impl State {
    fn admit(&mut self, peer: &str, now: Instant) -> Line {
        if self
            .period_start
            .is_none_or(|start: Instant| now.duration_since(start) >= DENIED_PERIOD)
        {
            self.period_start = Some(now);
            self.lines.clear();
            self.logged = 0;
        }
        let has_room = self.logged < DENIALS_LOGGED
            && (self.lines.len() < DENIED_PEERS_MAX || self.lines.contains_key(peer));
        if has_room {
            let lines = self.lines.entry(peer.to_owned()).or_default();
            if *lines < DENIALS_LOGGED_PER_PEER {
                *lines += 1;
                self.logged += 1;
                return Line::Logged {
                    omitted_before: std::mem::take(&mut self.omitted),
                };
            }
        }
        self.omitted += 1;
        Line::Omitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_per_peer_and_in_all_and_omitted_ones_are_counted() {
        let mut state = State::default();
        let start = Instant::now();
        for _ in 0..DENIALS_LOGGED_PER_PEER {
            assert_eq!(state.admit("a", start), logged(0));
        }
        assert_eq!(state.admit("a", start), Line::Omitted);
        assert_eq!(state.admit("a", start), Line::Omitted);
        assert_eq!(state.admit("b", start), logged(2));
        let mut peers = 2;
        while state.logged < DENIALS_LOGGED {
            peers += 1;
            assert_eq!(state.admit(&peers.to_string(), start), logged(0));
        }
        assert_eq!(state.admit("another", start), Line::Omitted);
        assert_eq!(state.admit("a", start + DENIED_PERIOD), logged(1));
        assert_eq!(state.lines.len(), 1);
    }

    fn logged(omitted_before: u64) -> Line {
        Line::Logged { omitted_before }
    }
}
