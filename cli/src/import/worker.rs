//! The messages of an imported profile: what an agent would have sent.

use std::collections::BTreeSet;
use std::ops::Range;

use import::{Imported, ImportedSample};
use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::{
    Marks, PROTOCOL, dictionary_since, encode_cycle, encode_task, v1, with_threads,
};
use profiler_core::{
    Delta, NodeId, Outcome, SessionKey, TaskDetail, TaskId, TaskRecord, TimeRange, Timestamp,
    WorkerId,
};
use sha2::{Digest as _, Sha256};

/// Most samples of a flush: at most half of the largest message, at up to 15 bytes each in two lists.
const FLUSH_SAMPLES_MAX: usize = 1 << 15;

/// Most periods into which a profile is divided.
const PERIODS_MAX: u64 = 3_600;

const SECOND_NS: i64 = 1_000_000_000;

/// Where an imported profile goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    pub(crate) run: String,
    /// Without the prefix of imports.
    pub(crate) worker: String,
    /// The file, for people.
    pub(crate) file: String,
    pub(crate) start: Timestamp,
}

/// A profile as the life of an agent.
#[derive(Debug)]
pub(crate) struct ImportedWorker {
    pub(crate) placement: Placement,
    key: SessionKey,
    imported: Imported,
    parts: Vec<Part>,
    tasks: Vec<v1::Task>,
}

/// A part of the samples, in a message of its own.
#[derive(Debug)]
struct Part {
    samples: Range<usize>,
    range: TimeRange,
    /// Sum of all parts up to this one.
    accepted_ns: u64,
}

impl ImportedWorker {
    /// `identity` is what makes the profile the same: the content of its file and the options. With the
    /// same placement it gets the same session, so that a collector stores it once.
    pub(crate) fn new(
        mut imported: Imported,
        placement: Placement,
        identity: &[&[u8]],
    ) -> ImportedWorker {
        // A query covers whole seconds.
        let start = Timestamp::from_unix_ns(placement.start.second().saturating_mul(SECOND_NS));
        let placement = Placement { start, ..placement };
        let start_ns = start.unix_ns().to_le_bytes();
        let texts = [
            placement.run.as_bytes(),
            placement.worker.as_bytes(),
            &start_ns,
        ];
        let key = session_key(identity.iter().copied().chain(texts));
        let tasks = tasks(&mut imported, &placement);
        let parts = parts(&imported, start);
        ImportedWorker {
            placement,
            key,
            imported,
            parts,
            tasks,
        }
    }

    /// The id of the worker.
    pub(crate) fn worker(&self) -> String {
        format!("{}{}", WorkerId::IMPORT_PREFIX, self.placement.worker)
    }

    /// The first message of a stream.
    pub(crate) fn hello(&self, now: Timestamp) -> v1::Hello {
        let format = self.imported.format.to_string();
        let labels = [
            ("source", "import".to_owned()),
            ("format", format.clone()),
            ("file", self.placement.file.clone()),
        ];
        let waits = self
            .imported
            .has_long_waits_only
            .then(|| ("waits", "above a threshold".to_owned()));
        v1::Hello {
            protocol: PROTOCOL,
            worker: self.worker(),
            epoch: self.key.epoch().0,
            session_key: self.key.as_bytes().to_vec(),
            labels: labels
                .into_iter()
                .chain(waits)
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            agent_version: concat!("import ", env!("CARGO_PKG_VERSION")).to_owned(),
            sampler_mode: format!("imported from {format}"),
            started_at_ns: self.placement.start.unix_ns(),
            sent_at_ns: now.unix_ns(),
            ..v1::Hello::default()
        }
    }

    /// The next names and stacks after `held`, which advances.
    pub(crate) fn dictionary(&self, held: &mut Marks) -> Option<v1::Dictionary> {
        dictionary_since(
            &self.imported.symbols,
            &self.imported.trie,
            held,
            MESSAGE_BYTES_TARGET,
        )
    }

    /// The number of flushes. Their sequence numbers start at 1.
    pub(crate) fn flushes(&self) -> u64 {
        // The last one has the tasks and the run, so that there is no run of a part of a profile.
        self.parts.len() as u64 + 1
    }

    /// The flush with that sequence number.
    pub(crate) fn flush(&self, seq: u64, now: Timestamp) -> v1::Flush {
        let part = usize::try_from(seq - 1)
            .ok()
            .and_then(|index| self.parts.get(index));
        let accepted_ns = part
            .or(self.parts.last())
            .map_or(0, |part| part.accepted_ns);
        let flush = v1::Flush {
            seq,
            sent_at_ns: now.unix_ns(),
            clock: Some(v1::Clock::default()),
            account: Some(v1::LossAccount {
                accepted_ns,
                ..v1::LossAccount::default()
            }),
            ..v1::Flush::default()
        };
        match part {
            Some(part) => v1::Flush {
                cycle: Some(self.cycle(part)),
                ..flush
            },
            None => v1::Flush {
                tasks: self.tasks.clone(),
                runs: vec![self.run()],
                ..flush
            },
        }
    }

