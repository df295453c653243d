//! Values of an event or a constant, by the names of its fields.

use crate::cursor::{Cursor, Text};
use crate::error::JfrError;
use crate::metadata::{Field, Layout, Values};

/// A field that is read. Events, stacks, methods and threads have different ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Start of an event, in ticks.
    StartTime,
    /// Length of an event, in ticks.
    Duration,
    /// The thread of an event: a constant.
    Thread,
    /// The stack of an event: a constant.
    StackTrace,
    /// The state of a sampled thread: a constant.
    State,
    /// The set of labels of an event, as Pyroscope's agent numbers them.
    ContextId,
    /// Number of samples that an event stands for.
    Samples,
    /// The type that a setting is of.
    Id,
    /// Name of a setting, a class, a method or a state.
    Name,
    /// Value of a setting.
    Value,
    /// Bytes that were lost.
    Amount,
    /// Whether a stack lacks its outer frames.
    Truncated,
    /// The frames of a stack, innermost first.
    Frames,
    /// The method of a frame: a constant.
    Method,
    /// The line of a frame.
    LineNumber,
    /// The class of a method, or the kind of a frame: a constant.
    Type,
    /// The types of a method's parameters: a constant.
    Descriptor,
    /// The text of a symbol.
    String,
    /// The text of a kind of frame.
    Description,
    /// The system's name of a thread.
    OsName,
    /// The system's id of a thread.
    OsThreadId,
    /// Java's name of a thread.
    JavaName,
}

const KEYS: usize = Key::JavaName as usize + 1;

impl Key {
    pub(crate) fn of(field: &str) -> Option<Key> {
        Some(match field {
            "startTime" => Key::StartTime,
            "duration" => Key::Duration,
            "eventThread" | "sampledThread" => Key::Thread,
            "stackTrace" => Key::StackTrace,
            "state" => Key::State,
            "contextId" => Key::ContextId,
            "samples" => Key::Samples,
            "id" => Key::Id,
            "name" => Key::Name,
            "value" => Key::Value,
            "amount" => Key::Amount,
            "truncated" => Key::Truncated,
            "frames" => Key::Frames,
            "method" => Key::Method,
            "lineNumber" => Key::LineNumber,
            "type" => Key::Type,
            "descriptor" => Key::Descriptor,
            "string" => Key::String,
            "description" => Key::Description,
            "osName" => Key::OsName,
            "osThreadId" => Key::OsThreadId,
            "javaName" => Key::JavaName,
            _ => return None,
        })
    }
}

/// A value as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Missing,
    Number(u64),
    Text(Text<'a>),
    Constant(Constant),
    List(List<'a>),
}

/// A reference to a constant of the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Constant {
    pub(crate) type_index: u32,
    /// Its number. 0 often stands for none.
    pub key: u64,
}

/// Elements of a list that are values themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    pub(crate) type_index: u32,
    pub(crate) count: usize,
    pub(crate) cursor: Cursor<'a>,
}

/// The values of an event or a constant.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    values: [Value<'a>; KEYS],
}

impl<'a> Record<'a> {
    pub(crate) fn read(
        values: &Values<'_>,
        cursor: &mut Cursor<'a>,
        type_index: u32,
    ) -> Result<Record<'a>, JfrError> {
        let mut record = Record {
            values: [Value::Missing; KEYS],
        };
        for field in values.types.fields(type_index) {
            values.work.charge(1)?;
            match field.key {
                Some(key) => {
                    record.values[key as usize] = Record::value(values, cursor, field)?;
                }
                None => values.skip_field(cursor, field, 1)?,
            }
        }
        Ok(record)
    }

    fn value(
        values: &Values<'_>,
        cursor: &mut Cursor<'a>,
        field: &Field,
    ) -> Result<Value<'a>, JfrError> {
        let type_index = field.type_index;
        if field.is_list {
            let mut list = *cursor;
            let count = list.count()?;
            values.skip_field(cursor, field, 1)?;
            if field.is_constant {
                return Ok(Value::Missing);
            }
            return Ok(Value::List(List {
                type_index,
                count,
                cursor: list,
            }));
        }
        if field.is_constant {
            let key = cursor.long()?;
            return Ok(Value::Constant(Constant { type_index, key }));
        }
        Ok(match values.types.of_index(type_index).layout {
            Layout::Byte => Value::Number(cursor.byte()?.into()),
            Layout::Integer(width) => Value::Number(cursor.integer(width)?),
            Layout::Text => Value::Text(cursor.text(values.work)?),
            Layout::Fixed(_) | Layout::Fields => {
                values.skip(cursor, type_index, 1)?;
                Value::Missing
            }
        })
    }

    pub(crate) fn get(&self, key: Key) -> Value<'a> {
        self.values[key as usize]
    }

    /// The number in a field; `None` if there is none.
    #[must_use]
    pub fn number(&self, key: Key) -> Option<u64> {
        match self.get(key) {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The constant that a field names; `None` if there is none.
    #[must_use]
    pub fn constant(&self, key: Key) -> Option<Constant> {
        match self.get(key) {
            Value::Constant(constant) => Some(constant),
            _ => None,
        }
    }
}
