//! Communication between the shipper and the sampler while both run: new settings, requests for
//! thread dumps, and the sampler's progress with them.
//!
//! The sampler never waits: it reads one number a tick, and takes the lock only if that number
//! changed and nobody else holds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use profiler_core::Settings;
use profiler_core::wire::{SignalBlocked, ThreadDump};

use system::clock::monotonic_ns;
use system::sync::lock;

use crate::SamplerMode;

/// Shared by one agent's threads.
#[derive(Debug)]
pub struct Control {
    desired: Mutex<DesiredSettings>,
    /// Number of the desired settings.
    desired_number: AtomicU64,
    /// Number of the settings that the sampler uses.
    applied_number: AtomicU64,
    /// Number of the latest request for a thread dump.
    dump_request: AtomicU64,
    /// Number of the latest request to flush.
    flush_request: AtomicU64,
    /// The latest of them before which everything recorded is queued for the collector.
    flush_queued: AtomicU64,
    mode: Mutex<SamplerMode>,
    /// Whether a thread of the agent has panicked.
    has_failed: AtomicBool,
    signal_blocked: Mutex<Option<SignalBlocked>>,
    symbols: Mutex<SymbolExchange>,
    /// The sampler's thread, to be woken.
    sampler: OnceLock<Thread>,
    /// When the symbolizer gives up finding names, because the agent ends.
    pub names_until: Arc<OnceLock<Instant>>,
}

/// The latest settings that were requested.
#[derive(Clone, Copy, Debug)]
pub struct DesiredSettings {
    /// Rises with each change.
    pub number: u64,
    /// The settings.
    pub settings: Settings,
    /// The collector's number for the change; 0 before the first.
    pub revision: u64,
}

/// The state of every thread at one moment; nodes are in the [`Tables`](crate::tables::Tables).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadDumpReply {
    /// Number of the request; the dump answers earlier requests too.
    pub request: u64,
    /// The stack and state of every thread.
    pub dump: ThreadDump,
}

/// A collector's request for a piece of the symbols of a module. It is compared as a whole, because
/// another stream may use the same id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolRequest {
    /// The collector's id of the request.
    pub id: u64,
    /// The module.
    pub build_id: String,
    /// Where the piece begins.
    pub offset: u64,
}

/// A piece of the symbols of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolPiece {
    /// Size of the whole.
    pub bytes: u64,
    /// The piece.
    pub content: Vec<u8>,
}

/// The symbolizer's answer, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolReply {
    /// The answered request.
    pub request: SymbolRequest,
    /// The piece, or why there is none.
    pub piece: Result<SymbolPiece, &'static str>,
}

/// At most one request and one answer.
#[derive(Debug, Default)]
struct SymbolExchange {
    request: Option<SymbolRequest>,
    reply: Option<SymbolReply>,
}

impl Control {
    /// For an agent that starts with these settings.
    pub fn new(settings: Settings) -> Control {
        Control {
            desired: Mutex::new(DesiredSettings {
                number: 0,
                settings,
                revision: 0,
            }),
            desired_number: AtomicU64::new(0),
            applied_number: AtomicU64::new(0),
            dump_request: AtomicU64::new(0),
            flush_request: AtomicU64::new(0),
            flush_queued: AtomicU64::new(0),
            mode: Mutex::new(SamplerMode::Starting),
            has_failed: AtomicBool::new(false),
            signal_blocked: Mutex::new(None),
            symbols: Mutex::default(),
            sampler: OnceLock::new(),
            names_until: Arc::default(),
        }
    }

    /// Wakes the sampler, if it sleeps.
    pub fn wake(&self) {
        if let Some(sampler) = self.sampler.get() {
            sampler.unpark();
        }
    }
}

/// The sampler's side.
impl Control {
    /// Sets the sampling mode; called on the sampler's thread.
    pub fn start(&self, mode: SamplerMode) {
        // A sampler starts once, so the cell is still empty.
        let _ = self.sampler.set(thread::current());
        self.set_mode(mode);
    }

    /// Sets the sampling mode from now on, unless a thread of the agent has failed.
    pub fn set_mode(&self, mode: SamplerMode) {
        let mut current = lock(&self.mode);
        if !self.has_failed.load(Ordering::Acquire) {
            *current = mode;
        }
    }

    /// A thread of the agent has panicked: this process is no longer sampled.
    pub fn fail(&self, reason: &str) {
        let mut current = lock(&self.mode);
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            *current = SamplerMode::Off {
                reason: reason.into(),
            };
        }
    }

    /// Sets the threads that block the sampler's signal now; not while another thread reads them: the
    /// next cycle sets them again.
    pub fn set_signal_blocked(&self, blocked: Option<SignalBlocked>) {
        if let Ok(mut known) = self.signal_blocked.try_lock() {
            *known = blocked;
        }
    }

    /// The sampling mode in this process.
    pub fn mode(&self) -> SamplerMode {
        lock(&self.mode).clone()
    }

    /// The desired settings, if they are newer than the sampler's. Also `None` while they are being
    /// changed: the sampler tries again at its next tick.
    pub fn newer_than(&self, number: u64) -> Option<DesiredSettings> {
        if self.desired_number.load(Ordering::Acquire) == number {
            return None;
        }
        self.desired.try_lock().ok().map(|desired| *desired)
    }

    /// The sampler now uses the settings with this number.
    pub fn set_applied(&self, number: u64) {
        self.applied_number.store(number, Ordering::Release);
    }

    /// Number of the latest request for a thread dump; 0 before the first.
    pub fn dump_requested(&self) -> u64 {
        self.dump_request.load(Ordering::Acquire)
    }

    /// Number of the latest request to flush; 0 before the first.
    pub fn flush_requested(&self) -> u64 {
        self.flush_request.load(Ordering::Acquire)
    }

    /// Sleeps until a time of the monotonic clock, or until [`Control::wake`].
    pub fn sleep_until(&self, until_ns: u64) {
        let nanoseconds = until_ns.saturating_sub(monotonic_ns());
        if nanoseconds > 0 {
            thread::park_timeout(Duration::from_nanos(nanoseconds));
        }
    }

    /// Whether sampling is on, or is about to be switched on.
    pub fn is_enabled(&self) -> bool {
        lock(&self.desired).settings.enabled
    }
}

