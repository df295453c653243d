//! Control of the running agent by its collector: changes of settings, and thread dumps.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use profiler_core::limits::{bounded, bounded_name};
use profiler_core::wire::v1::{self, agent_message::Kind};
use profiler_core::wire::{
    AppliedSettings, WireError, decode_settings, encode_applied, encode_thread_dump,
};

use super::allowance::Allowance;
use crate::control::{Control, SymbolReply, SymbolRequest, ThreadDumpReply};
use system::sync::lock;

/// Most requests that wait for a dump. Further ones are rejected.
const REQUESTS_MAX: usize = 16;

/// Most thread dumps at once, and per second after that. Each visits every thread.
const DUMPS_MAX: u32 = 16;
const DUMPS_PER_SECOND: u32 = 2;

/// Longest build id in hexadecimal; a longer one is of no module.
const BUILD_ID_TEXT_MAX: usize = 128;

/// Most changes of settings at once, and per second after that. Each ends a cycle.
const SETTINGS_MAX: u32 = 16;
pub(super) const SETTINGS_PER_SECOND: u32 = 1;

/// How often to check whether the sampler has applied changed settings, because it wakes nobody.
const APPLY_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often to repeat the settings when nothing else is sent: a collector takes a silent host for dead,
/// and an agent that is switched off has nothing to flush.
const REPORT_INTERVAL: Duration = Duration::from_secs(20);

/// The requests of one stream's collector, and their answers.
#[derive(Debug)]
pub(crate) struct ControlStream<'a> {
    control: &'a Control,
    dump_reply: &'a Mutex<Option<ThreadDumpReply>>,
    requests: VecDeque<DumpRequest>,
    /// The latest unanswered request for symbols.
    symbols: Option<SymbolRequest>,
    /// The settings that were sent last.
    reported: Option<AppliedSettings>,
    dumps: Allowance,
    changes: Allowance,
}

/// Why requested settings change nothing.
#[derive(Debug)]
pub(super) enum ControlError {
    Invalid(WireError),
    TooOften,
}

#[derive(Clone, Copy, Debug)]
struct DumpRequest {
    /// The collector's id of the request.
    id: u64,
    /// The number from [`Control`]; `None` if the request is rejected.
    number: Option<u64>,
}

