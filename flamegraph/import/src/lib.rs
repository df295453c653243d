//! Profiles of other profilers: from the bytes of a file to samples that an agent could have sent.
//!
//! [`import`] detects the format by content. Every parser is a pure function over the whole content: it
//! fails with an [`ImportError`] that says what is wrong, and never takes more memory than a small multiple
//! of the content. [`limits`] has the bounds.

mod builder;
mod chrome;
mod collapsed;
mod detect;
mod difference;
mod error;
mod firefox;
mod gzip;
mod jfr;
mod json;
mod known;
mod labels;
pub mod limits;
mod model;
mod otlp;
mod perf;
mod pprof;
mod speedscope;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::borrow::Cow;

pub use error::ImportError;
pub use gzip::{decompressed, decompressed_len};
pub use known::{KnownTables, LookUp};
pub use model::{
    CollapsedUnit, ImportFormat, ImportOptions, Imported, ImportedSample, Labels, TASK_DEFAULT,
    TASK_LABEL_DEFAULT,
};
pub use otlp::{OtlpEncoding, OtlpError, OtlpProfile, otlp_profiles};

/// Parses a file, compressed by gzip or not.
///
/// ```
/// use emberline_import::{ImportOptions, import};
/// use flamegraph::collapsed;
///
/// let imported = import(b"main;work 2\nmain 1\n", &ImportOptions::default())?;
/// assert_eq!(collapsed(&imported.profile()), "imported;main 10000000\nimported;main;work 20000000\n");
/// # Ok::<(), emberline_import::ImportError>(())
/// ```
///
/// # Errors
/// [`ImportError`] if the format is unknown, the content is invalid or a limit is exceeded.
pub fn import(file: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    parse(file, options, None)
}

/// Like [`import`], but looks names and stacks up in the receiver's tables. Only missing ones are added to the tables of
/// the result. Formats other than pprof add all.
///
/// # Errors
/// As of [`import`].
pub fn import_into(
    tables: &dyn KnownTables,
    file: &[u8],
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    parse(file, options, Some(tables))
}

fn parse(
    file: &[u8],
    options: &ImportOptions,
    known: Option<&dyn KnownTables>,
) -> Result<Imported, ImportError> {
    let content = in_utf8(decompressed(file, options.content_bytes_max)?);
    let format = match options.format {
        Some(format) => format,
        None => detect::format(&content).ok_or_else(|| detect::other(&content))?,
    };
    match format {
        ImportFormat::Pprof => pprof::parse(&content, options, known)
            .map_err(|error| detect::other_message(&content, error)),
        ImportFormat::Collapsed => collapsed::parse(&content, options),
        ImportFormat::Perf => perf::parse(&content, options),
        ImportFormat::Speedscope => speedscope::parse(&content, options),
        ImportFormat::Firefox => firefox::parse(&content, options),
        ImportFormat::Chrome => chrome::parse(&content, options),
        ImportFormat::Jfr => jfr::parse(&content, options),
    }
}

/// Text without a byte order mark, and in UTF-8 if the mark is that of UTF-16. Other content as it is.
fn in_utf8(content: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    let decode = |unit: fn([u8; 2]) -> u16| {
        let units = content[2..].as_chunks().0.iter().map(|pair| unit(*pair));
        let text: String = char::decode_utf16(units)
            .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Cow::Owned(text.into_bytes())
    };
    match *content {
        [0xff, 0xfe, ..] => decode(u16::from_le_bytes),
        [0xfe, 0xff, ..] => decode(u16::from_be_bytes),
        _ if content.starts_with(BOM) => Cow::Owned(content[BOM.len()..].to_vec()),
        _ => content,
    }
}

#[cfg(test)]
mod tests;
