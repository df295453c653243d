//! A series of Pyroscope: a name and labels, which become a worker.

use std::borrow::Cow;

use import::Labels;
use profiler_core::WorkerId;
use profiler_core::limits::{LABELS_MAX, NAME_BYTES_MAX, WORKER_BYTES_MAX};
use sha2::{Digest as _, Sha256};

use super::failure::Failure;

/// The label with the name of a series.
pub(super) const NAME_LABEL: &str = "service_name";

/// The label that marks foreign profiles.
const SOURCE_LABEL: &str = "source";

/// The protocol by which profiles come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Pyroscope,
    Otlp,
    /// The collector fetched them.
    Scrape,
}

impl Source {
    /// The name, in labels and counts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Pyroscope => "pyroscope",
            Source::Otlp => "otlp",
            Source::Scrape => "scrape",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Source::Pyroscope => WorkerId::PYROSCOPE_PREFIX,
            Source::Otlp => WorkerId::OTLP_PREFIX,
            Source::Scrape => WorkerId::SCRAPE_PREFIX,
        }
    }

    /// Whether a label is part of the worker's id.
    fn identifies(self, key: &str) -> bool {
        let others: &[&str] = match self {
            Source::Pyroscope | Source::Scrape => &CLIENT_LABELS,
            Source::Otlp => &PROCESS_ATTRIBUTES,
        };
        !others.iter().any(|start| key.starts_with(start))
    }
}

/// Labels that our clients' own do not have, and that tell no two series apart.
const LABELS_LEFT: usize = LABELS_MAX - 2;

/// Starts of the keys of labels that describe the client instead of the program. They are no part of the
/// worker's id.
const CLIENT_LABELS: [&str; 4] = [
    "otel.scope.",
    "process.runtime.",
    "telemetry.sdk.",
    "pyroscope_spy",
];

/// Starts of the keys of attributes of OTLP that describe a process, its system or its client. A process that starts again
/// is the same worker.
const PROCESS_ATTRIBUTES: [&str; 4] = ["os.", "otel.", "process.", "telemetry."];

/// Characters that have a meaning in the notation of a series.
const NOTATION: [char; 5] = ['{', '}', ',', '"', '\\'];

/// Digits of the hash that replaces the end of a long id.
const HASH_DIGITS: usize = 16;

/// A name and labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Series {
    source: Source,
    pub(super) name: String,
    pub(super) labels: Labels,
}

