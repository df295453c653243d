//! Records that the program reports in addition to tasks: transfers, expected tasks, named runs.
//! Each thread writes into its own ring and never waits; the symbolizer's thread drains the rings
//! ([`collect`]).

#[cfg(sampler)]
pub(crate) mod collect;
pub(crate) mod memory_report;
mod progress;
pub(crate) mod run;
mod transfer;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use profiler_core::{ExpectedTasks, RunMarker, TransferEvent};

pub use self::memory_report::report_memory;
pub use self::progress::expect_tasks;
pub use self::run::{RunGuard, mark_run};
pub use self::transfer::{
    TransferBuilder, TransferGuard, TransferReader, TransferWriter, transfer,
};
use crate::fork::{self, PerProcess};
use crate::threads;
use system::queue::{Reader, Writer, queue};
use system::sync::lock;

/// Events that one thread can write between two drains, of which there are forty a second. More are
/// counted as lost.
const RING_MAX: usize = 4096;

/// Slots of a ring that are not for transfers: a lost transfer is one too few, but a lost end of a
/// run or a lost expectation would stay wrong forever.
const SLOTS_NOT_FOR_TRANSFERS: usize = 64;

/// Something that the program reports.
#[derive(Debug)]
pub(crate) enum TelemetryEvent {
    /// A transfer that ended.
    Transfer(Box<TransferEvent>),
    /// Further tasks of a name are expected.
    Expect(Box<ExpectedTasks>),
    /// A run that started or ended.
    Run(Box<RunMarker>),
}

/// The reading end of a thread's ring.
#[derive(Debug)]
struct Ring {
    events: Mutex<Reader<TelemetryEvent>>,
    /// The thread has ended.
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Shared {
    rings: Mutex<Vec<Arc<Ring>>>,
    lost: AtomicU64,
}

/// This process's rings.
fn shared() -> &'static Shared {
    static SHARED: PerProcess<Shared> = PerProcess::new();
    SHARED.get()
}

thread_local! {
    static WRITER: RefCell<RingWriter> = RefCell::new(RingWriter::new());
}

/// The calling thread's end of its ring.
struct RingWriter {
    ring: Arc<Ring>,
    events: Writer<TelemetryEvent>,
    thread_id: u32,
    /// The process's [`fork::generation`].
    generation: usize,
}

impl RingWriter {
    fn new() -> RingWriter {
        let (events, reader) = queue(RING_MAX);
        let ring = Arc::new(Ring {
            events: Mutex::new(reader),
            gone: AtomicBool::new(false),
        });
        lock(&shared().rings).push(ring.clone());
        RingWriter {
            ring,
            events,
            thread_id: threads::own_id(),
            generation: fork::generation(),
        }
    }

    /// In a forked child both the thread's id and the agent are others.
    fn renew_after_fork(&mut self) {
        if self.generation != fork::generation() {
            *self = RingWriter::new();
        }
    }

    fn push(&mut self, event: TelemetryEvent) {
        self.renew_after_fork();
        let reserved = match event {
            TelemetryEvent::Transfer(_) => SLOTS_NOT_FOR_TRANSFERS,
            TelemetryEvent::Expect(_) | TelemetryEvent::Run(_) => 0,
        };
        if self.events.slots() <= reserved || !self.events.push(event) {
            count_lost();
        }
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.ring.gone.store(true, Ordering::Release);
    }
}

/// Writes an event to the thread's ring without waiting. The event is counted as lost if the ring is
/// full or the thread's locals are already gone.
pub(crate) fn record(event: TelemetryEvent) {
    let mut event = Some(event);
    let _ = WRITER.try_with(|writer| {
        if let (Ok(mut writer), Some(event)) = (writer.try_borrow_mut(), event.take()) {
            writer.push(event);
        }
    });
    if event.is_some() {
        count_lost();
    }
}

fn count_lost() {
    shared().lost.fetch_add(1, Ordering::Relaxed);
}

/// Returns the id of the calling thread, which costs a system call only once per thread.
pub(crate) fn thread_id() -> u32 {
    let remembered = WRITER.try_with(|writer| {
        let mut writer = writer.try_borrow_mut().ok()?;
        writer.renew_after_fork();
        Some(writer.thread_id)
    });
    remembered.ok().flatten().unwrap_or_else(threads::own_id)
}

/// Takes all events, in order by thread, and returns the number of lost ones. Drops the empty rings
/// of threads that have ended.
fn drain(mut each: impl FnMut(TelemetryEvent)) -> u64 {
    let rings: Vec<Arc<Ring>> = lock(&shared().rings).clone();
    let mut any_gone = false;
    for ring in rings {
        // Read before the ring, so that everything the thread wrote before it ended is in the ring.
        any_gone |= ring.gone.load(Ordering::Acquire);
        let mut events = lock(&ring.events);
        for _ in 0..events.slots() {
            let Some(event) = events.pop() else { break };
            each(event);
        }
    }
    if any_gone {
        lock(&shared().rings)
            .retain(|ring| !ring.gone.load(Ordering::Acquire) || !lock(&ring.events).is_empty());
    }
    shared().lost.swap(0, Ordering::Relaxed)
}
