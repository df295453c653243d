//! The consumers of task events: an agent, an observer, both or nobody. While nobody does, a guard costs two loads and does nothing.

use std::sync::atomic::{AtomicU8, Ordering};

static WANTED_BY: AtomicU8 = AtomicU8::new(0);

const AGENT: u8 = 1;
const OBSERVER: u8 = 2;

/// The consumers of task events at one moment.
#[derive(Clone, Copy)]
pub(crate) struct WantedBy(u8);

impl WantedBy {
    #[inline]
    pub(crate) fn now() -> WantedBy {
        WantedBy(WANTED_BY.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn agent(self) -> bool {
        self.0 & AGENT != 0
    }

    #[inline]
    pub(crate) fn observer(self) -> bool {
        self.0 & OBSERVER != 0
    }
}

/// Whether an agent drains the rings: one load.
#[inline]
pub(crate) fn by_agent() -> bool {
    WantedBy::now().agent()
}

/// Whether there is an observer: one load.
#[inline]
pub(crate) fn by_observer() -> bool {
    WantedBy::now().observer()
}

/// Whether anybody consumes task events: one load.
#[inline]
pub(crate) fn by_anyone() -> bool {
    WantedBy::now().0 != 0
}

/// An agent starts or stops draining the rings.
pub(crate) fn set_agent(wanted: bool) {
    set(AGENT, wanted);
}

/// An observer is set or removed.
pub(crate) fn set_observer(wanted: bool) {
    set(OBSERVER, wanted);
}

/// In a forked child: nobody consumes events until an agent or an observer is added there.
pub(crate) fn reset() {
    WANTED_BY.store(0, Ordering::Release);
}

fn set(consumer: u8, wanted: bool) {
    if wanted {
        WANTED_BY.fetch_or(consumer, Ordering::AcqRel);
    } else {
        WANTED_BY.fetch_and(!consumer, Ordering::AcqRel);
    }
}
