//! Collapsed stacks of every program that writes them: weights of any unit, comments, and names that stay whole.

use super::*;

fn with_unit(unit: CollapsedUnit) -> ImportOptions {
    ImportOptions {
        unit: Some(unit),
        ..ImportOptions::default()
    }
}

fn rejected(file: &str) -> String {
    let error = import(file.as_bytes(), &ImportOptions::default());
    error.unwrap_err().to_string()
}

/// A line: its frames, its weight in hundredths, and what is around it.
#[derive(Clone, Debug)]
struct Line {
    frames: Vec<&'static str>,
    hundredths: u64,
    separator: char,
    before: &'static str,
    end: &'static str,
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let names = [
        "main",
        "operator()(int) const",
        "<impl Fn<(A,)> for F>::call",
        "[libc.so.6]",
        "/tmp/a.so (deleted)",
        "#<Class:App>",
        "a b c",
        "re:x",
        "päckchen",
        "std::map<int, char [4]>::operator[]",
    ];
    let frames = prop::collection::vec(prop::sample::select(names.to_vec()), 1..5);
    let before = prop::sample::select(vec![
        "",
        "\n",
        "# a comment 7\n",
        "// a comment; of two\n",
        "   \r\n",
        "#\n",
    ]);
    let parts = (
        frames,
        1..900_000_u64,
        prop::sample::select(vec![' ', '\t']),
        before,
        prop::sample::select(vec!["\n", "\r\n", "  \n"]),
    );
    let line = parts.prop_map(|(frames, hundredths, separator, before, end)| Line {
        frames,
        hundredths,
        separator,
        before,
        end,
    });
    prop::collection::vec(line, 1..12)
}

proptest! {
    /// As flamegraph.pl reads them: the last word is the weight, all before it the stack.
    #[test]
    fn weights_and_names_are_those_of_the_lines(lines in lines(), is_fractional in any::<bool>(), has_mark in any::<bool>()) {
        let mut file = String::from(if has_mark { "\u{feff}" } else { "" });
        let mut expected = std::collections::BTreeMap::<String, u64>::new();
        for Line { frames, hundredths, separator, before, end } in &lines {
            let stack = frames.join(";");
            let [whole, part] = [hundredths / 100, hundredths % 100];
            let weight = if is_fractional { format!("{whole}.{part:02}") } else { whole.to_string() };
            file.push_str(&format!("{before}{stack}{separator}{weight}{end}"));
            let hundredths = if is_fractional { *hundredths } else { whole * 100 };
            *expected.entry(stack).or_default() += hundredths * 100_000;
        }
        let expected: Vec<_> = expected.into_iter().filter(|(_, sum)| *sum > 0).collect();
        let imported = import(file.as_bytes(), &with_unit(CollapsedUnit::Samples));
        if expected.is_empty() {
            prop_assert!(imported.is_err());
            return Ok(());
        }
        let imported = imported.unwrap();
        prop_assert_eq!(stacks(&imported), expected);
        prop_assert!(imported.notes.iter().all(|note| note.starts_with("weights are samples")));
    }
}

proptest! {
    /// A profile of another tool has a stack with few samples; ours have leading zeros there.
    #[test]
    fn counts_of_samples_stay_counts_next_to_large_ones(
        few in 1..10_000_u64,
        counts in prop::collection::vec(1..1_u64 << 30, 0..12),
        part in prop::sample::select(vec!["", ".25"]),
    ) {
        let counts = counts.into_iter().chain([few]);
        let file: String = counts.clone().map(|count| format!("app;main {count}{part}\n")).collect();
        let sum: u64 = counts.map(|count| count * 10_000_000 + if part.is_empty() { 0 } else { 2_500_000 }).sum();
        prop_assert_eq!(of(file).total_ns(), sum);
    }

    /// Our exports are imported as time whatever lines of them are left.
    #[test]
    fn lines_of_our_exports_stay_time(
        times in prop::collection::vec(prop_oneof![1..20_000_u64, 1..u64::MAX >> 8], 1..12),
    ) {
        let rows: Vec<String> = times.iter().enumerate().map(|(at, time)| format!("load;f{at} cpu={time}")).collect();
        let file = collapsed(&profile(&rows.join("\n")));
        prop_assert_eq!(of(&file).total_ns(), times.iter().sum::<u64>());
        for line in file.lines() {
            let imported = of(line);
            prop_assert_eq!(imported.tasks(), ["load"]);
            prop_assert!(times.contains(&imported.total_ns()));
        }
    }
}

/// The unit of a file of another tool changes its times only.
#[test]
fn names_of_other_tools_are_read_in_each_unit() {
    let file = "[main tid=8];A.main_[j] 2000000\n[w 2 tid=77];A.run_[j];A.lock_[i] 13271689\n";
    let of_samples = import(file.as_bytes(), &with_unit(CollapsedUnit::Samples)).unwrap();
    for imported in [
        of(file),
        import(file.as_bytes(), &with_unit(CollapsedUnit::Nanoseconds)).unwrap(),
    ] {
        assert_eq!(imported.tasks(), ["imported"]);
        assert_eq!(imported.total_ns(), 15_271_689);
        let names = |imported: &Imported| {
            stacks(imported)
                .into_iter()
                .map(|(stack, _)| stack)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&imported), ["A.main", "A.run;A.lock"]);
        let threads = |imported: &Imported| {
            let threads = imported.samples.iter().map(|sample| {
                let (_, thread) = imported.trie.node(sample.thread).unwrap();
                let frame = imported.symbols.frame(thread);
                (frame.function.to_owned(), frame.line)
            });
            threads.collect::<Vec<_>>()
        };
        assert_eq!(threads(&imported), threads(&of_samples));
    }
    let python = import(
        b"main (a.py:3);f (a.py:7) 50000\n",
        &with_unit(CollapsedUnit::Nanoseconds),
    )
    .unwrap();
    assert_eq!(stacks(&python), [("main;f".to_owned(), 50_000)]);
}

