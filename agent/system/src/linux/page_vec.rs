//! A growable array in pages of its own. It neither takes a lock of the program's allocator nor waits
//! for one: with more threads than processors, the thread that holds it may not run for a second.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// The least that is mapped; also the alignment of a mapping.
const PAGE_BYTES: usize = 4096;

/// Like `Vec`, outside of the program's allocator. If the system has no memory, a new element is dropped
/// instead of ending the process.
pub struct PageVec<T> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
}

// SAFETY: the elements belong to this value alone, like those of a `Vec`.
unsafe impl<T: Send> Send for PageVec<T> {}
// SAFETY: shared access only reads elements.
unsafe impl<T: Sync> Sync for PageVec<T> {}

impl<T> PageVec<T> {
    /// An empty vector, which has no memory.
    pub const fn new() -> PageVec<T> {
        const { assert!(size_of::<T>() > 0 && size_of::<T>() <= PAGE_BYTES) };
        PageVec {
            start: NonNull::dangling(),
            length: 0,
            capacity: 0,
        }
    }

    /// Appends `value`. Returns `false` and drops it if there is no memory.
    pub fn push(&mut self, value: T) -> bool {
        if self.length == self.capacity && !self.grow(self.length + 1) {
            return false;
        }
        // SAFETY: `length < capacity`, so the place is inside of the mapping.
        let place = unsafe { self.start.add(self.length) };
        // SAFETY: the place is valid and aligned, and holds no element.
        unsafe { place.write(value) };
        self.length += 1;
        true
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the place is inside of the mapping.
        let place = unsafe { self.start.add(self.length) };
        // SAFETY: this was the last element; `length` excludes it from now on.
        Some(unsafe { place.read() })
    }

    /// Removes the element at `index`, which the last one replaces.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.length - 1;
        self.swap(index, last);
        self.pop().expect("`swap` has checked that it exists")
    }

    /// Removes all elements and keeps their memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps at most the first `length` elements.
    pub fn truncate(&mut self, length: usize) {
        while self.length > length {
            drop(self.pop());
        }
    }

    /// Removes the elements that are not `wanted`.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for index in 0..self.length {
            if wanted(&self[index]) {
                self.swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Appends all of `values`; those without memory are dropped.
    pub fn extend(&mut self, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.push(value);
        }
    }

    /// Makes room for `needed` elements. Returns whether there is.
    fn grow(&mut self, needed: usize) -> bool {
        #[cfg(feature = "testing")]
        if is_refused() {
            return false;
        }
        let wanted = needed.max(self.capacity * 2).checked_mul(size_of::<T>());
        let Some(bytes) = wanted.and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES))
        else {
            return false;
        };
        let start = if self.capacity == 0 {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) }
        } else {
            let mapped = self.start.as_ptr().cast();
            // SAFETY: this is the value's own mapping, of that size, and `self` is borrowed
            // exclusively: nothing refers to its elements while they move.
            unsafe { libc::mremap(mapped, self.mapped_bytes(), bytes, libc::MREMAP_MAYMOVE) }
        };
        let Some(start) = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED) else {
            return false;
        };
        self.start = start;
        self.capacity = bytes / size_of::<T>();
        true
    }

    fn mapped_bytes(&self) -> usize {
        (self.capacity * size_of::<T>()).next_multiple_of(PAGE_BYTES)
    }
}

impl<T: Clone> PageVec<T> {
    /// Makes the length `length`, with copies of `value` at new places. Returns `false` if there is no
    /// memory; then the length is unchanged.
    pub fn resize(&mut self, length: usize, value: T) -> bool {
        if length > self.capacity && !self.grow(length) {
            return false;
        }
        self.truncate(length);
        while self.length < length {
            self.push(value.clone());
        }
        true
    }
}

impl<T> Deref for PageVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `length` places hold elements, and `start` is aligned (dangling if empty).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for PageVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T> Drop for PageVec<T> {
    fn drop(&mut self) {
        self.clear();
        if self.capacity > 0 {
            // SAFETY: the mapping is this value's own, and nothing borrows it any more.
            let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes()) };
            // It fails for no mapping of whole pages; a leak would be harmless.
            let _ = result;
        }
    }
}

impl<T> Default for PageVec<T> {
    fn default() -> PageVec<T> {
        PageVec::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for PageVec<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<T> FromIterator<T> for PageVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> PageVec<T> {
        let mut vec = PageVec::new();
        vec.extend(values);
        vec
    }
}

/// The elements of a [`PageVec`], the first one first.
pub struct IntoIter<T> {
    /// Its elements from `next` on are still here; none is dropped with it.
    values: ManuallyDrop<PageVec<T>>,
    next: usize,
}

impl<T> IntoIterator for PageVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter {
            values: ManuallyDrop::new(self),
            next: 0,
        }
    }
}

impl<'v, T> IntoIterator for &'v PageVec<T> {
    type Item = &'v T;
    type IntoIter = slice::Iter<'v, T>;

    fn into_iter(self) -> slice::Iter<'v, T> {
        self.iter()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next == self.values.length {
            return None;
        }
        // SAFETY: the place is inside of the mapping.
        let place = unsafe { self.values.start.add(self.next) };
        // SAFETY: the element at `next` was not read yet, and is not dropped with `values`.
        let value = unsafe { place.read() };
        self.next += 1;
        Some(value)
    }
}

impl<T> Drop for IntoIter<T> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
        self.values.length = 0;
        // SAFETY: dropped here only, and it has no elements any more.
        unsafe { ManuallyDrop::drop(&mut self.values) };
    }
}

#[cfg(feature = "testing")]
thread_local! {
    /// How often an array of this thread may grow.
    static GROWTHS: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// From now on arrays of this thread find memory to grow `granted` times.
#[cfg(feature = "testing")]
pub fn refuse_after(granted: usize) {
    GROWTHS.set(granted);
}

#[cfg(feature = "testing")]
fn is_refused() -> bool {
    let left = GROWTHS.get();
    if left < usize::MAX {
        GROWTHS.set(left.saturating_sub(1));
    }
    left == 0
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_vec_holds(steps in prop::collection::vec((0..6u8, 0..3_000usize), 0..40)) {
            let element = Rc::new(());
            let mut vec = Vec::new();
            let mut pages = PageVec::new();
            for (step, number) in steps {
                let new = |index: usize| (index, element.clone());
                match step {
                    0 | 1 => {
                        vec.extend((0..number).map(new));
                        pages.extend((0..number).map(new));
                    }
                    2 => prop_assert_eq!(vec.pop(), pages.pop()),
                    3 if number < vec.len() => {
                        prop_assert_eq!(vec.swap_remove(number), pages.swap_remove(number));
                    }
                    4 => {
                        vec.retain(|(index, _)| index % 3 != number % 3);
                        pages.retain(|(index, _)| index % 3 != number % 3);
                    }
                    _ => {
                        vec.resize(number, new(7));
                        prop_assert!(pages.resize(number, new(7)));
                    }
                }
                prop_assert_eq!(&*vec, &*pages);
            }
            let length = pages.len();
            let mut rest = pages.into_iter();
            prop_assert_eq!(rest.by_ref().take(length / 2).count(), length / 2);
            drop(rest);
            drop(vec);
            prop_assert_eq!(Rc::strong_count(&element), 1, "each element is dropped once");
        }
    }

    #[test]
    fn an_element_without_memory_is_dropped() {
        let mut pages = PageVec::<u64>::new();
        assert!(pages.push(1));
        assert!(!pages.resize(usize::MAX / 16, 0) && !pages.resize(1 << 58, 0));
        assert_eq!(&*pages, [1]);
    }
}
