//! A second reading of files, slow and obvious: only their sums, by the rules of their own tools. Tests and fuzz
//! targets compare it with what is imported.

use flamegraph::messages::pprof as proto;
use prost::Message as _;
use serde_json::Value;

use super::json::unit_ns;
use super::limits::{COLLAPSED_NANOSECONDS_DIGITS, INTERVAL_DEFAULT};
use super::model::ImportFormat;

/// The time of all samples of a file in nanoseconds, with default options; `None` for files that this reading does not
/// cover.
#[must_use]
pub fn sum_ns(content: &[u8], format: ImportFormat) -> Option<u128> {
    // Compressed, or in another encoding.
    const PACKED: [&[u8]; 4] = [b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"];
    if PACKED.iter().any(|mark| content.starts_with(mark)) {
        return None;
    }
    match format {
        ImportFormat::Collapsed => collapsed(content),
        ImportFormat::Perf => perf(content),
        ImportFormat::Pprof => pprof(content),
        ImportFormat::Speedscope => speedscope(&serde_json::from_slice(content).ok()?),
        ImportFormat::Firefox => firefox(&serde_json::from_slice(content).ok()?),
        ImportFormat::Chrome => chrome(&serde_json::from_slice(content).ok()?),
        ImportFormat::Jfr => None,
    }
}

/// The last words of lines, as flamegraph.pl sums them.
fn collapsed(content: &[u8]) -> Option<u128> {
    let text = String::from_utf8_lossy(content).into_owned();
    if text.contains("austin") {
        return None;
    }
    let mut weights: Vec<[u128; 2]> = Vec::new();
    let mut is_time = true;
    for line in text.split('\n').map(str::trim_ascii_end) {
        let Some(at) = line.rfind([' ', '\t']) else {
            continue;
        };
        let [stack, number] = [&line[..at], &line[at + 1..]];
        let is_comment = ["#", "//"].iter().any(|mark| {
            let next = line.strip_prefix(mark).map(|rest| rest.chars().next());
            next.is_some_and(|next| matches!(next, None | Some(' ' | '\t' | '#' | '!')))
        });
        if stack.trim().is_empty() || is_comment && !stack.contains(';') {
            continue;
        }
        let mut halves = number.splitn(2, '.');
        let whole = halves.next().unwrap_or_default();
        let fraction = halves.next().unwrap_or_default();
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            continue;
        }
        is_time &= whole.len() >= COLLAPSED_NANOSECONDS_DIGITS;
        let billionths = format!("{fraction:0<9}")[..9].parse().ok()?;
        weights.push([whole.parse().ok()?, billionths]);
    }
    let unit_ns = if is_time {
        1
    } else {
        INTERVAL_DEFAULT.as_nanos()
    };
    let time_ns = |[whole, billionths]: [u128; 2]| {
        whole * unit_ns + (billionths * unit_ns + 500_000_000) / 1_000_000_000
    };
    Some(weights.into_iter().map(time_ns).sum())
}

/// Periods of `cpu-clock`, of files whose headers have five words. Short commands are indented, as frames are.
fn perf(content: &[u8]) -> Option<u128> {
    let text = String::from_utf8_lossy(content);
    let mut sum = 0;
    for line in text.split('\n').map(str::trim_ascii_end) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_frame = line.starts_with([' ', '\t']) && words.last() != Some(&"cpu-clock:");
        if is_frame && words.contains(&"cpu-clock:") {
            // A header and its frame on one line.
            return None;
        }
        if line.is_empty() || line.starts_with('#') || is_frame {
            continue;
        }
        let [_, tid, time, period, "cpu-clock:"] = words[..] else {
            return None;
        };
        let _: u32 = tid.parse().ok()?;
        let (seconds, fraction) = time.strip_suffix(':')?.split_once('.')?;
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(seconds) || !is_digits(fraction) || seconds.len() + fraction.len() > 15 {
            return None;
        }
        sum += u128::from(period.parse::<u64>().ok()?);
    }
    Some(sum)
}

/// Values of messages with one type.
fn pprof(content: &[u8]) -> Option<u128> {
    let message = proto::Profile::decode(content).ok()?;
    let [kind] = message.sample_type[..] else {
        return None;
    };
    let unit = message.string_table.get(usize::try_from(kind.unit).ok()?)?;
    let unit_ns = u128::from(unit_ns(unit)?);
    let values = message
        .sample
        .iter()
        .flat_map(|sample| &sample.value)
        .map(|value| u128::try_from(*value).ok());
    Some(values.sum::<Option<u128>>()? * unit_ns)
}

fn rounded(time: f64) -> u128 {
    time.round() as u128
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Weights of sampled profiles, and the time from the first frame to the last of evented ones.
fn speedscope(file: &Value) -> Option<u128> {
    let exporter = file["exporter"].as_str().unwrap_or_default();
    if exporter.starts_with("emberline ") {
        return None;
    }
    let mut sum = 0;
    for profile in list(file, "profiles") {
        let unit = profile["unit"].as_str()?;
        let unit_ns = match unit_ns(unit) {
            Some(unit_ns) => unit_ns as f64,
            None if unit == "none" => INTERVAL_DEFAULT.as_nanos() as f64,
            None => continue,
        };
        if profile["type"] == "sampled" {
            for weight in list(profile, "weights") {
                sum += rounded(weight.as_f64()? * unit_ns);
            }
            continue;
        }
        // Rounding depends on the start of the earliest profile.
        if list(file, "profiles").len() > 1 || profile["startValue"].as_f64().unwrap_or(0.0) != 0.0
        {
            return None;
        }
        let mut depth = 0;
        let mut opened = 0;
        for event in list(profile, "events") {
            let at = rounded(event["at"].as_f64()? * unit_ns);
            match event["type"].as_str()? {
                "O" => {
                    opened = if depth == 0 { at } else { opened };
                    depth += 1;
                }
                _ => {
                    depth -= 1;
                    sum += if depth == 0 {
                        at.checked_sub(opened)?
                    } else {
                        0
                    };
                }
            }
        }
    }
    Some(sum)
}

/// Weights of samples, or one for each sample, times the interval.
fn firefox(file: &Value) -> Option<u128> {
    let interval_ns = file["meta"]["interval"].as_f64().unwrap_or(0.0) * 1e6;
    let mut sum = 0;
    for thread in list(file, "threads") {
        let samples = &thread["samples"];
        let weight_ns = match samples["weightType"].as_str() {
            None | Some("samples") => interval_ns,
            Some("tracing-ms") => 1e6,
            Some(_) => continue,
        };
        let count = list(samples, "stack").len() + list(samples, "data").len();
        if samples["weight"].is_array() {
            for weight in list(samples, "weight").iter().take(count) {
                sum += rounded(weight.as_f64().unwrap_or(0.0) * weight_ns);
            }
        } else {
            sum += count as u128 * rounded(weight_ns);
        }
    }
    list(file, "processes").is_empty().then_some(sum)
}

/// The time from the first sample to the end, of files with samples.
fn chrome(file: &Value) -> Option<u128> {
    let deltas = list(file, "timeDeltas");
    if deltas.is_empty() || !list(file, "traceEvents").is_empty() {
        return None;
    }
    let mut at = 0.0_f64;
    let mut times = Vec::new();
    for delta in deltas {
        at += delta.as_f64()?;
        times.push(rounded(at.max(0.0) * 1e3));
    }
    let [start, end] = ["startTime", "endTime"].map(|name| file[name].as_f64().unwrap_or(0.0));
    let last = times
        .iter()
        .copied()
        .max()?
        .max(rounded((end - start) * 1e3));
    Some(last - times[0])
}