/// The shipper's side.
impl Control {
    /// Requests changed settings; `revision` is the collector's number for them.
    pub fn change(&self, revision: u64, change: profiler_core::SettingsChange) {
        let mut desired = lock(&self.desired);
        desired.settings = desired.settings.with(change);
        desired.revision = revision;
        desired.number += 1;
        self.desired_number.store(desired.number, Ordering::Release);
        drop(desired);
        self.wake();
    }

    /// The threads that block the sampler's signal, if there are any.
    pub fn signal_blocked(&self) -> Option<SignalBlocked> {
        *lock(&self.signal_blocked)
    }

    /// Requests a thread dump and returns the request's number.
    pub fn request_dump(&self) -> u64 {
        let number = self.dump_request.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        number
    }

    /// Requests a piece of symbols from the symbolizer, in place of an earlier one.
    pub fn request_symbols(&self, request: SymbolRequest) {
        *lock(&self.symbols) = SymbolExchange {
            request: Some(request),
            reply: None,
        };
    }

    /// Whether this request is answered.
    pub fn has_symbols(&self, request: &SymbolRequest) -> bool {
        lock(&self.symbols)
            .reply
            .as_ref()
            .is_some_and(|reply| reply.request == *request)
    }

    /// Takes the answer to this request.
    pub fn take_symbols(&self, request: &SymbolRequest) -> Option<SymbolReply> {
        lock(&self.symbols)
            .reply
            .take_if(|reply| reply.request == *request)
    }

    /// The desired settings, and whether the sampler has applied them.
    pub fn desired(&self) -> (DesiredSettings, bool) {
        let desired = *lock(&self.desired);
        (
            desired,
            self.applied_number.load(Ordering::Acquire) == desired.number,
        )
    }
}

/// The program's side.
impl Control {
    /// Asks for the end of the present cycle, and returns the request's number.
    pub fn request_flush(&self) -> u64 {
        self.flush_request.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether everything that was recorded before this request is queued for the collector.
    pub fn is_queued(&self, request: u64) -> bool {
        self.flush_queued.load(Ordering::Acquire) >= request
    }
}

/// The symbolizer's side.
impl Control {
    /// Everything that was recorded before this request to flush is queued for the collector.
    pub fn set_queued(&self, request: u64) {
        self.flush_queued.store(request, Ordering::Release);
    }

    /// Takes the request for a piece of symbols.
    pub fn take_symbol_request(&self) -> Option<SymbolRequest> {
        lock(&self.symbols).request.take()
    }

    /// Answers a request, unless another one came meanwhile.
    pub fn answer_symbols(&self, reply: SymbolReply) {
        let mut symbols = lock(&self.symbols);
        if symbols.request.is_none() {
            symbols.reply = Some(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_core::{SettingsChange, StateSet};

    use super::*;

    const SETTINGS: Settings = Settings {
        interval_ns: 10_000_000,
        enabled: true,
        states: StateSet::ALL,
    };

    #[test]
    fn settings_count_as_applied_once_the_sampler_reports_them() {
        let control = Control::new(SETTINGS);
        assert!(control.newer_than(0).is_none());
        assert!(control.desired().1, "the initial settings are applied");
        let off = SettingsChange {
            enabled: Some(false),
            ..Default::default()
        };
        control.change(7, off);
        let slow = SettingsChange {
            interval_ns: Some(50_000_000),
            ..Default::default()
        };
        control.change(9, slow);
        let desired = control.newer_than(0).unwrap();
        assert_eq!((desired.number, desired.revision), (2, 9));
        assert_eq!(desired.settings, SETTINGS.with(off).with(slow));
        assert!(!control.desired().1);
        control.set_applied(1);
        assert!(!control.desired().1, "an older change is not the latest");
        control.set_applied(desired.number);
        assert!(control.desired().1 && control.newer_than(desired.number).is_none());
    }

    #[test]
    fn the_sampler_does_not_wait_for_the_lock() {
        let control = Control::new(SETTINGS);
        control.change(1, SettingsChange::default());
        let held = control.desired.lock().unwrap();
        assert!(control.newer_than(0).is_none());
        drop(held);
        assert!(control.newer_than(0).is_some());
    }

    #[test]
    fn a_request_wakes_a_sampler_that_sleeps_indefinitely() {
        let control = Arc::new(Control::new(SETTINGS));
        let (started, start) = std::sync::mpsc::channel();
        let sampler = {
            let control = control.clone();
            thread::spawn(move || {
                control.start(SamplerMode::Full);
                started.send(()).unwrap();
                while control.dump_requested() == 0 {
                    control.sleep_until(u64::MAX);
                }
            })
        };
        start.recv().unwrap();
        assert_eq!(control.request_dump(), 1);
        sampler.join().unwrap();
        assert_eq!(control.mode(), SamplerMode::Full);
    }
}
