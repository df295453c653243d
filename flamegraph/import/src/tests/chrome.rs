//! Traces whose events have CPU profiles in parts: as Chrome's Performance panel and Node.js save them.

use serde_json::{Value, json};

use super::*;

fn frame(name: &str, line: i64) -> Value {
    json!({ "functionName": name, "url": "file:///a.js", "lineNumber": line, "columnNumber": 3, "scriptId": "7" })
}

fn event(name: &str, id: &str, tid: u32, data: Value) -> Value {
    json!({ "args": { "data": data }, "cat": "disabled-by-default-v8.cpu_profiler", "id": id, "name": name,
            "ph": "P", "pid": 5, "tid": tid, "ts": 1 })
}

/// Two threads, whose profiles start at different times and come in parts.
fn trace() -> Vec<Value> {
    let nodes = json!([
        { "id": 1, "callFrame": { "functionName": "(root)", "url": "" } },
        { "id": 2, "callFrame": { "functionName": "(idle)", "url": "" }, "parent": 1 },
        { "id": 3, "callFrame": frame("main", 4), "parent": 1 },
    ]);
    vec![
        json!({ "name": "thread_name", "ph": "M", "pid": 5, "tid": 8, "args": { "name": "CrRendererMain" } }),
        json!({ "name": "RunTask", "ph": "X", "pid": 5, "tid": 8, "ts": 3, "dur": 9, "args": {} }),
        json!({ "name": "Profile", "ph": "X", "pid": 6, "tid": 1, "args": { "other": 1 } }),
        event("Profile", "0x1", 8, json!({ "startTime": 1_000_000 })),
        event(
            "ProfileChunk",
            "0x1",
            99,
            json!({
            "cpuProfile": { "nodes": nodes, "samples": [3, 2] }, "timeDeltas": [0, 300], "lines": [4, 0] }),
        ),
        event("Profile", "0x2", 9, json!({ "startTime": 1_500_000 })),
        event(
            "ProfileChunk",
            "0x1",
            99,
            json!({
            "cpuProfile": { "nodes": [{ "id": 4, "callFrame": frame("work", 9), "parent": 3 }], "samples": [4, 4] },
            "timeDeltas": [200, 500] }),
        ),
        event(
            "ProfileChunk",
            "0x2",
            99,
            json!({
            "cpuProfile": { "nodes": [{ "id": 1, "callFrame": frame("worker", 1) }], "samples": [1, 1] },
            "timeDeltas": [10, 700_000], "endTime": 2_300_000 }),
        ),
        event("ProfileChunk", "0x1", 99, json!({ "endTime": 1_001_500 })),
    ]
}

