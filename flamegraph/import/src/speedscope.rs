//! speedscope's JSON: sampled or evented profiles, one for each thread.

use std::borrow::Cow;
use std::collections::HashMap;

use profiler_core::{Frame, FrameId, NodeId, State};
use serde::Deserialize;

use super::builder::{Builder, Sample, Times, frame_of_label};
use super::error::{ImportError, echo};
use super::json::{Lists, Table, nanoseconds, unit_ns};
use super::limits::{FRAMES_MAX, INTERVAL_DEFAULT, TABLE_ENTRIES_MAX};
use super::model::{ImportFormat, ImportOptions, Imported};

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow, default)]
    exporter: Option<Cow<'a, str>>,
    #[serde(borrow)]
    shared: Shared<'a>,
    #[serde(borrow)]
    profiles: Table<Profile<'a>>,
}

#[derive(Deserialize)]
struct Shared<'a> {
    #[serde(borrow)]
    frames: Table<SharedFrame<'a>>,
}

#[derive(Deserialize)]
struct SharedFrame<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    file: Option<Cow<'a, str>>,
    #[serde(default)]
    line: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    unit: Cow<'a, str>,
    #[serde(default)]
    start_value: f64,
    #[serde(default)]
    end_value: f64,
    #[serde(default)]
    samples: Lists,
    #[serde(default)]
    weights: Vec<f64>,
    #[serde(default, borrow)]
    events: Vec<Event<'a>>,
}

impl Profile<'_> {
    /// Whether its weights are time, or numbers of samples.
    fn is_time(&self) -> bool {
        self.unit == "none" || unit_ns(&self.unit).is_some()
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    at: f64,
    frame: u32,
}

/// Parses a file of speedscope.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let file: File<'_> = super::json::parse(content, ImportFormat::Speedscope)?;
    let mut builder = Builder::new(ImportFormat::Speedscope, options);
    let is_ours = file
        .exporter
        .as_deref()
        .is_some_and(|exporter| exporter.starts_with("emberline "));
    let frames: Vec<FrameId> = file
        .shared
        .frames
        .iter()
        .map(|frame| {
            let source = frame.file.as_deref().unwrap_or_default();
            // A line that is no number of 32 bits becomes 0, which is unknown.
            let line = frame.line.map_or(0, |line| line as u32);
            // Ours have no modules, but addresses begin with their names.
            let prefix = frame
                .name
                .rsplit_once("+0x")
                .filter(|_| is_ours)
                .map_or("", |(module, _)| module);
            let module = if prefix == "[unknown]" { "" } else { prefix };
            let function = Frame {
                module,
                ..Frame::function(&frame.name, source, line)
            };
            builder.frame(&frame_of_label(function, builder.options))
        })
        .collect::<Result<_, _>>()?;
    // Profiles may have different units.
    let starts = file.profiles.iter().filter_map(|profile| {
        let unit_ns = unit_ns(&profile.unit)?;
        Some(profile.start_value * unit_ns as f64)
    });
    let start_ns = starts.reduce(f64::min).unwrap_or(0.0);
    let mut parser = Parser {
        builder,
        frames: &frames,
        file: &file,
        start_ns,
        stop_ns: 0,
        is_timed: false,
    };
    if is_ours {
        parser.ours()?
    } else {
        parser.threads()?
    }
    let Parser {
        builder,
        stop_ns,
        is_timed,
        ..
    } = parser;
    let duration_ns = is_timed.then_some(stop_ns);
    builder.finish(Times {
        started_at: None,
        duration_ns,
    })
}

struct Parser<'a, 'f> {
    builder: Builder<'a>,
    frames: &'f [FrameId],
    file: &'f File<'f>,
    /// Of the earliest profile, since any time.
    start_ns: f64,
    stop_ns: u64,
    is_timed: bool,
}

/// Where and when the samples of a profile are.
struct Track<'f> {
    profile: &'f Profile<'f>,
    top: NodeId,
    thread: NodeId,
    /// Of a weight; `None` if weights are numbers of samples.
    unit_ns: Option<u64>,
}

