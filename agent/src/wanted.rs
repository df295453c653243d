//! The consumers of task events: an agent, callbacks of `diagnostics`, both or
//! nobody. While nobody does, a guard costs two loads and does nothing.

use std::sync::atomic::{AtomicU8, Ordering};

static WANTED_BY: AtomicU8 = AtomicU8::new(0);

const AGENT: u8 = 1;
const CALLBACKS: u8 = 2;

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
    pub(crate) fn callbacks(self) -> bool {
        cfg!(feature = "diagnostics") && self.0 & CALLBACKS != 0
    }
}

/// Whether an agent drains the rings: one load.
#[inline]
pub(crate) fn by_agent() -> bool {
    WantedBy::now().agent()
}

/// Whether any callback is registered: one load.
#[inline]
#[cfg(feature = "diagnostics")]
pub(crate) fn by_callbacks() -> bool {
    WantedBy::now().callbacks()
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

/// The first callback is registered, or the last one removed.
#[cfg(feature = "diagnostics")]
pub(crate) fn set_callbacks(wanted: bool) {
    set(CALLBACKS, wanted);
}

/// In a forked child: nobody consumes events until an agent or a callback is added there.
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
