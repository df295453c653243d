//! Recordings of whole systems, of processors of two kinds, and what versions of `perf script` leave out.

use std::fmt::Write as _;

use super::*;

/// A sample each 10.101 ms on every processor, of which the first is busy and the others are idle.
fn system_wide(processors: u32, ticks: u32) -> String {
    let mut text = String::new();
    for tick in 0..ticks {
        for processor in 0..processors {
            let at_us = u64::from(tick) * 10_101 + u64::from(processor) * 13;
            let (comm, tid) = if processor == 0 {
                ("app", 500)
            } else {
                ("swapper", 0)
            };
            let seconds = 1_000 + at_us / 1_000_000;
            let rest = at_us % 1_000_000;
            let _ = writeln!(
                text,
                "{comm} {tid} [{processor:03}] {seconds}.{rest:06}: 5 cycles:P:"
            );
            let _ = writeln!(text, "\t5555 {comm}_work+0x1 (/opt/app)\n");
        }
    }
    text
}

proptest! {
    #[test]
    fn the_time_of_a_whole_system_is_that_of_its_processors(processors in 1..9_u32, ticks in 10..99_u32) {
        let imported = of(system_wide(processors, ticks));
        let total = imported.profile().total();
        let busy_ns = u64::from(ticks) * 10_101_000;
        prop_assert_eq!(total.get(State::Cpu), busy_ns);
        prop_assert_eq!(total.get(State::Sleep), busy_ns * u64::from(processors - 1), "idle is not on a CPU");
    }
}

#[test]
fn one_event_on_processors_of_two_kinds_and_with_equal_modes_is_one() {
    for [plain, first, second, other] in [
        [
            "cycles",
            "cpu_core/cycles/P",
            "cpu_atom/cycles/P",
            "cpu_core/instructions/P",
        ],
        ["cycles", "cycles", "cycles:P", "cycles_other"],
        [
            "cpu-clock",
            "cpu-clock:ppp",
            "cpu-clock:ukhHG",
            "page-faults:u",
        ],
        [
            "ref-cycles",
            "cpu/ref-cycles/H",
            "ref-cycles:H",
            "sched:wakeup",
        ],
    ] {
        let event = |event: &str, at: u32| format!("app 9 1.{at:06}: 10 {event}: 1f f+0x1 (app)\n");
        let text = event(first, 0)
            + &event(second, 10_000)
            + &event(other, 15_000)
            + &event(first, 20_000);
        let imported = of(&text);
        let skipped = format!("samples of other events than {plain} were skipped: 1");
        assert!(imported.notes.contains(&skipped), "{:?}", imported.notes);
        let expected = if first.starts_with("cpu-clock") {
            30
        } else {
            30_000_000
        };
        assert_eq!(imported.total_ns(), expected, "{first}");
    }
}

#[test]
fn headers_without_time_and_blank_lines_before_stacks_are_read() {
    let without_time = "app 9 cycles: \n\t 55 crunch+0x1 (/opt/a)\n\t 44 main+0x1 (/opt/a)\n\n\
                        app 9 cycles: \n\t 55 crunch+0x1 (/opt/a)\n";
    let blank = "app 9 10.010000: 250000 cpu-clock:u:\n\t 55 crunch+0x1 (/opt/a)\n\n\
                 app 9 10.020000: 250000 cpu-clock:u:\n\n\t 55 crunch+0x1 (/opt/a)\n\t 44 main+0x1 (/opt/a)\n";
    let stacks = |text: &str| collapsed(&of(text).profile());
    assert_eq!(
        stacks(without_time),
        "imported;crunch 10000000\nimported;main;crunch 10000000\n"
    );
    assert_eq!(
        stacks(blank),
        "imported;crunch 250000\nimported;main;crunch 250000\n"
    );
}

/// Samples of an event, each 10 ms, on one processor.
fn ticks(event: &str, count: u32) -> String {
    let sample = |tick| {
        format!(
            "app 9 [000] 1.{:06}: 7 {event}:\n\t1f f+0x1 (/opt/app)\n\n",
            tick * 10_000
        )
    };
    (0..count).map(sample).collect()
}

