//! The types of a chunk's values, which its metadata describes.

use std::ops::Range;
use std::sync::Arc;

use crate::cursor::{Cursor, Work};
use crate::error::JfrError;
use crate::limits::{DEPTH_MAX, METADATA_TEXTS_MAX, TYPES_MAX};
use crate::record::Key;

/// How a value of a type is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    Byte,
    /// An integer of that many bytes if it is raw.
    Integer(u8),
    /// Floating point of that many bytes.
    Fixed(u8),
    Text,
    /// Its fields, one after the other.
    Fields,
}

impl Layout {
    fn of(name: &str) -> Layout {
        match name {
            "boolean" | "byte" => Layout::Byte,
            "short" | "char" => Layout::Integer(2),
            "int" => Layout::Integer(4),
            "long" => Layout::Integer(8),
            "float" => Layout::Fixed(4),
            "double" => Layout::Fixed(8),
            "java.lang.String" => Layout::Text,
            _ => Layout::Fields,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) name: Arc<str>,
    pub(crate) layout: Layout,
    /// Its part of [`Types::fields`].
    fields: Range<u32>,
    /// Whether constants of this type are kept.
    pub(crate) is_kept: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// `None` for a field that nobody asks for.
    pub(crate) key: Option<Key>,
    type_id: u64,
    /// Index of [`Types::types`], once all are known.
    pub(crate) type_index: u32,
    pub(crate) is_constant: bool,
    pub(crate) is_list: bool,
}

/// The types of a chunk.
#[derive(Default, Debug)]
pub(crate) struct Types {
    pub(crate) types: Vec<Type>,
    fields: Vec<Field>,
    /// Ids of types and their indices, sorted.
    ids: Vec<(u64, u32)>,
    /// The type of strings.
    pub(crate) string_index: Option<u32>,
}

/// Types of constants that are kept.
const KEPT: [&str; 8] = [
    "java.lang.Class",
    "java.lang.String",
    "java.lang.Thread",
    "jdk.types.FrameType",
    "jdk.types.Method",
    "jdk.types.StackTrace",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
];

impl Types {
    /// Reads the event of the metadata, after its size and type.
    pub(crate) fn read(cursor: &mut Cursor<'_>, work: &Work) -> Result<Types, JfrError> {
        // Start, duration, id of the metadata.
        for _ in 0..3 {
            cursor.long()?;
        }
        let count = cursor.count()?;
        if count > METADATA_TEXTS_MAX {
            let what = "too many texts in the metadata";
            return Err(JfrError::TooMany {
                what,
                limit: METADATA_TEXTS_MAX,
            });
        }
        let mut reader = Reader {
            cursor,
            work,
            texts: Vec::with_capacity(count),
            types: Types::default(),
        };
        for _ in 0..count {
            let text = reader.cursor.text(work)?;
            let decoded = text.decoded(work)?.filter(|text| !text.is_empty());
            reader
                .texts
                .push(decoded.map(Arc::from).unwrap_or_default());
        }
        reader.element(0)?;
        reader.types.resolved(cursor)
    }

    /// Finds the types of fields.
    fn resolved(mut self, cursor: &Cursor<'_>) -> Result<Types, JfrError> {
        self.types.shrink_to_fit();
        self.fields.shrink_to_fit();
        self.ids.sort_unstable();
        for at in 0..self.fields.len() {
            let index = self
                .index_of(self.fields[at].type_id)
                .ok_or_else(|| cursor.damaged("a field has an unknown type"))?;
            self.fields[at].type_index = index;
        }
        Ok(self)
    }

    /// The index of the type with that id.
    pub(crate) fn index_of(&self, id: u64) -> Option<u32> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.ids[at].1)
    }

    pub(crate) fn of_index(&self, type_index: u32) -> &Type {
        &self.types[type_index as usize]
    }

    pub(crate) fn fields(&self, type_index: u32) -> &[Field] {
        let Range { start, end } = self.of_index(type_index).fields;
        &self.fields[start as usize..end as usize]
    }
}

struct Reader<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    work: &'c Work,
    texts: Vec<Arc<str>>,
    types: Types,
}

/// The attributes of an element that matter.
#[derive(Default)]
struct Attributes {
    id: u64,
    name: Option<Arc<str>>,
    class: u64,
    is_constant: bool,
    is_list: bool,
}

impl Reader<'_, '_> {
    fn text(&mut self) -> Result<Arc<str>, JfrError> {
        let index = self.cursor.int()?;
        let text = self.texts.get(index as usize).cloned();
        text.ok_or_else(|| {
            self.cursor
                .damaged("the metadata names a text that it lacks")
        })
    }

