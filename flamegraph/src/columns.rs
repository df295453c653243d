//! A profile for the page: each function once, nodes as columns of small numbers.

use std::collections::BTreeSet;

use profiler_core::{Frame, FrameId, Profile, State};
use serde::ser::{SerializeMap as _, SerializeStruct as _};
use serde::{Serialize, Serializer};

use crate::json::kind_name;
use crate::prune::{NODES_MAX, prune};
use crate::symbols::portable_file;

/// In profiles of more than [`NODES_MAX`] nodes, subtrees below this share of the time are merged:
/// a fraction of a pixel on any screen.
const SHARE_LEAST: u64 = 100_000;

/// A profile in columns, embedded in a larger answer:
///
/// ```json
/// {"unit": "ns", "pruned": 0,
///  "functions": {"names": ["load", "main"], "kinds": ["task", "function"], "files": ["", "src/main.rs"],
///                "lines": [0, 0], "modules": ["", ""]},
///  "builds": [{"module": "/opt/app", "build_id": "ab12"}],
///  "parents": [1, 1], "numbers": [0, 1],
///  "self": {"cpu": {"nodes": [2], "ns": [5]}}}
/// ```
///
/// The parent of node `i` is `i - parents[i - 1]` (the root is 0 and not listed), and its function
/// is `numbers[i - 1]`. For each state with any weight, `nodes` has the distance of each weighted
/// node from the previous one, and `ns` the weights. `builds` are the programs and libraries of the
/// functions that have a build id. In a profile of more than 100,000 nodes,
/// subtrees below 1/100,000 of the time become leaves named `[pruned]`, and `pruned` is the number
/// of nodes removed; sums stay true.
#[derive(Clone, Debug)]
pub struct ProfileColumns {
    profile: Profile,
    pruned: usize,
}

impl ProfileColumns {
    /// Prunes a profile that is too large to send.
    #[must_use]
    pub fn new(profile: &Profile) -> ProfileColumns {
        ProfileColumns::bounded(profile, NODES_MAX)
    }

    fn bounded(profile: &Profile, nodes_max: usize) -> ProfileColumns {
        let nodes = profile.nodes().len();
        let kept = if nodes > nodes_max {
            prune(profile, profile.total().total_ns() / SHARE_LEAST)
        } else {
            profile.clone()
        };
        ProfileColumns {
            pruned: nodes.saturating_sub(kept.nodes().len()),
            profile: kept,
        }
    }
}

impl Serialize for ProfileColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nodes = self.profile.nodes();
        // Only frames in use: a filtered profile shares the symbols of the whole.
        let mut numbers = vec![u32::MAX; self.profile.symbols().frame_count() as usize];
        let mut frames = Vec::new();
        for node in nodes {
            let number = &mut numbers[node.frame.0 as usize];
            if *number == u32::MAX {
                *number = u32::try_from(frames.len()).expect("frames have 32-bit ids");
                frames.push(node.frame);
            }
        }
        let parents = (1u32..).zip(nodes).map(|(id, node)| id - node.parent.0);
        let of_nodes = nodes.iter().map(|node| numbers[node.frame.0 as usize]);
        let builds: BTreeSet<Build<'_>> = frames
            .iter()
            .map(|&id| self.profile.frame(id))
            .filter(|frame| !frame.build_id.is_empty())
            .map(|frame| Build {
                module: frame.module,
                build_id: frame.build_id,
            })
            .collect();
        let mut fields = serializer.serialize_struct("Columns", 7)?;
        fields.serialize_field("unit", "ns")?;
        fields.serialize_field("pruned", &self.pruned)?;
        fields.serialize_field(
            "functions",
            &Functions {
                profile: &self.profile,
                frames,
            },
        )?;
        fields.serialize_field("builds", &builds)?;
        fields.serialize_field("parents", &parents.collect::<Vec<_>>())?;
        fields.serialize_field("numbers", &of_nodes.collect::<Vec<_>>())?;
        fields.serialize_field("self", &States(&self.profile))?;
        fields.end()
    }
}

/// A program or library.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Build<'a> {
    module: &'a str,
    build_id: &'a str,
}

struct Functions<'a> {
    profile: &'a Profile,
    frames: Vec<FrameId>,
}

impl Functions<'_> {
    fn column<'a, T>(&'a self, pick: impl Fn(&Frame<&'a str>) -> T) -> Vec<T> {
        self.frames
            .iter()
            .map(|&id| pick(&self.profile.frame(id)))
            .collect()
    }
}

impl Serialize for Functions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut columns = serializer.serialize_struct("Functions", 5)?;
        columns.serialize_field("names", &self.column(|frame| frame.label()))?;
        columns.serialize_field("kinds", &self.column(|frame| kind_name(frame.kind)))?;
        columns.serialize_field("files", &self.column(|frame| portable_file(frame.file)))?;
        columns.serialize_field("lines", &self.column(|frame| frame.line))?;
        columns.serialize_field("modules", &self.column(|frame| frame.module))?;
        columns.end()
    }
}

