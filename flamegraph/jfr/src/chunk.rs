//! A chunk of a recording: its header, metadata, constants and events.

use std::borrow::Cow;

use crate::cursor::{Cursor, Integers, Text, Work};
use crate::error::JfrError;
use crate::limits::{CHUNK_BYTES_MAX, CONSTANTS_MAX, TIME_NS_MAX};
use crate::metadata::{Layout, Types, Values};
use crate::record::{Constant, Key, Record, Value};

/// The first bytes of a chunk.
pub(crate) const MAGIC: &[u8] = b"FLR\0";

/// Bytes of a chunk's header.
pub(crate) const HEADER_BYTES: usize = 68;

/// Types of the events with the metadata, and with constants.
pub(crate) const METADATA: u64 = 0;
pub(crate) const CONSTANTS: u64 = 1;

/// Longest way from a value to its text: a constant of a type with one field, which is a constant.
const TEXT_STEPS_MAX: usize = 4;

const SECOND_NS: i128 = 1_000_000_000;

/// A constant that is kept: where its value is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    constant: (u32, u64),
    at: u32,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: usize,
    metadata_at: usize,
    start_ns: i64,
    duration_ns: u64,
    start_ticks: u64,
    ticks_per_second: u64,
    integers: Integers,
}

impl Header {
    /// Reads and checks the header that a chunk must begin with.
    fn read(cursor: &mut Cursor<'_>) -> Result<Header, JfrError> {
        if !cursor.bytes.starts_with(MAGIC) {
            return Err(cursor.damaged("a chunk must begin with `FLR` and a zero"));
        }
        cursor.take(MAGIC.len())?;
        let version = cursor.raw(2)?;
        cursor.raw(2)?;
        if version != 2 {
            return Err(cursor.damaged("version 2 is read, which Java 9 and later write"));
        }
        let bytes = cursor.raw(8)?;
        // Where the last constants are.
        cursor.raw(8)?;
        let [metadata_at, start_ns, duration_ns] = [cursor.raw(8)?, cursor.raw(8)?, cursor.raw(8)?];
        let [start_ticks, ticks_per_second] = [cursor.raw(8)?, cursor.raw(8)?];
        let features = cursor.raw(4)?;
        if bytes > cursor.bytes.len() as u64 {
            let reason =
                "the chunk is longer than the file: the recording is cut, or was not finished";
            return Err(cursor.damaged(reason));
        }
        if bytes > CHUNK_BYTES_MAX as u64 {
            let what = "too many bytes in a chunk";
            let limit = CHUNK_BYTES_MAX;
            return Err(JfrError::TooMany { what, limit });
        }
        if !(HEADER_BYTES as u64..bytes).contains(&metadata_at) {
            return Err(cursor.damaged("the metadata is outside of its chunk"));
        }
        let start_ns = i64::try_from(start_ns)
            .map_err(|_| cursor.damaged("the chunk's start is out of range"))?;
        if ticks_per_second == 0 {
            return Err(cursor.damaged("a second of the chunk has no ticks"));
        }
        Ok(Header {
            bytes: bytes as usize,
            metadata_at: metadata_at as usize,
            start_ns,
            duration_ns,
            start_ticks,
            ticks_per_second,
            integers: match features & 1 {
                1 => Integers::Compressed,
                _ => Integers::Raw,
            },
        })
    }
}

/// A chunk, of which constants and events are decoded when they are asked for.
#[derive(Debug)]
pub struct Chunk<'a> {
    header: Header,
    /// Up to the end of the chunk.
    cursor: Cursor<'a>,
    work: &'a Work,
    types: Types,
    /// Sorted by constant; of equal ones, the last in the file counts.
    constants: Vec<Entry>,
}

impl<'a> Chunk<'a> {
    /// Reads the chunk at the start of `bytes`, which is at `chunk_at` of the recording. Returns its length too.
    pub(crate) fn read(
        bytes: &'a [u8],
        chunk_at: usize,
        work: &'a Work,
    ) -> Result<(Chunk<'a>, usize), JfrError> {
        let mut cursor = Cursor {
            bytes,
            at: 0,
            chunk_at,
            integers: Integers::Raw,
        };
        let header = Header::read(&mut cursor)?;
        cursor.bytes = &bytes[..header.bytes];
        cursor.integers = header.integers;
        let mut chunk = Chunk {
            header,
            cursor,
            work,
            types: Types::default(),
            constants: Vec::new(),
        };
        chunk.read_metadata(header.metadata_at)?;
        chunk.read_constants()?;
        Ok((chunk, header.bytes))
    }

    /// When it begins, in nanoseconds since 1970.
    #[must_use]
    pub fn start_ns(&self) -> i64 {
        self.header.start_ns
    }

