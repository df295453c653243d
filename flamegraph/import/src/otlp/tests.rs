mod layouts;

use profiler_core::{FrameId, FrameKind};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{ImportFormat, ImportOptions, import};
use flamegraph::messages::otlp::{
    Function, KeyValue, Line, Location, Mapping, Resource, ResourceProfiles, Scope, ScopeProfiles,
    Stack, ValueType,
};

const TEXTS: [&str; 12] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "main",
    "work",
    "main.rs",
    "/bin/app",
    "task",
    "process.executable.build_id.gnu",
    "thread.id",
];

fn text_value(text: &str) -> Option<AnyValue> {
    Some(AnyValue {
        value: Some(Value::Text(text.to_owned())),
    })
}

/// Two functions, one inlined into the other, and an address without a name.
fn dictionary() -> ProfilesDictionary {
    let line = |function_index, line| Line {
        function_index,
        line,
    };
    let attribute = |key_strindex, value| KeyValueAndUnit {
        key_strindex,
        value,
    };
    ProfilesDictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping {
                memory_start: 0x5000,
                memory_limit: 0x9000,
                file_offset: 0x1000,
                filename_strindex: 8,
                attribute_indices: vec![2],
            },
        ],
        location_table: vec![
            Location::default(),
            Location {
                lines: vec![line(2, 7), line(1, 3)],
                ..Location::default()
            },
            Location {
                mapping_index: 1,
                address: 0x6234,
                lines: Vec::new(),
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 5,
                filename_strindex: 7,
                ..Function::default()
            },
            Function {
                system_name_strindex: 6,
                filename_strindex: 7,
                ..Function::default()
            },
        ],
        string_table: TEXTS.map(str::to_owned).to_vec(),
        attribute_table: vec![
            KeyValueAndUnit::default(),
            attribute(9, text_value("load")),
            attribute(10, text_value("a1b2")),
            attribute(
                11,
                Some(AnyValue {
                    value: Some(Value::Int(7)),
                }),
            ),
        ],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![1],
            },
            Stack {
                location_indices: vec![2, 1],
            },
        ],
    }
}

fn profile(samples: Vec<Sample>) -> Profile {
    Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples,
        time_unix_nano: 1_769_860_800_000_000_000,
        duration_nano: 5_000_000_000,
        period_type: Some(ValueType {
            type_strindex: 3,
            unit_strindex: 4,
        }),
        period: 10_000_000,
        attribute_indices: vec![3],
    }
}

fn request(profiles: Vec<Profile>) -> ExportProfilesServiceRequest {
    let service = KeyValue {
        key: "service.name".to_owned(),
        value: text_value("shop"),
        key_strindex: 0,
    };
    let scope = Scope {
        name: "ebpf".to_owned(),
        version: "1".to_owned(),
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![service],
            }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles,
            }],
        }],
        dictionary: Some(dictionary()),
    }
}

fn read(request: &ExportProfilesServiceRequest) -> Result<Vec<OtlpProfile>, OtlpError> {
    otlp_profiles(&request.encode_to_vec(), OtlpEncoding::Protobuf)
}

fn collapsed(profile: &OtlpProfile) -> String {
    let options = ImportOptions {
        format: Some(ImportFormat::Pprof),
        ..ImportOptions::default()
    };
    flamegraph::collapsed(&import(&profile.pprof, &options).unwrap().profile())
}

