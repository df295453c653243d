//! Queues from one thread to the agent whose memory follows what waits in them, not the number of
//! threads: [chunks](chunks) of a page that all queues share.

mod chunks;

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use self::chunks::{Chunk, ITEM_BYTES};

/// A queue of at most `capacity` items. The writer never waits and uses no allocator; it takes a
/// chunk whenever the last one is full, and the reader returns it.
pub fn queue<T: Send>(capacity: usize) -> (Writer<T>, Reader<T>) {
    let queue = Arc::new(Queue {
        written: Line(AtomicUsize::new(0)),
        read: Line(AtomicUsize::new(0)),
        reading: AtomicPtr::new(ptr::null_mut()),
        items: PhantomData,
    });
    let writer = Writer {
        queue: queue.clone(),
        capacity,
        chunk: ptr::null_mut(),
        next: ptr::null_mut(),
        end: ptr::null_mut(),
    };
    (writer, Reader { queue })
}

/// A value in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

#[derive(Debug)]
struct Queue<T> {
    /// Items that were written so far, by the writer only.
    written: Line<AtomicUsize>,
    /// Items that were read so far, by the reader only.
    read: Line<AtomicUsize>,
    /// The chunk of the last item that was read. The writer sets it before the first item, from then
    /// on it is the reader's.
    reading: AtomicPtr<Chunk>,
    items: PhantomData<T>,
}

/// The writing end.
#[derive(Debug)]
pub struct Writer<T> {
    queue: Arc<Queue<T>>,
    capacity: usize,
    /// The last chunk, and the room that is left in it.
    chunk: *mut Chunk,
    next: *mut T,
    end: *mut T,
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<T> {
    queue: Arc<Queue<T>>,
}

// SAFETY: the items pass from the writer's thread to the reader's; all else is atomic.
unsafe impl<T: Send> Sync for Queue<T> {}

// SAFETY: the pointers lead to memory that belongs to the queue, and to room in it that is the
// writer's alone.
unsafe impl<T: Send> Send for Writer<T> {}

impl<T> Queue<T> {
    /// Items of a chunk.
    const PER_CHUNK: usize = ITEM_BYTES / size_of::<T>();

    /// Whether only one of the ends is left.
    fn has_one_end(self: &Arc<Self>) -> bool {
        let is_last = Arc::strong_count(self) == 1;
        // The other end was dropped after all that it did.
        fence(Ordering::Acquire);
        is_last
    }

    /// Takes the oldest item.
    ///
    /// # Safety
    /// The caller is the only reader.
    unsafe fn pop(&self) -> Option<T> {
        let read = self.read.0.load(Ordering::Relaxed);
        if read == self.written.0.load(Ordering::Acquire) {
            return None;
        }
        let mut chunk = self.reading.load(Ordering::Relaxed);
        let index = read % Self::PER_CHUNK;
        if index == 0 && read > 0 {
            // SAFETY: the chunk of the last item is given back only here.
            let next = unsafe { (*chunk).next() };
            self.reading.store(next, Ordering::Relaxed);
            // SAFETY: all its items were read, and the writer has gone on to the next chunk, because
            // it has written an item there.
            unsafe { chunks::give(chunk) };
            chunk = next;
        }
        let place = Chunk::items(chunk).cast::<T>().wrapping_add(index);
        // SAFETY: the item was written before `written` said so, and is read once, because `read`
        // rises below.
        let item = unsafe { place.read() };
        self.read.0.store(read + 1, Ordering::Release);
        Some(item)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the queue any more.
        while unsafe { self.pop() }.is_some() {}
        let last = *self.reading.get_mut();
        if !last.is_null() {
            // SAFETY: the writer, which used it too, is gone, and all its items were read.
            unsafe { chunks::give(last) };
        }
    }
}

impl<T: Send> Writer<T> {
    /// Returns the number of items for which there is room.
    #[inline]
    pub fn slots(&self) -> usize {
        let written = self.queue.written.0.load(Ordering::Relaxed);
        self.capacity - (written - self.queue.read.0.load(Ordering::Acquire))
    }

    /// Adds an item. Returns `false` if there is no room, or no memory.
    #[inline(always)]
    pub fn push(&mut self, item: T) -> bool {
        self.try_push(item).is_ok()
    }

    /// Adds an item, or returns it if there is no room, or no memory.
    #[inline(always)]
    pub fn try_push(&mut self, item: T) -> Result<(), T> {
        if self.slots() == 0 || (self.next == self.end && !self.begin_chunk()) {
            return Err(item);
        }
        // SAFETY: `next` is room for an item in a chunk of the queue, which the reader reads once
        // `written` says so.
        unsafe { self.next.write(item) };
        // SAFETY: at most the end of the chunk.
        self.next = unsafe { self.next.add(1) };
        let written = self.queue.written.0.load(Ordering::Relaxed);
        self.queue.written.0.store(written + 1, Ordering::Release);
        Ok(())
    }

    /// Whether the reader is gone.
    pub fn is_abandoned(&self) -> bool {
        self.queue.has_one_end()
    }