#[test]
fn only_events_that_are_time_count_wherever_they_stand() {
    for count in [
        "page-faults",
        "instructions:u",
        "cache-misses",
        "sched:sched_switch",
    ] {
        let error = import(ticks(count, 3).as_bytes(), &ImportOptions::default()).unwrap_err();
        let plain = count.strip_suffix(":u").unwrap_or(count);
        let expected = format!(
            "no type of sample is time; the perf profile has {plain}; --interval sets the time of a sample"
        );
        assert_eq!(error.to_string(), expected);
        let options = ImportOptions {
            interval_ns: Some(5),
            ..ImportOptions::default()
        };
        assert_eq!(
            import(ticks(count, 3).as_bytes(), &options)
                .unwrap()
                .total_ns(),
            15
        );
        for time in ["cycles", "cpu_core/cycles/", "cpu-clock:u"] {
            let of_time = ticks(time, 9);
            let alone = of(&of_time);
            let mixed = of(format!("{}{of_time}", ticks(count, 3)));
            assert_eq!(mixed.profile(), alone.profile(), "{count} before {time}");
            assert!(
                mixed
                    .notes
                    .iter()
                    .any(|note| note.ends_with("were skipped: 3"))
            );
        }
    }
}

#[test]
fn time_off_the_cpu_is_waiting_next_to_cycles_and_alone() {
    let wait = "app 9 [000] 1.500000: 30000000 offcpu-time:\n\t1f nap+0x1 (/opt/app)\n\n";
    for (file, cpu_ns) in [
        (wait.to_owned(), 0),
        (ticks("cycles", 9) + wait, 90_000_000),
    ] {
        let total = of(file).profile().total();
        assert_eq!(
            [total.get(State::Cpu), total.get(State::Other)],
            [cpu_ns, 30_000_000]
        );
    }
}

/// As `perf script` prints with `-F`, `--show-task-events`, `--show-mmap-events` and `--show-lost-events`.
#[test]
fn fields_and_records_around_samples_change_no_sum() {
    let frames = "\t1f work+0x1 (/opt/app)\n\t2f main+0x1 (/opt/app)\n\n";
    let headers = [
        "app 9 1.000000: 10 cpu-clock:",
        "app 9/9 1.000000: 10 cpu-clock:",
        "app 9 [003] 1.000000: 10 cpu-clock:",
        "app 9 [003] U 1.000000: 10 cpu-clock:",
        "app 9 1.000000000: 10 cpu-clock:u:",
        "9 1.000000: 10 cpu-clock:",
        "1.000000: 10 cpu-clock:",
        "            app 9 1.000000: 10 cpu-clock:",
    ];
    let records = "swapper     0     0.000000: PERF_RECORD_MMAP -1/0: [0xff(0x1) @ 0xff]: x [kernel.kallsyms]_text\n\
                   perf-exec     0     0.000000: PERF_RECORD_COMM: perf-exec:9/9\n";
    // Of texts without times.
    let untimed = "            swapper     0 PERF_RECORD_MMAP -1/0: [0xff(0x1) @ 0xff]: x [kernel.kallsyms]_text\n\
                   pool 7     9/9     [003] PERF_RECORD_MMAP2 9/9: [0x55(0x1) @ 0 08:01 7 0]: r-xp /opt/app\n";
    let lost = "app     9     1.100000: PERF_RECORD_LOST lost 12\n";
    let rest = "  work.c:12\n\t2f main+0x1 (/opt/app)\n\n";
    for header in headers {
        for file in [
            format!("{header}\n{frames}"),
            format!("{records}{header}\n{frames}{lost}"),
            format!("{untimed}{header}\n{frames}"),
            format!("{header}\n\t1f work+0x1 (/opt/app)\n{rest}"),
            format!("{header}\n\t1f work+0x1 (/opt/app)\n|12       work();\n{rest}"),
            format!("{header}\n{frames}PERF_RECORD_FINISHED_ROUND\n"),
        ] {
            let imported = of(&file);
            assert_eq!(
                collapsed(&imported.profile()),
                "imported;main;work 00010\n",
                "{file}"
            );
            let notes: &[&str] = if file.contains("LOST") {
                &["perf lost samples: 12"]
            } else {
                &[]
            };
            assert_eq!(imported.notes, notes, "{file}");
        }
    }
    let registers = format!("{}\n\tABI:2 AX:0x1\n{frames}", headers[0]);
    let expected =
        "lines below samples that are no frames were skipped: 1; the first is \"ABI:2 AX:0x1\"";
    assert_eq!(of(registers).notes, [expected]);
}

