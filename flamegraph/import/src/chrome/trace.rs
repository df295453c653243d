//! Traces of Chrome and Node.js, whose events have CPU profiles in parts. Other events are skipped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::builder::{Builder, Times};
use super::super::error::ImportError;
use super::super::json::{Table, check_table, nanoseconds};
use super::super::limits::TABLE_ENTRIES_MAX;
use super::super::model::{ImportFormat, ImportOptions, Imported};
use super::{Lane, MICROSECOND_NS, Node, Parser, Profile};

/// The events that have parts of profiles or names of threads.
pub(super) struct Events<'a>(Vec<Event<'a>>);

impl<'a> Events<'a> {
    /// In the order of their times, which need not be that of the file: a delta is that to the sample before. Events
    /// without times are in the order of the file.
    fn sorted(self) -> Vec<Event<'a>> {
        let Events(mut events) = self;
        let parts = events.iter().filter(|event| event.has_part());
        if parts.clone().all(|event| event.at().is_some()) {
            events.sort_by(|one, other| {
                let [one, other] = [one, other].map(|event| event.at().unwrap_or(0.0));
                one.total_cmp(&other)
            });
        }
        events
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    /// Numbers, or texts.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
}

impl Event<'_> {
    /// When it was written, in microseconds.
    fn at(&self) -> Option<f64> {
        let number = self.ts?.get().trim_matches('"').parse();
        number.ok().filter(|at: &f64| at.is_finite())
    }

    fn has_part(&self) -> bool {
        self.name != "thread_name"
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Events<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Events<'a>, D::Error> {
        deserializer.deserialize_seq(EventsVisitor)
    }
}

struct EventsVisitor;

impl<'de> Visitor<'de> for EventsVisitor {
    type Value = Events<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Events<'de>, A::Error> {
        let mut events = Vec::new();
        while let Some(event) = list.next_element::<Event<'de>>()? {
            let is_used = matches!(
                &*event.name,
                "Profile" | "ProfileChunk" | "CpuProfile" | "thread_name"
            );
            if !is_used {
                continue;
            }
            if events.len() >= TABLE_ENTRIES_MAX {
                let error = format!("more than {TABLE_ENTRIES_MAX} events have parts of profiles");
                return Err(serde::de::Error::custom(error));
            }
            events.push(event);
        }
        Ok(Events(events))
    }
}

/// The arguments of an event with the name of a thread.
#[derive(Deserialize)]
struct ThreadName<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// The arguments of an event with a part of a profile.
#[derive(Deserialize)]
struct Args<'a> {
    #[serde(borrow)]
    data: Option<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    start_time: Option<f64>,
    end_time: Option<f64>,
    #[serde(borrow)]
    cpu_profile: Option<PartOfTree<'a>>,
    #[serde(default)]
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PartOfTree<'a> {
    #[serde(borrow, default)]
    nodes: Table<Node<'a>>,
    #[serde(default)]
    samples: Vec<u64>,
    /// Of profiles that are one event.
    #[serde(default)]
    time_deltas: Vec<f64>,
    start_time: Option<f64>,
    end_time: Option<f64>,
}

/// A process and the id of a profile or of a thread in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key<'a> {
    process: &'a str,
    id: &'a str,
}

impl<'a> Key<'a> {
    fn new(process: Option<&'a RawValue>, id: Option<&'a RawValue>) -> Key<'a> {
        let [process, id] = [process, id].map(|value| value.map_or("", RawValue::get));
        Key { process, id }
    }
}

/// A profile whose parts are being joined.
#[derive(Default)]
struct Joined<'a> {
    nodes: Vec<Node<'a>>,
    samples: Vec<u64>,
    time_deltas: Vec<f64>,
    start_time: Option<f64>,
    /// From its start to its end, both by one clock: those of a tree may have another one than its event.
    length: Option<f64>,
    /// That of its first event.
    thread: &'a str,
}

impl<'a> Joined<'a> {
    fn add(&mut self, part: Part<'a>) -> Result<(), ImportError> {
        self.start_time = self.start_time.or(part.start_time);
        self.end(self.start_time, part.end_time);
        if let Some(tree) = part.cpu_profile {
            check_table("too many nodes of a profile", self.nodes.len())?;
            self.nodes.extend(tree.nodes.into_vec());
            self.samples.extend(tree.samples);
            // Some versions write both, with the same numbers.
            if part.time_deltas.is_empty() {
                self.time_deltas.extend(tree.time_deltas);
            }
            self.start_time = self.start_time.or(tree.start_time);
            self.end(tree.start_time.or(self.start_time), tree.end_time);
        }
        self.time_deltas.extend(part.time_deltas);
        Ok(())
    }

    fn end(&mut self, start: Option<f64>, end: Option<f64>) {
        let length = start.zip(end).map(|(start, end)| end - start);
        self.length = length.or(self.length);
    }

    fn into_profile(self) -> Profile<'a> {
        let start_time = self.start_time.unwrap_or(0.0);
        let last_sample = start_time + self.time_deltas.iter().sum::<f64>();
        Profile {
            may_lack_nodes: true,
            nodes: self.nodes,
            start_time,
            end_time: last_sample.max(start_time + self.length.unwrap_or(0.0)),
            samples: self.samples,
            time_deltas: self.time_deltas,
        }
    }
}

