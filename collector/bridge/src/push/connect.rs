//! `POST /push.v1.PusherService/Push`: a method of the Connect protocol, without streams.

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flamegraph::messages::json;
use import::{ImportFormat, ImportOptions, Labels};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::Deserialize;

use super::failure::{Failure, Kind};
use super::profile::{OF_MUTEXES, Profile, Span};
use super::series::{NAME_LABEL, Series, Source};
use base::limits::{PUSH_LABELS_MAX, PUSH_PROFILES_MAX};

/// The name of series that have none.
pub(super) const UNNAMED: &str = "unknown_service";

/// The label with the kind of a profile, such as `process_cpu`.
const KIND_LABEL: &str = "__name__";

/// The kind of Go's mutex profiles.
const MUTEX_KIND: &str = "mutex";

/// How a message is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Proto,
    Json,
}

impl Encoding {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Encoding, Failure> {
        let value = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = value
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        match media_type.trim() {
            "application/proto" => Ok(Encoding::Proto),
            "application/json" => Ok(Encoding::Json),
            other => {
                let other: String = other.chars().take(80).collect();
                let text = format!(
                    "content-type {other:?} is not read; allowed: application/proto, application/json"
                );
                Err(Failure::new(Kind::Unsupported, text))
            }
        }
    }
}

/// Name of the client that sends a message, for people.
pub(super) fn client(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    value
        .and_then(|value| value.split(' ').next())
        .unwrap_or("unknown")
        .chars()
        .take(80)
        .collect()
}

/// One series with its profiles, as the message has it.
#[derive(Default, Deserialize)]
struct RawSeries {
    #[serde(default)]
    labels: Vec<RawLabel>,
    #[serde(default)]
    samples: Vec<RawProfile>,
}

#[derive(Default, Deserialize)]
struct RawLabel {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Default, Deserialize)]
struct RawProfile {
    #[serde(default, alias = "raw_profile", rename = "rawProfile")]
    base64: String,
    #[serde(skip)]
    bytes: Bytes,
}

#[derive(Deserialize)]
struct RawRequest {
    #[serde(default)]
    series: Vec<RawSeries>,
}

/// The profiles of a message.
pub(super) fn profiles(
    encoding: Encoding,
    message: &Bytes,
    client: &str,
) -> Result<Vec<Profile>, Failure> {
    let series = match encoding {
        Encoding::Proto => proto(message)?,
        Encoding::Json => of_json(message)?,
    };
    let mut profiles = Vec::new();
    for RawSeries { labels, samples } in series {
        let labels: Labels = labels
            .into_iter()
            .map(|label| (label.name, label.value))
            .collect();
        let kind = labels
            .get(KIND_LABEL)
            .cloned()
            .unwrap_or_else(|| "profile".to_owned());
        let name = labels
            .get(NAME_LABEL)
            .map_or(UNNAMED, String::as_str)
            .to_owned();
        let series = Series::new(Source::Pyroscope, &name, labels)?;
        for sample in samples {
            if profiles.len() >= PUSH_PROFILES_MAX {
                let text = format!(
                    "the message has more than {PUSH_PROFILES_MAX} profiles; push them in several messages"
                );
                return Err(Failure::new(Kind::TooLarge, text));
            }
            profiles.push(Profile {
                series: series.clone(),
                span: Span::OfProfile,
                content: sample.bytes,
                earlier: None,
                options: ImportOptions {
                    format: Some(ImportFormat::Pprof),
                    keep_labels: true,
                    has_own_names: true,
                    ..ImportOptions::default()
                },
                client: format!("pyroscope {client}"),
                mode: format!("pushed as {kind}"),
                interval_ns: 0,
                without_time: (kind == MUTEX_KIND).then_some(OF_MUTEXES),
                is_lines: false,
                is_expanded: false,
            });
        }
    }
    Ok(profiles)
}

fn of_json(message: &[u8]) -> Result<Vec<RawSeries>, Failure> {
    let invalid =
        |error: &dyn std::fmt::Display| Failure::invalid(format!("invalid JSON: {error}"));
    let mut request: RawRequest = json::from_slice(message).map_err(|error| invalid(&error))?;
    for sample in request
        .series
        .iter_mut()
        .flat_map(|series| &mut series.samples)
    {
        let text = std::mem::take(&mut sample.base64);
        sample.bytes = STANDARD
            .decode(text)
            .map_err(|error| invalid(&error))?
            .into();
    }
    Ok(request.series)
}