impl<'f> Parser<'_, 'f> {
    fn known_frame(&self, index: u32) -> Result<FrameId, ImportError> {
        self.frames.get(index as usize).copied().ok_or_else(|| {
            let count = self.frames.len();
            self.builder
                .invalid(format!("frame {index} is outside of the table of {count}"))
        })
    }

    /// Our own export: `wall` has all time by stack, `cpu` a part of it, and stacks begin with their task.
    fn ours(&mut self) -> Result<(), ImportError> {
        let profiles = &self.file.profiles;
        let named = |name: &str| profiles.iter().find(|profile| profile.name == name);
        let Some(wall) = named("wall") else {
            return Err(self.builder.invalid("it has no profile called wall"));
        };
        let mut sums: HashMap<NodeId, [u64; 2]> = HashMap::new();
        for (at, profile) in [Some(wall), named("cpu")].into_iter().enumerate() {
            let Some(profile) = profile else { continue };
            self.check_weights(profile)?;
            for (stack, weight) in profile.samples.iter().zip(&profile.weights) {
                let weight_ns = nanoseconds(&self.builder, "a weight", *weight, 1.0)?;
                let node = self.our_node(stack)?;
                let sum = &mut sums.entry(node).or_default()[at];
                *sum = sum.saturating_add(weight_ns);
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable();
        for (node, [wall_ns, cpu_ns]) in sums {
            let cpu_ns = cpu_ns.min(wall_ns);
            let top = self.builder.top_of(node);
            let thread = self.builder.thread(top, "", 0)?;
            for (state, weight) in [(State::Cpu, cpu_ns), (State::Other, wall_ns - cpu_ns)] {
                self.builder.add(Sample {
                    node,
                    thread,
                    state,
                    weight,
                    at_ns: 0,
                })?;
            }
        }
        Ok(())
    }

    fn our_node(&mut self, stack: &[u32]) -> Result<NodeId, ImportError> {
        let frames: Vec<FrameId> = stack
            .iter()
            .map(|index| self.known_frame(*index))
            .collect::<Result<_, _>>()?;
        let task = stack
            .first()
            .map(|index| &*self.file.shared.frames[*index as usize].name);
        let top = self.builder.top(task, None)?;
        self.builder.stack(top, &frames[frames.len().min(1)..])
    }

    /// A profile is a thread.
    fn threads(&mut self) -> Result<(), ImportError> {
        let profiles = &self.file.profiles;
        if let Some(other) = profiles.iter().find(|profile| !profile.is_time()) {
            let unit = echo(&other.unit);
            if !profiles.iter().any(Profile::is_time) {
                return Err(ImportError::NoTime {
                    format: ImportFormat::Speedscope,
                    found: unit,
                });
            }
            self.builder
                .note(format!("profiles of {unit} were skipped: they are no time"));
        }
        for profile in profiles.iter().filter(|profile| profile.is_time()) {
            let unit_ns = unit_ns(&profile.unit);
            let top = self.builder.top(None, None)?;
            let thread = self.builder.thread(top, &profile.name, 0)?;
            let track = Track {
                profile,
                top,
                thread,
                unit_ns,
            };
            match &*profile.kind {
                "sampled" => self.sampled(&track)?,
                "evented" => self.evented(&track)?,
                other => {
                    let reason = format!(
                        "a profile of type {:?}; sampled and evented are known",
                        echo(other)
                    );
                    return Err(self.builder.invalid(reason));
                }
            }
        }
        Ok(())
    }

    fn check_weights(&self, profile: &Profile<'_>) -> Result<(), ImportError> {
        let samples = profile.samples.len();
        let weights = profile.weights.len();
        if samples == weights {
            return Ok(());
        }
        Err(self.builder.invalid(format!(
            "a profile has {samples} samples and {weights} weights"
        )))
    }

    /// The start of a profile, since that of the earliest.
    fn offset_ns(&mut self, track: &Track<'_>) -> Result<u64, ImportError> {
        let Some(unit_ns) = track.unit_ns else {
            return Ok(0);
        };
        self.is_timed = true;
        let Profile {
            start_value,
            end_value,
            ..
        } = *track.profile;
        let stop_ns =
            self.since_start("the end of a profile", end_value.max(start_value), unit_ns)?;
        self.stop_ns = self.stop_ns.max(stop_ns);
        self.since_start("the start of a profile", start_value, unit_ns)
    }

    /// A time of a profile, since the start of the earliest.
    fn since_start(&self, what: &str, value: f64, unit_ns: u64) -> Result<u64, ImportError> {
        // Units of each profile's own, so that whole numbers stay exact.
        let unit_ns = unit_ns as f64;
        nanoseconds(
            &self.builder,
            what,
            value - self.start_ns / unit_ns,
            unit_ns,
        )
    }

    fn sampled(&mut self, track: &Track<'f>) -> Result<(), ImportError> {
        self.check_weights(track.profile)?;
        let mut at_ns = self.offset_ns(track)?;
        let state = self.builder.options.state();
        let unit_ns = track.unit_ns.unwrap_or_else(|| self.sample_ns());
        let mut frames = Vec::new();
        for (stack, weight) in track.profile.samples.iter().zip(&track.profile.weights) {
            frames.clear();
            for index in stack {
                frames.push(self.known_frame(*index)?);
            }
            let node = self.builder.stack(track.top, &frames)?;
            let weight = nanoseconds(&self.builder, "a weight", *weight, unit_ns as f64)?;
            self.builder.add(Sample {
                node,
                thread: track.thread,
                state,
                weight,
                at_ns,
            })?;
            if track.unit_ns.is_some() {
                at_ns = at_ns.saturating_add(weight);
                self.stop_ns = self.stop_ns.max(at_ns);
            }
        }
        Ok(())
    }

    /// The time of a sample of a profile without a unit.
    fn sample_ns(&mut self) -> u64 {
        let interval_ns = self
            .builder
            .options
            .interval_ns
            .unwrap_or(INTERVAL_DEFAULT.as_nanos() as u64);
        let interval_ms = interval_ns as f64 / 1e6;
        self.builder.note(format!(
            "a sample is {interval_ms} ms; --interval sets another time"
        ));
        interval_ns
    }

    fn evented(&mut self, track: &Track<'f>) -> Result<(), ImportError> {
        let Some(unit_ns) = track.unit_ns else {
            let found = "events without a unit of time".to_owned();
            return Err(ImportError::NoTime {
                format: ImportFormat::Speedscope,
                found,
            });
        };
        self.offset_ns(track)?;
        let state = self.builder.options.state();
        // The open frames, and the node of each.
        let mut open: Vec<(u32, NodeId)> = Vec::new();
        let mut last_ns = 0;
        for event in &track.profile.events {
            let at_ns = self.since_start("the time of an event", event.at, unit_ns)?;
            let weight = at_ns.checked_sub(last_ns).ok_or_else(|| {
                self.builder
                    .invalid("events are not in the order of their times")
            })?;
            if let Some((_, node)) = open.last() {
                let thread = track.thread;
                self.builder.add(Sample {
                    node: *node,
                    thread,
                    state,
                    weight,
                    at_ns: last_ns,
                })?;
            }
            last_ns = at_ns;
            self.stop_ns = self.stop_ns.max(at_ns);
            let frame = self.known_frame(event.frame)?;
            match &*event.kind {
                "O" => {
                    let parent = open.last().map_or(track.top, |(_, node)| *node);
                    // Frames beyond the limit count for the deepest one.
                    let is_deep = open.len() >= FRAMES_MAX;
                    let node = if is_deep {
                        parent
                    } else {
                        self.builder.child(parent, frame)
                    };
                    if open.len() >= TABLE_ENTRIES_MAX {
                        let what = "too many open frames";
                        return Err(ImportError::TooMany {
                            what,
                            limit: TABLE_ENTRIES_MAX,
                        });
                    }
                    open.push((event.frame, node));
                }
                "C" => match open.pop() {
                    Some((opened, _)) if opened == event.frame => {}
                    _ => {
                        let frame = event.frame;
                        let reason =
                            format!("frame {frame} is closed, but is not the innermost open one");
                        return Err(self.builder.invalid(reason));
                    }
                },
                other => {
                    let reason = format!("an event of type {:?}; O and C are known", echo(other));
                    return Err(self.builder.invalid(reason));
                }
            }
        }
        self.check_closed(open.len())
    }

    /// The time of frames that are open at the end is unknown.
    fn check_closed(&self, open: usize) -> Result<(), ImportError> {
        match open {
            0 => Ok(()),
            _ => Err(self
                .builder
                .invalid(format!("frames that are open at the end: {open}"))),
        }
    }
}
