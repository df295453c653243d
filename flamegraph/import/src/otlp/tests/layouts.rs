//! Requests as each version of opentelemetry-proto lays them out, from 1.3.2 on: stored right, or rejected by name.
//!
//! The tags and names are those of the files `profiles.proto` and `profiles_service.proto` (up to 1.3.2 also
//! `pprofextended.proto`) at the versions' Git tags. 1.11 has the layout of 1.10.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value as Json;

use super::*;

const VERSIONS: [&str; 9] = [
    "1.3.2", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11",
];

/// A message that is written field by field.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(mut self, tag: u32, number: u64) -> Writer {
        if number > 0 {
            encode_key(tag, WireType::Varint, &mut self.0);
            encode_varint(number, &mut self.0);
        }
        self
    }

    fn fixed(mut self, tag: u32, number: u64) -> Writer {
        if number > 0 {
            encode_key(tag, WireType::SixtyFourBit, &mut self.0);
            self.0.extend(number.to_le_bytes());
        }
        self
    }

    fn bytes(mut self, tag: u32, bytes: &[u8]) -> Writer {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend(bytes);
        self
    }

    fn message(self, tag: u32, message: Writer) -> Writer {
        self.bytes(tag, &message.0)
    }

    fn each<T>(self, tag: u32, entries: &[T], encoded: impl Fn(&T) -> Writer) -> Writer {
        let add = |message: Writer, entry| message.message(tag, encoded(entry));
        entries.iter().fold(self, add)
    }

    fn packed(self, tag: u32, numbers: &[u64]) -> Writer {
        if numbers.is_empty() {
            return self;
        }
        let mut packed = Vec::new();
        for number in numbers {
            encode_varint(*number, &mut packed);
        }
        self.bytes(tag, &packed)
    }

    fn packed_fixed(self, tag: u32, numbers: &[u64]) -> Writer {
        if numbers.is_empty() {
            return self;
        }
        let packed: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        self.bytes(tag, &packed)
    }
}

/// A sample of the stack `main;work`.
#[derive(Clone, Debug)]
struct TestSample {
    values: Vec<u64>,
    attributes: Vec<u64>,
    link: u64,
    times: Vec<u64>,
}

#[derive(Clone, Debug)]
struct TestProfile {
    samples: Vec<TestSample>,
    time: u64,
    duration: u64,
}

const STRINGS: [&str; 8] = [
    "",
    "cpu",
    "nanoseconds",
    "main",
    "work",
    "key",
    "other",
    "third",
];

fn text_attribute(key: &str) -> Writer {
    let value = Writer::default().bytes(1, b"v");
    Writer::default().bytes(1, key.as_bytes()).message(2, value)
}

fn indexed_attribute(key: u64) -> Writer {
    let value = Writer::default().bytes(1, b"v");
    Writer::default().number(1, key).message(2, value)
}

fn value_type() -> Writer {
    Writer::default().number(1, 1).number(2, 2)
}

/// Attributes 1 to 3; the first entry stands for none.
fn attributes(message: Writer, tag: u32, is_indexed: bool) -> Writer {
    let entries = [0, 5, 6, 7];
    message.each(tag, &entries, |key| match (*key, is_indexed) {
        (0, _) => Writer::default(),
        (key, true) => indexed_attribute(key),
        (key, false) => text_attribute(STRINGS[usize::try_from(key).unwrap()]),
    })
}

/// Functions and locations of `work` and `main`, as tables with an entry that stands for none.
fn functions(message: Writer, tag: u32) -> Writer {
    message.each(tag, &[0, 4, 3], |name| Writer::default().number(1, *name))
}

fn locations(message: Writer, tag: u32, has_id: bool) -> Writer {
    message.each(tag, &[0, 1, 2], |function| {
        if *function == 0 {
            return Writer::default();
        }
        let line = Writer::default().number(1, *function);
        if has_id {
            Writer::default().number(1, *function).message(4, line)
        } else {
            Writer::default().message(3, line)
        }
    })
}

fn strings(message: Writer, tag: u32) -> Writer {
    STRINGS
        .iter()
        .fold(message, |message, text| message.bytes(tag, text.as_bytes()))
}