    fn attributes(&mut self) -> Result<Attributes, JfrError> {
        let mut attributes = Attributes::default();
        for _ in 0..self.cursor.count()? {
            self.work.charge(1)?;
            let key = self.text()?;
            let value = self.text()?;
            match &*key {
                "id" => attributes.id = self.number(&value)?,
                "name" => attributes.name = Some(value),
                "class" => attributes.class = self.number(&value)?,
                "constantPool" => attributes.is_constant = &*value == "true",
                "dimension" => attributes.is_list = &*value != "0",
                _ => {}
            }
        }
        Ok(attributes)
    }

    fn number(&self, text: &str) -> Result<u64, JfrError> {
        let number = text.parse::<i64>().map(i64::cast_unsigned);
        number.map_err(|_| self.cursor.damaged("the id of a type is no number"))
    }

    /// Reads an element with those in it.
    fn element(&mut self, depth: usize) -> Result<(), JfrError> {
        if depth >= DEPTH_MAX {
            return Err(self.cursor.damaged("the metadata is nested too deeply"));
        }
        self.work.charge(1)?;
        let kind = self.text()?;
        let attributes = self.attributes()?;
        match &*kind {
            "class" => self.add_type(attributes)?,
            "field" => self.add_field(&attributes)?,
            _ => {}
        }
        for _ in 0..self.cursor.count()? {
            self.element(depth + 1)?;
        }
        Ok(())
    }

    fn add_type(&mut self, attributes: Attributes) -> Result<(), JfrError> {
        let types = &mut self.types;
        let index = types.types.len();
        if index >= TYPES_MAX {
            return Err(JfrError::TooMany {
                what: "too many types",
                limit: TYPES_MAX,
            });
        }
        let name = attributes.name.unwrap_or_default();
        // There are fewer fields than bytes in a chunk.
        let end = types.fields.len() as u32;
        let index = index as u32;
        types.ids.push((attributes.id, index));
        let layout = Layout::of(&name);
        if layout == Layout::Text {
            types.string_index = Some(index);
        }
        types.types.push(Type {
            layout,
            is_kept: KEPT.contains(&&*name),
            fields: end..end,
            name,
        });
        Ok(())
    }

    /// Adds a field to the type that was read last.
    fn add_field(&mut self, attributes: &Attributes) -> Result<(), JfrError> {
        let Some(last) = self.types.types.last_mut() else {
            return Err(self.cursor.damaged("a field of no type"));
        };
        last.fields.end += 1;
        self.types.fields.push(Field {
            key: attributes.name.as_deref().and_then(Key::of),
            type_id: attributes.class,
            type_index: 0,
            is_constant: attributes.is_constant,
            is_list: attributes.is_list,
        });
        Ok(())
    }
}

/// A reader of values.
pub(crate) struct Values<'t> {
    pub(crate) types: &'t Types,
    pub(crate) work: &'t Work,
}

impl Values<'_> {
    /// Moves past a value of that type.
    pub(crate) fn skip(
        &self,
        cursor: &mut Cursor<'_>,
        type_index: u32,
        depth: usize,
    ) -> Result<(), JfrError> {
        self.work.charge(1)?;
        match self.types.of_index(type_index).layout {
            Layout::Byte => cursor.byte().map(drop),
            Layout::Integer(width) => cursor.integer(width).map(drop),
            Layout::Fixed(width) => cursor.take(width.into()).map(drop),
            Layout::Text => cursor.text(self.work).map(drop),
            Layout::Fields if depth >= DEPTH_MAX => {
                Err(cursor.damaged("a value contains itself or is nested too deeply"))
            }
            Layout::Fields => {
                for field in self.types.fields(type_index) {
                    self.skip_field(cursor, field, depth + 1)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn skip_field(
        &self,
        cursor: &mut Cursor<'_>,
        field: &Field,
        depth: usize,
    ) -> Result<(), JfrError> {
        if !field.is_list {
            return self.skip_element(cursor, field, depth);
        }
        let count = cursor.count()?;
        let start = cursor.at;
        for _ in 0..count {
            self.skip_element(cursor, field, depth)?;
        }
        // Without it, a list of empty values would stand for any number of them.
        if cursor.at - start < count {
            return Err(cursor.damaged("a list has elements without bytes"));
        }
        Ok(())
    }

    fn skip_element(
        &self,
        cursor: &mut Cursor<'_>,
        field: &Field,
        depth: usize,
    ) -> Result<(), JfrError> {
        if field.is_constant {
            self.work.charge(1)?;
            cursor.long().map(drop)
        } else {
            self.skip(cursor, field.type_index, depth)
        }
    }
}