    #[cold]
    fn begin_chunk(&mut self) -> bool {
        const {
            assert!(align_of::<T>() <= 64 && size_of::<T>() > 0 && Queue::<T>::PER_CHUNK > 0);
        }
        let Some(chunk) = chunks::take() else {
            return false;
        };
        if self.chunk.is_null() {
            self.queue.reading.store(chunk, Ordering::Relaxed);
        } else {
            // SAFETY: the reader gives the last chunk back only after it has read from the next one.
            unsafe { (*self.chunk).set_next(chunk) };
        }
        self.chunk = chunk;
        self.next = Chunk::items(chunk).cast();
        // SAFETY: so many items fit.
        self.end = unsafe { self.next.add(Queue::<T>::PER_CHUNK) };
        true
    }
}

impl<T: Send> Reader<T> {
    /// Returns the number of items that can be read.
    pub fn slots(&self) -> usize {
        let read = self.queue.read.0.load(Ordering::Relaxed);
        self.queue.written.0.load(Ordering::Acquire) - read
    }

    /// Whether nothing can be read.
    pub fn is_empty(&self) -> bool {
        self.slots() == 0
    }

    /// Whether the writer is gone. All that it has written can then be read.
    pub fn is_abandoned(&self) -> bool {
        self.queue.has_one_end()
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        // SAFETY: there is one reader, which is borrowed exclusively.
        unsafe { self.queue.pop() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// An item that is counted while it lives.
    fn item(number: usize) -> Arc<usize> {
        Arc::new(number)
    }

    proptest! {
        /// A queue behaves as a list of limited length, and drops the items in it.
        #[test]
        fn a_queue_is_a_list(
            capacity in prop::sample::select(vec![1, 7, 504, 600, 4_096]),
            steps in prop::collection::vec((0..1_500usize, 0..1_500usize), 0..12),
        ) {
            let (mut writer, mut reader) = queue(capacity);
            let mut expected = VecDeque::new();
            let mut number = 0;
            let mut live = Vec::new();
            for (written, read) in steps {
                for _ in 0..written {
                    number += 1;
                    prop_assert_eq!(writer.slots(), capacity - expected.len());
                    let value = item(number);
                    live.push(Arc::downgrade(&value));
                    let is_written = writer.push(value);
                    prop_assert_eq!(is_written, expected.len() < capacity);
                    if is_written {
                        expected.push_back(number);
                    }
                }
                for _ in 0..read {
                    prop_assert_eq!(reader.slots(), expected.len());
                    prop_assert_eq!(reader.pop().as_deref().copied(), expected.pop_front());
                }
            }
            let left = live.iter().filter(|value| value.strong_count() > 0).count();
            prop_assert_eq!(left, expected.len());
            drop(reader);
            drop(writer);
            prop_assert!(live.iter().all(|value| value.strong_count() == 0));
        }
    }

    #[test]
    fn each_end_knows_whether_the_other_is_gone() {
        let (mut writer, mut reader) = queue(1);
        assert_eq!(writer.try_push(1), Ok(()));
        assert_eq!(writer.try_push(2), Err(2));
        assert!(!writer.is_abandoned() && !reader.is_abandoned());
        drop(writer);
        assert!(reader.is_abandoned());
        assert_eq!((reader.pop(), reader.pop()), (Some(1), None));

        let (writer, reader) = queue::<u8>(1);
        drop(reader);
        assert!(writer.is_abandoned());
    }

    #[test]
    fn writers_and_readers_on_threads_exchange_every_item_in_order() {
        const ITEMS: usize = 200_000;
        thread::scope(|threads| {
            for _ in 0..4 {
                let (mut writer, mut reader) = queue(1_000);
                threads.spawn(move || {
                    for number in 0..ITEMS {
                        while writer.slots() == 0 {
                            thread::yield_now();
                        }
                        assert!(writer.push(number));
                    }
                });
                threads.spawn(move || {
                    for number in 0..ITEMS {
                        let item = loop {
                            match reader.pop() {
                                Some(item) => break item,
                                None => thread::yield_now(),
                            }
                        };
                        assert_eq!(item, number);
                    }
                    assert!(reader.is_empty());
                });
            }
        });
    }

    /// Hundreds of threads whose items are read soon, each more than its queue holds;
    /// then a hundred queues are filled at once, and read. Whole queues would take 52 and 262 MB.
    #[test]
    fn memory_follows_what_waits_and_returns_after_a_burst() {
        [200, 1_000].into_iter().for_each(check_memory);
    }

    fn check_memory(count: usize) {
        const CAPACITY: usize = 4_096;
        // Other tests of this process have queues too.
        const OTHERS: usize = 2 << 20;
        let page = 4_096;
        let before = chunks::bytes_with_memory();
        let added = || chunks::bytes_with_memory().saturating_sub(before);
        let mut queues: Vec<_> = (0..count).map(|_| queue::<[u64; 8]>(CAPACITY)).collect();
        assert!(added() <= OTHERS, "nothing waits: {}", added());
        for _ in 0..CAPACITY / 64 + 4 {
            for (writer, reader) in &mut queues {
                (0..64).for_each(|_| assert!(writer.push([7; 8])));
                (0..64).for_each(|_| assert!(reader.pop().is_some()));
            }
            // While 64 items waited, which are more than a page, one more was in use.
            assert!(
                added() <= count * page + chunks::WARM_BYTES + OTHERS,
                "{}",
                added()
            );
        }
        for (writer, _) in &mut queues[..100] {
            (0..CAPACITY).for_each(|_| assert!(writer.push([8; 8])));
            assert!(!writer.push([9; 8]), "full");
        }
        assert!(added() >= 100 * CAPACITY * 64);
        for (_, reader) in &mut queues[..100] {
            (0..CAPACITY).for_each(|_| assert!(reader.pop().is_some()));
        }
        assert!(
            added() <= count * page + chunks::WARM_BYTES + OTHERS,
            "{}",
            added()
        );
        drop(queues);
        assert!(added() <= chunks::WARM_BYTES + OTHERS, "{}", added());
    }
}