fn protobuf(version: &str, profile: &TestProfile) -> Vec<u8> {
    let TestProfile {
        samples,
        time,
        duration,
    } = profile;
    let message = match version {
        "1.3.2" => {
            let inner = Writer::default()
                .message(1, value_type())
                .each(2, samples, |sample| {
                    Writer::default()
                        .packed(2, &sample.values)
                        .number(7, 1)
                        .number(8, 2)
                        .packed(10, &sample.attributes)
                        .number(12, sample.link)
                        .packed(13, &sample.times)
                })
                .number(9, *time)
                .number(10, *duration)
                .message(11, value_type())
                .number(12, 1)
                .packed(15, &[0, 1, 2]);
            let inner = strings(functions(locations(inner, 4, true), 5), 6);
            Writer::default()
                .bytes(1, &[7; 16])
                .fixed(2, *time)
                .fixed(3, time + duration)
                .message(8, attributes(inner, 16, false))
        }
        "1.4" | "1.5" | "1.6" | "1.7" => {
            let is_early = version < "1.6";
            let [indices, at, length, period_type, period] = if is_early {
                [5, 11, 12, 13, 14]
            } else {
                [3, 4, 5, 6, 7]
            };
            let message = Writer::default()
                .message(1, value_type())
                .each(2, samples, |sample| {
                    Writer::default()
                        .number(1, 1)
                        .number(2, 2)
                        .packed(3, &sample.values)
                        .packed(4, &sample.attributes)
                        .number(5, sample.link)
                        .packed(6, &sample.times)
                })
                .packed(indices, &[0, 1, 2])
                .number(at, *time)
                .number(length, *duration)
                .message(period_type, value_type())
                .number(period, 1);
            if is_early {
                strings(
                    attributes(functions(locations(message, 4, false), 6), 7, false),
                    10,
                )
            } else {
                message
            }
        }
        _ => {
            let [values, attributes, link] = match version {
                "1.8" | "1.9" => [2, 3, 4],
                _ => [4, 2, 3],
            };
            Writer::default()
                .message(1, value_type())
                .each(2, samples, |sample| {
                    Writer::default()
                        .number(1, 1)
                        .packed(values, &sample.values)
                        .packed(attributes, &sample.attributes)
                        .number(link, sample.link)
                        .packed_fixed(5, &sample.times)
                })
                .fixed(3, *time)
                .number(4, *duration)
                .message(5, value_type())
                .number(6, 1)
        }
    };
    let scope = Writer::default().message(2, message);
    let request = Writer::default().message(1, Writer::default().message(2, scope));
    let tables = |message: Writer| functions(locations(message, 2, false), 3);
    let request = match version {
        "1.3.2" | "1.4" | "1.5" => request,
        // Its tables are in `ProfilesData`, next to the profiles.
        "1.6" => attributes(
            strings(functions(locations(request, 3, false), 4), 6),
            7,
            false,
        ),
        "1.7" => {
            let dictionary = strings(tables(Writer::default()), 5);
            request.message(2, attributes(dictionary, 6, false))
        }
        _ => {
            let dictionary = strings(tables(Writer::default()), 5);
            let stacks = [&[][..], &[1, 2]];
            let dictionary = attributes(dictionary, 6, true)
                .each(7, &stacks, |stack| Writer::default().packed(1, stack));
            request.message(2, dictionary)
        }
    };
    request.0
}

fn json_of(version: &str, profile: &TestProfile) -> Vec<u8> {
    let TestProfile {
        samples,
        time,
        duration,
    } = profile;
    let numbers = |numbers: &[u64]| -> Vec<String> { numbers.iter().map(u64::to_string).collect() };
    let value_type = json!({ "typeStrindex": 1, "unitStrindex": 2 });
    let is_newer = !matches!(version, "1.3.2" | "1.4" | "1.5" | "1.6" | "1.7");
    let samples: Vec<Json> = samples
        .iter()
        .map(|sample| {
            let mut object = json!({
                "attributeIndices": sample.attributes,
                "linkIndex": sample.link,
                "timestampsUnixNano": numbers(&sample.times),
            });
            if is_newer {
                object["values"] = json!(numbers(&sample.values));
                object["stackIndex"] = json!(1);
            } else {
                object["value"] = json!(numbers(&sample.values));
                object["locationsLength"] = json!(2);
            }
            object
        })
        .collect();
    let mut profile = json!({
        "periodType": value_type,
        "period": "1",
    });
    let name = if is_newer && version != "1.8" {
        "samples"
    } else {
        "sample"
    };
    profile[name] = json!(samples);
    let lines = if name == "samples" { "lines" } else { "line" };
    let tables = json!({
        "locationTable": [{}, {lines: [{"functionIndex": 1}]}, {lines: [{"functionIndex": 2}]}],
        "functionTable": [{}, {"nameStrindex": 4}, {"nameStrindex": 3}],
        "stringTable": STRINGS,
        "attributeTable": [{}, {"keyStrindex": 5}, {"keyStrindex": 6}, {"keyStrindex": 7}],
        "stackTable": [{}, {"locationIndices": [1, 2]}],
    });
    if is_newer {
        profile["sampleType"] = value_type;
        profile["timeUnixNano"] = json!(time.to_string());
        profile["durationNano"] = json!(duration.to_string());
    } else {
        profile["timeNanos"] = json!(time.to_string());
        profile["durationNanos"] = json!(duration.to_string());
    }
    if version == "1.3.2" {
        profile = json!({
            "profileId": "BwcHBwcHBwcHBwcHBwcHBw==",
            "startTimeUnixNano": time.to_string(),
            "endTimeUnixNano": (time + duration).to_string(),
            "profile": profile,
        });
    }
    let scopes = json!([{ "scopeProfiles": [{ "profiles": [profile] }] }]);
    let request = json!({ "resourceProfiles": scopes, "dictionary": tables });
    request.to_string().into_bytes()
}

