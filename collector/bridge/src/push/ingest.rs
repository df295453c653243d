//! `POST /ingest`: one profile, described by the query.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use import::limits::CONTEXTS_BYTES_MAX;
use import::{CollapsedUnit, ImportFormat, ImportOptions};
use multer::{Constraints, Multipart, SizeLimit};
use profiler_core::{TimeRange, Timestamp};
use serde::Deserialize;

use super::failure::{Failure, Kind};
use super::profile::{OF_MUTEXES, Profile, Span};
use super::series::Series;
use base::limits::{PUSH_CONTENT_BYTES_MAX, PUSH_SPAN_MAX, PUSH_TEXT_BYTES_MAX, nanoseconds};

/// Rate where the client says none, as of Pyroscope's server.
const RATE_HZ_DEFAULT: u64 = 100;

/// Length of a push that says no times, as of Pyroscope's clients.
const SPAN_DEFAULT: Duration = Duration::from_secs(10);

const SECOND_NS: i64 = 1_000_000_000;

/// How stacks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Pprof,
    /// `frame;frame number`.
    Folded,
    /// A stack a line, once for each sample.
    Lines,
    Speedscope,
    /// A recording of Java's Flight Recorder.
    Jfr,
}

impl Format {
    const ALLOWED: &str = "pprof, folded (or collapsed), lines, speedscope, jfr";

    const fn name(self) -> &'static str {
        match self {
            Format::Pprof => "pprof",
            Format::Folded => "folded",
            Format::Lines => "lines",
            Format::Speedscope => "speedscope",
            Format::Jfr => "jfr",
        }
    }

    fn parse(text: &str) -> Result<Format, Failure> {
        match text {
            "pprof" => Ok(Format::Pprof),
            "folded" | "collapsed" | "groups" => Ok(Format::Folded),
            "lines" => Ok(Format::Lines),
            "speedscope" => Ok(Format::Speedscope),
            "jfr" => Ok(Format::Jfr),
            other => {
                let other: String = other.chars().take(40).collect();
                let allowed = Format::ALLOWED;
                let text = format!("format {other:?} is not read; allowed: {allowed}");
                Err(Failure::new(Kind::Unsupported, text))
            }
        }
    }
}

/// Parameters that describe the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Query {
    series: Series,
    range: TimeRange,
    format: Option<Format>,
    /// Samples a second, if they are given.
    rate_hz: Option<u64>,
    /// Whether the query has a rate, which may be none.
    has_rate: bool,
    spy: String,
    /// The unit of folded stacks, if it is given.
    units: Option<String>,
}