impl Series {
    /// A series with these labels, of which those between `__` are the protocol's own.
    pub(super) fn new(source: Source, name: &str, labels: Labels) -> Result<Series, Failure> {
        if name.is_empty() {
            return Err(Failure::invalid("the name of the series is empty"));
        }
        check("the name of the series", name)?;
        let mut kept = Labels::new();
        for (key, value) in labels {
            if key.starts_with("__") || value.is_empty() || key == NAME_LABEL {
                continue;
            }
            check("a label's key", &key)?;
            check("a label's value", &value)?;
            kept.insert(key, value);
        }
        if kept.len() > LABELS_LEFT {
            let text = format!(
                "the series has {} labels; at most {LABELS_LEFT} are allowed",
                kept.len()
            );
            return Err(Failure::invalid(text));
        }
        Ok(Series {
            source,
            name: name.to_owned(),
            labels: kept,
        })
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// Parses `name{key=value,key=value}`. Only the first `=` of a label separates.
    pub(super) fn parse(text: &str) -> Result<Series, Failure> {
        const FORM: &str = "allowed: name=APP or name=APP{key=value,key=value}";
        let Some((name, rest)) = text.split_once('{') else {
            return Series::new(Source::Pyroscope, text.trim(), Labels::new());
        };
        let Some(list) = rest.trim_end().strip_suffix('}') else {
            return Err(Failure::invalid(format!(
                "the name has no closing brace; {FORM}"
            )));
        };
        let mut labels = Labels::new();
        for label in list.split(',').filter(|label| !label.trim().is_empty()) {
            let (key, value) = label.split_once('=').ok_or_else(|| {
                Failure::invalid(format!("a label of the name has no value; {FORM}"))
            })?;
            let value = value.trim().trim_matches('"');
            labels.insert(key.trim().to_owned(), value.to_owned());
        }
        Series::new(Source::Pyroscope, name.trim(), labels)
    }

    /// The series of samples with labels of their own. Labels that cannot be kept are left out.
    pub(super) fn with(&self, of_samples: &Labels) -> Series {
        let mut series = self.clone();
        for (key, value) in of_samples {
            let is_new = !series.labels.contains_key(key);
            let is_full = series.labels.len() >= LABELS_LEFT;
            let is_valid = check("", key).and(check("", value)).is_ok();
            if is_valid && !(is_new && is_full) {
                series.labels.insert(key.clone(), value.clone());
            }
        }
        series
    }

    /// Like [`Series::new`], without labels past the limit and those that are invalid.
    pub(super) fn with_fitting(
        source: Source,
        name: &str,
        labels: &Labels,
    ) -> Result<Series, Failure> {
        Ok(Series::new(source, name, Labels::new())?.with(labels))
    }

    /// The id of the worker, in Pyroscope's own notation of the series. The end of a long one is a hash.
    pub(super) fn worker(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .filter(|(key, _)| self.source.identifies(key))
            .map(|(key, value)| {
                let key = quoted(key, key.contains('='));
                format!("{key}={}", quoted(value, false))
            })
            .collect();
        let mut id = format!("{}{}", self.source.prefix(), quoted(&self.name, false));
        if !labels.is_empty() {
            id.push_str(&format!("{{{}}}", labels.join(",")));
        }
        if id.len() <= WORKER_BYTES_MAX {
            return id;
        }
        let hash = Sha256::digest(id.as_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        id.truncate(id.floor_char_boundary(WORKER_BYTES_MAX - HASH_DIGITS - 1));
        format!("{id}#{}", &digits[..HASH_DIGITS])
    }

    /// The labels of the worker.
    pub(super) fn worker_labels(&self) -> Labels {
        let mut labels = self.labels.clone();
        labels.insert(NAME_LABEL.to_owned(), self.name.clone());
        labels
            .entry(SOURCE_LABEL.to_owned())
            .or_insert_with(|| self.source.name().to_owned());
        labels
    }
}

/// A text as it stands in the notation of a series: two series never have the same one.
fn quoted(text: &str, has_separator: bool) -> Cow<'_, str> {
    if has_separator || text.contains(NOTATION) {
        Cow::Owned(format!("{text:?}"))
    } else {
        Cow::Borrowed(text)
    }
}

fn check(what: &str, text: &str) -> Result<(), Failure> {
    if text.len() > NAME_BYTES_MAX {
        let bytes = text.len();
        let text = format!("{what} has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed");
        return Err(Failure::invalid(text));
    }
    if text.is_empty() || text.chars().any(char::is_control) {
        let text = format!("{what} is empty or has control characters, which are not allowed");
        return Err(Failure::invalid(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> String {
        match Series::parse(text) {
            Ok(series) => series.worker(),
            Err(failure) => failure.text,
        }
    }

    #[test]
    fn a_series_has_the_notation_of_pyroscope_without_the_clients_own_labels() {
        let name = "shop{region=eu, a.b=\"c=d\",otel.scope.name=x,__session_id__=1,empty=}";
        assert_eq!(parsed(name), "pyroscope:shop{a.b=c=d,region=eu}");
        assert_eq!(parsed("shop.cpu"), "pyroscope:shop.cpu");
        assert_eq!(parsed(" shop{} "), "pyroscope:shop");
        assert_eq!(parsed("{a=b}"), "the name of the series is empty");
        let labels: Vec<String> = Series::parse(name)
            .unwrap()
            .worker_labels()
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let expected = [
            "a.b=c=d",
            "otel.scope.name=x",
            "region=eu",
            "service_name=shop",
            "source=pyroscope",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn attributes_that_tell_resources_apart_are_part_of_the_id() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            let owned = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let attributes = [
            ("deployment.environment.name", "prod"),
            ("os.type", "linux"),
            ("process.pid", "77"),
            ("service.version", "1.2"),
            ("telemetry.sdk.language", "go"),
        ];
        let series = Series::with_fitting(Source::Otlp, "shop", &labels(&attributes)).unwrap();
        assert_eq!(
            series.worker(),
            "otlp:shop{deployment.environment.name=prod,service.version=1.2}"
        );
        assert_eq!(series.worker_labels().len(), 7);
    }

    #[test]
    fn long_ids_that_differ_at_their_end_stay_different() {
        let ids = ["x", "y"].map(|end| parsed(&format!("shop{{a={}{end}}}", "v".repeat(300))));
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| id.len() == WORKER_BYTES_MAX), "{ids:?}");
    }

    fn any_labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("[a{},=\"\\\\ ]{1,3}", "[a{},=\"\\\\ ]{1,6}", 0..3)
            .prop_map(|labels| labels.into_iter().collect())
    }

    proptest! {
        #[test]
        fn two_series_have_two_ids(
            names in ["[a{}=,\"]{1,3}", "[a{}=,\"]{1,3}"], labels in [any_labels(), any_labels()],
        ) {
            let [one, other] = [0, 1].map(|index| {
                Series::new(Source::Pyroscope, &names[index], labels[index].clone()).unwrap()
            });
            prop_assert_eq!(one.worker() == other.worker(), one == other, "{}", one.worker());
        }

        #[test]
        fn any_name_is_a_valid_worker_or_refused(
            text in r#"[ -~äß\x00]{0,20}(\{[ -~ä]{0,300}\})?"#,
            value in r"\PC{0,400}",
        ) {
            for text in [text, format!("n{{k={value}}}")] {
                if let Ok(series) = Series::parse(&text) {
                    let id = series.worker();
                    prop_assert!((11..=WORKER_BYTES_MAX).contains(&id.len()), "{id}");
                    prop_assert!(!id.chars().any(char::is_control), "{id:?}");
                    prop_assert!(series.worker_labels().len() <= LABELS_MAX);
                }
            }
        }
    }
}
