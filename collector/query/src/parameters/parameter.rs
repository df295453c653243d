//! Descriptions of parameters. Each query has a table of its parameters next to the code that parses them; the description
//! of the HTTP API in `docs/openapi.json` is written from the same tables.

use std::ops::RangeInclusive;

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it may be given up to `FILTER_VALUES_MAX` times.
    pub is_repeated: bool,
    pub is_required: bool,
    /// The value that its absence stands for.
    pub default: Option<&'static str>,
    /// A valid value.
    pub example: &'static str,
    /// One line.
    pub description: &'static str,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// A time, in one of the forms of `api::time`.
    Time,
    /// A length of time, such as `10s`.
    Span,
    /// A whole number from `min` to `max`.
    Integer {
        min: u64,
        max: u64,
        default: Option<u64>,
    },
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
}

/// The parameters of a route, in groups that routes share.
pub type Parameters = &'static [&'static [Parameter]];

impl Parameter {
    const fn new(
        name: &'static str,
        kind: Kind,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        Parameter {
            name,
            kind,
            is_repeated: false,
            is_required: false,
            default: None,
            example,
            description,
        }
    }

    pub const fn text(
        name: &'static str,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        Parameter::new(name, Kind::Text, example, description)
    }

    pub const fn time(
        name: &'static str,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        Parameter::new(name, Kind::Time, example, description)
    }

    pub const fn span(
        name: &'static str,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        Parameter::new(name, Kind::Span, example, description)
    }

    pub const fn integer(
        name: &'static str,
        range: RangeInclusive<usize>,
        default: Option<usize>,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        let default = match default {
            Some(default) => Some(default as u64),
            None => None,
        };
        let kind = Kind::Integer {
            min: *range.start() as u64,
            max: *range.end() as u64,
            default,
        };
        Parameter::new(name, kind, example, description)
    }

    pub const fn choice(
        name: &'static str,
        values: fn() -> Vec<&'static str>,
        example: &'static str,
        description: &'static str,
    ) -> Parameter {
        Parameter::new(name, Kind::Choice(values), example, description)
    }

    /// `false` or `true`; `false` by default.
    pub const fn flag(name: &'static str, description: &'static str) -> Parameter {
        Parameter::choice(name, || names(&FLAG), "true", description).default("false")
    }

    pub const fn default(self, default: &'static str) -> Parameter {
        Parameter {
            default: Some(default),
            ..self
        }
    }

    pub const fn repeated(self) -> Parameter {
        Parameter {
            is_repeated: true,
            ..self
        }
    }

    pub const fn required(self) -> Parameter {
        Parameter {
            is_required: true,
            ..self
        }
    }
}

/// The values of [`Parameter::flag`].
pub(crate) const FLAG: [(&str, bool); 2] = [("false", false), ("true", true)];

/// The names of choices.
pub(crate) fn names<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(name, _)| *name).collect()
}