impl<'a> ControlStream<'a> {
    pub(crate) fn new(
        control: &'a Control,
        dump_reply: &'a Mutex<Option<ThreadDumpReply>>,
    ) -> Self {
        let now = Instant::now();
        ControlStream {
            control,
            dump_reply,
            requests: VecDeque::new(),
            symbols: None,
            reported: None,
            dumps: Allowance::new(DUMPS_MAX, DUMPS_PER_SECOND, now),
            changes: Allowance::new(SETTINGS_MAX, SETTINGS_PER_SECOND, now),
        }
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// If they are invalid or come too often; then nothing changes.
    pub(super) fn settings(&mut self, message: &v1::Settings) -> Result<(), ControlError> {
        if !self.changes.take_one(Instant::now()) {
            return Err(ControlError::TooOften);
        }
        let (revision, change) = decode_settings(message).map_err(ControlError::Invalid)?;
        self.control.change(revision, change);
        Ok(())
    }

    /// Requests a thread dump.
    pub(crate) fn request_dump(&mut self, request: v1::ThreadDumpRequest) {
        let has_room = self.requests.len() < REQUESTS_MAX;
        let is_accepted = has_room && self.dumps.take_one(Instant::now());
        let number = is_accepted.then(|| self.control.request_dump());
        if !has_room {
            // The client of the oldest request is the most likely to have given up.
            self.requests.pop_front();
        }
        self.requests.push_back(DumpRequest {
            id: request.id,
            number,
        });
    }

    /// Requests a piece of symbols. The symbolizer limits how fast they are read.
    pub(super) fn request_symbols(&mut self, request: &v1::SymbolRequest) {
        let request = SymbolRequest {
            id: request.id,
            build_id: bounded(&request.build_id, BUILD_ID_TEXT_MAX).into_owned(),
            offset: request.offset,
        };
        self.control.request_symbols(request.clone());
        self.symbols = Some(request);
    }

    /// Whether [`ControlStream::next`] would return a message.
    pub(crate) fn has_next(&self) -> bool {
        self.unreported_settings().is_some()
            || self.next_answerable().is_some()
            || self
                .symbols
                .as_ref()
                .is_some_and(|request| self.control.has_symbols(request))
    }

    /// Returns how long to wait for a wake-up before checking [`ControlStream::has_next`] again.
    pub(crate) fn poll_interval(&self) -> Duration {
        if self.control.desired().1 {
            REPORT_INTERVAL
        } else {
            APPLY_POLL_INTERVAL
        }
    }

    /// Sends the settings again, after a silence of [`REPORT_INTERVAL`].
    pub(crate) fn repeat_settings(&mut self) {
        if self.control.desired().1 {
            self.reported = None;
        }
    }

    /// Returns the next message.
    pub(crate) fn next(&mut self) -> Option<Kind> {
        if let Some(applied) = self.unreported_settings() {
            self.reported = Some(applied.clone());
            return Some(Kind::Applied(encode_applied(applied)));
        }
        if let Some(index) = self.next_answerable() {
            let request = self.requests.remove(index)?;
            return Some(Kind::ThreadDump(self.answer(request)));
        }
        let reply = self.control.take_symbols(self.symbols.as_ref()?)?;
        self.symbols = None;
        Some(Kind::SymbolPiece(encode_symbols(reply)))
    }

    /// Returns the settings, if they are applied and were not sent yet.
    fn unreported_settings(&self) -> Option<AppliedSettings> {
        let (wanted, applied) = self.control.desired();
        let mode = bounded_name(&self.control.mode().to_string()).into_owned();
        let current = AppliedSettings {
            revision: wanted.revision,
            settings: wanted.settings,
            mode,
            signal_blocked: self.control.signal_blocked(),
        };
        (applied && self.reported.as_ref() != Some(&current)).then_some(current)
    }

    fn next_answerable(&self) -> Option<usize> {
        let answered = lock(self.dump_reply)
            .as_ref()
            .map_or(0, |reply| reply.request);
        let off = self.is_off();
        let done = |request: &DumpRequest| request.number.is_none_or(|number| number <= answered);
        self.requests
            .iter()
            .position(|request| off || done(request))
    }

    fn answer(&self, request: DumpRequest) -> v1::ThreadDump {
        let unavailable = |why: &str| v1::ThreadDump {
            id: request.id,
            unavailable: why.to_owned(),
            ..Default::default()
        };
        match (request.number, &*lock(self.dump_reply)) {
            (None, _) => unavailable("too many thread dumps requested at once; try again later"),
            (Some(number), Some(now)) if number <= now.request => {
                encode_thread_dump(request.id, &now.dump)
            }
            _ => unavailable("sampling is off; switch it on with `enabled`"),
        }
    }

    fn is_off(&self) -> bool {
        let (wanted, applied) = self.control.desired();
        applied && !wanted.settings.enabled
    }
}

fn encode_symbols(SymbolReply { request, piece }: SymbolReply) -> v1::SymbolPiece {
    let id = request.id;
    match piece {
        Ok(piece) => v1::SymbolPiece {
            id,
            bytes: piece.bytes,
            content: piece.content,
            ..Default::default()
        },
        Err(reason) => v1::SymbolPiece {
            id,
            unavailable: reason.to_owned(),
            ..Default::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::{ThreadDump, encode_settings};
    use profiler_core::{Settings, SettingsChange, StateSet};

    use super::*;

    const SETTINGS: Settings = Settings {
        interval_ns: 10_000_000,
        enabled: true,
        states: StateSet::ALL,
    };

    const OFF: SettingsChange = SettingsChange {
        interval_ns: None,
        enabled: Some(false),
        states: None,
    };

    fn none() -> Mutex<Option<ThreadDumpReply>> {
        Mutex::new(None)
    }

    fn answered(dump_reply: &Mutex<Option<ThreadDumpReply>>, number: u64) {
        let empty = ThreadDump {
            threads: Vec::new(),
            omitted: number,
        };
        *dump_reply.lock().unwrap() = Some(ThreadDumpReply {
            request: number,
            dump: empty,
        });
    }

    fn applied(kind: Option<Kind>) -> Option<(u64, bool)> {
        match kind? {
            Kind::Applied(applied) => Some((applied.revision, applied.enabled)),
            other => panic!("{other:?}"),
        }
    }

    /// The id of an answer, and why there is no dump.
    fn dump(kind: Option<Kind>) -> Option<(u64, String)> {
        match kind? {
            Kind::ThreadDump(dump_reply) => Some((dump_reply.id, dump_reply.unavailable)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_are_sent_when_applied_and_repeated_after_a_silence() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        assert_eq!(
            applied(stream.next()),
            Some((0, true)),
            "once, at the start"
        );
        assert_eq!(
            (stream.has_next(), stream.poll_interval()),
            (false, REPORT_INTERVAL)
        );
        stream.settings(&encode_settings(5, OFF)).unwrap();
        assert_eq!(
            (stream.has_next(), stream.poll_interval()),
            (false, APPLY_POLL_INTERVAL)
        );
        stream.repeat_settings();
        assert_eq!(stream.next(), None, "not before the sampler has them");
        control.set_applied(1);
        assert_eq!(applied(stream.next()), Some((5, false)));
        assert_eq!(stream.next(), None);
        stream.repeat_settings();
        assert_eq!(applied(stream.next()), Some((5, false)));
        control.start(crate::SamplerMode::Full);
        assert!(stream.has_next(), "a changed mode is sent too");
        stream.next().unwrap();
        let since = profiler_core::Timestamp::from_unix_ns(7);
        let blocked = profiler_core::wire::SignalBlocked { threads: 2, since };
        control.set_signal_blocked(Some(blocked));
        let Some(Kind::Applied(sent)) = stream.next() else {
            panic!("nothing to send")
        };
        assert_eq!(
            (sent.signal_blocked_threads, sent.signal_blocked_since_ns),
            (2, 7)
        );
    }

    #[test]
    fn invalid_settings_change_nothing() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        let wrong = SettingsChange {
            interval_ns: Some(1),
            ..OFF
        };
        stream.settings(&encode_settings(5, wrong)).unwrap_err();
        let (wanted, applied) = control.desired();
        assert_eq!(
            (wanted.settings, wanted.revision, applied),
            (SETTINGS, 0, true)
        );
    }

    #[test]
    fn each_request_is_answered_once_by_a_later_dump() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        stream.next().unwrap();
        stream.request_dump(v1::ThreadDumpRequest { id: 50 });
        answered(&dump_reply, 1);
        stream.request_dump(v1::ThreadDumpRequest { id: 60 });
        assert_eq!(dump(stream.next()), Some((50, String::new())));
        assert_eq!(
            stream.next(),
            None,
            "a dump that is older than the request is not its answer"
        );
        answered(&dump_reply, 2);
        assert_eq!(dump(stream.next()), Some((60, String::new())));
        assert_eq!(stream.next(), None);
    }

    #[test]
    fn requests_are_rejected_while_sampling_is_off() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        stream.next().unwrap();
        stream.request_dump(v1::ThreadDumpRequest { id: 50 });
        stream.settings(&encode_settings(5, OFF)).unwrap();
        assert_eq!(stream.next(), None);
        control.set_applied(1);
        assert_eq!(applied(stream.next()), Some((5, false)));
        let why = "sampling is off; switch it on with `enabled`".to_owned();
        assert_eq!(dump(stream.next()), Some((50, why)));
    }

    /// However often they are answered.
    #[test]
    fn the_sampler_makes_a_limited_number_of_dumps_a_second() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        stream.next().unwrap();
        let begin = Instant::now();
        for id in 0..1_000 {
            stream.request_dump(v1::ThreadDumpRequest { id });
            answered(&dump_reply, control.dump_requested());
            assert_eq!(dump(stream.next()).map(|(answered, _)| answered), Some(id));
        }
        let refilled = begin.elapsed().as_secs() * u64::from(DUMPS_PER_SECOND) + 1;
        assert!(control.dump_requested() <= u64::from(DUMPS_MAX) + refilled);
    }

    #[test]
    fn settings_that_come_too_often_are_rejected() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        let mut accepted = 0;
        for revision in 1..1_000 {
            match stream.settings(&encode_settings(revision, OFF)) {
                Ok(()) => accepted = revision,
                Err(ControlError::TooOften) => break,
                Err(ControlError::Invalid(error)) => panic!("{error}"),
            }
        }
        assert!(
            (u64::from(SETTINGS_MAX)..999).contains(&accepted),
            "{accepted}"
        );
        assert_eq!(control.desired().0.revision, accepted);
    }

