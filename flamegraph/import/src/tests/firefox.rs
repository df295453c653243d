//! Files of every layout that profiler.firefox.com has saved since version 55, made from one model.

use serde_json::{Value, json};

use super::*;

/// Functions of a file: each stack has one more than its prefix.
#[derive(Clone, Debug)]
struct Model {
    /// By stack: its prefix, and the function.
    stacks: Vec<(Option<usize>, usize)>,
    /// By function: its line, and whether it is in the library.
    functions: Vec<(u32, bool)>,
    /// By sample: its stack.
    samples: Vec<Option<usize>>,
}

fn models() -> impl Strategy<Value = Model> {
    let functions = prop::collection::vec((1..99_u32, any::<bool>()), 1..6);
    let stacks = prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        1..12,
    );
    let samples = prop::collection::vec(
        prop::option::weighted(0.9, any::<prop::sample::Index>()),
        1..12,
    );
    (functions, stacks, samples).prop_map(|(functions, stacks, samples)| {
        let count = stacks.len();
        let stacks = stacks
            .into_iter()
            .enumerate()
            .map(
                |(index, (prefix, function)): (
                    usize,
                    (prop::sample::Index, prop::sample::Index),
                )| {
                    let prefix = prefix
                        .index(count)
                        .checked_sub(1)
                        .filter(|prefix| *prefix < index);
                    (prefix, function.index(functions.len()))
                },
            )
            .collect();
        let samples = samples
            .into_iter()
            .map(|sample| sample.map(|at| at.index(count)))
            .collect();
        Model {
            stacks,
            functions,
            samples,
        }
    })
}

impl Model {
    fn file(&self, version: u32) -> String {
        let functions = 0..self.functions.len();
        let names: Vec<String> = functions.clone().map(|n| format!("function_{n}")).collect();
        let strings: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .chain(["src/a.rs"])
            .collect();
        let file = vec![self.functions.len(); self.functions.len()];
        let libs: Vec<i64> = self
            .functions
            .iter()
            .map(|(_, is_in)| i64::from(*is_in) - 1)
            .collect();
        let lines: Vec<u32> = self.functions.iter().map(|(line, _)| *line).collect();
        let indexes: Vec<usize> = functions.collect();
        let depth = vec![0; indexes.len()];
        let mut func_table = json!({ "name": indexes, "resource": libs });
        let mut frame_table = json!({ "func": indexes, "line": lines, "inlineDepth": depth });
        let mut shared = json!({});
        if version < 58 {
            func_table["fileName"] = json!(file);
        } else {
            func_table["source"] = json!(vec![0; indexes.len()]);
            shared["sources"] = json!({ "filename": [file[0]], "id": [null], "length": 1 });
        }
        let mut resource_table = json!({ "name": [0], "host": [null], "type": [1] });
        if version < 70 {
            resource_table["lib"] = json!([0]);
        } else {
            frame_table["lib"] = json!(libs);
        }
        let frames: Vec<usize> = self.stacks.iter().map(|(_, function)| *function).collect();
        let mut stack_table = json!({ "frame": frames, "length": frames.len() });
        if version < 66 {
            let prefixes: Vec<_> = self.stacks.iter().map(|(prefix, _)| *prefix).collect();
            stack_table["prefix"] = json!(prefixes);
        } else {
            let distances: Vec<_> = self
                .stacks
                .iter()
                .enumerate()
                .map(|(index, (prefix, _)): (usize, &(Option<usize>, usize))| {
                    prefix.map_or(0, |prefix| index - prefix)
                })
                .collect();
            stack_table["prefixOffset"] = json!(distances);
        }
        let samples = json!({
            "stack": self.samples, "time": (0..self.samples.len()).collect::<Vec<_>>(),
            "weight": null, "weightType": "samples", "length": self.samples.len(),
        });
        let mut thread = json!({ "name": "T", "tid": 9, "samples": samples });
        let string_owner = if version < 56 {
            &mut thread
        } else {
            &mut shared
        };
        string_owner["stringArray"] = json!(strings);
        let table_owner = if version < 60 {
            &mut thread
        } else {
            &mut shared
        };
        for (name, table) in [
            ("stackTable", stack_table),
            ("frameTable", frame_table),
            ("funcTable", func_table),
            ("resourceTable", resource_table),
        ] {
            table_owner[name] = table;
        }
        let file: Value = json!({
            "meta": { "interval": 1, "startTime": 0, "product": "app", "version": 30, "preprocessedProfileVersion": version },
            "libs": [{ "path": "/opt/app", "codeId": "ab12" }],
            "shared": shared,
            "threads": [thread],
        });
        file.to_string()
    }
}

proptest! {
    #[test]
    fn every_version_has_the_same_stacks_lines_and_modules(model in models()) {
        let expected = of(model.file(55)).profile();
        prop_assert_eq!(expected.total().total_ns(), model.samples.len() as u64 * 1_000_000);
        for version in 56..=70 {
            let imported = of(model.file(version));
            prop_assert_eq!(&imported.profile(), &expected, "version {}", version);
            prop_assert_eq!(imported.notes, [""; 0]);
        }
    }
}

