//! Profiles as clients of Pyroscope write them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use state::testing::at;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pprof {
    #[prost(message, repeated, tag = "1")]
    types: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Pair>,
    #[prost(string, repeated, tag = "6")]
    texts: Vec<String>,
    #[prost(int64, tag = "9")]
    time_ns: i64,
    #[prost(int64, tag = "10")]
    duration_ns: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<Pair>,
    #[prost(int64, tag = "12")]
    period: i64,
}

/// A type of samples (name, unit), a label (key, text), a function (id, name) or a line (function).
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Pair {
    #[prost(int64, tag = "1")]
    first: i64,
    #[prost(int64, tag = "2")]
    second: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(int64, repeated, tag = "1")]
    locations: Vec<i64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Pair>,
}

impl Pprof {
    pub(super) fn new(types: &[(&str, &str)]) -> Pprof {
        let mut pprof = Pprof {
            texts: vec![String::new()],
            ..Pprof::default()
        };
        for (name, unit) in types {
            let pair = pprof.pair(name, unit);
            pprof.types.push(pair);
        }
        pprof
    }

    fn text(&mut self, text: &str) -> i64 {
        let known = self.texts.iter().position(|known| known == text);
        let index = known.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        index as i64
    }

    fn pair(&mut self, first: &str, second: &str) -> Pair {
        Pair {
            first: self.text(first),
            second: self.text(second),
        }
    }

    /// Adds a sample with one frame, whose ids are the number of its name.
    pub(super) fn with(mut self, function: &str, values: &[i64], labels: &[(&str, &str)]) -> Pprof {
        let id = self.text(function);
        self.functions.push(Pair {
            first: id,
            second: id,
        });
        self.locations.push(Location {
            id,
            lines: vec![Pair {
                first: id,
                second: 1,
            }],
        });
        let labels = labels
            .iter()
            .map(|(key, text)| self.pair(key, text))
            .collect();
        self.samples.push(Sample {
            locations: vec![id],
            values: values.to_vec(),
            labels,
        });
        self
    }

    pub(super) fn with_period(mut self, period: i64, unit: &str) -> Pprof {
        self.period_type = Some(self.pair("cpu", unit));
        Pprof { period, ..self }
    }

    pub(super) fn at(self, start_s: i64, length_s: i64) -> Pprof {
        let time_ns = at(start_s).unix_ns();
        Pprof {
            time_ns,
            duration_ns: length_s * 1_000_000_000,
            ..self
        }
    }
}

/// 10 ms of `work` in the task `load`, and 20 ms of `idle` without a task.
pub(super) fn cpu_profile() -> Pprof {
    Pprof::new(&[("cpu", "nanoseconds")])
        .with("work", &[10_000_000], &[("task", "load")])
        .with("idle", &[20_000_000], &[])
        .at(40, 10)
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}