/// The names of threads, and the profiles by process and id.
#[derive(Default)]
struct Trace<'a> {
    names: BTreeMap<Key<'a>, Cow<'a, str>>,
    joined: BTreeMap<Key<'a>, Joined<'a>>,
}

impl<'a> Trace<'a> {
    fn add(&mut self, builder: &Builder<'_>, event: &Event<'a>) -> Result<(), ImportError> {
        let Some(args) = event.args.map(RawValue::get) else {
            return Ok(());
        };
        let thread = Key::new(event.pid, event.tid);
        if event.name == "thread_name" {
            if let Ok(ThreadName { name }) = serde_json::from_str(args) {
                self.names.insert(thread, name);
            }
            return Ok(());
        }
        // Other programs have events of these names, with other arguments.
        if serde_json::from_str::<HasData>(args).is_err() {
            return Ok(());
        }
        let Args { data } = serde_json::from_str(args)
            .map_err(|error| builder.invalid(format!("event {:?}: {error}", event.name)))?;
        let Some(data) = data else {
            return Ok(());
        };
        let key = Key::new(event.pid, event.id.or(event.tid));
        let profile = self.joined.entry(key).or_insert_with(|| Joined {
            thread: thread.id,
            ..Joined::default()
        });
        profile.add(data)
    }
}

/// The profiles with samples, in the order of their starts. A profile whose start is missing has no place between
/// others.
fn ordered<'a>(
    builder: &mut Builder<'_>,
    joined: BTreeMap<Key<'a>, Joined<'a>>,
) -> Vec<OfThread<'a>> {
    let is_started = joined.values().any(|joined| joined.start_time.is_some());
    let sampled = joined
        .into_iter()
        .filter(|(_, joined)| !joined.samples.is_empty());
    let (with_samples, cut): (Vec<_>, Vec<_>) =
        sampled.partition(|(_, joined)| joined.start_time.is_some() || !is_started);
    let cut: usize = cut.iter().map(|(_, joined)| joined.samples.len()).sum();
    if cut > 0 {
        builder.note(format!(
            "samples of profiles whose start the trace lacks were skipped: {cut}"
        ));
    }
    let mut profiles: Vec<_> = with_samples
        .into_iter()
        .map(|(Key { process, .. }, joined)| OfThread {
            thread: Key {
                process,
                id: joined.thread,
            },
            profile: joined.into_profile(),
        })
        .collect();
    profiles.sort_by(|one, other| {
        let [one, other] = [one, other].map(|of_thread| of_thread.profile.start_time);
        one.total_cmp(&other)
    });
    profiles
}

/// Parses a trace that is a list of events. Its end may be missing, because programs write it while they run.
pub(super) fn parse_array(
    content: &[u8],
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let error = match serde_json::from_slice(content) {
        Ok(events) => return parse(events, options),
        Err(error) => error,
    };
    let trimmed = content.trim_ascii_end();
    let events = trimmed.strip_suffix(b",").unwrap_or(trimmed);
    if error.is_eof() && events.ends_with(b"}") {
        let closed = [events, b"]"].concat();
        return parse(
            super::super::json::parse(&closed, ImportFormat::Chrome)?,
            options,
        );
    }
    Err(ImportError::Invalid {
        format: ImportFormat::Chrome,
        reason: error.to_string(),
    })
}

/// Parses the CPU profiles of a trace, one for each thread.
pub(super) fn parse(events: Events<'_>, options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(ImportFormat::Chrome, options);
    let mut trace = Trace::default();
    for event in &events.sorted() {
        trace.add(&builder, event)?;
    }
    let Trace { names, joined } = trace;
    let profiles = ordered(&mut builder, joined);
    let Some(first) = profiles.first() else {
        return Err(ImportError::OtherFormat {
            name: "a trace without a CPU profile",
            instead: "record it with samples of JavaScript, or a CPU profile (.cpuprofile); of Python, \
                      record with `py-spy record -f speedscope`",
        });
    };
    let start = first.profile.start_time;
    let top = builder.top(None, None)?;
    let mut stop_ns = 0;
    let mut ends: BTreeMap<Key<'_>, f64> = BTreeMap::new();
    for OfThread { thread, profile } in profiles {
        // Two sessions of one thread, such as `--cpu-prof` and a trace, have the same time.
        if ends
            .get(&thread)
            .is_some_and(|end| profile.start_time < *end)
        {
            builder.note("of profiles of one thread at one time, only the first counts");
            continue;
        }
        let name = names.get(&thread).map_or("", |name| name);
        let node = builder.thread(top, name, thread.id.parse().unwrap_or(0))?;
        ends.insert(thread, profile.end_time);
        let offset = profile.start_time - start;
        let start_ns = nanoseconds(&builder, "the start of a profile", offset, MICROSECOND_NS)?;
        let lane = Lane {
            top,
            thread: node,
            start_ns,
        };
        let mut parser = Parser::new(&mut builder, &profile, lane)?;
        parser.samples()?;
        stop_ns = stop_ns.max(start_ns.saturating_add(parser.duration_ns));
    }
    builder.finish(Times {
        started_at: None,
        duration_ns: Some(stop_ns),
    })
}

/// A whole profile and its thread.
struct OfThread<'a> {
    thread: Key<'a>,
    profile: Profile<'a>,
}

/// The arguments of a part, whatever it contains.
#[derive(Deserialize)]
struct HasData {
    #[serde(rename = "data")]
    _data: IgnoredAny,
}