impl Query {
    pub(super) fn parse(pairs: &[(String, String)], now: Timestamp) -> Result<Query, Failure> {
        let value = |name: &str| {
            let found = pairs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str());
            found.filter(|value| !value.is_empty())
        };
        let name = value("name").ok_or_else(|| {
            Failure::invalid("the query has no name; name=APP or name=APP{key=value} is needed")
        })?;
        let stop = value("until").map_or(Ok(now), |text| time("until", text))?;
        let from = value("from").map_or_else(
            || Ok(stop.shifted(-nanoseconds(SPAN_DEFAULT))),
            |text| time("from", text),
        )?;
        // Pyroscope's server ignores any other text too: Go's client sends 0 for profiles that are not sampled.
        let rate_hz = value("sampleRate")
            .and_then(|text| text.parse().ok())
            .filter(|rate_hz| (1..=1_000_000).contains(rate_hz));
        let spy: String = value("spyName")
            .unwrap_or("unknown")
            .chars()
            .take(60)
            .collect();
        Ok(Query {
            series: Series::parse(name)?,
            range: range(from, stop)?,
            format: value("format").map(Format::parse).transpose()?,
            rate_hz,
            has_rate: value("sampleRate").is_some(),
            spy,
            units: value("units").map(str::to_owned),
        })
    }

    /// The profile in this body, decoded.
    pub(super) async fn profile(
        self,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Profile, Failure> {
        let media_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if media_type.starts_with("binary/octet-stream+") {
            let text = format!(
                "content-type {media_type:?} is not read; allowed are the formats {}",
                Format::ALLOWED
            );
            return Err(Failure::new(Kind::Unsupported, text));
        }
        if media_type.starts_with("multipart/form-data") {
            return self.of_form(Form::read(media_type, body).await?);
        }
        let format = self.format.unwrap_or(Format::Folded);
        Ok(self.into_profile(format, body))
    }

    fn of_form(self, form: Form) -> Result<Profile, Failure> {
        let format = self.format.unwrap_or(match form.recording {
            Some(_) => Format::Jfr,
            None => Format::Pprof,
        });
        let found = match format {
            Format::Jfr => form.recording.ok_or("`jfr`; allowed: jfr, labels"),
            _ => form
                .profile
                .ok_or("`profile`; allowed: profile, prev_profile, sample_type_config"),
        };
        let content =
            found.map_err(|part| Failure::invalid(format!("the form has no part {part}")))?;
        let mut profile = self.into_profile(format, content);
        if format == Format::Jfr {
            profile.options.jfr_labels = form.labels.into();
        } else {
            profile.earlier = form.earlier.filter(|_| form.is_cumulative);
            profile.without_time = form.is_of_mutexes.then_some(OF_MUTEXES);
        }
        Ok(profile)
    }

    fn into_profile(self, format: Format, content: Bytes) -> Profile {
        let is_text = matches!(format, Format::Folded | Format::Lines);
        let has_default = is_text || (format == Format::Pprof && !self.has_rate);
        let rate_hz = self.rate_hz.or(has_default.then_some(RATE_HZ_DEFAULT));
        let interval_ns = rate_hz.map(|rate_hz| SECOND_NS.unsigned_abs() / rate_hz);
        // The period of a profile has precedence, as at Pyroscope's server.
        let has_period = format == Format::Pprof;
        let options = ImportOptions {
            format: Some(match format {
                Format::Pprof => ImportFormat::Pprof,
                Format::Folded | Format::Lines => ImportFormat::Collapsed,
                Format::Speedscope => ImportFormat::Speedscope,
                Format::Jfr => ImportFormat::Jfr,
            }),
            unit: Some(CollapsedUnit::Samples),
            interval_ns: interval_ns.filter(|_| !has_period),
            interval_default_ns: interval_ns.filter(|_| has_period),
            keep_labels: true,
            has_own_names: true,
            ..ImportOptions::default()
        };
        Profile {
            without_time: (is_text
                && self
                    .units
                    .as_deref()
                    .is_some_and(|units| units != "samples"))
            .then_some("only units=samples is time"),
            is_lines: format == Format::Lines,
            is_expanded: false,
            client: format!("pyroscope {}", self.spy),
            mode: format!("pushed by {} as {}", self.spy, format.name()),
            interval_ns: interval_ns.unwrap_or(0),
            series: self.series,
            span: Span::Fixed(self.range),
            content,
            earlier: None,
            options,
        }
    }
}

/// Unix time in seconds, milliseconds, microseconds or nanoseconds, whichever gives a plausible year.
fn time(name: &str, text: &str) -> Result<Timestamp, Failure> {
    // In the year 1973.
    const MILLISECONDS_MIN: i64 = 100_000_000_000;
    const MICROSECONDS_MIN: i64 = MILLISECONDS_MIN * 1_000;
    const NANOSECONDS_MIN: i64 = MICROSECONDS_MIN * 1_000;
    let number = text
        .parse::<u64>()
        .ok()
        .and_then(|number| i64::try_from(number).ok());
    let invalid = || {
        let text = format!(
            "{name} must be a Unix time in seconds; milli-, micro- and nanoseconds work too"
        );
        Failure::invalid(text)
    };
    let number = number.ok_or_else(invalid)?;
    let unit_ns = match number {
        ..MILLISECONDS_MIN => SECOND_NS,
        MILLISECONDS_MIN..MICROSECONDS_MIN => 1_000_000,
        MICROSECONDS_MIN..NANOSECONDS_MIN => 1_000,
        _ => 1,
    };
    number
        .checked_mul(unit_ns)
        .map(Timestamp::from_unix_ns)
        .ok_or_else(invalid)
}