    #[test]
    fn requests_past_the_limit_are_rejected() {
        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut stream = ControlStream::new(&control, &dump_reply);
        stream.next().unwrap();
        (0..REQUESTS_MAX as u64 + 2)
            .for_each(|id| stream.request_dump(v1::ThreadDumpRequest { id }));
        assert_eq!(stream.requests.len(), REQUESTS_MAX);
        let mut refused = 0;
        while let Some((id, why)) = dump(stream.next()) {
            assert!(id >= REQUESTS_MAX as u64, "{id}");
            assert_eq!(
                why,
                "too many thread dumps requested at once; try again later"
            );
            refused += 1;
        }
        assert_eq!(refused, 2);
    }

    #[test]
    fn the_latest_request_for_symbols_is_answered_once() {
        use crate::control::SymbolPiece;

        let control = Control::new(SETTINGS);
        let dump_reply = none();
        let mut earlier = ControlStream::new(&control, &dump_reply);
        earlier.next();
        let request = |offset| v1::SymbolRequest {
            id: 1,
            build_id: "59fd0a2c".to_owned(),
            offset,
        };
        earlier.request_symbols(&request(0));
        let of_earlier = control.take_symbol_request().unwrap();
        let reply = |request, text: &str| SymbolReply {
            request,
            piece: Ok(SymbolPiece {
                bytes: 9,
                content: text.into(),
            }),
        };
        // The next stream uses the same id for something else.
        let mut stream = ControlStream::new(&control, &dump_reply);
        stream.next();
        stream.request_symbols(&request(4));
        control.answer_symbols(reply(of_earlier, "early"));
        assert!(!stream.has_next() && !earlier.has_next());
        let request = control.take_symbol_request().unwrap();
        assert_eq!((request.id, request.offset), (1, 4));
        assert_eq!(control.take_symbol_request(), None);
        assert!(!stream.has_next());
        control.answer_symbols(reply(request.clone(), "later"));
        assert!(stream.has_next() && !earlier.has_next());
        let Some(Kind::SymbolPiece(piece)) = stream.next() else {
            panic!()
        };
        assert_eq!(
            (piece.id, piece.bytes, &*piece.content),
            (1, 9, &b"later"[..])
        );
        assert!(!stream.has_next() && stream.next().is_none());

        stream.request_symbols(&v1::SymbolRequest {
            build_id: "5".repeat(1 << 20),
            ..Default::default()
        });
        let request = control.take_symbol_request().unwrap();
        assert!(request.build_id.len() <= BUILD_ID_TEXT_MAX);
        control.answer_symbols(SymbolReply {
            request,
            piece: Err("it is gone"),
        });
        let Some(Kind::SymbolPiece(piece)) = stream.next() else {
            panic!()
        };
        assert_eq!(
            (&*piece.unavailable, piece.content.len()),
            ("it is gone", 0)
        );
    }
}
