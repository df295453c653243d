//! Logs of HdrHistogram: a line for each histogram of durations, tagged with the name of its tasks.
//!
//! The buckets of durations are those of HdrHistogram already ([`profiler_core::bucket`]), so counts stay as
//! they are.

use std::io::{self, Write as _};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use flamegraph::text::printable;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use profiler_core::bucket::bucket_middle_ns;

use query::{BucketCounts, DurationCounts, format_time};

/// Significant digits of durations.
const DIGITS: u8 = 3;

/// The largest duration for which readers make room, unless one is longer: an hour, as in most logs.
const HIGHEST_NS: u64 = 3_600_000_000_000;

const NS_PER_MS: f64 = 1e6;

/// Answers with the log, and with headers for its number of lines and of files that could not be read.
pub(super) fn response(answer: &DurationCounts) -> Response {
    let text_plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut response = histogram_log(answer).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, text_plain);
    headers.insert("x-emberline-rows", answer.intervals.len().into());
    headers.insert("x-emberline-corrupt-files", answer.damaged.len().into());
    response
}

/// Writes the log. Values are nanoseconds; the maximum of each line is in milliseconds.
fn histogram_log(answer: &DurationCounts) -> Vec<u8> {
    let mut log = Vec::new();
    write_log(answer, &mut log).expect("memory takes a log");
    log
}

fn write_log(answer: &DurationCounts, log: &mut Vec<u8>) -> io::Result<()> {
    let first = answer.intervals.first();
    let first_ns = first.map_or(0, |interval| interval.start.unix_ns());
    writeln!(log, "#[Histogram log format version 1.3]")?;
    if let Some(first) = first {
        let seconds = first_ns as f64 / 1e9;
        let start = format_time(first.start);
        writeln!(
            log,
            "#[StartTime: {seconds:.3} (seconds since epoch), {start}]"
        )?;
    }
    writeln!(
        log,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )?;
    let mut serializer = V2DeflateSerializer::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(log, &mut serializer)?;
    let step = Duration::from_nanos(answer.step_ns);
    for interval in &answer.intervals {
        let start_ns = interval.start.unix_ns().abs_diff(first_ns);
        let name = tag(&interval.name);
        let histogram = histogram(&interval.counts);
        let tag = Tag::new(&name);
        let written = writer.write_histogram(&histogram, Duration::from_nanos(start_ns), step, tag);
        written.map_err(io::Error::other)?;
    }
    Ok(())
}

/// A name without the characters that end a tag.
fn tag(name: &str) -> String {
    printable(name).replace([',', ' '], "_")
}

fn histogram(counts: &BucketCounts) -> Histogram<u64> {
    let longest_ns = counts
        .keys()
        .last()
        .map_or(0, |bucket| bucket_middle_ns(*bucket));
    let mut histogram = Histogram::new_with_max(longest_ns.max(HIGHEST_NS), DIGITS)
        .expect("an hour is more than a nanosecond");
    for (bucket, count) in counts {
        // The format has no larger count.
        let count = (*count).min(i64::MAX as u64);
        histogram.saturating_record_n(bucket_middle_ns(*bucket), count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use expect_test::expect;
    use hdrhistogram::serialization::Deserializer;
    use profiler_core::Timestamp;
    use profiler_core::bucket::{BUCKETS, bucket};
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;
    use query::DurationInterval;

    fn interval(start_s: i64, name: &str, counts: &[(u32, u64)]) -> DurationInterval {
        DurationInterval {
            start: Timestamp::from_unix_ns(start_s * 1_000_000_000),
            name: Arc::from(name),
            counts: counts.iter().copied().collect(),
        }
    }

    /// The counts of a histogram of the log, read by the crate's own reader.
    fn read(encoded: &str) -> BucketCounts {
        let bytes = STANDARD.decode(encoded).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &*bytes).unwrap();
        let recorded = histogram.iter_recorded();
        recorded
            .map(|value| (bucket(value.value_iterated_to()), value.count_at_value()))
            .collect()
    }

    proptest! {
        #[test]
        fn counts_of_every_bucket_are_read_back(
            counts in btree_map(0..BUCKETS, prop_oneof![1..100u64, 1..i64::MAX as u64], 1..20),
        ) {
            let named = DurationInterval { counts, ..interval(0, "a", &[]) };
            let answer = DurationCounts { step_ns: 1, intervals: vec![named], damaged: Vec::new() };
            let log = String::from_utf8(histogram_log(&answer)).unwrap();
            let (_, encoded) = log.trim_end().rsplit_once(',').unwrap();
            prop_assert_eq!(read(encoded), answer.intervals[0].counts.clone());
        }
    }

    #[test]
    fn each_interval_is_a_line_with_its_name() {
        let counts = DurationCounts {
            step_ns: 60_000_000_000,
            intervals: vec![
                interval(1_700_000_040, "load, all", &[(1_000, 3)]),
                interval(1_700_000_100, "qr", &[(20_000, 1)]),
            ],
            damaged: Vec::new(),
        };
        let log = String::from_utf8(histogram_log(&counts)).unwrap();
        let lines: Vec<&str> = log
            .lines()
            .map(|line| line.split("HIST").next().unwrap())
            .collect();
        expect![[r##"
            [
                "#[Histogram log format version 1.3]",
                "#[StartTime: 1700000040.000 (seconds since epoch), 2023-11-14T22:14:00.000000000Z]",
                "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
                "#[MaxValueDivisor: 1000000.000]",
                "Tag=load__all,0.000,60.000,0.001,",
                "Tag=qr,60.000,60.000,411.304,",
            ]
        "##]]
        .assert_debug_eq(&lines);
    }
}
