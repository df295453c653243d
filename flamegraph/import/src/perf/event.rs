//! Events of samples: which of them are time.

/// The meaning of a sample of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// Its period is nanoseconds on a CPU.
    Clock,
    /// It comes in equal intervals of time on a CPU.
    Cycles,
    /// Its period is nanoseconds off the CPU (`perf record --off-cpu`).
    OffCpu,
    /// It counts something else.
    Count,
}

impl Meaning {
    pub(super) fn of(event: &str) -> Meaning {
        let plain = plain_event(event).to_ascii_lowercase().replace('_', "-");
        match &*plain {
            "cpu-clock" | "task-clock" => Meaning::Clock,
            "offcpu-time" => Meaning::OffCpu,
            // Without a name, only one event was recorded, which is cycles by default.
            "" | "cycles" | "cpu-cycles" | "ref-cycles" | "bus-cycles" | "ls-not-halted-cyc" => {
                Meaning::Cycles
            }
            other if other.starts_with("cpu-clk-unhalted.") => Meaning::Cycles,
            _ => Meaning::Count,
        }
    }
}

/// An event without what it does not differ by: the kind of processor (`cpu_atom/cycles/P`,
/// `armv8_cortex_a53/cpu_cycles/`), and modifiers (`cycles:u`).
pub(super) fn plain_event(event: &str) -> &str {
    Parts::of(event).plain
}

/// An event without the kind of processor, and its modifiers.
struct Parts<'e> {
    plain: &'e str,
    modifiers: &'e str,
}

impl<'e> Parts<'e> {
    fn of(event: &'e str) -> Parts<'e> {
        const MODIFIERS: &str = "ukhpPGHSDIWebRX";
        let of_processor = event
            .split_once('/')
            .and_then(|(_, rest)| rest.split_once('/'));
        if let Some((plain, modifiers)) =
            of_processor.filter(|(_, modifiers)| !modifiers.contains('/'))
        {
            return Parts { plain, modifiers };
        }
        match event.rsplit_once(':') {
            Some((plain, modifiers)) if modifiers.chars().all(|c| MODIFIERS.contains(c)) => {
                Parts { plain, modifiers }
            }
            _ => Parts {
                plain: event,
                modifiers: "",
            },
        }
    }
}

/// The modes of a processor in which an event is counted: user, kernel and hypervisor, on the host and in guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Modes {
    /// A bit for each.
    levels: u8,
    machines: u8,
}

impl Modes {
    pub(super) fn of(event: &str) -> Modes {
        let modifiers = Parts::of(event).modifiers;
        Modes {
            levels: bits_of(modifiers, "ukh"),
            machines: bits_of(modifiers, "HG"),
        }
    }

    fn overlaps(self, other: Modes) -> bool {
        self.levels & other.levels != 0 && self.machines & other.machines != 0
    }

    /// Those that have no time in common: the widest first, and then each that adds time.
    pub(super) fn exclusive(all: &[Modes]) -> Vec<Modes> {
        let mut widest_first = all.to_vec();
        let width = |modes: &Modes| modes.levels.count_ones() * modes.machines.count_ones();
        widest_first.sort_by_key(|modes| std::cmp::Reverse(width(modes)));
        let mut chosen: Vec<Modes> = Vec::new();
        for modes in widest_first {
            if chosen.iter().all(|other| !other.overlaps(modes)) {
                chosen.push(modes);
            }
        }
        chosen
    }
}

/// A bit for each of these letters that is among the modifiers. Without any, all are meant.
fn bits_of(modifiers: &str, letters: &str) -> u8 {
    let found = letters.chars().fold(0, |bits, letter| {
        bits << 1 | u8::from(modifiers.contains(letter))
    });
    if found == 0 {
        (1 << letters.len()) - 1
    } else {
        found
    }
}

/// The interval that a comment of `perf script --header` has for an event.
pub(super) struct Interval<'l> {
    pub(super) event: &'l str,
    pub(super) nanoseconds: u64,
}

impl<'l> Interval<'l> {
    pub(super) fn parse(comment: &'l str) -> Option<Interval<'l>> {
        let description = comment.trim_start().strip_prefix("event : ")?;
        if !description.contains("freq = 1") {
            return None;
        }
        let (_, named) = description.split_once("name = ")?;
        let event = named.split([',', ' ']).next()?;
        let (_, after) = description.split_once("sample_freq } = ")?;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        let frequency_hz = digits
            .parse::<u64>()
            .ok()
            .filter(|frequency| *frequency > 0)?;
        Some(Interval {
            event,
            nanoseconds: 1_000_000_000 / frequency_hz.min(1_000_000_000),
        })
    }
}

/// The interval of a command such as `/usr/bin/perf record -F 99 -a -- sleep 1`, which older versions have in place of
/// the frequency of each event. `None` if it has another unit or several frequencies.
pub(super) fn interval_of_command(command: &str) -> Option<u64> {
    const WITH_VALUE: [&str; 15] = [
        "-e",
        "--event",
        "-p",
        "--pid",
        "-t",
        "--tid",
        "-u",
        "--uid",
        "-o",
        "--output",
        "-C",
        "--cpu",
        "-m",
        "--call-graph",
        "--filter",
    ];
    let (_, options) = command.split_once(" record ")?;
    let mut words = options.split_ascii_whitespace();
    let mut found = None;
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
            continue;
        }
        // The program that was recorded has options of its own.
        if !word.starts_with('-') || word == "--" {
            break;
        }
        if word.starts_with("-c") || word.starts_with("--count") {
            return None;
        }
        let is_short = !word.starts_with("--");
        let frequency = if word == "--freq" || is_short && word.ends_with('F') {
            words.next()
        } else {
            word.strip_prefix("--freq=").or(word.strip_prefix("-F"))
        };
        let Some(frequency) = frequency else {
            continue;
        };
        let frequency_hz: u64 = frequency.parse().ok().filter(|hz| *hz > 0)?;
        if found.replace(frequency_hz).is_some() {
            return None;
        }
    }
    found.map(|frequency_hz| 1_000_000_000 / frequency_hz.min(1_000_000_000))
}