    fn cycle(&self, part: &Part) -> v1::Cycle {
        let samples = &self.imported.samples[part.samples.clone()];
        let quantum_ns = samples
            .iter()
            .map(|sample| sample.nanoseconds)
            .fold(0, greatest_divisor);
        let cycle = encode_cycle(&sums(samples, |sample| sample.node), part.range, quantum_ns);
        with_threads(cycle, &sums(samples, |sample| sample.thread))
    }

    /// The range of the run.
    pub(crate) fn range(&self) -> TimeRange {
        range(self.placement.start, self.imported.duration_ns)
    }

    fn run(&self) -> v1::RunMarker {
        let range = self.range();
        v1::RunMarker {
            id: 1,
            name: self.placement.run.clone(),
            start_ns: range.start().unix_ns(),
            stop_ns: range.stop().unix_ns(),
        }
    }

    pub(crate) fn imported(&self) -> &Imported {
        &self.imported
    }
}

fn sums(samples: &[ImportedSample], node: fn(&ImportedSample) -> NodeId) -> Delta {
    samples
        .iter()
        .map(|sample: &ImportedSample| (node(sample), sample.state, sample.nanoseconds))
        .collect()
}

/// From `start`, which is a whole second, to the whole second after the end.
fn range(start: Timestamp, duration_ns: u64) -> TimeRange {
    let seconds = duration_ns.cast_signed() / SECOND_NS + 1;
    let stop = start.shifted(seconds.saturating_mul(SECOND_NS));
    TimeRange::new(start, stop).unwrap_or(TimeRange::ALL)
}

fn session_key<'a>(parts: impl Iterator<Item = &'a [u8]>) -> SessionKey {
    let mut hash = Sha256::new_with_prefix(b"emberline import 1\0");
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut key = [0; SessionKey::BYTES];
    key.copy_from_slice(&hash.finalize()[..SessionKey::BYTES]);
    SessionKey::new(key)
}

/// Divides samples by time and by size.
fn parts(imported: &Imported, start: Timestamp) -> Vec<Part> {
    let samples = &imported.samples;
    let last_second = samples.last().map_or(0, |sample| u64::from(sample.second));
    let period_s = (last_second + 1).div_ceil(PERIODS_MAX);
    let mut parts = Vec::new();
    let mut accepted_ns = 0;
    let mut first = 0;
    for period in
        samples.chunk_by(|a, b| u64::from(a.second) / period_s == u64::from(b.second) / period_s)
    {
        let period_start_s = u64::from(period[0].second) / period_s * period_s;
        let period_start = start.shifted(period_start_s.cast_signed() * SECOND_NS);
        // Without times, all samples are in one period, which is as long as the profile.
        let is_timed = last_second > 0;
        let length_ns = if is_timed {
            period_s.cast_signed() * SECOND_NS
        } else {
            imported.duration_ns.cast_signed()
        };
        let chunks = period.chunks(FLUSH_SAMPLES_MAX);
        let count = chunks.len() as i64;
        let length_ns = length_ns.max(count);
        for (chunk, number) in chunks.zip(0_i64..) {
            accepted_ns += chunk.iter().map(|sample| sample.nanoseconds).sum::<u64>();
            let at = |number: i64| {
                let offset_ns = i128::from(length_ns) * i128::from(number) / i128::from(count);
                period_start.shifted(i64::try_from(offset_ns).unwrap_or(i64::MAX))
            };
            let range = TimeRange::new(at(number), at(number + 1)).unwrap_or(TimeRange::ALL);
            let samples = first..first + chunk.len();
            first = samples.end;
            parts.push(Part {
                samples,
                range,
                accepted_ns,
            });
        }
    }
    parts
}

/// One ended task for each name: the file does not say how many there were.
fn tasks(imported: &mut Imported, placement: &Placement) -> Vec<v1::Task> {
    let names: BTreeSet<String> = imported.tasks().into_iter().map(str::to_owned).collect();
    let stop_ns = i64::try_from(imported.duration_ns).unwrap_or(i64::MAX);
    let symbols = &mut imported.symbols;
    let tasks = names.iter().zip(1..).map(|(name, id)| {
        let record = TaskRecord {
            id: TaskId(id),
            name: name.as_str().into(),
            key: placement.run.as_str().into(),
            thread_id: 0,
            thread_name: "".into(),
            parent: None,
            start: placement.start,
            stop: Some(placement.start.shifted(stop_ns)),
            outcome: Outcome::Ok,
            cause: "".into(),
            detail: Some(Box::new(TaskDetail {
                labels: vec![("source".into(), "import".into())],
                ..TaskDetail::default()
            })),
        };
        encode_task(&record, &mut |text| symbols.intern_string(text).0)
    });
    tasks.collect()
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    let [mut a, mut b] = [a, b];
    while b > 0 {
        [a, b] = [b, a % b];
    }
    a
}
