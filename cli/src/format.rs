//! Which form a profile is written in.

use std::path::Path;

use crate::args::ProfileFormat;
use crate::exit::BadInput;

/// Endings of files, and the form that each means.
const ENDINGS: [(&str, ProfileFormat); 4] = [
    ("svg", ProfileFormat::Svg),
    ("collapsed", ProfileFormat::Collapsed),
    ("txt", ProfileFormat::Collapsed),
    ("json", ProfileFormat::Json),
];

/// What was asked for; else what the file's ending means; else, without a file, a table.
///
/// # Errors
/// [`BadInput`] for a file whose ending means nothing.
pub(crate) fn choose(
    asked: Option<ProfileFormat>,
    file: Option<&Path>,
) -> Result<ProfileFormat, BadInput> {
    let Some(file) = file.filter(|_| asked.is_none()) else {
        return Ok(asked.unwrap_or(ProfileFormat::Table));
    };
    let ending = file.extension().unwrap_or_default();
    let known = ENDINGS.into_iter().find(|(known, _)| ending.eq_ignore_ascii_case(known));
    known.map(|(_, format)| format).ok_or_else(|| {
        let known = ENDINGS.map(|(ending, _)| format!(".{ending}")).join(", ");
        BadInput(format!(
            "the ending of {} says no format; known are {known}\nor give one with --format",
            file.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProfileFormat::{Collapsed, Json, Svg, Table};

    #[test]
    fn the_flag_decides_then_the_ending_then_it_is_a_table() {
        for (asked, file, expected) in [
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
            assert_eq!(choose(asked, file.map(Path::new)).unwrap(), expected, "{file:?}");
        }
    }

    #[test]
    fn an_unknown_ending_is_refused_with_the_known_ones() {
        for file in ["a.png", "a", ".svg"] {
            let error = choose(None, Some(Path::new(file))).unwrap_err().to_string();
            assert!(error.contains(".svg, .collapsed, .txt, .json"), "{error}");
        }
    }
}