#[test]
fn a_trace_has_a_thread_for_each_profile() {
    let array = Value::from(trace()).to_string();
    check(
        &array,
        &ImportOptions::default(),
        expect![[r#"
            chrome of 1300000000 ns
            0 s (idle) sleep CrRendererMain/8 200000
            0 s main cpu CrRendererMain/8 300000
            0 s work cpu CrRendererMain/8 1000000
            0 s worker cpu /9 700000000
            1 s worker cpu /9 99990000
            imported;(idle) 200000
            imported;main 300000
            imported;main;work 1000000
            imported;worker 799990000
        "#]],
    );
    let object =
        json!({ "metadata": { "source": "DevTools" }, "traceEvents": trace() }).to_string();
    assert_eq!(of(object).profile(), of(array).profile());
}

/// Any division of a profile into events is the profile that a `.cpuprofile` has.
#[derive(Clone, Debug)]
struct Model {
    /// By node after the root: its parent, before it.
    parents: Vec<usize>,
    samples: Vec<usize>,
    deltas: Vec<i64>,
    chunk: usize,
}

fn models() -> impl Strategy<Value = Model> {
    let parents = prop::collection::vec(any::<prop::sample::Index>(), 1..10);
    let samples = prop::collection::vec((any::<prop::sample::Index>(), -20..5_000_i64), 1..30);
    (parents, samples, 1..8_usize).prop_map(|(parents, samples, chunk)| {
        let parents: Vec<_> = parents
            .into_iter()
            .enumerate()
            .map(|(at, parent)| parent.index(at + 1))
            .collect();
        let nodes = parents.len() + 1;
        Model {
            samples: samples.iter().map(|(node, _)| node.index(nodes)).collect(),
            deltas: samples.iter().map(|(_, delta)| *delta).collect(),
            parents,
            chunk,
        }
    })
}

impl Model {
    fn node(&self, at: usize) -> Value {
        let mut node = json!({ "id": at, "callFrame": frame(&format!("f{at}"), at as i64) });
        if let Some(above) = at.checked_sub(1) {
            node["parent"] = json!(self.parents[above]);
        }
        node
    }

    fn nodes(&self) -> Vec<Value> {
        (0..=self.parents.len()).map(|at| self.node(at)).collect()
    }

    /// The time that DevTools shows: each sample until the next one, the last until the end.
    fn time_us(&self) -> i64 {
        let mut at = 0;
        let mut newest = self.deltas[0].max(0);
        let first = newest;
        for delta in &self.deltas {
            at += delta;
            newest = newest.max(at);
        }
        newest.max(self.end()) - first
    }

    fn end(&self) -> i64 {
        let sum: i64 = self.deltas.iter().sum();
        sum.max(0) + 700
    }
}

proptest! {
    #[test]
    fn parts_of_a_profile_are_the_whole(model in models(), is_reversed in any::<bool>()) {
        let start = 5_000_i64;
        let end = start + model.end();
        let file = json!({
            "nodes": model.nodes(), "startTime": start, "endTime": end,
            "samples": model.samples, "timeDeltas": model.deltas,
        });
        let whole = import(file.to_string().as_bytes(), &ImportOptions::default());
        let mut events = vec![event("Profile", "0x7", 8, json!({ "startTime": start }))];
        let node_chunks = model.nodes();
        for (at, samples) in model.samples.chunks(model.chunk).enumerate() {
            let deltas = &model.deltas[at * model.chunk..][..samples.len()];
            // All nodes come before their first sample.
            let nodes = if at == 0 { node_chunks.clone() } else { Vec::new() };
            events.push(event("ProfileChunk", "0x7", 8, json!({
                "cpuProfile": { "nodes": nodes, "samples": samples }, "timeDeltas": deltas })));
        }
        events.push(event("ProfileChunk", "0x7", 8, json!({ "endTime": end })));
        for (at, event) in events.iter_mut().enumerate() {
            event["ts"] = json!(at);
        }
        // Programs write events in the order of their buffers.
        if is_reversed {
            events.reverse();
        }
        let parts = import(Value::from(events).to_string().as_bytes(), &ImportOptions::default());
        let whole = whole.unwrap();
        let mut parts = parts.unwrap();
        prop_assert_eq!(whole.total_ns(), model.time_us() as u64 * 1_000);
        prop_assert_eq!(parts.profile(), whole.profile());
        parts.duration_ns = whole.duration_ns;
        prop_assert_eq!(parts.total_ns(), whole.total_ns());
    }
}

/// As Node.js writes with `--cpu-prof` and a trace.
#[test]
fn two_profiles_of_a_thread_at_one_time_count_once() {
    let again = |start: u32| {
        let nodes = json!([{ "id": 1, "callFrame": frame("again", 1) }]);
        vec![
            event("Profile", "0x3", 9, json!({ "startTime": start })),
            event(
                "ProfileChunk",
                "0x3",
                99,
                json!({
                "cpuProfile": { "nodes": nodes, "samples": [1, 1] }, "timeDeltas": [0, 500] }),
            ),
        ]
    };
    let [once, later, both] = [Vec::new(), again(2_300_000), again(1_600_000)]
        .map(|more| of(Value::from([trace(), more].concat()).to_string()));
    assert_eq!(later.total_ns(), once.total_ns() + 500_000);
    assert_eq!(both.profile(), once.profile());
    let note = "of profiles of one thread at one time, only the first counts";
    assert_eq!(both.notes, [note]);
}

#[test]
fn damaged_parts_are_named() {
    let rejected = |data: Value| {
        let events = Value::from(vec![event("ProfileChunk", "0x1", 8, data)]).to_string();
        let error = import(events.as_bytes(), &ImportOptions::default());
        error.unwrap_err().to_string()
    };
    let nodes = json!({ "cpuProfile": { "nodes": 5 } });
    assert!(rejected(nodes).starts_with("invalid chrome: event \"ProfileChunk\": invalid type"));
    let unequal = json!({ "cpuProfile": { "samples": [1, 1] }, "timeDeltas": [5] });
    let error = rejected(unequal);
    assert!(
        error.contains("there are 2 samples and 1 time deltas"),
        "{error}"
    );
}

#[test]
fn time_deltas_that_are_written_twice_count_once() {
    let once = of(Value::from(trace()).to_string());
    let mut events = trace();
    for event in &mut events {
        let deltas = event.pointer("/args/data/timeDeltas").cloned();
        let tree = event.pointer_mut("/args/data/cpuProfile");
        if let Some((tree, deltas)) = tree.zip(deltas) {
            tree["timeDeltas"] = deltas;
        }
    }
    assert_eq!(
        of(Value::from(events).to_string()).profile(),
        once.profile()
    );
}

/// The event of a profile may have another clock than its tree.
#[test]
fn the_end_of_a_tree_belongs_to_its_own_start() {
    let file = |times: Value| {
        let mut tree = times;
        tree["nodes"] = json!([{ "id": 1, "callFrame": frame("main", 1) }]);
        tree["samples"] = json!([1, 1]);
        let events = vec![
            event("Profile", "0x1", 8, json!({ "startTime": 7_000_000 })),
            event(
                "ProfileChunk",
                "0x1",
                8,
                json!({ "cpuProfile": tree, "timeDeltas": [10, 500] }),
            ),
        ];
        of(Value::from(events).to_string())
    };
    let other_clock =
        file(json!({ "startTime": 470_029_996_751_u64, "endTime": 470_029_997_351_u64 }));
    assert_eq!(other_clock.total_ns(), 590_000);
    let same_clock = file(json!({ "endTime": 7_000_600 }));
    assert_eq!(same_clock.total_ns(), 590_000);
    assert_eq!(file(json!({})).total_ns(), 500_000);
}

/// A program that ends early leaves the list of its events open.
#[test]
fn a_list_without_an_end_is_whole() {
    let file = Value::from(trace()).to_string();
    let expected = of(&file).profile();
    let open = file.strip_suffix(']').unwrap();
    for end in ["", ",", ",\n\n", "\n"] {
        assert_eq!(of(format!("{open}{end}")).profile(), expected, "{end:?}");
    }
    let cut = &file[..file.len() - 9];
    let error = import(cut.as_bytes(), &ImportOptions::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("invalid chrome: EOF"),
        "{error}"
    );
}

/// A trace whose buffer was full has lost events.
#[test]
fn lost_parts_of_a_trace_lose_no_time_of_others() {
    let whole = of(Value::from(trace()).to_string());
    let without_nodes: Vec<Value> = trace()
        .into_iter()
        .map(|mut event| {
            let nodes = event.pointer_mut("/args/data/cpuProfile/nodes");
            if let Some(nodes) = nodes.and_then(Value::as_array_mut) {
                nodes.retain(|node| node["id"] != 3);
            }
            event
        })
        .collect();
    let imported = of(Value::from(without_nodes).to_string());
    assert_eq!(imported.total_ns(), whole.total_ns());
    assert_eq!(
        imported.notes,
        ["nodes that the trace lacks are [truncated]"]
    );
    let text = collapsed(&imported.profile());
    assert!(
        text.contains("imported;[truncated] 300000\nimported;[truncated];work 1000000\n"),
        "{text}"
    );
    let mut without_data = trace();
    without_data.push(event("ProfileChunk", "0x1", 99, Value::Null));
    assert_eq!(
        of(Value::from(without_data).to_string()).profile(),
        whole.profile()
    );
    let without_start: Vec<Value> = trace()
        .into_iter()
        .filter(|event| event["name"] != "Profile" || event["id"] != "0x2")
        .collect();
    let imported = of(Value::from(without_start).to_string());
    assert_eq!(imported.total_ns(), 1_500_000);
    assert_eq!(
        imported.notes,
        ["samples of profiles whose start the trace lacks were skipped: 2"]
    );
}

#[test]
fn traces_with_samples_of_another_kind_are_named() {
    let file = json!({ "traceEvents": [], "samples": [{ "cpu": 0, "sf": 1, "ts": 5 }], "stackFrames": {} });
    let error = import(file.to_string().as_bytes(), &ImportOptions::default()).unwrap_err();
    let expected = "this is a trace without a CPU profile, which is not read";
    assert!(error.to_string().starts_with(expected), "{error}");
}
