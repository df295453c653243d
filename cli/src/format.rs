//! The output format of an answer.

use std::path::Path;

use crate::args::{ProfileFormat, TasksFormat};
use crate::exit::BadInput;

/// An output format that file extensions select.
pub(crate) trait Format: Copy + 'static {
    /// Extensions, and the format that each selects.
    const EXTENSIONS: &'static [(&'static str, Self)];
    /// The format without a file.
    const TABLE: Self;
}

impl Format for ProfileFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("svg", ProfileFormat::Svg),
        ("collapsed", ProfileFormat::Collapsed),
        ("txt", ProfileFormat::Collapsed),
        ("json", ProfileFormat::Json),
    ];
    const TABLE: Self = ProfileFormat::Table;
}

impl Format for TasksFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] =
        &[("trace", TasksFormat::Trace), ("txt", TasksFormat::Table), ("json", TasksFormat::Json)];
    const TABLE: Self = TasksFormat::Table;
}

/// The requested format; else that of the file's extension; else, without a file, a table.
///
/// # Errors
/// [`BadInput`] for an unknown extension.
pub(crate) fn choose<F: Format>(requested: Option<F>, file: Option<&Path>) -> Result<F, BadInput> {
    let Some(file) = file.filter(|_| requested.is_none()) else {
        return Ok(requested.unwrap_or(F::TABLE));
    };
    let extension = file.extension().unwrap_or_default();
    let known = F::EXTENSIONS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known));
    known.map(|(_, format)| *format).ok_or_else(|| {
        let known: Vec<String> =
            F::EXTENSIONS.iter().map(|(known, _)| format!(".{known}")).collect();
        let known = known.join(", ");
        BadInput(format!(
            "unknown extension of {}; expected {known}, or set --format",
            file.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProfileFormat::{Collapsed, Json, Svg, Table};

    #[test]
    fn the_flag_precedes_the_extension_and_the_default_is_a_table() {
        for (requested, file, expected) in [
            (None, None, Table),
            (Some(Svg), None, Svg),
            (None, Some("a/b.svg"), Svg),
            (None, Some("B.SVG"), Svg),
            (None, Some("b.collapsed"), Collapsed),
            (None, Some("b.txt"), Collapsed),
            (None, Some("b.tar.json"), Json),
            (Some(Table), Some("b.svg"), Table),
            (Some(Json), Some("b"), Json),
        ] {
            assert_eq!(choose(requested, file.map(Path::new)).unwrap(), expected, "{file:?}");
        }
    }

    #[test]
    fn an_unknown_extension_is_rejected_with_the_known_ones() {
        for file in ["a.png", "a", ".svg"] {
            let error = choose::<ProfileFormat>(None, Some(Path::new(file)));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(".svg, .collapsed, .txt, .json"), "{error}");
        }
    }

    #[test]
    fn tasks_have_their_own_extensions() {
        for (file, expected) in [
            ("a.json", Some(TasksFormat::Json)),
            ("a.json.trace", Some(TasksFormat::Trace)),
            ("a.TXT", Some(TasksFormat::Table)),
            ("a.svg", None),
        ] {
            assert_eq!(choose(None, Some(Path::new(file))).ok(), expected, "{file}");
        }
    }
}