#[test]
fn stacks_inlined_functions_labels_and_addresses_arrive() {
    let counted = Sample {
        stack_index: 1,
        values: vec![2, 1],
        ..Sample::default()
    };
    let timed = Sample {
        stack_index: 2,
        attribute_indices: vec![1],
        timestamps_unix_nano: vec![5, 6, 7, 8],
        ..Sample::default()
    };
    let profiles = read(&request(vec![profile(vec![counted, timed])])).unwrap();
    assert_eq!(profiles.len(), 1);
    let attributes = [("service.name", "shop"), ("thread.id", "7")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(profiles[0].attributes, BTreeMap::from(attributes));
    assert_eq!(profiles[0].scope, "ebpf");
    assert_eq!(
        collapsed(&profiles[0]),
        "imported;main;work 30000000\nload;main;work;app 40000000\n"
    );
    let imported = import(&profiles[0].pprof, &ImportOptions::default()).unwrap();
    let frames = (0..imported.symbols.frame_count()).map(|id| imported.symbols.frame(FrameId(id)));
    let unnamed: Vec<_> = frames
        .filter(|frame| frame.kind == FrameKind::Unresolved)
        .collect();
    assert_eq!(unnamed.len(), 1);
    assert_eq!(
        (unnamed[0].module, unnamed[0].build_id, unnamed[0].offset),
        (
            "/bin/app",
            "a1b2",
            profiler_core::CodePlace::FileOffset(0x2234).number()
        )
    );
    assert_eq!(
        imported.started_at.unwrap().unix_ns(),
        1_769_860_800_000_000_000
    );
    assert_eq!(imported.duration_ns, 5_000_000_000);
}

#[test]
fn a_profile_without_samples_is_empty() {
    let profiles = read(&request(vec![profile(Vec::new())])).unwrap();
    assert_eq!(profiles[0].pprof, Vec::<u8>::new());
    assert_eq!(read(&ExportProfilesServiceRequest::default()).unwrap(), []);
}

#[test]
fn json_has_64_bit_numbers_as_text_or_numbers() {
    let sample = Sample {
        stack_index: 1,
        values: vec![3],
        ..Sample::default()
    };
    let expected = read(&request(vec![profile(vec![sample])])).unwrap();
    let text = json!({
        "resourceProfiles": [{
            "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "shop"}},
                {"key": "list", "value": {"arrayValue": {"values": []}}}
            ]},
            "scopeProfiles": [{
                "scope": {"name": "ebpf", "version": "1"},
                "schemaUrl": "ignored",
                "profiles": [{
                    "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
                    "samples": [{"stackIndex": 1, "values": ["3"]}],
                    "timeUnixNano": "1769860800000000000",
                    "durationNano": 5_000_000_000_u64,
                    "periodType": {"typeStrindex": 3, "unitStrindex": 4},
                    "period": "10000000",
                    "profileId": "00112233445566778899aabbccddeeff",
                    "attributeIndices": [3]
                }]
            }]
        }],
        "dictionary": {
            "mappingTable": [{}],
            "locationTable": [{}, {"lines": [{"functionIndex": 2, "line": "7"},
                                             {"functionIndex": 1, "line": 3}]}],
            "functionTable": [{}, {"nameStrindex": 5, "filenameStrindex": 7},
                              {"systemNameStrindex": 6, "filenameStrindex": 7}],
            "stringTable": TEXTS,
            "attributeTable": [{}, {}, {}, {"keyStrindex": 11, "value": {"intValue": "7"}}],
            "stackTable": [{}, {"locationIndices": [1]}]
        }
    });
    let read = otlp_profiles(text.to_string().as_bytes(), OtlpEncoding::Json).unwrap();
    assert_eq!(read, expected);
    let text = r#"{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"period":"1e3"}]}]}]}"#;
    let error = otlp_profiles(text.as_bytes(), OtlpEncoding::Json)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("expected a number of 64 bits") && error.contains("1.10"),
        "{error}"
    );
}

/// Samples as opentelemetry-proto 1.9 had them: values before attributes.
mod older {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Request {
        #[prost(message, repeated, tag = "1")]
        pub(super) resource_profiles: Vec<ResourceProfiles>,
        #[prost(message, optional, tag = "2")]
        pub(super) dictionary: Option<super::ProfilesDictionary>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceProfiles {
        #[prost(message, repeated, tag = "2")]
        pub(super) scope_profiles: Vec<ScopeProfiles>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeProfiles {
        #[prost(message, repeated, tag = "2")]
        pub(super) profiles: Vec<Profile>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "2")]
        pub(super) samples: Vec<Sample>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(int32, tag = "1")]
        pub(super) stack_index: i32,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
        #[prost(int32, repeated, tag = "3")]
        pub(super) attribute_indices: Vec<i32>,
        #[prost(int32, tag = "4")]
        pub(super) link_index: i32,
    }
}

#[test]
fn an_older_layout_is_rejected_with_the_versions() {
    let samples = [
        older::Sample {
            stack_index: 1,
            values: vec![1],
            ..Default::default()
        },
        older::Sample {
            stack_index: 1,
            values: vec![10_000_000],
            ..Default::default()
        },
        older::Sample {
            stack_index: 1,
            values: vec![3],
            attribute_indices: vec![1],
            link_index: 0,
        },
        older::Sample {
            stack_index: 1,
            values: vec![900],
            link_index: 2,
            ..Default::default()
        },
    ];
    for sample in samples {
        let text = format!("{sample:?}");
        let profiles = vec![older::Profile {
            samples: vec![sample],
        }];
        let scope_profiles = vec![older::ScopeProfiles { profiles }];
        let request = older::Request {
            resource_profiles: vec![older::ResourceProfiles { scope_profiles }],
            dictionary: Some(dictionary()),
        };
        let read = otlp_profiles(&request.encode_to_vec(), OtlpEncoding::Protobuf);
        let error = read.expect_err(&text).to_string();
        let names_versions = error.contains("1.10") && error.contains("1.9 or earlier");
        assert!(names_versions, "{text}: {error}");
    }
}