/// Without numbers of processors, all idle ones are one thread.
/// Idle time is known by the command alone.
#[test]
fn idle_time_without_thread_ids_is_sleep() {
    let text: String = (1..4)
        .map(|at| format!("swapper [001] 1.{at}: 10 cpu-clock:\n\t1f idle+0x1 (/opt/app)\n\nan app [002] 1.{at}: 10 cpu-clock:\n\t1f work+0x1 (/opt/app)\n\n"))
        .collect();
    let total = of(text).profile().total();
    assert_eq!([total.get(State::Sleep), total.get(State::Cpu)], [30, 30]);
}

#[test]
fn idle_processors_without_numbers_do_not_shorten_the_interval() {
    let text = system_wide(4, 50);
    let numbered = of(&text).profile().total();
    let plain: String = text
        .lines()
        .map(|line| match line.split_once(" [") {
            Some((before, after)) => format!("{before}{}\n", &after[4..]),
            None => format!("{line}\n"),
        })
        .collect();
    assert_eq!(of(plain).profile().total(), numbered);
}

/// A program chooses the names of its threads.
#[test]
fn names_of_threads_may_look_like_other_lines() {
    let stack = "\t1f work+0x1 (/opt/app)\n\n";
    let other = format!("app 9 1.000000: 10 cpu-clock:\n{stack}");
    for name in [
        "#1 worker",
        "# worker",
        "#",
        "##",
        ": PERF_RECORD_",
        "job 1.5: x",
        "[002] 1",
    ] {
        let file = format!("{name} 9/11 [000] 1.010000: 10 cpu-clock:\n{stack}");
        for [file, sum_ns] in [
            [file.clone(), "10".into()],
            [other.clone() + &file, "20".into()],
            [file + &other, "20".into()],
        ] {
            let imported = of(&file);
            assert_eq!(imported.total_ns().to_string(), sum_ns, "{file}");
            let mut threads = imported
                .samples
                .iter()
                .map(|sample| imported.trie.node(sample.thread).unwrap().1);
            assert!(
                threads.any(|thread| imported.symbols.frame(thread).function == name),
                "{file}"
            );
        }
    }
    let without_time = format!("#1 worker 9 cycles: \n{stack}#1 worker 9 cycles: \n{stack}");
    assert_eq!(of(without_time).total_ns(), 20_000_000);
    let comments = format!(
        "# ========\n# captured on: Mon Nov 30 14:00:00 2026\n# cpudesc : 9 1.5 GHz\n#\n{other}"
    );
    assert_eq!(of(comments).total_ns(), 10);
}

#[test]
fn frames_without_symbols_or_addresses_are_kept() {
    for [line, expected] in [
        ["1f", "[unknown]"],
        ["1f work", "work"],
        ["1f work (/opt/app (deleted))", "work"],
        ["1f [unknown] (/opt/app)", "app"],
        ["work+0x1 (/opt/app)", "work"],
    ] {
        let file = format!("app 9 1.000000: 10 cpu-clock:\n\t{line}\n\n");
        assert_eq!(
            collapsed(&of(file).profile()),
            format!("imported;{expected} 00010\n")
        );
    }
}

/// `report_sample.py` of simpleperf has tabs, and texts on the web have lost their indentation.
#[test]
fn frames_behind_a_tab_or_without_indentation_have_their_names() {
    let header = "app 9 1.000000: 10 cpu-clock:\n";
    for frames in [
        "\t1f\twork(int*) (/system/lib/a.so)\n\t2f\tmain (/opt/app)\n",
        "1f work(int*) (/system/lib/a.so)\n2f main (/opt/app)\n",
    ] {
        let imported = of(format!("{header}{frames}\n{header}{frames}"));
        assert_eq!(
            collapsed(&imported.profile()),
            "imported;main;work(int*) 00020\n"
        );
        let without_time = format!("java 9 cycles:\n{frames}\n");
        assert_eq!(of(without_time).total_ns(), 10_000_000);
    }
}

#[test]
fn the_command_of_a_recording_tells_the_interval() {
    let samples = "app 9 1.0: cpu-clock:\n\t1f f (app)\n\napp 9 11.1: cpu-clock:\n\t1f f (app)\n";
    let command = "# cmdline : /usr/bin/perf record -F 50 -a -g -- sleep 60\n#\n";
    let imported = of(format!("{command}{samples}"));
    assert_eq!(imported.total_ns(), 40_000_000);
    assert!(imported.notes.is_empty(), "{:?}", imported.notes);
}

