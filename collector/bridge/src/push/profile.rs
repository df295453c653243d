//! One profile of a push: from its bytes to the samples of each series.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use import::{
    ImportError, ImportFormat, ImportOptions, Imported, KnownTables, decompressed,
    decompressed_len, import, import_into,
};

use profiler_core::{TimeRange, Timestamp};

use super::failure::{Failure, kind_of};
use super::ingest::range;
use super::otlp;
use super::series::{Series, Source};
use base::limits::PUSH_CONTENT_BYTES_MAX;
use state::CollectorState;
use state::ingest::KnownNames;
use state::pushed::{Description, PushedProfile, PushedSeries};

/// Why a mutex profile of Go is dropped: each nanosecond counts once.
pub(super) const OF_MUTEXES: &str = "a mutex profile has the waits of the block profile again, where the lock was held: push the block profile";

/// When a profile was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Span {
    Fixed(TimeRange),
    /// The profile says it.
    OfProfile,
}

/// A profile as it came.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) series: Series,
    pub(super) span: Span,
    /// Compressed by gzip or not.
    pub(super) content: Bytes,
    /// Counts of the profile up to its start, if it counts from the start of its process.
    pub(super) earlier: Option<Bytes>,
    pub(super) options: ImportOptions,
    pub(super) client: String,
    pub(super) mode: String,
    pub(super) interval_ns: u64,
    /// Why it is not read: its numbers are no time, or time that another profile has.
    pub(super) without_time: Option<&'static str>,
    /// Whether each line is a sample, without a number.
    pub(super) is_lines: bool,
    /// Whether the contents were compressed and are not any more.
    pub(super) is_expanded: bool,
}

impl Profile {
    /// Decompresses the contents, if they have at most `kept_bytes_max` bytes then. Returns their bytes in
    /// either case.
    ///
    /// # Errors
    /// As of [`decompressed`], if they have more than `bytes_max`.
    pub(super) fn expand(
        &mut self,
        kept_bytes_max: usize,
        bytes_max: usize,
    ) -> Result<usize, ImportError> {
        if let Ok([content, earlier]) = self.expanded(kept_bytes_max) {
            let bytes = content.len() + earlier.len();
            self.content = content;
            self.earlier = self.earlier.is_some().then_some(earlier);
            self.is_expanded = true;
            return Ok(bytes);
        }
        [Some(&self.content), self.earlier.as_ref()]
            .into_iter()
            .flatten()
            .try_fold(0, |sum, content| {
                Ok(sum + decompressed_len(content, bytes_max.saturating_sub(sum))?)
            })
    }

    /// The two contents without compression. Without an earlier one, that is empty.
    fn expanded(&self, bytes_max: usize) -> Result<[Bytes; 2], ImportError> {
        let content = expanded(&self.content, bytes_max)?;
        let earlier = self.earlier.clone().unwrap_or_default();
        let earlier = expanded(&earlier, bytes_max - content.len())?;
        Ok([content, earlier])
    }
}

fn expanded(content: &Bytes, bytes_max: usize) -> Result<Bytes, ImportError> {
    Ok(match decompressed(content, bytes_max)? {
        Cow::Borrowed(_) => content.clone(),
        Cow::Owned(expanded) => expanded.into(),
    })
}

/// Content of a profile.
#[derive(Debug)]
pub(super) enum Parsed {
    Samples(Box<Samples>),
    /// It has no samples with time, which this says.
    Empty(String),
    /// It measures something else than time, which this says.
    WithoutTime(String),
}

/// The samples of a profile, and how its series are described.
#[derive(Debug)]
pub(super) struct Samples {
    series: Series,
    imported: Imported,
    /// The names and stacks of which the collector's tree has counterparts.
    known: KnownNames,
    range: TimeRange,
    client: String,
    mode: String,
    interval_ns: u64,
}

impl Samples {
    pub(super) fn invalid_build_ids(&self) -> u64 {
        self.imported.invalid_build_ids
    }

    /// Looks up the names and stacks in the collector's tree.
    pub(super) fn look_up(&mut self, state: &CollectorState) {
        self.known = state.known_names(&self.imported.symbols, &self.imported.trie);
    }

    /// Notes for the sender: of lines that are no stacks, and of events of a recording that are no time.
    pub(super) fn notes(&self) -> &[String] {
        match self.imported.format {
            ImportFormat::Collapsed | ImportFormat::Jfr => &self.imported.notes,
            _ => &[],
        }
    }

    /// The series of the samples, by their labels.
    pub(super) fn into_series(self) -> Vec<PushedSeries> {
        let Imported {
            samples,
            known_samples,
            ..
        } = &self.imported;
        let samples = samples.iter().chain(known_samples);
        let used: BTreeSet<u16> = samples.map(|sample| sample.labels).collect();
        let base = self.description(&self.series);
        let described: Vec<(u16, Description)> = used
            .into_iter()
            .map(|label_set| {
                let of_samples = &self.imported.label_sets[usize::from(label_set)];
                (label_set, self.description(&self.series.with(of_samples)))
            })
            .collect();
        let profile = Arc::new(PushedProfile::new(self.imported, self.known));
        described
            .into_iter()
            .map(
                |(label_set, description): (u16, Description)| PushedSeries {
                    description,
                    base: base.clone(),
                    profile: profile.clone(),
                    label_set,
                    range: self.range,
                },
            )
            .collect()
    }

    fn description(&self, series: &Series) -> Description {
        Description {
            worker: series.worker(),
            labels: series.worker_labels(),
            client: self.client.clone(),
            mode: if self.imported.has_long_waits_only {
                format!("{}; waits above a threshold", self.mode)
            } else {
                self.mode.clone()
            },
            interval_ns: self.interval_ns,
        }
    }
}

