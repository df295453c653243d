//! Walks the frames of one thread: no allocation, no lock, a limited number of steps.

use system::foreign::{ForeignFrame, Walk};

use super::layout::{Entry, FRAME_BYTES, Layout, Top};
use super::sys;

/// Most frames and entries of loops that are followed.
const STEPS_MAX: usize = 4_096;
/// Values of `owner` that versions up to 3.14 know: 0 to 4.
const OWNER_MAX: u8 = 4;
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
        cframe: 0,
    };
    let is_complete = walker.run(state).is_some();
    Walk {
        frames: walker.count,
        is_complete,
    }
}

struct Walker<'w, R> {
    layout: &'w Layout,
    frames: &'w mut [ForeignFrame],
    read: R,
    count: usize,
    /// The first frame of the loop whose entry comes next.
    first_of_loop: usize,
    /// The structure of the loop that runs the next frame (3.11, 3.12).
    cframe: u64,
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
                return Some(());
            }
            let frame = self.frame(next)?;
            self.add(&frame)?;
            next = frame.previous;
        }
        None
    }

    fn innermost(&mut self, state: u64) -> Option<u64> {
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
        let needed = self.layout.frame_owner.max(self.layout.frame_instruction) + 8;
        if !(self.read)(address, &mut bytes[..needed]) {
            return None;
        }
        let frame = Frame {
            address,
            previous: sys::word_in(&bytes, self.layout.frame_previous),
            code: sys::word_in(&bytes, self.layout.frame_code) & !TAGS,
            instruction: sys::word_in(&bytes, self.layout.frame_instruction),
            owner: bytes[self.layout.frame_owner],
            is_marked: match self.layout.entry {
                Entry::Mark { at } => bytes[at] != 0,
                Entry::Owner { .. } => false,
            },
        };
        let is_torn = frame.owner > OWNER_MAX || frame.previous == address;
        (!is_torn).then_some(frame)
    }

    /// Adds a frame, or ends a loop.
    fn add(&mut self, frame: &Frame) -> Option<()> {
        match self.layout.entry {
            Entry::Owner { least } if frame.owner >= least => {
                for inner in &mut self.frames[self.first_of_loop..self.count] {
                    inner.anchor = frame.address;
                }
                self.first_of_loop = self.count;
            }
            Entry::Owner { .. } => self.push(frame, 0)?,
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
