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

struct Walker<'w, R> {
    layout: &'w Layout,
    frames: &'w mut [ForeignFrame],
    read: R,
    count: usize,
    /// The first frame of the loop whose entry comes next.
    first_of_loop: usize,
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
            }
            Entry::Owner { .. } => self.push(frame, 0)?,
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

    /// The outermost frame is the last one. With one loop more than frames, the innermost has not begun its frame, or has
    /// ended it (3.10).
    fn end(&mut self) -> Option<()> {
        if matches!(self.layout.entry, Entry::Object { .. }) && self.cframe != 0 {
            let mut anchor = self.cframe;
            for frame in self.frames[..self.count].iter_mut().rev() {
                std::mem::swap(&mut frame.anchor, &mut anchor);
            }
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