#[test]
fn stacks_files_and_libraries_are_where_the_version_has_them() {
    let model = Model {
        stacks: vec![(None, 0), (Some(0), 1), (Some(0), 2), (Some(2), 1)],
        functions: vec![(3, true), (5, false), (7, true)],
        samples: vec![Some(3), Some(1), Some(1), None],
    };
    for version in [55, 70] {
        let imported = of(model.file(version));
        let profile = imported.profile();
        let text = profile.nodes().iter().map(|node| {
            let Frame {
                function,
                file,
                line,
                module,
                ..
            } = profile.frame(node.frame);
            format!(
                "{function} {file}:{line} {module} {}\n",
                node.own.total_ns()
            )
        });
        expect![[r#"
            imported :0  1000000
            function_0 src/a.rs:3 /opt/app 0
            function_1 src/a.rs:5  2000000
            function_2 src/a.rs:7 /opt/app 0
            function_1 src/a.rs:5  1000000
        "#]]
        .assert_eq(&text.collect::<String>());
    }
}

#[test]
fn a_newer_version_is_noted_and_what_is_not_read_is_named() {
    let model = Model {
        stacks: vec![(None, 0)],
        functions: vec![(1, true)],
        samples: vec![Some(0)],
    };
    let newer = of(model.file(71));
    assert_eq!(
        newer.notes,
        ["version 71 is newer than those that are known: up to 70"]
    );
    let raw = json!({ "meta": { "version": 30, "interval": 1 }, "libs": [], "threads": ["{}"] });
    let error = import(raw.to_string().as_bytes(), &ImportOptions::default())
        .unwrap_err()
        .to_string();
    let expected =
        "; it is of the browser's own format: open it in profiler.firefox.com and save it there";
    assert!(error.ends_with(expected), "{error}");
    let before = model
        .file(66)
        .replace("\"prefixOffset\":[0]", "\"prefixOffset\":[1]");
    let error = import(before.as_bytes(), &ImportOptions::default())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "invalid firefox: stack 0 has its prefix 1 before it");
}

#[test]
fn weights_that_are_no_time_are_refused_or_skipped() {
    let model = Model {
        stacks: vec![(None, 0)],
        functions: vec![(1, true)],
        samples: vec![Some(0), Some(0)],
    };
    let of_type = |kind: &str| {
        let mut file: Value = serde_json::from_str(&model.file(60)).unwrap();
        file["threads"][0]["samples"]["weightType"] = json!(kind);
        file["threads"][0]["samples"]["weight"] = json!([4096, 512]);
        file
    };
    assert_eq!(
        of(of_type("tracing-ms").to_string()).total_ns(),
        4_608_000_000
    );
    assert_eq!(of(of_type("samples").to_string()).total_ns(), 4_608_000_000);
    let error = import(
        of_type("bytes").to_string().as_bytes(),
        &ImportOptions::default(),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "no type of sample is time; the firefox profile has bytes"
    );
    let mut mixed = of_type("bytes");
    let time: Value = serde_json::from_str(&model.file(60)).unwrap();
    let threads = mixed["threads"].as_array_mut().unwrap();
    threads.push(time["threads"][0].clone());
    let mixed = of(mixed.to_string());
    assert_eq!(mixed.total_ns(), 2_000_000);
    assert_eq!(
        mixed.notes,
        ["threads whose samples are bytes were skipped"]
    );
    let mut without_interval: Value = serde_json::from_str(&model.file(60)).unwrap();
    without_interval["meta"]["interval"] = json!(0);
    let error = import(
        without_interval.to_string().as_bytes(),
        &ImportOptions::default(),
    );
    let expected = "invalid firefox: meta.interval is not the time of a sample; --interval sets it";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn libraries_of_threads_are_those_of_versions_up_to_40() {
    let model = Model {
        stacks: vec![(None, 0)],
        functions: vec![(1, true)],
        samples: vec![Some(0)],
    };
    let expected = of(model.file(55)).profile();
    let mut file: Value = serde_json::from_str(&model.file(55)).unwrap();
    file["meta"]["preprocessedProfileVersion"] = json!(40);
    file["threads"][0]["libs"] = file["libs"].take();
    file["libs"] = json!([]);
    assert_eq!(of(file.to_string()).profile(), expected);
}

/// Times since the start of the program, of the machine (with the same clock for processes), and of 1970.
#[test]
fn a_profile_begins_with_its_first_sample() {
    let model = Model {
        stacks: vec![(None, 0)],
        functions: vec![(1, true)],
        samples: vec![Some(0), Some(0)],
    };
    let start_ms = 1_700_000_000_000.0;
    for [first_ms, clock_ms, started_ms] in [
        [200.0, 0.0, start_ms],
        [864_000_500.0, 0.0, start_ms + 864_000_000.0],
        [864_000_500.0, 864_000_400.0, start_ms],
        [start_ms + 5_700.0, 0.0, start_ms + 5_000.0],
    ] {
        let mut file: Value = serde_json::from_str(&model.file(60)).unwrap();
        file["meta"]["startTime"] = json!(start_ms);
        let thread = &mut file["threads"][0];
        thread["processStartupTime"] = json!(clock_ms);
        let samples = thread["samples"].as_object_mut().unwrap();
        samples.remove("timeDeltas");
        samples.insert("time".to_owned(), json!([first_ms, first_ms + 1.0]));
        let imported = of(file.to_string());
        let started_at = Timestamp::from_unix_ns(started_ms as i64 * 1_000_000);
        assert_eq!(imported.started_at, Some(started_at), "{first_ms}");
        assert!(imported.duration_ns < 1_000_000_000, "{first_ms}");
        assert_eq!(imported.samples[0].second, 0);
    }
}
