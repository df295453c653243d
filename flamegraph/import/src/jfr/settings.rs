//! The meaning of samples, by the settings of a recording.

use jfr::{Chunk, JfrError, Key};
use profiler_core::State;

use super::EventKind;
use crate::json::unit_ns;

/// Intervals without a setting, and those that async-profiler uses without an option.
const CPU_INTERVAL_NS: u64 = 10_000_000;
const WALL_INTERVAL_NS: u64 = 50_000_000;
const JDK_INTERVAL_NS: u64 = 20_000_000;

/// The event that async-profiler samples.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Engine {
    Cpu,
    Wall,
    /// Something else than time, such as `cache-misses`.
    Other(String),
}

/// Settings of a chunk.
#[derive(Clone, Default, Debug)]
pub(super) struct Settings {
    engine: Option<Engine>,
    /// Of async-profiler's event.
    interval_ns: Option<u64>,
    /// Of async-profiler's samples of all threads, in addition to its event.
    wall_ns: Option<u64>,
    /// Of the JDK's own samples.
    execution_ns: Option<u64>,
    native_ns: Option<u64>,
}

/// Meaning of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// Time on a CPU.
    Cpu(Interval),
    /// Time of a thread, whatever it did.
    Wall(State, Interval),
    /// Time in native code, where the thread ran or waited.
    Native(Interval),
    /// Occurrences of this event.
    NoTime(String),
}

/// The time of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) nanoseconds: u64,
    /// Whether no setting says it.
    pub(super) is_assumed: bool,
}

impl Settings {
    /// The settings in a chunk; `None` if it has none of these.
    pub(super) fn of(chunk: &Chunk<'_>, kinds: &[EventKind]) -> Result<Option<Settings>, JfrError> {
        let mut settings = None;
        for event in chunk.events() {
            let event = event?;
            if kinds[event.type_index] != EventKind::Setting {
                continue;
            }
            let record = event.record()?;
            let owner = record.number(Key::Id).and_then(|id| chunk.type_name(id));
            let name = chunk.text(&record, Key::Name)?.unwrap_or_default();
            let value = chunk.text(&record, Key::Value)?.unwrap_or_default();
            if is_used(owner, &name) {
                let settings = settings.get_or_insert_with(Settings::default);
                settings.set(owner.unwrap_or_default(), &name, &value);
            }
        }
        Ok(settings)
    }

    fn set(&mut self, owner: &str, name: &str, value: &str) {
        match (owner, name) {
            (_, "event") => self.engine = engine(value),
            (_, "interval") => self.interval_ns = value.parse().ok(),
            (_, "wall") => self.wall_ns = value.parse().ok(),
            ("jdk.NativeMethodSample", _) => keep_shorter(&mut self.native_ns, value),
            _ => keep_shorter(&mut self.execution_ns, value),
        }
    }

    /// Returns the meaning of a sample. `given_ns` is the interval where no setting says it.
    pub(super) fn meaning(&self, kind: EventKind, state: &str, given_ns: Option<u64>) -> Meaning {
        let interval = |set_ns: Option<u64>, default_ns: u64| Interval {
            // async-profiler writes 0 for its own default.
            nanoseconds: match set_ns {
                Some(0) => default_ns,
                Some(set_ns) => set_ns,
                None => given_ns.unwrap_or(default_ns),
            },
            is_assumed: set_ns.or(given_ns).is_none(),
        };
        let wall = || {
            let set_ns = self.wall_ns.or(self.interval_ns);
            Meaning::Wall(wall_state(state), interval(set_ns, WALL_INTERVAL_NS))
        };
        match (kind, &self.engine) {
            (EventKind::WallSample, _) | (_, Some(Engine::Wall)) => wall(),
            (EventKind::NativeSample, _) => {
                Meaning::Native(interval(self.native_ns, JDK_INTERVAL_NS))
            }
            // Next to samples of all threads, those of the event have no state.
            _ if self.wall_ns.is_some() && state != "STATE_DEFAULT" => wall(),
            (_, Some(Engine::Other(name))) => Meaning::NoTime(name.clone()),
            (_, Some(Engine::Cpu)) => Meaning::Cpu(interval(self.interval_ns, CPU_INTERVAL_NS)),
            (_, None) => {
                let set_ns = self.interval_ns.or(self.execution_ns);
                Meaning::Cpu(interval(set_ns, JDK_INTERVAL_NS))
            }
        }
    }
}

/// Whether a setting says what samples stand for.
fn is_used(owner: Option<&str>, name: &str) -> bool {
    match owner {
        Some("jdk.ExecutionSample") => matches!(name, "interval" | "period" | "wall"),
        Some("jdk.NativeMethodSample") => name == "period",
        Some("jdk.ActiveRecording") => name == "event",
        _ => false,
    }
}

fn engine(event: &str) -> Option<Engine> {
    Some(match event {
        "" => return None,
        "cpu" | "ctimer" | "itimer" | "cpu-clock" | "task-clock" => Engine::Cpu,
        "wall" => Engine::Wall,
        other => Engine::Other(other.to_owned()),
    })
}

/// async-profiler tells whether a thread could run, not what it waits for.
fn wall_state(name: &str) -> State {
    match name {
        "STATE_RUNNABLE" => State::Cpu,
        _ => State::Other,
    }
}

/// Recordings that run at once may have different periods: the shortest is in effect.
fn keep_shorter(period_ns: &mut Option<u64>, text: &str) {
    let parsed_ns = text.split_once(' ').and_then(|(number, unit)| {
        let number: u64 = number.parse().ok()?;
        number.checked_mul(unit_ns(unit)?)
    });
    let candidates = [*period_ns, parsed_ns.filter(|period_ns| *period_ns > 0)];
    *period_ns = candidates.into_iter().flatten().min();
}
