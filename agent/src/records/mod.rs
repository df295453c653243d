//! What the program tells beside its tasks: transfers, what it expects, named runs. It is written
//! into a ring for each thread and never waits; the folder takes it from there ([`gather`]).

#[cfg(sampler)]
pub(crate) mod gather;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use profiler_core::{ExpectedTasks, RunMarker, TransferEvent};

use crate::fork::{self, PerProcess};
use crate::sync::lock;
use crate::threads;

/// What one thread can tell before the agent listens, forty times a second. Past it, it is counted
/// as lost.
const RING_MAX: usize = 4096;

/// Part of a ring that transfers leave free: one that is lost is one too few, but a run without its
/// end or an expectation too small would be wrong for ever.
const KEPT_FROM_TRANSFERS: usize = 64;

/// Something that the program tells.
#[derive(Debug)]
pub(crate) enum Told {
    /// A transfer that ended.
    Transfer(Box<TransferEvent>),
    /// So many tasks of a name more, from that time on.
    Expect(Box<ExpectedTasks>),
    /// A run that began, or ended.
    Run(Box<RunMarker>),
}

/// A thread's ring, as the agent sees it.
#[derive(Debug)]
struct Ring {
    told: Mutex<rtrb::Consumer<Told>>,
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Shared {
    rings: Mutex<Vec<Arc<Ring>>>,
    lost: AtomicU64,
}

/// This process's rings; a forked child has others than its parent, as with the
/// [`registry`](crate::registry).
fn shared() -> &'static Shared {
    static SHARED: PerProcess<Shared> = PerProcess::new();
    SHARED.get()
}

thread_local! {
    static TELLER: RefCell<Teller> = RefCell::new(Teller::new());
}

/// The calling thread's end of its ring.
struct Teller {
    ring: Arc<Ring>,
    told: rtrb::Producer<Told>,
    thread_id: u32,
    /// How many forks away the process is.
    generation: usize,
}

impl Teller {
    fn new() -> Teller {
        let (told, consumer) = rtrb::RingBuffer::new(RING_MAX);
        let ring = Arc::new(Ring { told: Mutex::new(consumer), gone: AtomicBool::new(false) });
        lock(&shared().rings).push(ring.clone());
        Teller { ring, told, thread_id: threads::own_id(), generation: fork::generation() }
    }

    /// In a forked child this is another thread than before, and the agent is another.
    fn renew_after_fork(&mut self) {
        if self.generation != fork::generation() {
            *self = Teller::new();
        }
    }

    fn tell(&mut self, told: Told) {
        self.renew_after_fork();
        let kept = if matches!(told, Told::Transfer(_)) { KEPT_FROM_TRANSFERS } else { 0 };
        if self.told.slots() <= kept || self.told.push(told).is_err() {
            count_lost();
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.ring.gone.store(true, Ordering::Release);
    }
}

/// Tells the agent, without waiting. It is lost, and counted, if the thread's ring is full or its
/// locals are already gone.
pub(crate) fn tell(told: Told) {
    let mut told = Some(told);
    let _ = TELLER.try_with(|teller| {
        if let (Ok(mut teller), Some(told)) = (teller.try_borrow_mut(), told.take()) {
            teller.tell(told);
        }
    });
    if told.is_some() {
        count_lost();
    }
}

fn count_lost() {
    shared().lost.fetch_add(1, Ordering::Relaxed);
}

/// The system's id of the calling thread, which is asked for once.
pub(crate) fn thread_id() -> u32 {
    let remembered = TELLER.try_with(|teller| {
        let mut teller = teller.try_borrow_mut().ok()?;
        teller.renew_after_fork();
        Some(teller.thread_id)
    });
    remembered.ok().flatten().unwrap_or_else(threads::own_id)
}

/// Takes all that was told, in order by thread; gives how much was lost. Rings of threads that are
/// gone are dropped once they are empty.
fn drain(mut each: impl FnMut(Told)) -> u64 {
    let rings: Vec<Arc<Ring>> = lock(&shared().rings).clone();
    let mut any_gone = false;
    for ring in rings {
        // Read before the ring: what a thread wrote before it went is then in the ring.
        any_gone |= ring.gone.load(Ordering::Acquire);
        let mut told = lock(&ring.told);
        for _ in 0..told.slots() {
            let Ok(told) = told.pop() else { break };
            each(told);
        }
    }
    if any_gone {
        lock(&shared().rings)
            .retain(|ring| !ring.gone.load(Ordering::Acquire) || !lock(&ring.told).is_empty());
    }
    shared().lost.swap(0, Ordering::Relaxed)
}
