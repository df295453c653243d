//! Numbers and texts in the bytes of a chunk.

use std::borrow::Cow;
use std::cell::Cell;

use crate::error::JfrError;
use crate::limits::{TEXT_BYTES_MAX, WORK_MIN, WORK_PER_BYTE_MAX};

/// Steps of work that are left for a recording.
#[derive(Debug)]
pub(crate) struct Work {
    done: Cell<u64>,
    limit: u64,
}

impl Work {
    pub(crate) fn for_bytes(bytes: usize) -> Work {
        Work {
            done: Cell::new(0),
            limit: WORK_MIN + WORK_PER_BYTE_MAX * bytes as u64,
        }
    }

    pub(crate) fn charge(&self, steps: usize) -> Result<(), JfrError> {
        let done = self.done.get().saturating_add(steps as u64);
        self.done.set(done);
        if done > self.limit {
            return Err(JfrError::TooMuchWork { limit: self.limit });
        }
        Ok(())
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.get()
    }
}

/// How integers are written. Those of one byte, and floating-point numbers, are the same in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Integers {
    /// Seven bits in a byte, the lowest first; the ninth byte has eight.
    Compressed,
    /// Big-endian, as wide as their type.
    Raw,
}

/// A place in the bytes of a chunk. The bytes end where the current event does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    /// Where the chunk begins in the recording.
    pub(crate) chunk_at: usize,
    pub(crate) integers: Integers,
}

impl<'a> Cursor<'a> {
    pub(crate) fn damaged(&self, reason: &'static str) -> JfrError {
        let at = self.chunk_at + self.at;
        JfrError::Damaged { at, reason }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], JfrError> {
        if count > self.left() {
            return Err(self.damaged("the bytes end within a value"));
        }
        let start = self.at;
        self.at += count;
        Ok(&self.bytes[start..self.at])
    }

    pub(crate) fn byte(&mut self) -> Result<u8, JfrError> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A big-endian number of up to eight bytes.
    pub(crate) fn raw(&mut self, width: usize) -> Result<u64, JfrError> {
        let bytes = self.take(width)?;
        let shifted = |number, byte: &u8| number << 8 | u64::from(*byte);
        Ok(bytes.iter().fold(0, shifted))
    }

    /// An integer that is `width` bytes wide if it is raw.
    pub(crate) fn integer(&mut self, width: u8) -> Result<u64, JfrError> {
        if self.integers == Integers::Raw {
            return self.raw(width.into());
        }
        let mut number = 0;
        for shift in (0..56).step_by(7) {
            let byte = u64::from(self.byte()?);
            number |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Ok(number | u64::from(self.byte()?) << 56)
    }

    pub(crate) fn int(&mut self) -> Result<u64, JfrError> {
        self.integer(4)
    }

    pub(crate) fn long(&mut self) -> Result<u64, JfrError> {
        self.integer(8)
    }

    /// The number of elements that follow, each of which has at least a byte.
    pub(crate) fn count(&mut self) -> Result<usize, JfrError> {
        let count = self.int()?;
        if count > self.left() as u64 {
            return Err(self.damaged("a list has more elements than bytes are left"));
        }
        Ok(count as usize)
    }

    pub(crate) fn text(&mut self, work: &Work) -> Result<Text<'a>, JfrError> {
        Ok(match self.byte()? {
            0 => Text::Null,
            1 => Text::Utf8(b""),
            2 => Text::Constant(self.long()?),
            3 => Text::Utf8(self.counted()?),
            4 => {
                let start = *self;
                let count = self.count()?;
                work.charge(count)?;
                for _ in 0..count {
                    self.integer(2)?;
                }
                Text::Units(Units(start))
            }
            5 => Text::Latin1(self.counted()?),
            _ => return Err(self.damaged("a text has an unknown encoding")),
        })
    }

    fn counted(&mut self) -> Result<&'a [u8], JfrError> {
        let count = self.count()?;
        self.take(count)
    }
}

/// A text as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    Null,
    Utf8(&'a [u8]),
    Latin1(&'a [u8]),
    Units(Units<'a>),
    /// Number of a constant.
    Constant(u64),
}

impl<'a> Text<'a> {
    /// The text, cut to [`TEXT_BYTES_MAX`]. `None` if there is none, or if it is a constant.
    pub(crate) fn decoded(self, work: &Work) -> Result<Option<Cow<'a, str>>, JfrError> {
        let decoded = match self {
            Text::Null | Text::Constant(_) => return Ok(None),
            Text::Utf8(bytes) => String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]),
            Text::Latin1(bytes) => {
                let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
                bytes.iter().map(|byte| char::from(*byte)).collect()
            }
            Text::Units(units) => Cow::Owned(units.decoded()),
        };
        work.charge(1 + decoded.len() / 16)?;
        Ok(Some(decoded))
    }
}

/// The count and the units of a text in UTF-16, which were read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units<'a>(Cursor<'a>);

impl Units<'_> {
    fn decoded(mut self) -> String {
        let count = self.0.count().unwrap_or(0).min(TEXT_BYTES_MAX);
        let units = (0..count).map_while(|_| self.0.integer(2).ok());
        char::decode_utf16(units.map(|unit| unit as u16))
            .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }
}
