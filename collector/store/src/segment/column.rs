//! Columns of a list: their kinds, and the declaration from which schema, writer and reader follow.

use std::ops::Range;
use std::sync::Arc;

use profiler_core::Timestamp;

/// A column of a list: its name and its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListColumn {
    pub name: &'static str,
    pub kind: ListKind,
}

/// The values of a column, as the file stores them.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    Texts(Vec<Arc<str>>),
    Flags(Vec<bool>),
    Numbers32(Vec<u32>),
    /// Unsigned numbers as their bits.
    Numbers64(Vec<i64>),
    Optionals64(Vec<Option<i64>>),
    Fractions(Vec<f64>),
}

/// A row of a list. [`list_table!`] implements it.
pub trait ListRow: Sized {
    const COLUMNS: &'static [ListColumn];

    /// The rows as columns.
    fn encode(rows: &[Self]) -> Vec<Values>;

    /// Reads rows back, from columns of the declared kinds.
    ///
    /// # Errors
    /// A description of the first invalid value.
    fn decode(columns: &mut Columns) -> Result<Vec<Self>, String>;

    /// The ids or seconds of the row; the manifest records those of each file.
    fn span(&self) -> Range<u32>;
}

/// The columns of a row group, taken one after the other.
pub struct Columns {
    columns: std::vec::IntoIter<Values>,
    rows: usize,
}

impl Columns {
    pub fn new(columns: Vec<Values>, rows: usize) -> Columns {
        Columns {
            columns: columns.into_iter(),
            rows,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The values of the next column.
    pub fn take<K: ColumnKind>(&mut self) -> impl Iterator<Item = K::Value> + use<K> {
        K::decode(
            self.columns
                .next()
                .expect("there are as many columns as the table declares"),
        )
    }
}

/// The next value of a column.
///
/// # Errors
/// If the column has fewer values than there are rows.
pub(crate) fn next<T>(column: &mut impl Iterator<Item = T>) -> Result<T, String> {
    column
        .next()
        .ok_or_else(|| "a column ends too early".to_owned())
}

/// A kind of column as a type: which values rows have, and how the file stores them.
pub trait ColumnKind {
    const KIND: ListKind;
    type Value;

    fn encode(values: impl Iterator<Item = Self::Value>) -> Values;
    fn decode(values: Values) -> impl Iterator<Item = Self::Value> + use<Self>;
}

macro_rules! column_kinds {
    ($($(#[$doc:meta])* $kind:ident($value:ty) = $values:ident($to:expr, $from:expr);)*) => {
        /// The kind of a column's values.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ListKind {
            $($(#[$doc])* $kind,)*
        }

        /// The kinds as types, for [`list_table!`](super::list_table).
        pub mod kinds {
            $($(#[$doc])* #[derive(Debug)] pub enum $kind {})*
        }

        $(impl ColumnKind for kinds::$kind {
            const KIND: ListKind = ListKind::$kind;
            type Value = $value;

            fn encode(values: impl Iterator<Item = $value>) -> Values {
                Values::$values(values.map($to).collect())
            }

            fn decode(values: Values) -> impl Iterator<Item = $value> {
                match values {
                    Values::$values(values) => values.into_iter().map($from),
                    other => unreachable!("columns are read by their kinds: {other:?}"),
                }
            }
        })*
    };
}

column_kinds! {
    Text(Arc<str>) = Texts(|text| text, |text| text);
    /// A text by which rows are looked up: with a bloom filter.
    KeyText(Arc<str>) = Texts(|text| text, |text| text);
    Flag(bool) = Flags(|flag| flag, |flag| flag);
    Number32(u32) = Numbers32(|number| number, |number| number);
    Number64(u64) = Numbers64(u64::cast_signed, i64::cast_unsigned);
    /// Nanoseconds since the Unix epoch.
    Time(Timestamp) = Numbers64(Timestamp::unix_ns, Timestamp::from_unix_ns);
    OptionalNumber64(Option<u64>) = Optionals64(
        |number| number.map(u64::cast_signed),
        |number| number.map(i64::cast_unsigned)
    );
    OptionalSigned64(Option<i64>) = Optionals64(|number| number, |number| number);
    OptionalTime(Option<Timestamp>) = Optionals64(
        |time| time.map(Timestamp::unix_ns),
        |time| time.map(Timestamp::from_unix_ns)
    );
    /// Only in files for others: the store has whole numbers.
    Fraction(f64) = Fractions(|number| number, |number| number);
}

impl ListKind {
    /// The column's line in a Parquet schema.
    pub(super) fn field(self, name: &str) -> String {
        const NUMBER: &str = "INTEGER(64,false)";
        const SIGNED: &str = "INTEGER(64,true)";
        const TIME: &str = "TIMESTAMP(NANOS,true)";
        let (repetition, physical, logical) = match self {
            ListKind::Text | ListKind::KeyText => ("REQUIRED", "BYTE_ARRAY", Some("STRING")),
            ListKind::Flag => ("REQUIRED", "BOOLEAN", None),
            ListKind::Number32 => ("REQUIRED", "INT32", Some("INTEGER(32,false)")),
            ListKind::Number64 => ("REQUIRED", "INT64", Some(NUMBER)),
            ListKind::Time => ("REQUIRED", "INT64", Some(TIME)),
            ListKind::OptionalNumber64 => ("OPTIONAL", "INT64", Some(NUMBER)),
            ListKind::OptionalSigned64 => ("OPTIONAL", "INT64", Some(SIGNED)),
            ListKind::OptionalTime => ("OPTIONAL", "INT64", Some(TIME)),
            ListKind::Fraction => ("REQUIRED", "DOUBLE", None),
        };
        let logical = logical.map_or(String::new(), |logical| format!(" ({logical})"));
        format!(" {repetition} {physical} {name}{logical};")
    }
}

/// Declares the table of a row type: each column once, in the order of the file, with its name, its
/// kind and its value in a row. The block after `=>` makes a row from the columns, which are
/// variables by their names there, so that columns cannot be confused by their positions; it may
/// use `?` and `return Err` with a `String`. `with` is state that the rows of a row group share.
macro_rules! list_table {
    (
        $type:ty, |$row:ident| { $($column:ident: $kind:ident = $value:expr,)+ }
        $(with $state:ident = $init:expr)? => $decode:block
        span $span:expr
    ) => {
        impl $crate::segment::ListRow for $type {
            const COLUMNS: &'static [$crate::segment::ListColumn] = &[
                $($crate::segment::ListColumn {
                    name: stringify!($column),
                    kind: $crate::segment::ListKind::$kind,
                },)+
            ];

            fn encode(rows: &[Self]) -> Vec<$crate::segment::Values> {
                use $crate::segment::{ColumnKind as _, kinds};
                vec![$(kinds::$kind::encode(rows.iter().map(|$row| $value)),)+]
            }

            fn decode(
                columns: &mut $crate::segment::Columns,
            ) -> Result<Vec<Self>, String> {
                use $crate::segment::{kinds, next};
                $(let mut $column = columns.take::<kinds::$kind>();)+
                $(let mut $state = $init;)?
                let mut decode = || -> Result<Self, String> {
                    $(let $column = next(&mut $column)?;)+
                    Ok($decode)
                };
                (0..columns.rows()).map(|_| decode()).collect()
            }

            fn span(&self) -> std::ops::Range<u32> {
                let $row = self;
                $span
            }
        }
    };
}
pub(crate) use list_table;
