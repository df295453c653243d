//! Stands in for `linux` on platforms without a sampler: the standard library has all that guards and
//! observers need.

/// The monotonic clock.
pub mod clock {
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Nanoseconds since the first call.
    pub fn monotonic_ns() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let since_start = START.get_or_init(Instant::now).elapsed();
        u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Tables of descriptors.
pub mod descriptors {
    /// Always: nothing here has a table of its own.
    pub fn are_shared() -> bool {
        true
    }
}

/// Fork handlers.
pub mod fork {
    /// Does nothing: without a sampler a forked child has nothing to reset.
    pub fn call_in_forked_children(_handler: extern "C" fn()) {}

    /// Calls `work`.
    pub fn without_fork<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}

/// This process and its threads.
pub mod process {
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Returns a number that no other thread of this process has.
    pub fn thread_id() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        OWN.try_with(|id| *id).unwrap_or(0)
    }

    /// Returns the name of the calling thread; empty if it has none.
    pub fn own_thread_name() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    /// Returns 0: only a sampler needs the time of threads.
    pub fn own_cpu_ns() -> u64 {
        0
    }

    /// Returns zeros, as [`own_cpu_ns`].
    pub fn own_switches() -> [u64; 2] {
        [0; 2]
    }

    /// Returns nothing: only a collector shows it.
    pub fn host_name() -> Option<String> {
        None
    }

    /// Does nothing: only Linux forbids threads to read clocks.
    pub fn allow_clocks() {}

    /// Returns nothing: only a sampler needs the time of threads.
    pub fn thread_cpu_ns(_thread_id: u32) -> Option<u64> {
        None
    }
}

/// A bounded queue of one writer and one reader.
pub mod queue {
    /// The writing end of a queue.
    #[derive(Debug)]
    pub struct Writer<T>(rtrb::Producer<T>);

    /// The reading end.
    #[derive(Debug)]
    pub struct Reader<T>(rtrb::Consumer<T>);

    /// Creates a queue of at most `capacity` items.
    pub fn queue<T: Send>(capacity: usize) -> (Writer<T>, Reader<T>) {
        let (writer, reader) = rtrb::RingBuffer::new(capacity);
        (Writer(writer), Reader(reader))
    }

    impl<T> Writer<T> {
        /// Returns the number of items for which there is room.
        pub fn slots(&self) -> usize {
            self.0.slots()
        }

        /// Adds an item. Returns `false` if there is no room.
        pub fn push(&mut self, item: T) -> bool {
            self.0.push(item).is_ok()
        }
    }

    impl<T> Reader<T> {
        /// Returns the number of items that can be read.
        pub fn slots(&self) -> usize {
            self.0.slots()
        }

        /// Whether nothing can be read.
        pub fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        /// Takes the oldest item.
        pub fn pop(&mut self) -> Option<T> {
            self.0.pop().ok()
        }
    }
}

/// Signal masks.
pub mod signals {
    /// Does nothing: without a sampler the agent has no thread of its own that signals could
    /// disturb.
    pub struct BlockedSignals;

    impl BlockedSignals {
        /// Does nothing.
        pub fn block() -> Self {
            BlockedSignals
        }
    }
}