/// The only profile of a request, as it is stored.
fn stored(content: &[u8], encoding: OtlpEncoding) -> Result<proto::Profile, String> {
    let profiles = otlp_profiles(content, encoding).map_err(|error| error.to_string())?;
    assert_eq!(profiles.len(), 1, "a profile is dropped without a word");
    Ok(proto::Profile::decode(&*profiles[0].pprof).unwrap())
}

/// The value of the samples, by the meaning that all versions give it.
fn sum(profile: &TestProfile) -> i64 {
    let of_sample = |sample: &TestSample| {
        if sample.values.is_empty() {
            sample.times.len() as u64
        } else {
            sample.values.iter().sum()
        }
    };
    profile
        .samples
        .iter()
        .map(of_sample)
        .sum::<u64>()
        .cast_signed()
}

/// Whether bytes of 1.8 and 1.9 may be those of 1.10, too: where all samples have times, neither attributes
/// nor links, and values that are indexes of different attributes.
fn is_ambiguous(profile: &TestProfile) -> bool {
    profile.samples.iter().all(|sample| {
        let mut values = sample.values.clone();
        values.sort_unstable();
        values.dedup();
        let are_attributes = values.iter().all(|value| (1..=3).contains(value));
        !sample.times.is_empty()
            && sample.attributes.is_empty()
            && sample.link == 0
            && values.len() == sample.values.len()
            && are_attributes
    })
}

fn samples() -> impl Strategy<Value = Vec<TestSample>> {
    let value = prop_oneof![Just(1_u64), 1_u64..5, Just(10_000_000_u64)];
    let parts = (
        prop::collection::vec((value, 0_u64..100), 1..4),
        prop::collection::btree_set(1_u64..=3, 0..3),
        0_u64..3,
        0..3,
    );
    let sample = parts.prop_map(|(pairs, attributes, link, form)| {
        let (values, times): (Vec<u64>, Vec<u64>) = pairs
            .into_iter()
            .map(|(value, time)| (value, 1_769_860_800_000_000_000 + time))
            .unzip();
        TestSample {
            values: if form == 0 { Vec::new() } else { values },
            attributes: attributes.into_iter().collect(),
            link,
            times: if form == 1 { Vec::new() } else { times },
        }
    });
    prop::collection::vec(sample, 1..4)
}

proptest! {
    #[test]
    fn each_layout_is_stored_right_or_rejected_by_name(
        version in 0..VERSIONS.len(),
        samples in samples(),
        time in prop_oneof![Just(0_u64), Just(5), Just(1_769_860_800_000_000_000)],
        duration in prop_oneof![Just(0_u64), Just(10_000_000_000)],
        is_json in any::<bool>(),
    ) {
        let version = VERSIONS[version];
        let profile = TestProfile { samples, time, duration };
        let is_newest = matches!(version, "1.10" | "1.11") || is_json && version == "1.9";
        let read = if is_json {
            stored(&json_of(version, &profile), OtlpEncoding::Json)
        } else {
            stored(&protobuf(version, &profile), OtlpEncoding::Protobuf)
        };
        match read {
            Ok(message) => {
                prop_assert!(is_newest || is_ambiguous(&profile), "{version} is read as 1.10: {profile:?}");
                if is_newest {
                    let read: i64 = message.sample.iter().map(|sample| sample.value[0]).sum();
                    prop_assert_eq!(read, sum(&profile));
                    let depths: Vec<usize> =
                        message.sample.iter().map(|sample| sample.location_id.len()).collect();
                    prop_assert_eq!(depths, vec![2; profile.samples.len()]);
                    if time > 0 {
                        prop_assert_eq!(message.time_nanos, time.cast_signed());
                    }
                }
            }
            Err(error) => {
                prop_assert!(!is_newest, "{version}: {error}");
                prop_assert!(error.contains("1.9 or earlier"), "{version}: {error}");
            }
        }
    }
}
