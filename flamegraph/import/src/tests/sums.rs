//! Damaged and changed files of every format: what is still accepted has the sum of a second reading.

use super::*;
use crate::testing::sum_ns;

const PERF: &str = "app 9 1.000000: 10100000 cpu-clock:\n\t1f work+0x1 (/opt/app)\n\t2f main+0x1 (/opt/app)\n\n\
                    \x20    app 9 1.010100: 10000 cpu-clock:\n\t2f main+0x1 (/opt/app)\n";
const CHROME: &str = r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)","url":""},"children":[2]},
{"id":2,"callFrame":{"functionName":"work","url":"app.js","lineNumber":3},"hitCount":2}],
"startTime":1000,"endTime":3000,"samples":[2,2,1],"timeDeltas":[100,1000,250]}"#;
const SPEEDSCOPE: &str = r#"{"shared":{"frames":[{"name":"main"},{"name":"work"}]},"profiles":[
{"type":"sampled","name":"t","unit":"milliseconds","samples":[[0,1],[0]],"weights":[15.5,5]},
{"type":"sampled","name":"u","unit":"none","samples":[[0]],"weights":[3]}]}"#;
const EVENTS: &str = r#"{"shared":{"frames":[{"name":"main"},{"name":"work"}]},"profiles":[{"type":"evented",
"name":"t","unit":"microseconds","events":[{"type":"O","at":1.5,"frame":0},{"type":"O","at":3,"frame":1},
{"type":"C","at":7,"frame":1},{"type":"C","at":9,"frame":0},{"type":"O","at":11,"frame":1},{"type":"C","at":12,"frame":1}]}]}"#;
const FIREFOX: &str = r#"{"meta":{"interval":2.5},"threads":[{"name":"t","samples":{"stack":[0,1,null],"weight":[1,2,3],
"weightType":"samples"},"stackTable":{"frame":[0,0],"prefix":[null,0]},"frameTable":{"func":[0]},"funcTable":{"name":[0]},
"stringArray":["f"]},{"name":"u","samples":{"stack":[0]},"stackTable":{"frame":[0],"prefix":[null]},
"frameTable":{"func":[0]},"funcTable":{"name":[0]},"stringArray":["f"]}]}"#;

fn seeds() -> Vec<(ImportFormat, Vec<u8>)> {
    use flamegraph::messages::pprof as proto;
    use prost::Message as _;
    let message = proto::Profile {
        sample_type: vec![proto::ValueType { kind: 1, unit: 2 }],
        string_table: ["", "cpu", "milliseconds"].map(str::to_owned).to_vec(),
        location: vec![proto::Location {
            id: 1,
            ..Default::default()
        }],
        sample: [5, 200, 70_000]
            .map(|value| proto::Sample {
                location_id: vec![1],
                value: vec![value],
                label: Vec::new(),
            })
            .to_vec(),
        ..Default::default()
    };
    vec![
        (ImportFormat::Pprof, message.encode_to_vec()),
        (ImportFormat::Collapsed, b"a;b 31.25\n# c 7\na 6\n".to_vec()),
        (
            ImportFormat::Collapsed,
            b"task;a 30000000\ntask;b 10000\n".to_vec(),
        ),
        (ImportFormat::Perf, PERF.into()),
        (ImportFormat::Speedscope, SPEEDSCOPE.into()),
        (ImportFormat::Speedscope, EVENTS.into()),
        (ImportFormat::Firefox, FIREFOX.into()),
        (ImportFormat::Chrome, CHROME.into()),
    ]
}

fn check(format: ImportFormat, content: &[u8]) -> bool {
    let options = ImportOptions {
        format: Some(format),
        ..ImportOptions::default()
    };
    let Ok(imported) = import(content, &options) else {
        return false;
    };
    if let Some(sum) = sum_ns(content, format) {
        let text = String::from_utf8_lossy(content);
        assert_eq!(u128::from(imported.total_ns()), sum, "{format}: {text}");
    }
    true
}

#[test]
fn both_readings_cover_each_format() {
    for (format, seed) in seeds() {
        assert!(sum_ns(&seed, format).is_some_and(|sum| sum > 0), "{format}");
        assert!(check(format, &seed), "{format}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn changed_files_have_the_sum_of_a_second_reading(
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"0123456789.-; \n\t:,e".to_vec()), 0..3_u8), 1..4),
    ) {
        let mut seeds = seeds();
        let (format, mut content) = seeds.swap_remove(seed.index(seeds.len()));
        for (at, byte, kind) in changes {
            let at = at.index(content.len());
            match kind {
                0 => content[at] = byte,
                1 => content.insert(at, byte),
                _ => drop(content.remove(at)),
            }
        }
        check(format, &content);
    }
}