#[test]
fn a_message_with_too_many_entries_is_rejected_before_it_is_decoded() {
    let sample = Sample {
        values: vec![1],
        ..Sample::default()
    };
    let samples = vec![sample; OTLP_ENTRIES_MAX + 1];
    let error = read(&request(vec![profile(samples)])).unwrap_err();
    assert!(matches!(error, OtlpError::TooMany), "{error}");
}

#[test]
fn every_index_is_checked() {
    let sample = || Sample {
        stack_index: 2,
        values: vec![3],
        ..Sample::default()
    };
    let whole = request(vec![profile(vec![sample()])]);
    read(&whole).unwrap();
    type Change = fn(&mut ExportProfilesServiceRequest);
    let changes: [(&str, Change); 10] = [
        ("stack 99", |it| first(it).samples[0].stack_index = 99),
        ("stack -1", |it| first(it).samples[0].stack_index = -1),
        ("attribute 99", |it| {
            first(it).samples[0].attribute_indices = vec![99]
        }),
        ("attribute 99", |it| first(it).attribute_indices = vec![99]),
        ("text 99", |it| {
            first(it).sample_type.as_mut().unwrap().unit_strindex = 99
        }),
        ("location 99", |it| {
            tables(it).stack_table[2].location_indices[0] = 99
        }),
        ("mapping 99", |it| {
            tables(it).location_table[2].mapping_index = 99
        }),
        ("function 99", |it| {
            tables(it).location_table[1].lines[0].function_index = 99
        }),
        ("text 99", |it| {
            tables(it).function_table[1].filename_strindex = 99
        }),
        ("text 99", |it| {
            tables(it).mapping_table[1].filename_strindex = 99
        }),
    ];
    for (expected, change) in changes {
        let mut changed = whole.clone();
        change(&mut changed);
        let error = read(&changed).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{expected} is outside of a table")),
            "{error}"
        );
    }
    let mut uneven = sample();
    uneven.timestamps_unix_nano = vec![1, 2];
    let error = read(&request(vec![profile(vec![uneven])]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sample 1 has 1 values for 2 timestamps_unix_nano; one value for each"),
        "{error}"
    );
}

fn first(request: &mut ExportProfilesServiceRequest) -> &mut Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

fn tables(request: &mut ExportProfilesServiceRequest) -> &mut ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

proptest! {
    /// Bytes changed anywhere are an error or profiles that the parser of pprof accepts or rejects.
    #[test]
    fn changed_bytes_do_no_harm(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 0..8)) {
        let sample = Sample { stack_index: 2, values: vec![3], ..Sample::default() };
        let mut bytes = request(vec![profile(vec![sample])]).encode_to_vec();
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        for profile in otlp_profiles(&bytes, OtlpEncoding::Protobuf).unwrap_or_default() {
            let _ = import(&profile.pprof, &ImportOptions::default());
        }
        let _ = otlp_profiles(&bytes, OtlpEncoding::Json);
    }
}

#[test]
fn json_of_an_older_layout_is_rejected_with_the_versions() {
    for member in [
        "\"sample\": [{}]",
        "\"timeNanos\": \"5\"",
        "\"durationNanos\": 5",
    ] {
        let text = format!(
            "{{\"resourceProfiles\":[{{\"scopeProfiles\":[{{\"profiles\":[{{{member}}}]}}]}}]}}"
        );
        let error = otlp_profiles(text.as_bytes(), OtlpEncoding::Json)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("1.10; senders with 1.9 or earlier"),
            "{error}"
        );
    }
    for text in [
        "{}",
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"new\": 1}]}]}]}",
    ] {
        assert!(
            otlp_profiles(text.as_bytes(), OtlpEncoding::Json).is_ok(),
            "{text}"
        );
    }
}

/// A request with one profile of these samples, and its tables.
fn request_of(dictionary: ProfilesDictionary, profile: Profile) -> Vec<u8> {
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![profile],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec()
}

/// A profile of processor time whose samples have these stacks.
fn cpu_profile_of(stacks: &[i32]) -> Profile {
    let samples = stacks.iter().map(|stack_index| Sample {
        stack_index: *stack_index,
        values: vec![5_000_000],
        ..Sample::default()
    });
    Profile {
        sample_type: Some(ValueType {
            type_strindex: 3,
            unit_strindex: 4,
        }),
        samples: samples.collect(),
        ..Profile::default()
    }
}

fn message_of(request: &[u8]) -> proto::Profile {
    let profiles = otlp_profiles(request, OtlpEncoding::Protobuf).unwrap();
    proto::Profile::decode(&*profiles[0].pprof).unwrap()
}

