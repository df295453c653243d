//! Settings and thread dumps on the wire.

use super::{WireError, check_size, v1};
use crate::Timestamp;
use crate::limits::{DUMP_THREADS_MAX, INTERVAL_MAX, INTERVAL_MIN, NAME_BYTES_MAX};
use crate::{NodeId, Settings, SettingsChange, State, StateSet, ThreadSnapshot};

/// States as numbers of a thread dump. [`State::Interpreter`] is a kind of `Lock` there.
const STATES: &[State] = State::ALL.split_at(State::Interpreter as usize).0;

/// Encodes a settings change with its revision.
#[must_use]
pub fn encode_settings(revision: u64, change: SettingsChange) -> v1::Settings {
    let states = change.states.map(encode_states);
    v1::Settings {
        revision,
        interval_ns: change.interval_ns,
        enabled: change.enabled,
        states: states.map(|states| states.bits),
        locks: states.map_or(0, |states| states.locks),
    }
}

/// Decodes a settings change with its revision.
///
/// # Errors
/// If the interval is out of bounds, or the set of states is empty or has unknown states.
pub fn decode_settings(message: &v1::Settings) -> Result<(u64, SettingsChange), WireError> {
    let change = SettingsChange {
        interval_ns: message.interval_ns.map(check_interval).transpose()?,
        enabled: message.enabled,
        states: message
            .states
            .map(|bits| decode_states(bits, message.locks))
            .transpose()?,
    };
    Ok((message.revision, change))
}

/// The settings that an agent runs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppliedSettings {
    /// Revision of the last applied change; 0 if none was.
    pub revision: u64,
    /// Settings in effect.
    pub settings: Settings,
    /// Description of the sampler's mode in that process.
    pub mode: String,
    /// `None` if no thread blocks the sampler's signal.
    pub signal_blocked: Option<SignalBlocked>,
}

/// Threads that block the sampler's signal: they have no stacks while they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalBlocked {
    /// Number of such threads now; at least 1.
    pub threads: u32,
    /// When the first of them was noticed, by the agent's clock.
    pub since: Timestamp,
}

/// Encodes an agent's current settings.
#[must_use]
pub fn encode_applied(applied: AppliedSettings) -> v1::AppliedSettings {
    let AppliedSettings {
        revision,
        settings,
        mode,
        signal_blocked,
    } = applied;
    let states = encode_states(settings.states);
    v1::AppliedSettings {
        revision,
        interval_ns: settings.interval_ns,
        enabled: settings.enabled,
        states: states.bits,
        locks: states.locks,
        mode,
        signal_blocked_threads: signal_blocked.map_or(0, |blocked| blocked.threads),
        signal_blocked_since_ns: signal_blocked.map_or(0, |blocked| blocked.since.unix_ns()),
    }
}

/// Decodes an agent's current settings.
///
/// # Errors
/// If the interval is out of bounds, the set of states is empty or has unknown states, or the mode
/// is too long.
pub fn decode_applied(message: v1::AppliedSettings) -> Result<AppliedSettings, WireError> {
    check_size(
        "the sampler's mode, in bytes,",
        message.mode.len(),
        NAME_BYTES_MAX,
    )?;
    let settings = Settings {
        interval_ns: check_interval(message.interval_ns)?,
        enabled: message.enabled,
        states: decode_states(message.states, message.locks)?,
    };
    let signal_blocked = (message.signal_blocked_threads > 0).then(|| SignalBlocked {
        threads: message.signal_blocked_threads,
        since: Timestamp::from_unix_ns(message.signal_blocked_since_ns),
    });
    Ok(AppliedSettings {
        revision: message.revision,
        settings,
        mode: message.mode,
        signal_blocked,
    })
}

/// Stacks and states of all threads of one process at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadDump {
    /// The threads; their nodes are the agent's.
    pub threads: Vec<ThreadSnapshot>,
    /// Number of threads over the limit.
    pub omitted: u64,
}

