//! One profile of a push: from its bytes to the samples of each series.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use import::{ImportError, ImportFormat, ImportOptions, Imported, decompressed, import};
use profiler_core::{TimeRange, Timestamp};

use super::failure::Failure;
use super::ingest::range;
use super::series::Series;
use base::limits::PUSH_CONTENT_BYTES_MAX;
use state::pushed::{Description, PushedProfile, PushedSeries};

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
    /// Whether the numbers of stacks are samples of time.
    pub(super) is_time: bool,
    /// Whether each line is a sample, without a number.
    pub(super) is_lines: bool,
}

/// Content of a profile.
#[derive(Debug)]
pub(super) enum Parsed {
    Samples(Samples),
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
    range: TimeRange,
    client: String,
    mode: String,
    interval_ns: u64,
}

impl Samples {
    pub(super) fn invalid_build_ids(&self) -> u64 {
        self.imported.invalid_build_ids
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
        let used: BTreeSet<u16> = self
            .imported
            .samples
            .iter()
            .map(|sample| sample.labels)
            .collect();
        let base = self.description(&self.series);
        let described: Vec<(u16, Description)> = used
            .into_iter()
            .map(|label_set| {
                let of_samples = &self.imported.label_sets[usize::from(label_set)];
                (label_set, self.description(&self.series.with(of_samples)))
            })
            .collect();
        let profile = Arc::new(PushedProfile::new(self.imported));
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
    bytes_left: usize,
}

impl Parser<'_> {
    pub(super) fn new(task_label: &str, now: Timestamp) -> Parser<'_> {
        Parser {
            task_label,
            now,
            bytes_left: PUSH_CONTENT_BYTES_MAX,
        }
    }

    pub(super) fn parse(&mut self, profile: Profile) -> Result<Parsed, Failure> {
        if !profile.is_time {
            return Ok(Parsed::WithoutTime("only units=samples is time".to_owned()));
        }
        let mut series = profile.series;
        let task = series.labels.remove(self.task_label);
        let options = ImportOptions {
            task_default: task.unwrap_or_else(|| series.name.clone()),
            task_label: self.task_label.to_owned(),
            ..profile.options
        };
        let mut imported = match self.import(&profile.content, profile.is_lines, &options) {
            Ok(imported) => imported,
            Err(error @ ImportError::Empty { .. }) => return Ok(Parsed::Empty(error.to_string())),
            Err(error @ ImportError::NoTime { .. }) => {
                return Ok(Parsed::WithoutTime(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(earlier) = &profile.earlier {
            match self.import(earlier, profile.is_lines, &options) {
                Ok(earlier) => imported.subtract(&earlier),
                Err(ImportError::Empty { .. } | ImportError::NoTime { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if imported.samples.is_empty() {
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
        Ok(Parsed::Samples(Samples {
            series,
            imported,
            range,
            client: profile.client,
            mode: profile.mode,
            interval_ns: profile.interval_ns,
        }))
    }

    fn import(
        &mut self,
        content: &[u8],
        is_lines: bool,
        options: &ImportOptions,
    ) -> Result<Imported, ImportError> {
        let decompressed = decompressed(content, self.bytes_left)?;
        self.bytes_left -= decompressed.len();
        let content = if is_lines {
            counted(&decompressed).into()
        } else {
            decompressed
        };
        // One that is compressed twice must not expand again.
        let options = ImportOptions {
            content_bytes_max: content.len(),
            ..options.clone()
        };
        import(&content, &options)
    }
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
