//! Walks the frames of one thread: no allocation, no lock, a limited number of steps.

use system::foreign::{ForeignFrame, Walk};

use super::layout::{Entry, FRAME_BYTES, Layout, LoopChain, Top};
use super::sys;

/// Most frames and entries of loops that are followed.
const STEPS_MAX: usize = 4_096;
/// Values of `owner` that versions up to 3.14 know: 0 to 4.
const OWNER_MAX: u8 = 4;
/// The offset of the type in an object.
const TYPE: usize = 8;
/// Bits of pointers that mark them (3.14).
const TAGS: u64 = 7;

/// Walks the frames of the thread with the state `state` into `frames`, the innermost first. `read` fills a buffer from
/// an address, or fails.
pub(crate) fn walk(
    layout: &Layout,
    state: u64,
    frames: &mut [ForeignFrame],
    read: impl FnMut(u64, &mut [u8]) -> bool,
) -> Walk {
    let mut walker = Walker {
        layout,
        frames,
        read,
        count: 0,
        first_of_loop: 0,
        is_full: false,
        cframe: 0,
        root: 0,
    };
    let is_complete = walker.run(state).is_some();
    Walk {
        frames: walker.count,
        is_complete,
    }
}

/// Orders the frames of one thread in several interpreters, each of whose frames are in order, by the native stack.
pub(crate) fn merge_runs(frames: &mut [ForeignFrame]) {
    // An unknown anchor is 0, which is that of outer frames.
    let depth = |frame: &ForeignFrame| frame.anchor.wrapping_sub(1);
    for end in 1..frames.len() {
        let mut at = end;
        while at > 0 && depth(&frames[at - 1]) > depth(&frames[at]) {
            frames.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Whether all frames but the outermost have anchors.
fn lacks_one_anchor(frames: &[ForeignFrame]) -> bool {
    frames
        .split_last()
        .is_some_and(|(last, inner)| last.anchor == 0 && inner.iter().all(|it| it.anchor != 0))
}

struct Walker<'w, R> {
    layout: &'w Layout,
    frames: &'w mut [ForeignFrame],
    read: R,
    count: usize,
    /// The first frame of the loop whose entry comes next.
    first_of_loop: usize,
    /// Whether there was no room for a frame.
    is_full: bool,
    /// The structure of the loop that runs the next frame (3.10 to 3.12); 0 if there is none.
    cframe: u64,
    /// The structure that is no loop's (3.10).
    root: u64,
}

/// The part of a frame that a walk reads.
struct Frame {
    address: u64,
    previous: u64,
    code: u64,
    instruction: u64,
    owner: u8,
    /// Whether it is the outermost frame of its loop (3.11).
    is_marked: bool,
}

impl<R: FnMut(u64, &mut [u8]) -> bool> Walker<'_, R> {
    /// `None` if the walk ended early.
    fn run(&mut self, state: u64) -> Option<()> {
        let mut next = self.innermost(state)?;
        for _ in 0..STEPS_MAX {
            if next == 0 {
                return self.end();
            }
            let frame = self.frame(next)?;
            self.add(&frame)?;
            next = frame.previous;
        }
        None
    }

    fn innermost(&mut self, state: u64) -> Option<u64> {
        if let Entry::Object {
            chain: LoopChain::Cframes {
                of_thread, root, ..
            },
            ..
        } = self.layout.entry
        {
            self.root = state + root;
            self.cframe = self.loop_at(state + of_thread)?;
        }
        match self.layout.top {
            Top::Frame { of_thread } => self.word(state + of_thread),
            Top::Cframe {
                of_thread,
                current_frame,
                ..
            } => {
                self.cframe = self.word(state + of_thread)?;
                if self.cframe == 0 {
                    return Some(0);
                }
                self.word(self.cframe.checked_add(current_frame)?)
            }
        }
    }

    fn frame(&mut self, address: u64) -> Option<Frame> {
        let mut bytes = [0; FRAME_BYTES];
        // The frame at the end of its memory may be shorter.
        let entry = &self.layout.entry;
        let needed = entry.last_byte().max(self.layout.frame_instruction) + 8;
        if !(self.read)(address, &mut bytes[..needed]) {
            return None;
        }
        let instruction = sys::word_in(&bytes, self.layout.frame_instruction);
        let common = Frame {
            address,
            previous: sys::word_in(&bytes, self.layout.frame_previous),
            code: sys::word_in(&bytes, self.layout.frame_code) & !TAGS,
            instruction,
            owner: 0,
            is_marked: false,
        };
        let frame = match *entry {
            Entry::Object { frame_type, .. } => {
                if sys::word_in(&bytes, TYPE) != frame_type {
                    return None;
                }
                Frame {
                    // A number of 4 bytes, below 0 before the first instruction.
                    instruction: (instruction as i32).max(0) as u64,
                    ..common
                }
            }
            Entry::Mark { at, owner } => Frame {
                owner: bytes[owner],
                is_marked: bytes[at] != 0,
                ..common
            },
            Entry::Owner { owner, .. } => Frame {
                owner: bytes[owner],
                ..common
            },
        };
        let is_torn = frame.owner > OWNER_MAX || frame.previous == address;
        (!is_torn).then_some(frame)
    }

    /// Adds a frame, or ends a loop.
    fn add(&mut self, frame: &Frame) -> Option<()> {
        match self.layout.entry {
            Entry::Owner { least, .. } if frame.owner >= least => {
                for inner in &mut self.frames[self.first_of_loop..self.count] {
                    inner.anchor = frame.address;
                }
                self.first_of_loop = self.count;
                if self.is_full {
                    return None;
                }
            }
            // Without room, the walk goes on to the end of the loop, which tells where its frames are.
            Entry::Owner { .. } => self.is_full |= self.push(frame, 0).is_none(),
            Entry::Object { .. } => {
                self.push(frame, self.cframe)?;
                self.cframe = self.caller_of_loop()?;
            }
            Entry::Mark { .. } => {
                self.push(frame, self.cframe)?;
                if frame.is_marked {
                    self.leave_loop(frame.previous)?;
                }
            }
        }
        Some(())
    }

    fn push(&mut self, frame: &Frame, anchor: u64) -> Option<()> {
        *self.frames.get_mut(self.count)? = ForeignFrame {
            code: frame.code,
            at: frame.instruction,
            anchor,
        };
        self.count += 1;
        Some(())
    }

    /// The loop around this one (3.10); 0 without any.
    fn caller_of_loop(&mut self) -> Option<u64> {
        match self.layout.entry {
            Entry::Object {
                chain: LoopChain::Cframes { previous, .. },
                ..
            } if self.cframe != 0 => self.loop_at(self.cframe.checked_add(previous)?),
            _ => Some(0),
        }
    }

    /// The loop whose address is at `at`; 0 for the structure of no loop.
    fn loop_at(&mut self, at: u64) -> Option<u64> {
        let cframe = self.word(at)?;
        Some(if cframe == self.root { 0 } else { cframe })
    }

    /// The outermost frame is the last one. A loop is listed before its frame is, and leaves the list first (3.10). So with
    /// one loop more than frames, the innermost loop has not begun its frame; with one less, it has ended its frame, which
    /// is dropped.
    fn end(&mut self) -> Option<()> {
        let Entry::Object {
            chain: LoopChain::Cframes { .. },
            ..
        } = self.layout.entry
        else {
            return Some(());
        };
        let frames = &mut self.frames[..self.count];
        if self.cframe != 0 {
            let mut anchor = self.cframe;
            for frame in frames.iter_mut().rev() {
                std::mem::swap(&mut frame.anchor, &mut anchor);
            }
        } else if lacks_one_anchor(frames) {
            for at in 1..frames.len() {
                let anchor = frames[at - 1].anchor;
                frames[at - 1] = ForeignFrame {
                    anchor,
                    ..frames[at]
                };
            }
            self.count -= 1;
        }
        Some(())
    }

    /// Goes to the loop that called this one, which is suspended at exactly the frame `caller`.
    fn leave_loop(&mut self, caller: u64) -> Option<()> {
        let Top::Cframe {
            current_frame,
            previous,
            ..
        } = self.layout.top
        else {
            return Some(());
        };
        self.cframe = self.word(self.cframe.checked_add(previous)?)?;
        if self.cframe == 0 {
            return Some(());
        }
        let suspended = self.word(self.cframe.checked_add(current_frame)?)?;
        (suspended == caller).then_some(())
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read)(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STATE: u64 = 0x1_0000;
    const FRAME_TYPE: u64 = 0x2_0000;

    /// The frame of the n-th function, from the outermost.
    fn frame(number: u64) -> u64 {
        0x10_0000 + number * 0x1000
    }

    /// The structure of the n-th loop, from the outermost; the 0th is that of no loop.
    fn cframe(number: u64) -> u64 {
        match number {
            0 => STATE + 264,
            number => 0x20_0000 + number * 0x1000,
        }
    }

    fn of_3_10() -> Layout {
        Layout {
            top: Top::Frame { of_thread: 24 },
            frame_previous: 24,
            frame_code: 32,
            frame_instruction: 96,
            entry: Entry::Object {
                frame_type: FRAME_TYPE,
                chain: LoopChain::Cframes {
                    of_thread: 48,
                    previous: 8,
                    root: 264,
                },
            },
            ..Layout::default()
        }
    }

    /// Walks a thread with so many frames and loops. Returns the function of each frame, and the loop that runs it.
    fn walked(frames: u64, loops: u64) -> Vec<(u64, u64)> {
        let mut words = BTreeMap::from([(STATE + 48, cframe(loops))]);
        if frames > 0 {
            words.insert(STATE + 24, frame(frames));
        }
        for number in 1..=frames {
            words.insert(frame(number) + TYPE as u64, FRAME_TYPE);
            words.insert(frame(number) + 32, number * (TAGS + 1));
            if number > 1 {
                words.insert(frame(number) + 24, frame(number - 1));
            }
        }
        for number in 1..=loops {
            words.insert(cframe(number) + 8, cframe(number - 1));
        }
        let mut found = [ForeignFrame::default(); 8];
        let walk = walk(&of_3_10(), STATE, &mut found, |address, buffer| {
            for (word, at) in buffer.chunks_mut(8).zip((address..).step_by(8)) {
                let value = words.get(&at).copied().unwrap_or(0);
                word.copy_from_slice(&value.to_ne_bytes()[..word.len()]);
            }
            true
        });
        assert!(walk.is_complete);
        let loop_of = |anchor| (1..=loops).find(|number| cframe(*number) == anchor);
        found[..walk.frames]
            .iter()
            .map(|frame| (frame.code / (TAGS + 1), loop_of(frame.anchor).unwrap_or(0)))
            .collect()
    }

    #[test]
    fn each_frame_has_its_loop_while_one_begins_or_ends() {
        assert_eq!(walked(3, 3), [(3, 3), (2, 2), (1, 1)]);
        // The third loop has no frame yet.
        assert_eq!(walked(2, 3), [(2, 2), (1, 1)]);
        // It is no longer listed, but its frame is.
        assert_eq!(walked(3, 2), [(2, 2), (1, 1)]);
        assert_eq!(walked(0, 1), []);
        assert_eq!(walked(1, 0), []);
        assert_eq!(walked(0, 0), []);
    }

    /// Walks a loop of so many frames, one in its caller, with room for eight. Returns how often each loop is an anchor.
    fn anchors_with_room_for_eight(frames: u64) -> (BTreeMap<u64, usize>, bool) {
        let layout = Layout {
            top: Top::Frame { of_thread: 24 },
            frame_previous: 8,
            frame_code: 0,
            frame_instruction: 56,
            entry: Entry::Owner {
                owner: 70,
                least: 3,
            },
            ..Layout::default()
        };
        // The innermost loop's frames, its end, the caller and the end of that one's loop.
        let end = frames + 1;
        let mut found = [ForeignFrame::default(); 8];
        let walk = walk(&layout, STATE, &mut found, |address, buffer| {
            if address == STATE + 24 {
                buffer.copy_from_slice(&frame(1).to_ne_bytes());
                return true;
            }
            let number = (address - frame(0)) / 0x1000;
            let next = if number < end + 2 {
                frame(number + 1)
            } else {
                0
            };
            buffer.fill(0);
            buffer[..8].copy_from_slice(&(number * (TAGS + 1)).to_ne_bytes());
            buffer[8..16].copy_from_slice(&next.to_ne_bytes());
            buffer[70] = if number == end || number == end + 2 {
                3
            } else {
                0
            };
            true
        });
        let mut anchors = BTreeMap::new();
        for frame in &found[..walk.frames] {
            *anchors.entry(frame.anchor).or_default() += 1;
        }
        (anchors, walk.is_complete)
    }

    #[test]
    fn frames_of_a_loop_with_more_than_there_is_room_for_have_its_anchor() {
        let small = BTreeMap::from([(frame(4), 3), (frame(6), 1)]);
        assert_eq!(anchors_with_room_for_eight(3), (small, true));
        let full = BTreeMap::from([(frame(8), 7), (frame(10), 1)]);
        assert_eq!(anchors_with_room_for_eight(7), (full, true));
        for frames in [8, 9, 3_000] {
            let large = BTreeMap::from([(frame(frames + 1), 8)]);
            assert_eq!(anchors_with_room_for_eight(frames), (large, false));
        }
        let endless = BTreeMap::from([(0, 8)]);
        assert_eq!(anchors_with_room_for_eight(5_000), (endless, false));
    }

    #[test]
    fn frames_of_unknown_loops_stay() {
        assert_eq!(walked(3, 1), [(3, 1), (2, 0), (1, 0)]);
    }
}