/// Encodes a thread dump for the request `id`, with at most [`DUMP_THREADS_MAX`] threads.
#[must_use]
pub fn encode_thread_dump(id: u64, dump: &ThreadDump) -> v1::ThreadDump {
    let threads = dump.threads.iter().take(DUMP_THREADS_MAX);
    let excess = dump.threads.len().saturating_sub(DUMP_THREADS_MAX) as u64;
    v1::ThreadDump {
        id,
        threads: threads.map(encode_thread).collect(),
        omitted: dump.omitted.saturating_add(excess),
        unavailable: String::new(),
    }
}

fn encode_thread(thread: &ThreadSnapshot) -> v1::ThreadStack {
    let is_interpreter = thread.state == Some(State::Interpreter);
    let shown = if is_interpreter {
        Some(State::Lock)
    } else {
        thread.state
    };
    v1::ThreadStack {
        thread_id: thread.thread_id,
        name: thread.name.to_string(),
        node: thread.node.0,
        state: shown.map_or(0, |state| state as u32 + 1),
        age_ns: thread.age_ns,
        blocked_ns: thread.blocked_ns,
        is_interpreter,
    }
}

/// Decodes a thread dump over a tree of `node_count` nodes, including the root.
///
/// # Errors
/// If there are too many threads, a name is too long, a node is outside the tree, a state is
/// unknown, or a thread has only one of node and state.
pub fn decode_thread_dump(
    message: &v1::ThreadDump,
    node_count: u32,
) -> Result<ThreadDump, WireError> {
    check_size(
        "the number of threads",
        message.threads.len(),
        DUMP_THREADS_MAX,
    )?;
    let threads = message
        .threads
        .iter()
        .map(|thread| decode_thread(thread, node_count));
    Ok(ThreadDump {
        threads: threads.collect::<Result<_, _>>()?,
        omitted: message.omitted,
    })
}

fn decode_thread(thread: &v1::ThreadStack, node_count: u32) -> Result<ThreadSnapshot, WireError> {
    check_size(
        "a thread's name, in bytes,",
        thread.name.len(),
        NAME_BYTES_MAX,
    )?;
    if thread.node >= node_count {
        return Err(WireError::OutOfRange {
            what: "node",
            index: thread.node.into(),
            count: node_count.into(),
        });
    }
    let state = match thread.state.checked_sub(1) {
        None => None,
        Some(index) => match STATES.get(index as usize) {
            Some(State::Lock) if thread.is_interpreter => Some(State::Interpreter),
            Some(state) => Some(*state),
            None => {
                return Err(WireError::OutOfRange {
                    what: "state",
                    index: index.into(),
                    count: STATES.len() as u64,
                });
            }
        },
    };
    if state.is_none() != (thread.node == 0) {
        return Err(WireError::Invalid {
            what: "a thread's node",
            value: thread.node.into(),
            allowed: "0 if and only if the thread has no state",
        });
    }
    Ok(ThreadSnapshot {
        thread_id: thread.thread_id,
        name: thread.name.as_str().into(),
        node: NodeId(thread.node),
        state,
        age_ns: thread.age_ns,
        blocked_ns: thread.blocked_ns,
    })
}

fn check_interval(interval_ns: u64) -> Result<u64, WireError> {
    let bounds = INTERVAL_MIN.as_nanos()..=INTERVAL_MAX.as_nanos();
    if bounds.contains(&interval_ns.into()) {
        return Ok(interval_ns);
    }
    Err(WireError::Invalid {
        what: "the interval in nanoseconds",
        value: interval_ns.into(),
        allowed: "from 1 ms to 1 s",
    })
}

/// A set of states, as older receivers know them: waits for an interpreter's lock are among those for a lock.
#[derive(Clone, Copy)]
struct EncodedStates {
    bits: u32,
    locks: u32,
}

/// Values of `locks`.
const LOCKS_BUT_INTERPRETERS: u32 = 1;
const LOCKS_OF_INTERPRETERS: u32 = 2;

