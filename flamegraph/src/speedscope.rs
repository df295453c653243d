//! Profiles in the format of speedscope, <https://www.speedscope.app>.

use std::collections::HashMap;

use profiler_core::profile::ProfileNode;
use profiler_core::{Frame, FrameId, Profile, State};
use serde::Serialize;

use crate::export::ExportOptions;
use crate::prune::{bounded, own_ns};
use crate::symbols::portable_file;
use crate::text::printable;

/// Largest list of stacks in bytes; beyond it, small subtrees become `[pruned]`.
const STACKS_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a frame in a stack: numbers below 100,000, and a comma.
const FRAME_BYTES: usize = 6;

/// Writes a file for speedscope. It has two profiles in nanoseconds: `wall`, time over all states, and
/// `cpu`. A profile without time on a CPU has `wall` alone.
///
/// Stacks begin with their task. JSON's numbers are exact up to 2^53 ns, which is 104 days of thread
/// time in one stack.
#[must_use]
pub fn speedscope(profile: &Profile, options: &ExportOptions) -> String {
    let profile = bounded(profile, usize::MAX, STACKS_BYTES_MAX, |_| FRAME_BYTES);
    let frames = Frames::of(&profile);
    let mut profiles = vec![SampledProfile::new("wall", &profile, &frames, own_ns)];
    let total = profile.total();
    if total.get(State::Cpu) > 0 {
        profiles.push(SampledProfile::new(
            "cpu",
            &profile,
            &frames,
            |node: &ProfileNode| node.own.get(State::Cpu),
        ));
    }
    let name = match &options.subtitle {
        Some(subtitle) => format!("{}: {subtitle}", options.title),
        None => options.title.clone(),
    };
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("emberline ", env!("CARGO_PKG_VERSION")),
        name: printable(&name).into_owned(),
        active_profile_index: 0,
        shared: Shared {
            frames: frames.list,
        },
        profiles,
    };
    serde_json::to_string(&file).expect("memory takes texts and numbers")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    active_profile_index: u32,
    shared: Shared,
    profiles: Vec<SampledProfile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct SharedFrame {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(line: &u32) -> bool {
    *line == 0
}

impl SharedFrame {
    fn new(frame: &Frame<&str>) -> SharedFrame {
        SharedFrame {
            name: printable(&frame.label()).into_owned(),
            file: printable(portable_file(frame.file)).into_owned(),
            line: frame.line,
        }
    }
}

/// Frames in use, each once: speedscope takes equal frames for one function.
struct Frames {
    list: Vec<SharedFrame>,
    /// Number in the list, by the profile's number.
    numbers: Vec<u32>,
}

impl Frames {
    fn of(profile: &Profile) -> Frames {
        let mut known: HashMap<SharedFrame, u32> = HashMap::new();
        let mut list = Vec::new();
        let frames = (0..profile.symbols().frame_count()).map(|id| profile.frame(FrameId(id)));
        let numbers = frames
            .map(|frame| {
                let shared = SharedFrame::new(&frame);
                *known.entry(shared).or_insert_with_key(|shared| {
                    list.push(shared.clone());
                    u32::try_from(list.len() - 1).expect("frames have 32-bit ids")
                })
            })
            .collect();
        Frames { list, numbers }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Outermost first.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

impl SampledProfile {
    /// One sample for each node with weight.
    fn new(
        name: &'static str,
        profile: &Profile,
        frames: &Frames,
        weight: impl Fn(&ProfileNode) -> u64,
    ) -> SampledProfile {
        let mut samples = Vec::new();
        let mut weights = Vec::new();
        let mut stack: Vec<u32> = Vec::new();
        let depths = crate::prune::depths(profile);
        for (node, depth) in profile.nodes().iter().zip(&depths[1..]) {
            // Nodes come in depth-first order.
            stack.truncate(*depth as usize - 1);
            stack.push(frames.numbers[node.frame.0 as usize]);
            let weight_ns = weight(node);
            if weight_ns > 0 {
                samples.push(stack.clone());
                weights.push(weight_ns);
            }
        }
        let end_value = weights
            .iter()
            .fold(0, |sum: u64, weight| sum.saturating_add(*weight));
        SampledProfile {
            kind: "sampled",
            name,
            unit: "nanoseconds",
            start_value: 0,
            end_value,
            samples,
            weights,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::testing::{deep_profile, hostile_profiles, profile};

    fn options() -> ExportOptions {
        ExportOptions {
            title: "load".to_owned(),
            ..ExportOptions::default()
        }
    }

    fn parsed(profile: &Profile) -> Value {
        serde_json::from_str(&speedscope(profile, &options())).unwrap()
    }

    #[test]
    fn frames_are_shared_and_each_weighted_node_is_a_sample() {
        let version = concat!("emberline ", env!("CARGO_PKG_VERSION"));
        let file = speedscope(
            &profile("t;f:3 cpu=5\nt;f:3;g lock=2\nu;g cpu=4"),
            &options(),
        );
        expect![[r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"EXPORTER","name":"load","activeProfileIndex":0,"shared":{"frames":[{"name":"t"},{"name":"f","file":"app/src/a.rs","line":3},{"name":"g","file":"app/src/a.rs"},{"name":"u"}]},"profiles":[{"type":"sampled","name":"wall","unit":"nanoseconds","startValue":0,"endValue":11,"samples":[[0,1],[0,1,2],[3,2]],"weights":[5,2,4]},{"type":"sampled","name":"cpu","unit":"nanoseconds","startValue":0,"endValue":9,"samples":[[0,1],[3,2]],"weights":[5,4]}]}"#]]
        .assert_eq(&file.replace(version, "EXPORTER"));
    }

    #[test]
    fn an_empty_profile_has_no_samples_and_no_second_profile() {
        let file = parsed(&Profile::default());
        assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
        assert_eq!(file["profiles"][0]["samples"], serde_json::json!([]));
    }

    #[test]
    fn the_deepest_stack_and_long_names_are_written() {
        let file = parsed(&deep_profile(1_000));
        assert_eq!(
            file["profiles"][0]["samples"][0].as_array().unwrap().len(),
            1_000
        );
        let file = parsed(&profile(&format!(
            "t;{} cpu=1",
            "\u{1b}\"\\".repeat(34_000)
        )));
        let name = file["shared"]["frames"][1]["name"].as_str().unwrap();
        assert!(name.len() > 100_000 && !name.contains(char::is_control));
    }

    proptest! {
        #[test]
        fn weights_sum_to_the_profile(all in hostile_profiles()) {
            let file = parsed(&all);
            let total = all.total();
            for (at, expected) in [(0, total.total_ns()), (1, total.get(State::Cpu))] {
                let profile = &file["profiles"][at];
                let weights = profile["weights"].as_array().cloned().unwrap_or_default();
                let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
                prop_assert_eq!(sum, expected);
                prop_assert_eq!(profile["endValue"].as_u64().unwrap_or(0), expected);
                let samples = profile["samples"].as_array().cloned().unwrap_or_default();
                prop_assert_eq!(samples.len(), weights.len());
                let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
                let mut numbers = samples.iter().flat_map(|sample| sample.as_array().unwrap());
                prop_assert!(numbers.all(|number| number.as_u64().unwrap() < frames));
            }
        }
    }
}