/// `perf record -F 99 -e cycles:u,cycles:k`: each mode is sampled 99 times a second while a thread runs, with as many
/// cycles a sample as the thread spent in that mode.
fn in_two_modes(seconds: u32, kernel_percent: u64) -> String {
    const CYCLES: u64 = 30_000_000;
    let samples = (0..seconds * 99).map(|tick| {
        let at_us = u64::from(tick) * 10_101;
        let [at_s, at_us] = [at_us / 1_000_000, at_us % 1_000_000];
        let kernel = CYCLES * kernel_percent / 100;
        let user = CYCLES - kernel;
        format!(
            "app 9 [000] {at_s}.{at_us:06}: {user} cycles:u:\n\t1f work+0x1 (/opt/app)\n\n\
             app 9 [000] {at_s}.{:06}: {kernel} cycles:k:\n\t2f read+0x1 ([kernel.kallsyms])\n\n",
            at_us + 40
        )
    });
    samples.collect()
}

fn time_of(imported: &Imported, function: &str) -> u64 {
    let profile = collapsed(&imported.profile());
    let of_function = profile
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(stack, _)| stack.ends_with(function));
    of_function
        .map(|(_, weight)| weight.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn modes_of_one_event_share_its_time_by_their_periods() {
    for (kernel_percent, header) in [
        (10, ""),
        (50, ""),
        (
            1,
            "# cmdline : /usr/bin/perf record -F 99 -e cycles:u,cycles:k ./app\n",
        ),
        (
            10,
            "# event : name = cycles:u, , { sample_period, sample_freq } = 99, freq = 1\n\
             # event : name = cycles:k, , { sample_period, sample_freq } = 99, freq = 1\n",
        ),
    ] {
        let imported = of(format!("{header}{}", in_two_modes(10, kernel_percent)));
        let total_ms = imported.total_ns() / 1_000_000;
        assert!((9_990..=10_000).contains(&total_ms), "{total_ms} ms");
        let kernel_ns = time_of(&imported, "read");
        let percent = kernel_ns as f64 * 100.0 / imported.total_ns() as f64;
        let expected = kernel_percent as f64;
        assert!(
            (percent - expected).abs() < 0.01,
            "{percent} for {expected}"
        );
        assert_eq!(imported.notes.len(), 1, "{:?}", imported.notes);
        let note = "samples of cycles in 2 modes share ";
        assert!(imported.notes[0].starts_with(note), "{:?}", imported.notes);
    }
}

/// Neither is time of its own next to the other.
#[test]
fn modes_with_time_in_common_count_once() {
    let text = ticks("cycles:u", 9) + &ticks("cycles", 5);
    let imported = of(&text);
    assert_eq!(imported.total_ns(), 50_000_000);
    let skipped = "samples of other events than cycles were skipped: 9";
    assert!(
        imported.notes.iter().any(|note| note == skipped),
        "{:?}",
        imported.notes
    );
}

#[test]
fn modes_without_periods_and_events_without_names_are_refused_by_name() {
    let modes = in_two_modes(2, 10)
        .replace(" 27000000 ", " ")
        .replace(" 3000000 ", " ");
    let error = import(modes.as_bytes(), &ImportOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("do not say how many cycles: choose `perf script -F +period`"),
        "{text}"
    );
    let given = ImportOptions {
        interval_ns: Some(7),
        ..ImportOptions::default()
    };
    assert_eq!(
        import(modes.as_bytes(), &given).unwrap().total_ns(),
        2 * 198 * 7
    );
    let named =
        "# event : name = cycles:u, , id = { 1 }\n# event : name = page-faults, , id = { 2 }\n";
    let dummy =
        "# event : name = cycles:u, , id = { 1 }\n# event : name = dummy:HG, , id = { 2 }\n";
    let sample = "app 9 1.000000: \n\t1f work+0x1 (/opt/app)\n\n";
    let error = import(
        format!("{named}{sample}").as_bytes(),
        &ImportOptions::default(),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains("choose `perf script -F +event`"), "{text}");
    let unnamed = of(format!("{dummy}{sample}"));
    assert_eq!(unnamed.total_ns(), 10_000_000);
    let note = "the samples do not name their event, which is taken for cycles; `perf script -F +event` names it";
    assert!(
        unnamed.notes.iter().any(|found| found == note),
        "{:?}",
        unnamed.notes
    );
}

/// A clock has a timer for each mode, and each of its samples is in one.
#[test]
fn a_clock_in_two_modes_counts_samples_of_both() {
    let text: String = (0..100)
        .map(|tick| {
            let at_us = 1_000_000 + tick * 10_000 + if tick % 10 == 9 { 3 } else { 0 };
            let [mode, function] = if tick % 10 == 9 {
                ["k", "read"]
            } else {
                ["u", "work"]
            };
            format!(
                "app 9 {}.{:06}: cpu-clock:{mode}:\n\t1f {function}+0x1 (/opt/app)\n\n",
                at_us / 1_000_000,
                at_us % 1_000_000
            )
        })
        .collect();
    let imported = of(text);
    assert_eq!(imported.total_ns(), 1_000_000_000);
    assert_eq!(time_of(&imported, "read"), 100_000_000);
}

/// Each thread has a timer of its own, which runs while the thread does.
#[test]
fn threads_that_take_turns_on_a_processor_do_not_shorten_the_interval() {
    let sample = |tick: u64| {
        let thread = tick % 2;
        let at_us = 1_000_000 + tick / 2 * 20_000 + thread * 300;
        format!(
            "app 1/{} [000] {}.{:06}: cpu-clock:u:\n\t1f work+0x1 (/opt/app)\n\n",
            10 + thread,
            at_us / 1_000_000,
            at_us % 1_000_000
        )
    };
    let text: String = (0..100).map(sample).collect();
    assert_eq!(of(text).total_ns(), 100 * 20_000_000);
}

#[test]
fn differences_of_times_are_refused_by_name() {
    let file = |times: &[u32]| -> String {
        let sample =
            |time: &u32| format!("app 9 0.{time:06}: 7 cpu-clock:\n\t1f f+0x1 (/opt/app)\n\n");
        times.iter().map(sample).collect()
    };
    for times in [
        &[0, 10_000, 9_999, 10_001, 10_000, 40, 9_950][..],
        &[0, 10_000, 10_000, 10_000],
        // Without the first sample.
        &[10_000, 9_999, 9_998, 10_001, 9_000, 9_500],
    ] {
        let error = import(file(times).as_bytes(), &ImportOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this is the output of `perf script --deltatime`, whose times are differences, which is not read: run \
             `perf script` without --deltatime and import its output"
        );
    }
    for times in [
        &[0, 10_000, 20_000, 30_000][..],
        &[0, 10_000, 10_000, 10_000, 20_000, 20_000],
        &[10_000, 10_000, 10_000, 9_990, 20_000, 19_990, 30_000],
        &[0, 0, 0, 0],
    ] {
        assert_eq!(
            of(file(times)).total_ns(),
            7 * times.len() as u64,
            "{times:?}"
        );
    }
}

/// At the start and after each wait, the kernel looks for the period that gives the frequency: samples come fast, with
/// few cycles each.
#[test]
fn samples_with_few_cycles_have_little_time() {
    let mut text = String::new();
    let mut at_us = 1_000_000;
    for _ in 0..3 {
        for (gap_us, cycles) in [(13, 1), (7, 11), (18, 202), (8, 1_583)] {
            at_us += gap_us;
            let _ = writeln!(
                text,
                "app 9 1.{:06}: {cycles} cycles:uppp:\n\t1f start+0x1 (/opt/app)\n",
                at_us - 1_000_000
            );
        }
        for _ in 0..10 {
            at_us += 2_000;
            let _ = writeln!(
                text,
                "app 9 1.{:06}: 4000000 cycles:uppp:\n\t1f work+0x1 (/opt/app)\n",
                at_us - 1_000_000
            );
        }
        at_us += 50_000;
    }
    let imported = of(text);
    let total_us = imported.total_ns() / 1_000;
    assert!((59_900..=60_100).contains(&total_us), "{total_us} us");
    let start_us = time_of(&imported, "start") / 1_000;
    assert!(start_us < 10, "{start_us} us");
    let note = "a second is 2.000e9 cycles, estimated from gaps between samples; --interval sets a time for each sample";
    assert_eq!(imported.notes, [note]);
}