fn encode_states(states: StateSet) -> EncodedStates {
    let locks = match (
        states.contains(State::Lock),
        states.contains(State::Interpreter),
    ) {
        (true, false) => LOCKS_BUT_INTERPRETERS,
        (false, true) => LOCKS_OF_INTERPRETERS,
        _ => 0,
    };
    let as_lock = |state| match state {
        State::Interpreter => State::Lock,
        state => state,
    };
    let known: StateSet = states.states().map(as_lock).collect();
    EncodedStates {
        bits: known.bits().into(),
        locks,
    }
}

fn decode_states(bits: u32, locks: u32) -> Result<StateSet, WireError> {
    let known = StateSet::from_bits(bits)
        .filter(|set| !set.contains(State::Interpreter))
        .ok_or(WireError::Invalid {
            what: "the set of states, as bits,",
            value: bits.into(),
            allowed: "some of the states and nothing else",
        })?;
    let split = |state: State| {
        let kept = match (state, locks) {
            (State::Lock, LOCKS_BUT_INTERPRETERS) => [Some(State::Lock), None],
            (State::Lock, LOCKS_OF_INTERPRETERS) => [Some(State::Interpreter), None],
            (State::Lock, _) => [Some(State::Lock), Some(State::Interpreter)],
            (state, _) => [Some(state), None],
        };
        kept.into_iter().flatten()
    };
    Ok(known.states().flat_map(split).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Settings {
        Settings {
            interval_ns: 10_000_000,
            enabled: true,
            states: StateSet::ALL,
        }
    }

    fn thread(name: &str, node: u32, state: Option<State>) -> ThreadSnapshot {
        let node = NodeId(node);
        ThreadSnapshot {
            thread_id: 7,
            name: name.into(),
            node,
            state,
            age_ns: 5,
            blocked_ns: u64::MAX,
        }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let some = SettingsChange {
            interval_ns: Some(1_000_000),
            enabled: Some(false),
            states: Some([State::Cpu].into_iter().collect()),
        };
        for change in [some, SettingsChange::default()] {
            assert_eq!(
                decode_settings(&encode_settings(3, change)),
                Ok((3, change))
            );
        }
        let blocked = SignalBlocked {
            threads: 3,
            since: Timestamp::from_unix_ns(-5),
        };
        for signal_blocked in [None, Some(blocked)] {
            let settings = settings().with(some);
            let applied = AppliedSettings {
                revision: 3,
                settings,
                mode: "m".into(),
                signal_blocked,
            };
            assert_eq!(decode_applied(encode_applied(applied.clone())), Ok(applied));
        }
        let mut threads = vec![thread("new", 0, None)];
        threads.extend(State::ALL.map(|state| thread("pool-1", 4, Some(state))));
        let dump = ThreadDump {
            threads,
            omitted: 2,
        };
        assert_eq!(
            decode_thread_dump(&encode_thread_dump(9, &dump), 5),
            Ok(dump)
        );
    }

    #[test]
    fn an_older_receiver_sees_waits_for_an_interpreter_as_waits_for_a_lock() {
        for bits in 1..=u32::from(StateSet::ALL.bits()) {
            let set = StateSet::from_bits(bits).unwrap();
            let change = SettingsChange {
                states: Some(set),
                ..SettingsChange::default()
            };
            let message = encode_settings(1, change);
            assert_eq!(decode_settings(&message), Ok((1, change)));
            let older = v1::Settings {
                locks: 0,
                ..message
            };
            let seen = decode_settings(&older).unwrap().1.states.unwrap();
            let is_lock = set.contains(State::Lock) || set.contains(State::Interpreter);
            assert_eq!(seen.contains(State::Lock), is_lock);
        }
        let dump = ThreadDump {
            threads: vec![thread("t", 1, Some(State::Interpreter))],
            omitted: 0,
        };
        let message = encode_thread_dump(1, &dump);
        assert_eq!(message.threads[0].state, State::Lock as u32 + 1);
    }

    #[test]
    fn threads_past_the_limit_are_counted() {
        let threads = vec![thread("t", 0, None); DUMP_THREADS_MAX + 3];
        let message = encode_thread_dump(
            9,
            &ThreadDump {
                threads,
                omitted: 1,
            },
        );
        let dump = decode_thread_dump(&message, 1).unwrap();
        assert_eq!((dump.threads.len(), dump.omitted), (DUMP_THREADS_MAX, 4));
    }

    fn check_rejected<T: std::fmt::Debug>(decoded: Result<T, WireError>, expected: &str) {
        assert_eq!(decoded.unwrap_err().to_string(), expected);
    }

    #[test]
    fn invalid_settings_are_rejected() {
        for interval_ns in [0, 999_999, 1_000_000_001] {
            let change = SettingsChange {
                interval_ns: Some(interval_ns),
                ..Default::default()
            };
            let expected = format!(
                "the interval in nanoseconds is {interval_ns}; it must be from 1 ms to 1 s"
            );
            check_rejected(decode_settings(&encode_settings(1, change)), &expected);
            let settings = settings().with(change);
            let mode = String::new();
            let applied = AppliedSettings {
                revision: 1,
                settings,
                mode,
                signal_blocked: None,
            };
            check_rejected(decode_applied(encode_applied(applied)), &expected);
        }
        for bits in [0, 1 << State::Interpreter as u32, 1 << 9] {
            let expected = format!(
                "the set of states, as bits, is {bits}; it must be some of the states and nothing \
                 else"
            );
            let message = v1::Settings {
                states: Some(bits),
                ..Default::default()
            };
            check_rejected(decode_settings(&message), &expected);
        }
        let mode = "x".repeat(4097);
        let settings = settings();
        let applied = AppliedSettings {
            revision: 1,
            settings,
            mode,
            signal_blocked: None,
        };
        let expected = "the sampler's mode, in bytes, is 4097; at most 4096 is allowed";
        check_rejected(decode_applied(encode_applied(applied)), expected);
    }

    #[test]
    fn invalid_thread_dumps_are_rejected_whole() {
        check_thread(&|t| t.node = 5, "node 5 is outside its table of 5");
        let states = STATES.len();
        let expected = format!("state {states} is outside its table of {states}");
        check_thread(&|t| t.state = u32::try_from(states + 1).unwrap(), &expected);
        let expected = "a thread's node is 4; it must be 0 if and only if the thread has no state";
        check_thread(&|t| t.state = 0, expected);
        let expected = "a thread's node is 0; it must be 0 if and only if the thread has no state";
        check_thread(&|t| t.node = 0, expected);
        let expected = "a thread's name, in bytes, is 4097; at most 4096 is allowed";
        check_thread(&|t| t.name = "x".repeat(4097), expected);
        let threads = vec![v1::ThreadStack::default(); DUMP_THREADS_MAX + 1];
        let message = v1::ThreadDump {
            threads,
            ..Default::default()
        };
        let expected = "the number of threads is 20001; at most 20000 is allowed";
        check_rejected(decode_thread_dump(&message, 5), expected);
    }

    fn check_thread(change: &dyn Fn(&mut v1::ThreadStack), expected: &str) {
        let dump = ThreadDump {
            threads: vec![good(), good()],
            omitted: 0,
        };
        let mut message = encode_thread_dump(1, &dump);
        change(&mut message.threads[1]);
        check_rejected(decode_thread_dump(&message, 5), expected);
    }

    fn good() -> ThreadSnapshot {
        thread("t", 4, Some(State::Cpu))
    }

    proptest! {
        #[test]
        fn the_last_change_of_each_setting_counts(
            changes in prop::collection::vec(
                (any::<Option<u64>>(), any::<Option<bool>>(), prop::option::of(1..8u32)), 0..6),
        ) {
            let changes: Vec<SettingsChange> = changes
                .into_iter()
                .map(|(interval_ns, enabled, states)| SettingsChange {
                    interval_ns, enabled, states: states.and_then(StateSet::from_bits),
                })
                .collect();
            let one_by_one = changes.iter().fold(settings(), |all, change| all.with(*change));
            let sum = changes.iter().fold(SettingsChange::default(), |all, next| all.then(*next));
            prop_assert_eq!(settings().with(sum), one_by_one);
        }
    }
}
