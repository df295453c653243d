//! The output format of an answer.

use std::path::Path;

use crate::args::{CompareFormat, FileFormat, ProfileFormat, ResourcesFormat, TasksFormat};
use crate::exit::BadInput;

/// An output format that file extensions select.
pub(crate) trait Format: Copy + 'static {
    /// Extensions, and the format that each selects. The longest that fits is chosen.
    const EXTENSIONS: &'static [(&'static str, Self)];
    /// The format without a file.
    const TABLE: Self;
}

impl Format for ProfileFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("svg", ProfileFormat::Svg),
        ("html", ProfileFormat::Html),
        ("collapsed", ProfileFormat::Collapsed),
        ("txt", ProfileFormat::Collapsed),
        ("json", ProfileFormat::Json),
        ("pb.gz", ProfileFormat::Pprof),
        ("pprof", ProfileFormat::Pprof),
        ("speedscope.json", ProfileFormat::Speedscope),
        ("firefox.json", ProfileFormat::Firefox),
        ("nested.json", ProfileFormat::Nested),
        ("csv", ProfileFormat::Csv),
        ("parquet", ProfileFormat::Parquet),
    ];
    const TABLE: Self = ProfileFormat::Table;
}

impl Format for TasksFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("trace", TasksFormat::Trace),
        ("html", TasksFormat::Html),
        ("txt", TasksFormat::Table),
        ("json", TasksFormat::Json),
        ("csv", TasksFormat::Csv),
        ("parquet", TasksFormat::Parquet),
        ("hlog", TasksFormat::Hlog),
        ("otlp.jsonl", TasksFormat::Otlp),
        ("firefox.json", TasksFormat::Firefox),
    ];
    const TABLE: Self = TasksFormat::Table;
}

impl Format for ResourcesFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("html", ResourcesFormat::Html),
        ("txt", ResourcesFormat::Table),
        ("json", ResourcesFormat::Json),
        ("csv", ResourcesFormat::Csv),
        ("parquet", ResourcesFormat::Parquet),
    ];
    const TABLE: Self = ResourcesFormat::Table;
}

impl Format for FileFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("txt", FileFormat::Table),
        ("json", FileFormat::Json),
        ("csv", FileFormat::Csv),
        ("parquet", FileFormat::Parquet),
    ];
    const TABLE: Self = FileFormat::Table;
}

impl Format for CompareFormat {
    const EXTENSIONS: &'static [(&'static str, Self)] = &[
        ("svg", CompareFormat::Svg),
        ("txt", CompareFormat::Table),
        ("json", CompareFormat::Json),
    ];
    const TABLE: Self = CompareFormat::Table;
}

/// The requested format; else that of the file's extension; else, without a file, a table.
///
/// # Errors
/// [`BadInput`] for an unknown extension.
pub(crate) fn choose<F: Format>(requested: Option<F>, file: Option<&Path>) -> Result<F, BadInput> {
    let Some(file) = file.filter(|_| requested.is_none()) else {
        return Ok(requested.unwrap_or(F::TABLE));
    };
    let unknown = |BadInput(text)| BadInput(format!("{text}, or set --format"));
    of_file(file).map_err(unknown)
}

/// The format of the file's extension.
///
/// # Errors
/// [`BadInput`] for an unknown one; the text has the known ones.
pub(crate) fn of_file<F: Format>(file: &Path) -> Result<F, BadInput> {
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    let fitting = F::EXTENSIONS
        .iter()
        .filter(|(known, _)| has_extension(&name, known));
    let known = fitting.max_by_key(|(known, _)| known.len());
    known.map(|(_, format)| *format).ok_or_else(|| {
        let known = F::EXTENSIONS
            .iter()
            .map(|(known, _)| format!(".{known}"))
            .collect::<Vec<_>>()
            .join(", ");
        BadInput(format!(
            "unknown extension of {}; expected {known}",
            file.display()
        ))
    })
}

/// Whether `name` is more than that extension.
fn has_extension(name: &str, extension: &str) -> bool {
    let stem = name
        .strip_suffix(extension)
        .and_then(|name| name.strip_suffix('.'));
    stem.is_some_and(|stem| !stem.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProfileFormat::{Collapsed, Firefox, Html, Json, Nested, Pprof, Speedscope, Svg, Table};

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
            (None, Some("b.pb.gz"), Pprof),
            (None, Some("b.pprof"), Pprof),
            (None, Some("b.Speedscope.JSON"), Speedscope),
            (None, Some("b.firefox.json"), Firefox),
            (None, Some("b.nested.json"), Nested),
            (None, Some("speedscope.json"), Json),
            (None, Some("b.html"), Html),
            (Some(Table), Some("b.svg"), Table),
            (Some(Json), Some("b"), Json),
        ] {
            assert_eq!(
                choose(requested, file.map(Path::new)).unwrap(),
                expected,
                "{file:?}"
            );
        }
    }

    #[test]
    fn an_unknown_extension_is_rejected_with_the_known_ones() {
        for file in ["a.png", "a", ".svg", "a.gz", "asvg"] {
            let error = choose::<ProfileFormat>(None, Some(Path::new(file)))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(".svg, .html, .collapsed, .txt, .json"),
                "{error}"
            );
        }
    }

    #[test]
    fn tasks_have_their_own_extensions() {
        for (file, expected) in [
            ("a.json", Some(TasksFormat::Json)),
            ("a.json.trace", Some(TasksFormat::Trace)),
            ("a.firefox.json", Some(TasksFormat::Firefox)),
            ("a.html", Some(TasksFormat::Html)),
            ("a.csv", Some(TasksFormat::Csv)),
            ("a.parquet", Some(TasksFormat::Parquet)),
            ("a.hlog", Some(TasksFormat::Hlog)),
            ("a.TXT", Some(TasksFormat::Table)),
            ("a.svg", None),
        ] {
            assert_eq!(choose(None, Some(Path::new(file))).ok(), expected, "{file}");
        }
    }
}
