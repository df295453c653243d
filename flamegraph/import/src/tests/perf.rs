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
fn one_event_on_processors_of_two_kinds_and_with_modifiers_is_one() {
    for [first, second, other] in [
        [
            "cpu_core/cycles/P",
            "cpu_atom/cycles/P",
            "cpu_core/instructions/P",
        ],
        ["cycles", "cycles:u", "cycles_other"],
        ["cpu-clock:ppp", "cpu-clock:uhH", "page-faults:u"],
        ["sched:switch", "sched:switch:u", "sched:wakeup"],
    ] {
        let event = |event: &str, at: u32| format!("app 9 1.{at:06}: 10 {event}: 1f f+0x1 (app)\n");
        let text = event(first, 0)
            + &event(second, 10_000)
            + &event(other, 15_000)
            + &event(first, 20_000);
        let imported = of(&text);
        let skipped = format!("samples of other events than {first} were skipped: 1");
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
