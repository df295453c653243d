//! Collapsed stacks: `frame;frame weight`, a line each.

use profiler_core::Frame;

use super::builder::{Builder, Sample, Times, frame_of_label};
use super::error::{ImportError, echo};
use super::limits::{COLLAPSED_NANOSECONDS_MIN, ENTRY_BYTES_MAX, INTERVAL_DEFAULT};
use super::model::{CollapsedUnit, ImportFormat, ImportOptions, Imported};

/// Parses collapsed stacks of this crate, async-profiler, py-spy and others.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let builder = Builder::new(ImportFormat::Collapsed, options);
    let unit = match options.unit {
        Some(unit) => unit,
        None => unit_of(&builder, content)?,
    };
    let mut parser = Parser {
        builder,
        unit,
        frames: Vec::new(),
    };
    for (number, line) in lines(content) {
        parser.line(&line?, number)?;
    }
    parser.finish()
}

/// The lines with stacks, and their numbers.
fn lines(content: &[u8]) -> impl Iterator<Item = (usize, Result<String, ImportError>)> {
    let lines = content.split(|byte| *byte == b'\n').zip(1..);
    let is_stack = |line: &[u8]| !line.trim_ascii().is_empty() && line[0] != b'#';
    lines
        .filter(move |(line, _)| is_stack(line))
        .map(|(line, number)| {
            let line = if line.len() > ENTRY_BYTES_MAX {
                Err(ImportError::TooMany {
                    what: "too many bytes in a line",
                    limit: ENTRY_BYTES_MAX,
                })
            } else {
                Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
            };
            (number, line)
        })
}

/// The stack and the weight of a line.
fn split<'l>(
    builder: &Builder<'_>,
    line: &'l str,
    number: usize,
) -> Result<(&'l str, u64), ImportError> {
    let parts = line
        .rsplit_once(' ')
        .filter(|(stack, _)| !stack.trim().is_empty());
    let weight = parts.and_then(|(stack, weight)| Some((stack, weight.parse().ok()?)));
    weight.ok_or_else(|| {
        let text = echo(line);
        builder.invalid(format!(
            "line {number} is not `frame;frame number`: {text:?}"
        ))
    })
}

/// The unit that the weights have: no profile has thousands of samples of each of its stacks.
fn unit_of(builder: &Builder<'_>, content: &[u8]) -> Result<CollapsedUnit, ImportError> {
    for (number, line) in lines(content) {
        let (_, weight) = split(builder, &line?, number)?;
        if weight < COLLAPSED_NANOSECONDS_MIN {
            return Ok(CollapsedUnit::Samples);
        }
    }
    Ok(CollapsedUnit::Nanoseconds)
}

struct Parser<'a> {
    builder: Builder<'a>,
    unit: CollapsedUnit,
    frames: Vec<profiler_core::FrameId>,
}

/// A thread that a stack begins with.
struct Thread<'l> {
    name: &'l str,
    id: u32,
}

impl Parser<'_> {
    fn line(&mut self, line: &str, number: usize) -> Result<(), ImportError> {
        let (stack, weight) = split(&self.builder, line, number)?;
        let mut names = stack.split(';').peekable();
        let is_ours = self.unit == CollapsedUnit::Nanoseconds;
        let has_task = is_ours && self.builder.options.task.is_none();
        let task = if has_task { names.next() } else { None };
        let thread = names.peek().filter(|_| !is_ours).and_then(thread);
        if thread.is_some() {
            names.next();
        }
        let Thread { name, id } = thread.unwrap_or(Thread { name: "", id: 0 });
        let top = self.builder.top(task, None)?;
        self.frames.clear();
        for name in names {
            let frame = if is_ours {
                Frame::function(name, "", 0)
            } else {
                foreign_frame(name)
            };
            self.frames
                .push(self.builder.frame(&frame_of_label(frame))?);
        }
        let node = self.builder.stack(top, &self.frames)?;
        let thread = self.builder.thread(top, name, id)?;
        let state = self.builder.options.state;
        self.builder.add(Sample {
            node,
            thread,
            state,
            weight,
            at_ns: 0,
        })
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        match self.unit {
            CollapsedUnit::Nanoseconds => {
                self.builder
                    .note("weights are nanoseconds; --unit samples reads them as samples");
            }
            CollapsedUnit::Samples => {
                let default_ns = INTERVAL_DEFAULT.as_nanos() as u64;
                let interval_ns = self.builder.options.interval_ns.unwrap_or(default_ns);
                let interval_ms = interval_ns as f64 / 1e6;
                self.builder.note(format!(
                    "weights are samples of {interval_ms} ms; --interval sets another time, \
                     --unit nanoseconds reads them as time"
                ));
                self.builder.scale(interval_ns)?;
            }
        }
        self.builder.finish(Times::default())
    }
}

/// The thread that async-profiler writes as the first frame: `[main tid=17]`.
fn thread<'l>(name: &&'l str) -> Option<Thread<'l>> {
    let inner = name.strip_prefix('[')?.strip_suffix(']')?;
    let (name, id) = inner.rsplit_once(" tid=")?;
    Some(Thread {
        name,
        id: id.parse().ok()?,
    })
}

/// A frame with what async-profiler (`f_[j]`) and py-spy (`f (a.py:3)`) add to its name.
fn foreign_frame(name: &str) -> Frame<&str> {
    const KINDS: [&str; 5] = ["_[j]", "_[k]", "_[i]", "_[0]", "_[1]"];
    if let Some(plain) = KINDS.iter().find_map(|kind| name.strip_suffix(kind)) {
        return Frame {
            inlined: name.ends_with("_[i]"),
            ..Frame::function(plain, "", 0)
        };
    }
    let source = name
        .strip_suffix(')')
        .and_then(|open| open.rsplit_once(" ("))
        .and_then(|(function, place)| {
            let (file, line) = place.rsplit_once(':')?;
            Some(Frame::function(function, file, line.parse().ok()?))
        });
    source
        .filter(|frame| !frame.function.is_empty())
        .unwrap_or(Frame::function(name, "", 0))
}