/// Parses profiles of one request, whose content is limited together.
pub(super) struct Parser<'a> {
    pub(super) task_label: &'a str,
    pub(super) now: Timestamp,
    /// Where names and stacks are looked up instead of copied.
    known: Option<&'a dyn KnownTables>,
    bytes_left: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(
        task_label: &'a str,
        now: Timestamp,
        known: Option<&'a dyn KnownTables>,
    ) -> Parser<'a> {
        Parser {
            task_label,
            now,
            known,
            bytes_left: PUSH_CONTENT_BYTES_MAX,
        }
    }

    pub(super) fn parse(&mut self, profile: Profile) -> Result<Parsed, Failure> {
        if let Some(reason) = profile.without_time {
            return Ok(Parsed::WithoutTime(reason.to_owned()));
        }
        let mut series = profile.series;
        let source = series.source();
        let task = series.labels.remove(self.task_label);
        let options = ImportOptions {
            task_default: task.unwrap_or_else(|| series.name.clone()),
            task_label: self.task_label.to_owned(),
            ..profile.options
        };
        let form = ContentForm {
            is_expanded: profile.is_expanded,
            is_lines: profile.is_lines,
        };
        // Only nodes of one tree can be subtracted from each other.
        let known = self.known.filter(|_| profile.earlier.is_none());
        let mut imported = match self.import(&profile.content, form, &options, known) {
            Ok(imported) => imported,
            Err(error) => return not_imported(source, &error),
        };
        if let Some(earlier) = &profile.earlier {
            match self.import(earlier, form, &options, None) {
                Ok(earlier) => imported.subtract(&earlier),
                Err(ImportError::Empty { .. } | ImportError::NoTime { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if imported.samples.is_empty() && imported.known_samples.is_empty() {
            let reason = "no sample has more time than in the profile before";
            return Ok(Parsed::Empty(reason.to_owned()));
        }
        let range = match profile.span {
            Span::Fixed(range) => range,
            Span::OfProfile => {
                let length_ns = imported.duration_ns.cast_signed();
                let start = imported
                    .started_at
                    .unwrap_or_else(|| self.now.shifted(-length_ns));
                range(start, start.shifted(length_ns))?
            }
        };
        let samples = Samples {
            series,
            imported,
            known: KnownNames::default(),
            range,
            client: profile.client,
            mode: profile.mode,
            interval_ns: profile.interval_ns,
        };
        Ok(Parsed::Samples(Box::new(samples)))
    }

    fn import(
        &mut self,
        content: &[u8],
        form: ContentForm,
        options: &ImportOptions,
        known: Option<&dyn KnownTables>,
    ) -> Result<Imported, ImportError> {
        let expanded = if form.is_expanded {
            content.into()
        } else {
            decompressed(content, self.bytes_left)?
        };
        self.bytes_left = self.bytes_left.saturating_sub(expanded.len());
        let content = if form.is_lines {
            counted(&expanded).into()
        } else {
            expanded
        };
        // One that is compressed twice must not expand again.
        let options = ImportOptions {
            content_bytes_max: content.len(),
            ..options.clone()
        };
        match known {
            Some(tables) => import_into(tables, &content, &options),
            None => import(&content, &options),
        }
    }
}

/// A profile without samples of time, or the failure of one that cannot be read.
fn not_imported(source: Source, error: &ImportError) -> Result<Parsed, Failure> {
    let text = match source {
        Source::Otlp => otlp::import_text(error),
        Source::Pyroscope => error
            .to_string()
            .replace("--interval sets", "the query's sampleRate sets"),
        Source::Scrape => error.to_string(),
    };
    match error {
        ImportError::Empty { .. } => Ok(Parsed::Empty(text)),
        ImportError::NoTime { .. } => Ok(Parsed::WithoutTime(text)),
        _ => Err(Failure::new(kind_of(error), text)),
    }
}

/// Form of a content; see [`Profile`].
#[derive(Clone, Copy)]
struct ContentForm {
    is_expanded: bool,
    is_lines: bool,
}

/// The stacks of lines that have no numbers.
fn counted(lines: &[u8]) -> Vec<u8> {
    let mut counted = Vec::with_capacity(lines.len() * 2);
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            counted.extend_from_slice(line);
            counted.extend_from_slice(b" 1\n");
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use front::gzip::gzip_answer;

    use super::*;

    fn profile(content: Bytes, earlier: Option<Bytes>) -> Profile {
        Profile {
            series: Series::parse("shop").unwrap(),
            span: Span::OfProfile,
            content,
            earlier,
            options: ImportOptions::default(),
            client: String::new(),
            mode: String::new(),
            interval_ns: 0,
            without_time: None,
            is_lines: false,
            is_expanded: false,
        }
    }

    #[test]
    fn a_small_push_is_decompressed_once_and_a_large_one_is_measured() {
        let plain: Bytes = b"main;work 3\n".repeat(100).into();
        let gzip: Bytes = gzip_answer(&plain).into();
        for (kept_bytes_max, kept) in [(2_400, &plain), (2_399, &gzip)] {
            let mut pushed = profile(gzip.clone(), Some(gzip.clone()));
            assert_eq!(pushed.expand(kept_bytes_max, 1 << 20), Ok(2_400));
            assert_eq!(pushed.is_expanded, kept == &plain);
            assert_eq!(pushed.content, kept);
            assert_eq!(pushed.earlier.as_ref(), Some(kept));
        }
        let mut pushed = profile(gzip, None);
        assert!(pushed.expand(1_200, 1_199).is_ok(), "kept");
        assert!(pushed.expand(10, 1_199).is_err());
    }
}