    /// Its length in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.header.duration_ns
    }

    fn read_metadata(&mut self, at: usize) -> Result<(), JfrError> {
        let (type_id, mut event, _) = self.event_at(at)?;
        if type_id != METADATA {
            return Err(event.damaged("the chunk has no metadata where its header says"));
        }
        self.types = Types::read(&mut event, self.work)?;
        Ok(())
    }

    fn read_constants(&mut self) -> Result<(), JfrError> {
        let mut constants = Vec::new();
        let mut at = HEADER_BYTES;
        while at < self.cursor.bytes.len() {
            let (type_id, mut event, end) = self.event_at(at)?;
            if type_id == CONSTANTS {
                self.add_constants(&mut event, &mut constants)?;
            }
            at = end;
        }
        constants.shrink_to_fit();
        // Stable, so that the last of equal constants stays the last.
        constants.sort_by_key(|entry: &Entry| entry.constant);
        self.constants = constants;
        Ok(())
    }

    fn add_constants(
        &self,
        event: &mut Cursor<'a>,
        constants: &mut Vec<Entry>,
    ) -> Result<(), JfrError> {
        // Start, duration, distance to the constants before.
        for _ in 0..3 {
            event.long()?;
        }
        event.byte()?;
        let pools = event.count()?;
        for _ in 0..pools {
            let type_id = event.long()?;
            let type_index = self
                .types
                .index_of(type_id)
                .ok_or_else(|| event.damaged("constants of an unknown type"))?;
            let count = event.count()?;
            for _ in 0..count {
                let key = event.long()?;
                let at = event.at as u32;
                self.values().skip(event, type_index, 0)?;
                if !self.types.of_index(type_index).is_kept {
                    continue;
                }
                if constants.len() >= CONSTANTS_MAX {
                    return Err(JfrError::TooMany {
                        what: "too many constants in a chunk",
                        limit: CONSTANTS_MAX,
                    });
                }
                constants.push(Entry {
                    constant: (type_index, key),
                    at,
                });
            }
        }
        Ok(())
    }

    fn values(&self) -> Values<'_> {
        Values {
            types: &self.types,
            work: self.work,
        }
    }

    /// The type of the event at a place, its bytes after that, and where the next one begins.
    fn event_at(&self, at: usize) -> Result<(u64, Cursor<'a>, usize), JfrError> {
        self.work.charge(1)?;
        let mut cursor = Cursor { at, ..self.cursor };
        let size = cursor.int()?;
        let end = size.saturating_add(at as u64);
        if end > self.cursor.bytes.len() as u64 || end < cursor.at as u64 {
            let start = Cursor { at, ..self.cursor };
            return Err(
                start.damaged("an event is longer than its chunk, or shorter than its size")
            );
        }
        let end = end as usize;
        cursor.bytes = &self.cursor.bytes[..end];
        let type_id = cursor.long()?;
        Ok((type_id, cursor, end))
    }

    /// The names of the types, by [`Event::type_index`], and whether events of the type have a stack.
    pub fn types(&self) -> impl Iterator<Item = (&str, bool)> {
        let has_stack = |index: usize| {
            let fields = self.types.fields(index as u32);
            fields
                .iter()
                .any(|field| field.key == Some(Key::StackTrace))
        };
        let types = self.types.types.iter().enumerate();
        types.map(move |(index, kind)| (&*kind.name, has_stack(index)))
    }

    /// The events but those with metadata and constants, in the order of the file.
    #[must_use]
    pub fn events(&self) -> Events<'_, 'a> {
        Events {
            chunk: self,
            at: HEADER_BYTES,
        }
    }

    /// The name of the type with that id, which settings have.
    #[must_use]
    pub fn type_name(&self, id: u64) -> Option<&str> {
        let index = self.types.index_of(id)?;
        Some(&self.types.of_index(index).name)
    }

    /// A time in nanoseconds since 1970, up to [`TIME_NS_MAX`].
    #[must_use]
    pub fn time_ns(&self, ticks: u64) -> i64 {
        let [ticks, start_ticks] = [ticks, self.header.start_ticks].map(u64::cast_signed);
        let ticks = i128::from(ticks) - i128::from(start_ticks);
        let time_ns = i128::from(self.header.start_ns) + self.scaled(ticks);
        time_ns.clamp(0, TIME_NS_MAX.into()) as i64
    }

    /// A length in nanoseconds, up to [`TIME_NS_MAX`]. A negative one is 0.
    #[must_use]
    pub fn length_ns(&self, ticks: u64) -> u64 {
        let ticks = i128::from(ticks.cast_signed().max(0));
        self.scaled(ticks).min(TIME_NS_MAX.into()) as u64
    }

    fn scaled(&self, ticks: i128) -> i128 {
        // Below 2^64 · 2^30.
        ticks * SECOND_NS / i128::from(self.header.ticks_per_second)
    }

    /// The values of a constant; `None` if the chunk lacks it.
    ///
    /// # Errors
    /// [`JfrError`] if its bytes are damaged.
    pub fn resolve(&self, constant: Constant) -> Result<Option<Record<'a>>, JfrError> {
        let Some(mut cursor) = self.constant_at(constant) else {
            return Ok(None);
        };
        Record::read(&self.values(), &mut cursor, constant.type_index).map(Some)
    }

    fn constant_at(&self, constant: Constant) -> Option<Cursor<'a>> {
        let wanted = (constant.type_index, constant.key);
        let next = self
            .constants
            .partition_point(|entry| entry.constant <= wanted);
        let entry = self.constants[..next].last()?;
        (entry.constant == wanted).then_some(Cursor {
            at: entry.at as usize,
            ..self.cursor
        })
    }

    /// The text of a field, or of the constant that it names.
    ///
    /// # Errors
    /// [`JfrError`] if its bytes are damaged.
    pub fn text(&self, record: &Record<'a>, key: Key) -> Result<Option<Cow<'a, str>>, JfrError> {
        let mut value = record.get(key);
        for _ in 0..TEXT_STEPS_MAX {
            self.work.charge(1)?;
            value = match value {
                Value::Text(Text::Constant(key)) => self.string(key)?,
                Value::Text(text) => return text.decoded(self.work),
                Value::Constant(constant) => self.only_text(constant)?,
                Value::Missing | Value::Number(_) | Value::List(_) => return Ok(None),
            };
        }
        Ok(None)
    }

    /// A constant string.
    fn string(&self, key: u64) -> Result<Value<'a>, JfrError> {
        match self.types.string_index {
            Some(type_index) => self.only_text(Constant { type_index, key }),
            None => Ok(Value::Missing),
        }
    }

    /// The text of a constant that is a string, or has only one field.
    fn only_text(&self, constant: Constant) -> Result<Value<'a>, JfrError> {
        let Some(mut cursor) = self.constant_at(constant) else {
            return Ok(Value::Missing);
        };
        if self.types.of_index(constant.type_index).layout == Layout::Text {
            return Ok(Value::Text(cursor.text(self.work)?));
        }
        let record = self.resolve(constant)?;
        let texts = [Key::String, Key::Name, Key::Description];
        let value = texts.map(|key| record.map_or(Value::Missing, |record| record.get(key)));
        let found = value
            .into_iter()
            .find(|value| !matches!(value, Value::Missing));
        Ok(found.unwrap_or(Value::Missing))
    }

    /// The elements of a list; none if the field is no list.
    pub fn list(
        &self,
        record: &Record<'a>,
        key: Key,
    ) -> impl ExactSizeIterator<Item = Result<Record<'a>, JfrError>> {
        let (count, mut place) = match record.get(key) {
            Value::List(list) => (list.count, Some(list)),
            _ => (0, None),
        };
        (0..count).map(move |_| {
            let list = place.as_mut().expect("only a list has elements");
            Record::read(&self.values(), &mut list.cursor, list.type_index)
        })
    }
}