/// The nodes with own weight in a state, and those weights.
struct States<'a>(&'a Profile);

#[derive(Serialize)]
struct Sparse {
    nodes: Vec<u32>,
    ns: Vec<u64>,
}

impl Serialize for States<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut states = serializer.serialize_map(None)?;
        for state in State::ALL {
            let mut column = Sparse {
                nodes: Vec::new(),
                ns: Vec::new(),
            };
            let mut last = 0;
            for (id, node) in (1u32..).zip(self.0.nodes()) {
                let ns = node.own.get(state);
                if ns > 0 {
                    column.nodes.push(id - last);
                    column.ns.push(ns);
                    last = id;
                }
            }
            if !column.ns.is_empty() {
                states.serialize_entry(state.name(), &column)?;
            }
        }
        states.end()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::testing::{from_rows, hostile_profiles, profile};

    fn written(columns: &ProfileColumns) -> Value {
        serde_json::to_value(columns).unwrap()
    }

    #[test]
    fn programs_and_libraries_with_a_build_id_are_listed_once() {
        let of_libc = Frame {
            module: "/lib/libc.so",
            ..Frame::function("read", "", 0)
        };
        let stack = vec![Frame::task("t"), of_app("main"), of_app("load"), of_libc];
        let columns = written(&ProfileColumns::new(&from_rows([(stack, State::Cpu, 5)])));
        assert_eq!(
            columns["builds"].to_string(),
            r#"[{"build_id":"ab12","module":"/opt/app"}]"#
        );
    }

    fn of_app(name: &str) -> Frame<&str> {
        Frame {
            module: "/opt/app",
            build_id: "ab12",
            ..Frame::function(name, "", 0)
        }
    }

    #[test]
    fn each_function_is_listed_once() {
        let columns = ProfileColumns::new(&profile("t;f cpu=1\nt;f;g lock=2\nt;g cpu=4"));
        let text = serde_json::to_string(&columns).unwrap();
        expect![[r#"{"unit":"ns","pruned":0,"functions":{"names":["t","f","g"],"kinds":["task","function","function"],"files":["","app/src/a.rs","app/src/a.rs"],"lines":[0,0,0],"modules":["","",""]},"builds":[],"parents":[1,1,1,3],"numbers":[0,1,2,2],"self":{"cpu":{"nodes":[2,2],"ns":[1,4]},"lock":{"nodes":[3],"ns":[2]}}}"#]]
        .assert_eq(&text);
        assert_eq!(
            written(&ProfileColumns::new(&Profile::default()))["parents"],
            serde_json::json!([])
        );
    }

    #[test]
    fn narrow_subtrees_become_one_leaf_and_are_counted() {
        let all = profile("t;big cpu=1000000\nt;a cpu=2\nt;b cpu=3");
        let columns = written(&ProfileColumns::bounded(&all, 3));
        assert_eq!(columns["pruned"], 1);
        assert_eq!(
            columns["functions"]["names"],
            serde_json::json!(["t", "[pruned]", "big"])
        );
        assert_eq!(
            columns["self"]["cpu"]["ns"],
            serde_json::json!([5, 1000000])
        );
        assert_eq!(written(&ProfileColumns::bounded(&all, 4))["pruned"], 0);
    }

    proptest! {
        #[test]
        fn columns_equal_the_table_of_nodes(all in hostile_profiles()) {
            let columns = written(&ProfileColumns::new(&all));
            let number = |value: &Value| value.as_u64().unwrap();
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let mut own = vec![[0u64; State::ALL.len()]; all.nodes().len() + 1];
            for (at, state) in State::ALL.into_iter().enumerate() {
                let column = &columns["self"][state.name()];
                let mut id = 0;
                for (gap, ns) in list(&column["nodes"]).iter().zip(list(&column["ns"])) {
                    id += usize::try_from(number(gap)).unwrap();
                    own[id][at] = number(&ns);
                }
            }
            for (i, node) in all.nodes().iter().enumerate() {
                let id = i as u64 + 1;
                prop_assert_eq!(id - number(&columns["parents"][i]), u64::from(node.parent.0));
                let function = usize::try_from(number(&columns["numbers"][i])).unwrap();
                let frame = all.frame(node.frame);
                prop_assert_eq!(&columns["functions"]["names"][function], &Value::from(frame.label()));
                prop_assert_eq!(&columns["functions"]["files"][function], &Value::from(portable_file(frame.file)));
                prop_assert_eq!(own[i + 1], State::ALL.map(|state| node.own.get(state)));
            }
        }
    }
}
