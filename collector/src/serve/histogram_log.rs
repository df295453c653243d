//! Logs of HdrHistogram: a line for each histogram of durations, tagged with the name of its tasks.
//!
//! The format is version 1.3 of the log with histograms of version 2, compressed: the one that readers in
//! all languages share. The buckets of durations are those of HdrHistogram already
//! ([`profiler_core::bucket`]), so counts are written as they are.

use std::fmt::Write as _;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flamegraph::text::printable;
use miniz_oxide::deflate::compress_to_vec_zlib;
use profiler_core::bucket::bucket_middle_ns;

use query::{BucketCounts, DurationCounts, format_time};

/// Cookies of version 2, with words of variable length.
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;

const DIGITS: u32 = 3;

/// The largest duration for which readers make room, unless one is longer: an hour, as in most logs.
const HIGHEST_NS: u64 = 3_600_000_000_000;

/// The level of zlib's default.
const LEVEL: u8 = 6;

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
fn histogram_log(answer: &DurationCounts) -> String {
    let first = answer.intervals.first();
    let first_ns = first.map_or(0, |interval| interval.start.unix_ns());
    let mut log = String::from("#[Histogram log format version 1.3]\n");
    if let Some(first) = first {
        let start = format_time(first.start);
        let _ = writeln!(log, "#[StartTime: {} (seconds since epoch), {start}]", seconds(first_ns));
    }
    log.push_str("\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n");
    for interval in &answer.intervals {
        let Some((last, _)) = interval.counts.last_key_value() else { continue };
        let start = seconds(interval.start.unix_ns() - first_ns);
        let length = seconds(i64::try_from(answer.step_ns).unwrap_or(i64::MAX));
        let max_ms = bucket_middle_ns(*last) as f64 / 1e6;
        let encoded = STANDARD.encode(compressed(&interval.counts));
        let tag = tag(&interval.name);
        let _ = writeln!(log, "Tag={tag},{start},{length},{max_ms:.3},{encoded}");
    }
    log
}

fn seconds(nanoseconds: i64) -> String {
    format!("{:.3}", nanoseconds as f64 / 1e9)
}

/// A name without the characters that end a tag.
fn tag(name: &str) -> String {
    printable(name).replace([',', ' '], "_")
}

fn compressed(counts: &BucketCounts) -> Vec<u8> {
    let zlib = compress_to_vec_zlib(&plain(counts), LEVEL);
    let length = u32::try_from(zlib.len()).expect("a histogram is small");
    [&COMPRESSED.to_be_bytes()[..], &length.to_be_bytes(), &zlib].concat()
}

/// Its header and its counts by bucket, with runs of empty buckets as negative numbers.
fn plain(counts: &BucketCounts) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut next = 0;
    for (bucket, count) in counts {
        if *bucket > next {
            push_number(&mut payload, -i64::from(bucket - next));
        }
        push_number(&mut payload, i64::try_from(*count).unwrap_or(i64::MAX));
        next = bucket + 1;
    }
    let longest_ns = counts.keys().last().map_or(0, |bucket| bucket_middle_ns(*bucket + 1));
    let length = u32::try_from(payload.len()).expect("a histogram is small");
    let mut plain = Vec::new();
    plain.extend(PLAIN.to_be_bytes());
    plain.extend(length.to_be_bytes());
    // Counts begin with the bucket of 0.
    plain.extend(0_u32.to_be_bytes());
    plain.extend(DIGITS.to_be_bytes());
    plain.extend(1_u64.to_be_bytes());
    plain.extend(longest_ns.max(HIGHEST_NS).to_be_bytes());
    // Values are as they were recorded.
    plain.extend(1_f64.to_be_bytes());
    plain.extend(payload);
    plain
}

/// Appends a number of variable length: its sign in the lowest bit, seven bits a byte, eight in a ninth one.
fn push_number(payload: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    for _ in 0..8 {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            payload.push(low);
            return;
        }
        payload.push(low | 0x80);
    }
    payload.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::expect;
    use profiler_core::Timestamp;

    use super::*;
    use query::DurationInterval;

    fn interval(start_s: i64, name: &str, counts: &[(u32, u64)]) -> DurationInterval {
        DurationInterval {
            start: Timestamp::from_unix_ns(start_s * 1_000_000_000),
            name: Arc::from(name),
            counts: counts.iter().copied().collect(),
        }
    }

    #[test]
    fn a_histogram_is_its_counts_and_its_gaps() {
        let counts = interval(0, "a", &[(2, 1), (3, 64), (2_000, 1)]).counts;
        let payload = &plain(&counts)[40..];
        // -2, 1, 64, -1996, 1
        assert_eq!(payload, [3, 2, 128, 1, 0x97, 0x1f, 2]);
        let mut longest = Vec::new();
        push_number(&mut longest, i64::MIN);
        assert_eq!(longest, [0xff; 9]);
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
        let log = histogram_log(&counts);
        let lines: Vec<&str> = log.lines().map(|line| line.split("HIST").next().unwrap()).collect();
        expect![[r##"
            [
                "#[Histogram log format version 1.3]",
                "#[StartTime: 1700000040.000 (seconds since epoch), 2023-11-14T22:14:00.000000000Z]",
                "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
                "Tag=load__all,0.000,60.000,0.001,",
                "Tag=qr,60.000,60.000,411.173,",
            ]
        "##]]
        .assert_debug_eq(&lines);
    }
}