/// With `--threads`.
#[test]
fn threads_of_py_spy_are_threads() {
    check(
        "thread (19659): MainThread;f (a.py:3) 42\nthread (7);g (a.py:9) 1\nthread (pool);h 1\n",
        &ImportOptions::default(),
        expect![[r#"
            collapsed of 440000000 ns
            0 s f cpu MainThread/19659 420000000
            0 s g cpu /7 10000000
            0 s h cpu /0 10000000
            note: weights are samples of 10 ms; --interval sets another time, --unit nanoseconds reads them as time
            imported;f 420000000
            imported;g 10000000
            imported;thread (pool);h 010000000
        "#]],
    );
}

#[test]
fn lines_of_other_text_are_counted_in_a_note() {
    let imported = of("mode: wall\napp;main;parse 31\nstarted by cron\napp;main;render 6\n");
    assert_eq!(imported.total_ns(), 370_000_000);
    let note = "lines that are no stacks were skipped: 2; line 1 is not `frame;frame number`: \"mode: wall\"";
    assert!(
        imported.notes.iter().any(|found| found == note),
        "{:?}",
        imported.notes
    );
}

#[test]
fn units_of_time_can_be_chosen() {
    for (unit, expected) in [
        (CollapsedUnit::Nanoseconds, 3),
        (CollapsedUnit::Microseconds, 2_500),
        (CollapsedUnit::Milliseconds, 2_500_000),
        (CollapsedUnit::Samples, 25_000_000),
    ] {
        let imported = import(b"app;main 2.5\n", &with_unit(unit)).unwrap();
        assert_eq!(imported.total_ns(), expected, "{unit:?}");
    }
}

/// `offcputime -f` of bcc has no header, and weights of any size.
#[test]
fn time_off_the_cpu_needs_its_unit() {
    for last in [
        "finish_task_switch",
        "finish_task_switch.isra.0",
        "schedule",
        "__schedule_[k]",
    ] {
        let file = format!("app;main;read;{last} 13567\napp;main;{last} 250\n");
        let error = rejected(&file);
        assert!(
            error.contains("bcc's `offcputime -f` writes microseconds"),
            "{error}"
        );
        assert!(
            error.ends_with("--unit microseconds --state other, or another unit"),
            "{error}"
        );
        let options = ImportOptions {
            state: Some(State::Other),
            ..with_unit(CollapsedUnit::Microseconds)
        };
        let total = import(file.as_bytes(), &options).unwrap().profile().total();
        assert_eq!(total.get(State::Other), 13_817_000);
        // A profile of the CPU has such stacks too, but not only.
        assert_eq!(
            of(format!("{file}app;main 1\n")).total_ns(),
            138_180_000_000
        );
    }
}

#[test]
fn differences_are_named() {
    let error = rejected("app;main 31 33\napp;main;parse 0 4.5\n");
    assert!(
        error.contains("this is a difference of two profiles, as difffolded.pl writes it"),
        "{error}"
    );
    let options = with_unit(CollapsedUnit::Samples);
    let named = import(b"app;worker 31 33\n", &options).unwrap();
    assert_eq!(stacks(&named), [("app;worker 31".to_owned(), 330_000_000)]);
    assert_eq!(of("app;worker 31 33\napp;main 1\n").total_ns(), 340_000_000);
}

fn austin(mode: &str, lines: &str) -> String {
    format!("# austin: 3.5.0\n# interval: 50000\n# mode: {mode}\n\n{lines}\n# duration: 712345\n")
}

#[test]
fn austin_has_microseconds_lines_and_threads() {
    let lines = "P23;T24;<string>:<module>:1;/srv/app.py:App.run:12 50123\nP23;T0:25;/srv/app.py:main:7 99\nP23;T24 3\n";
    check(
        &austin("wall", lines),
        &ImportOptions::default(),
        expect![[r#"
            collapsed of 50225000 ns
            0 s imported cpu /24 3000
            0 s App.run cpu /24 50123000
            0 s main cpu /25 99000
            note: weights are microseconds
            imported 03000
            imported;<module>;App.run 50123000
            imported;main 99000
        "#]],
    );
    assert_eq!(of(lines).profile(), of(austin("wall", lines)).profile());
    let imported = of(austin("cpu", lines));
    let ids = (0..imported.symbols.frame_count()).map(profiler_core::FrameId);
    let mut frames = ids.map(|id| imported.symbols.frame(id));
    assert!(frames.any(|frame| frame.function == "App.run"
        && frame.file == "/srv/app.py"
        && frame.line == 12));
}

#[test]
fn austin_with_all_metrics_tells_idle_time_and_one_with_memory_is_refused() {
    let full = "P1;T1;/a.py:f:1 1000,0,4096\nP1;T1;/a.py:f:1 300,1,-64\n";
    let total = of(austin("full", full)).profile().total();
    assert_eq!(
        [total.get(State::Cpu), total.get(State::Other)],
        [1_000_000, 300_000]
    );
    let error = rejected(&austin("memory", "P1;T1;/a.py:f:1 589824\n"));
    assert_eq!(
        error,
        "no type of sample is time; the collapsed profile has bytes of memory of austin"
    );
}
