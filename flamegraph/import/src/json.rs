//! JSON of other programs: numbers, and columns that take little more memory than their text.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::builder::Builder;
use super::error::ImportError;
use super::limits::TABLE_ENTRIES_MAX;
use super::model::ImportFormat;

/// Parses a file of a JSON format.
pub(super) fn parse<'a, T: Deserialize<'a>>(
    content: &'a [u8],
    format: ImportFormat,
) -> Result<T, ImportError> {
    serde_json::from_slice(content).map_err(|error| ImportError::Invalid {
        format,
        reason: error.to_string(),
    })
}

/// A list of at most [`TABLE_ENTRIES_MAX`] values, because they take more memory than their text.
#[derive(Debug)]
pub(super) struct Table<T>(Vec<T>);

impl<T> Table<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T> From<Vec<T>> for Table<T> {
    fn from(entries: Vec<T>) -> Table<T> {
        Table(entries)
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Vec::new())
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table<T>, D::Error> {
        deserializer.deserialize_seq(TableVisitor(PhantomData))
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Table<T>, A::Error> {
        let mut table = Vec::new();
        while let Some(value) = list.next_element()? {
            if table.len() >= TABLE_ENTRIES_MAX {
                let error = format!("a list has more than {TABLE_ENTRIES_MAX} entries");
                return Err(serde::de::Error::custom(error));
            }
            table.push(value);
        }
        Ok(Table(table))
    }
}

/// Lists of numbers, one behind the other.
#[derive(Default, Debug)]
pub(super) struct Lists {
    numbers: Vec<u32>,
    ends: Vec<u32>,
}

impl Lists {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.numbers[start as usize..*end as usize])
    }
}

impl<'de> Deserialize<'de> for Lists {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lists, D::Error> {
        deserializer.deserialize_seq(ListsVisitor)
    }
}

struct ListsVisitor;

impl<'de> Visitor<'de> for ListsVisitor {
    type Value = Lists;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of lists of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut lists: A) -> Result<Lists, A::Error> {
        let mut all = Lists::default();
        while lists
            .next_element_seed(Appended(&mut all.numbers))?
            .is_some()
        {
            let end = u32::try_from(all.numbers.len());
            all.ends
                .push(end.map_err(|_| serde::de::Error::custom("too many numbers"))?);
        }
        Ok(all)
    }
}

/// Appends one list of numbers.
struct Appended<'a>(&'a mut Vec<u32>);

impl<'de> DeserializeSeed<'de> for Appended<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Appended<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(number) = list.next_element()? {
            self.0.push(number);
        }
        Ok(())
    }
}

/// Time in nanoseconds, of `value` units of `unit_ns`. A negative or unreasonable number is an error that
/// names `what`.
pub(super) fn nanoseconds(
    builder: &Builder<'_>,
    what: &str,
    value: f64,
    unit_ns: f64,
) -> Result<u64, ImportError> {
    let time = (value * unit_ns).round();
    // Just below what a timestamp can hold.
    const MOST: f64 = 9e18;
    if !(0.0..MOST).contains(&time) {
        return Err(builder.invalid(format!(
            "{what} is {value}; a time of 0 or more is expected"
        )));
    }
    Ok(time as u64)
}

/// The nanoseconds of a unit of time, by its usual names.
pub(super) fn unit_ns(unit: &str) -> Option<u64> {
    match &*unit.to_lowercase() {
        "nanoseconds" | "nanosecond" | "ns" => Some(1),
        "microseconds" | "microsecond" | "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "milliseconds" | "millisecond" | "ms" => Some(1_000_000),
        "seconds" | "second" | "secs" | "sec" | "s" => Some(1_000_000_000),
        "minutes" | "minute" | "mins" | "min" => Some(60_000_000_000),
        "hours" | "hour" | "hrs" | "hr" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// Checks that a table with this many entries may get one more.
pub(super) fn check_table(what: &'static str, entries: usize) -> Result<(), ImportError> {
    if entries >= TABLE_ENTRIES_MAX {
        return Err(ImportError::TooMany {
            what,
            limit: TABLE_ENTRIES_MAX,
        });
    }
    Ok(())
}