/// The time of a push. Whole seconds may be equal at both ends.
pub(super) fn range(start: Timestamp, stop: Timestamp) -> Result<TimeRange, Failure> {
    if stop < start {
        return Err(Failure::invalid("until is before from"));
    }
    let stop = stop.max(start.shifted(SECOND_NS));
    let range = TimeRange::new(start, stop)
        .filter(|range| range.length_ns() <= nanoseconds(PUSH_SPAN_MAX).unsigned_abs());
    range.ok_or_else(|| {
        let text = format!(
            "the profile spans more than {} s, which is the most that one push may have",
            PUSH_SPAN_MAX.as_secs()
        );
        Failure::invalid(text)
    })
}

/// The parts of a form.
#[derive(Default)]
struct Form {
    profile: Option<Bytes>,
    earlier: Option<Bytes>,
    is_cumulative: bool,
    is_of_mutexes: bool,
    /// Of Java's Flight Recorder.
    recording: Option<Bytes>,
    /// The labels of the recording's samples.
    labels: Bytes,
}

/// The part of a sample type's configuration that matters.
#[derive(Deserialize)]
struct SampleType {
    #[serde(default)]
    cumulative: bool,
    /// Go's client calls the columns of mutexes `mutex_count` and `mutex_duration`, those of blocks `block_…`.
    #[serde(default, rename = "display-name")]
    display_name: String,
}

impl Form {
    async fn read(media_type: &str, body: Bytes) -> Result<Form, Failure> {
        let invalid = |error: multer::Error| Failure::invalid(format!("invalid form: {error}"));
        let boundary = multer::parse_boundary(media_type).map_err(invalid)?;
        let limit = SizeLimit::new()
            .whole_stream(PUSH_CONTENT_BYTES_MAX as u64)
            .for_field("sample_type_config", PUSH_TEXT_BYTES_MAX)
            .for_field("labels", CONTEXTS_BYTES_MAX as u64);
        let constraints = Constraints::new().size_limit(limit);
        let stream = tokio_stream::once(Ok::<_, std::io::Error>(body));
        let mut parts = Multipart::with_constraints(stream, boundary, constraints);
        let mut form = Form::default();
        while let Some(part) = parts.next_field().await.map_err(invalid)? {
            match part.name() {
                Some("profile") => form.profile = Some(part.bytes().await.map_err(invalid)?),
                Some("prev_profile") => form.earlier = Some(part.bytes().await.map_err(invalid)?),
                Some("sample_type_config") => {
                    let text = part.bytes().await.map_err(invalid)?;
                    let types = sample_types(&text)?;
                    form.is_cumulative = types.iter().any(|kind| kind.cumulative);
                    form.is_of_mutexes = types
                        .iter()
                        .any(|kind| kind.display_name.starts_with("mutex_"));
                }
                Some("jfr") => form.recording = Some(part.bytes().await.map_err(invalid)?),
                Some("labels") => form.labels = part.bytes().await.map_err(invalid)?,
                _ => {}
            }
        }
        Ok(form)
    }
}

fn sample_types(text: &[u8]) -> Result<Vec<SampleType>, Failure> {
    let types: std::collections::BTreeMap<String, SampleType> = serde_json::from_slice(text)
        .map_err(|error| Failure::invalid(format!("invalid sample_type_config: {error}")))?;
    Ok(types.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_any_unit() {
        let nanoseconds = |text: &str| time("from", text).map(Timestamp::unix_ns);
        let expected = 1_795_455_600_000_000_000;
        for text in [
            "1795455600",
            "1795455600000",
            "1795455600000000",
            "1795455600000000000",
        ] {
            assert_eq!(nanoseconds(text), Ok(expected), "{text}");
        }
        assert_eq!(nanoseconds("0"), Ok(0));
        for text in [
            "",
            "-1",
            "now",
            "1.5",
            "9223372036854775808",
            "99999999999999999999",
        ] {
            assert!(nanoseconds(text).is_err(), "{text}");
        }
    }
}