#[test]
fn a_first_entry_that_is_one_is_used() {
    let mut with_zero = dictionary();
    let stack = Stack {
        location_indices: vec![1],
    };
    with_zero.stack_table = vec![Stack::default(), stack];
    let mut without = with_zero.clone();
    without.stack_table.remove(0);
    without.stack_table[0].location_indices = vec![0];
    without.location_table.remove(0);
    without.function_table.remove(0);
    let lines = &mut without.location_table[0].lines;
    lines.iter_mut().for_each(|line| line.function_index -= 1);
    let expected = message_of(&request_of(with_zero, cpu_profile_of(&[1])));
    assert_eq!(expected.sample[0].location_id.len(), 1);
    assert_eq!(
        message_of(&request_of(without, cpu_profile_of(&[0]))),
        expected
    );
}

#[test]
fn texts_that_begin_with_one_are_rejected_by_name() {
    let mut dictionary = dictionary();
    dictionary.string_table.remove(0);
    let request = request_of(dictionary, cpu_profile_of(&[1]));
    let error = otlp_profiles(&request, OtlpEncoding::Protobuf).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("begins with \"samples\"; its first entry"),
        "{text}"
    );
}

#[test]
fn a_profile_without_times_has_those_of_its_samples() {
    let mut profile = cpu_profile_of(&[0, 0]);
    for (sample, times) in profile.samples.iter_mut().zip([[70, 40], [90, 60]]) {
        sample.values = vec![1, 2];
        sample.timestamps_unix_nano = times.to_vec();
    }
    for (time, duration, expected) in [
        (0, 0, (40, 50)),
        (0, 7, (40, 7)),
        (30, 0, (30, 60)),
        (30, 7, (30, 7)),
        // After all samples.
        (95, 0, (95, 0)),
    ] {
        profile.time_unix_nano = time;
        profile.duration_nano = duration;
        let message = message_of(&request_of(dictionary(), profile.clone()));
        assert_eq!(
            (message.time_nanos, message.duration_nanos),
            expected,
            "{time} {duration}"
        );
    }
}

#[test]
fn null_is_the_default_of_any_field_of_json() {
    let request = json!({
        "resourceProfiles": [{
            "resource": null,
            "scopeProfiles": [{
                "scope": { "name": null, "version": null },
                "profiles": [{
                    "sampleType": { "typeStrindex": 1, "unitStrindex": null },
                    "samples": [{ "stackIndex": null, "values": ["7"], "timestampsUnixNano": null }],
                    "timeUnixNano": null, "durationNano": null, "period": null, "periodType": null,
                    "attributeIndices": null,
                }],
            }],
        }],
        "dictionary": { "stringTable": ["", "cpu"], "mappingTable": null, "attributeTable": null },
    });
    let profiles = otlp_profiles(request.to_string().as_bytes(), OtlpEncoding::Json).unwrap();
    let message = proto::Profile::decode(&*profiles[0].pprof).unwrap();
    assert_eq!(message.sample[0].value, [7]);
}

/// Since opentelemetry-proto 1.10, attributes may have their texts in the dictionary; the OpenTelemetry Collector sends
/// them so.
#[test]
fn texts_of_attributes_may_be_indexes() {
    let sample = || Sample {
        stack_index: 1,
        attribute_indices: vec![1],
        values: vec![2],
        ..Sample::default()
    };
    let plain = request(vec![profile(vec![sample()])]);
    let mut by_index = plain.clone();
    let texts = &mut by_index.dictionary.as_mut().unwrap().string_table;
    let mut index_of = |text: &str| {
        texts.push(text.to_owned());
        texts.len() as i32 - 1
    };
    let by_text = |index: i32| {
        Some(AnyValue {
            value: Some(Value::TextIndex(index)),
        })
    };
    let [service, shop, load] = ["service.name", "shop", "load"].map(&mut index_of);
    let resource = by_index.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes[0] = KeyValue {
        key: String::new(),
        value: by_text(shop),
        key_strindex: service,
    };
    by_index.dictionary.as_mut().unwrap().attribute_table[1].value = by_text(load);
    let expected = read(&plain).unwrap();
    assert!(collapsed(&expected[0]).starts_with("load;main;work "));
    let received = read(&by_index).unwrap();
    assert_eq!(received[0].attributes, expected[0].attributes);
    assert_eq!(collapsed(&received[0]), collapsed(&expected[0]));
    let resource = by_index.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes[0].key_strindex = 99;
    let error = read(&by_index).unwrap_err().to_string();
    assert!(
        error.contains("text 99 is outside of a table of "),
        "{error}"
    );
    let json = br#"{"resourceProfiles":[{"resource":{"attributes":[{"keyStrindex":1,
        "value":{"stringValueStrindex":2}}]},"scopeProfiles":[{"profiles":[{"samples":[]}]}]}],
        "dictionary":{"stringTable":["","service.name","shop"]}}"#;
    let received = otlp_profiles(json, OtlpEncoding::Json).unwrap();
    assert_eq!(received[0].attributes["service.name"], "shop");
}