/// An event, whose values are decoded when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Event<'c, 'a> {
    chunk: &'c Chunk<'a>,
    /// Index of its type in [`Chunk::types`].
    pub type_index: usize,
    cursor: Cursor<'a>,
}

impl<'a> Event<'_, 'a> {
    /// Its values.
    ///
    /// # Errors
    /// [`JfrError`] if its bytes are damaged.
    pub fn record(&self) -> Result<Record<'a>, JfrError> {
        let mut cursor = self.cursor;
        Record::read(&self.chunk.values(), &mut cursor, self.type_index as u32)
    }
}

/// The events of a chunk. Ends after an error.
#[derive(Debug)]
pub struct Events<'c, 'a> {
    chunk: &'c Chunk<'a>,
    at: usize,
}

impl<'c, 'a> Iterator for Events<'c, 'a> {
    type Item = Result<Event<'c, 'a>, JfrError>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.chunk;
        while self.at < chunk.cursor.bytes.len() {
            let (type_id, cursor, end) = match chunk.event_at(self.at) {
                Ok(event) => event,
                Err(error) => {
                    self.at = usize::MAX;
                    return Some(Err(error));
                }
            };
            self.at = end;
            if type_id == METADATA || type_id == CONSTANTS {
                continue;
            }
            let Some(type_index) = chunk.types.index_of(type_id) else {
                self.at = usize::MAX;
                return Some(Err(cursor.damaged("an event of an unknown type")));
            };
            return Some(Ok(Event {
                chunk,
                type_index: type_index as usize,
                cursor,
            }));
        }
        None
    }
}