/// Reads a message field by field, because decoding it whole would take 50 bytes of memory for a byte of
/// an invalid message.
fn proto(message: &Bytes) -> Result<Vec<RawSeries>, Failure> {
    let mut series = Vec::new();
    let mut labels_left = PUSH_LABELS_MAX;
    for field in Fields(message.clone()) {
        let Field { tag: 1, content } = field? else {
            continue;
        };
        let mut raw = RawSeries::default();
        for field in Fields(content) {
            match field? {
                Field { tag: 1, content } => {
                    labels_left = labels_left.checked_sub(1).ok_or_else(too_many_labels)?;
                    raw.labels.push(label(content)?);
                }
                Field { tag: 2, content } => raw.samples.push(sample(content)?),
                _ => {}
            }
            if raw.samples.len() > PUSH_PROFILES_MAX {
                // `profiles` rejects it, with the limit.
                break;
            }
        }
        series.push(raw);
        if series.len() > PUSH_PROFILES_MAX {
            let text = format!("the message has more than {PUSH_PROFILES_MAX} series");
            return Err(Failure::new(Kind::TooLarge, text));
        }
    }
    Ok(series)
}

fn too_many_labels() -> Failure {
    let text = format!("the message has more than {PUSH_LABELS_MAX} labels");
    Failure::new(Kind::TooLarge, text)
}

fn label(content: Bytes) -> Result<RawLabel, Failure> {
    let mut label = RawLabel::default();
    for field in Fields(content) {
        let Field { tag, content } = field?;
        let text = || {
            let text = String::from_utf8(content.to_vec());
            text.map_err(|_| Failure::invalid("invalid message: a label is not UTF-8"))
        };
        match tag {
            1 => label.name = text()?,
            2 => label.value = text()?,
            _ => {}
        }
    }
    Ok(label)
}

fn sample(content: Bytes) -> Result<RawProfile, Failure> {
    let mut sample = RawProfile::default();
    for field in Fields(content) {
        if let Field { tag: 1, content } = field? {
            sample.bytes = content;
        }
    }
    Ok(sample)
}

/// The fields of a message with a length. Ends after an error.
struct Fields(Bytes);

struct Field {
    tag: u32,
    content: Bytes,
}

impl Fields {
    fn field(&mut self) -> Result<Option<Field>, String> {
        while !self.0.is_empty() {
            let (tag, kind) = decode_key(&mut self.0).map_err(|error| error.to_string())?;
            if kind != WireType::LengthDelimited {
                let skipped = skip_field(kind, tag, &mut self.0, DecodeContext::default());
                skipped.map_err(|error| error.to_string())?;
                continue;
            }
            let length = decode_varint(&mut self.0).map_err(|error| error.to_string())?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > self.0.len() {
                return Err("it is truncated".to_owned());
            }
            return Ok(Some(Field {
                tag,
                content: self.0.split_to(length),
            }));
        }
        Ok(None)
    }
}

impl Iterator for Fields {
    type Item = Result<Field, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.field().transpose()?;
        Some(field.map_err(|error| {
            self.0.clear();
            Failure::invalid(format!("invalid message: {error}"))
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            fields in prop::collection::vec((1..4_u8, prop::collection::vec(any::<u8>(), 0..20)), 0..20),
        ) {
            // Fields with a length, in a series.
            let mut nested = Vec::new();
            for (tag, content) in fields {
                nested.extend([tag << 3 | 2, content.len() as u8]);
                nested.extend(content);
            }
            let mut message = vec![0x0a];
            prost::encoding::encode_varint(nested.len() as u64, &mut message);
            message.extend(nested);
            for bytes in [bytes, message] {
                let bytes = Bytes::from(bytes);
                for encoding in [Encoding::Proto, Encoding::Json] {
                    if let Ok(profiles) = profiles(encoding, &bytes, "test") {
                        let content: usize = profiles.iter().map(|profile| profile.content.len()).sum();
                        prop_assert!(content <= bytes.len());
                    }
                }
            }
        }
    }
}