/// Whether a command records whole processors instead of the threads of a program.
pub(super) fn is_system_wide(command: &str) -> bool {
    let Some((_, options)) = command.split_once(" record ") else {
        return false;
    };
    options
        .split_ascii_whitespace()
        .take_while(|word| *word != "--")
        .any(|word| {
            let is_short = word.starts_with('-') && !word.starts_with("--");
            matches!(word, "--all-cpus" | "--cpu" | "-C") || is_short && word.contains('a')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_one_frequency_or_none() {
        for (command, expected) in [
            (
                "/usr/bin/perf record -F 99 -a -g -- sleep 60",
                Some(10_101_010),
            ),
            ("perf record --freq=50 ./app", Some(20_000_000)),
            ("perf record -F1000 -p 9", Some(1_000_000)),
            ("perf record -g ./app", None),
            ("perf record -F max -a", None),
            ("perf record -F 0 -a", None),
            ("perf record -F 99 -F 49 -a", None),
            ("perf record -c 1000 -F 99", None),
            ("perf record -a -- app -F 99", None),
            ("perf record -F", None),
            (
                "perf record -agF 100 -e cpu-clock -o out -- app",
                Some(10_000_000),
            ),
            ("perf record ./app -F 7", None),
            ("perf record -g ./app -F 7", None),
            ("perf script -F comm", None),
        ] {
            assert_eq!(interval_of_command(command), expected, "{command}");
        }
    }

    #[test]
    fn events_are_time_whatever_their_modifiers_and_processors() {
        for (events, expected) in [
            (
                &["cpu-clock", "cpu-clock:ppp", "task-clock:u"][..],
                Meaning::Clock,
            ),
            (
                &[
                    "cycles",
                    "cycles:P",
                    "cycles:GH",
                    "cpu-cycles:u",
                    "cpu/cycles/",
                    "cpu_core/cycles/P",
                    "cpu_atom/cpu-cycles/",
                    "armv8_cortex_a53/cpu_cycles/",
                    "CPU_CLK_UNHALTED.THREAD",
                    "ref-cycles",
                    "",
                ],
                Meaning::Cycles,
            ),
            (&["offcpu-time"], Meaning::OffCpu),
            (
                &[
                    "page-faults",
                    "instructions:u",
                    "cache-misses",
                    "sched:sched_switch",
                    "syscalls:sys_enter_read",
                    "cpu/mem-loads,ldlat=30/P",
                    "stalled-cycles-frontend",
                    "r003c",
                ],
                Meaning::Count,
            ),
        ] {
            for event in events {
                assert_eq!(Meaning::of(event), expected, "{event}");
            }
        }
    }

    #[test]
    fn modes_that_have_time_in_common_do_not_add_up() {
        for (events, expected) in [
            (&["cycles:u", "cycles:k"][..], &["cycles:u", "cycles:k"][..]),
            (&["cycles:u", "cycles"], &["cycles"]),
            (&["cycles:ppp", "cycles:P"], &["cycles"]),
            (&["cycles:u", "cycles:ukh"], &["cycles:ukh"]),
            (&["cycles:G", "cycles:H"], &["cycles:G", "cycles:H"]),
            (&["cycles:HG", "cycles:G"], &["cycles"]),
            (&["cpu_core/cycles/P", "cpu_atom/cycles/P"], &["cycles"]),
            (
                &["cpu_core/cycles/u", "cpu_atom/cycles/k"],
                &["cycles:u", "cycles:k"],
            ),
        ] {
            let mut modes: Vec<Modes> = Vec::new();
            for event in events {
                let found = Modes::of(event);
                if !modes.contains(&found) {
                    modes.push(found);
                }
            }
            let expected: Vec<Modes> = expected.iter().map(|event| Modes::of(event)).collect();
            assert_eq!(Modes::exclusive(&modes), expected, "{events:?}");
        }
    }

    #[test]
    fn intervals_belong_to_their_event() {
        let comment = " event : name = page-faults, , id = { 1 }, { sample_period, sample_freq } = 99, freq = 1";
        let interval = Interval::parse(comment).unwrap();
        assert_eq!(
            (interval.event, interval.nanoseconds),
            ("page-faults", 10_101_010)
        );
        let fixed = " event : name = cycles, { sample_period, sample_freq } = 99, freq = 0";
        assert!(Interval::parse(fixed).is_none());
    }
}
