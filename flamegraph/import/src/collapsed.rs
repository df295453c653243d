//! Collapsed stacks: `frame;frame weight`, a line each.

mod austin;
mod lines;

use profiler_core::{Frame, FrameId, State};

use self::austin::{Metrics, Mode};
use self::lines::{Kind, Line, Stack, Survey, Weight};
use super::builder::{Builder, Sample, Times, frame_of_label};
use super::error::{ImportError, echo};
use super::limits::INTERVAL_DEFAULT;
use super::model::{CollapsedUnit, ImportFormat, ImportOptions, Imported};

/// Parses collapsed stacks of this crate, async-profiler, py-spy, austin, bcc and others.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(ImportFormat::Collapsed, options);
    let survey = Survey::of(content)?;
    if let Some(first) = &survey.first_other {
        if survey.others > survey.stacks {
            return Err(builder.invalid(first.as_str()));
        }
        let others = survey.others;
        builder.note(format!(
            "lines that are no stacks were skipped: {others}; {first}"
        ));
    }
    let unit = match options.unit {
        Some(unit) => unit,
        None => survey.unit(options)?,
    };
    let is_time = unit == CollapsedUnit::Nanoseconds;
    let mut parser = Parser {
        is_ours: is_time && (survey.has_leading_zeros || !has_foreign_names(content)?),
        unit_ns: unit_ns(&builder, unit),
        builder,
        unit,
        austin: survey.austin.filter(|_| !survey.is_export()),
        frames: Vec::new(),
    };
    for line in lines::lines(content) {
        let Line { number, text } = line?;
        match Kind::of(&text) {
            Kind::Stack(stack) => parser.stack(stack, number)?,
            Kind::Comment | Kind::Other => {}
            Kind::Invalid => return Err(parser.invalid_line(&text, number)),
        }
    }
    parser.finish()
}

/// Whether a text is likely to be of this format: most of its lines are stacks, or some comments are before them. All
/// are, if no stack has two frames.
pub(super) fn is_likely(start: &[u8]) -> bool {
    Survey::of(start).is_ok_and(|survey| {
        let others_max = if survey.has_frames { survey.stacks } else { 0 };
        survey.stacks > 0 && survey.others <= others_max
    })
}

/// Whether a text is an export of ours: each line is a stack with a weight of nanoseconds.
pub(super) fn is_export(start: &[u8]) -> bool {
    Survey::of(start).is_ok_and(|survey| {
        let has_stacks_only = survey.others == 0 && survey.comments == 0;
        has_stacks_only && survey.stacks > 0 && survey.has_long_weights
    })
}

impl Survey {
    /// Whether the weights have a mark that only our exports have, whatever the names look like.
    fn is_export(&self) -> bool {
        self.has_long_weights && self.has_leading_zeros
    }

    /// The unit of the weights, of a file whose reader did not choose one.
    fn unit(&self, options: &ImportOptions) -> Result<CollapsedUnit, ImportError> {
        if self.is_export() {
            return Ok(CollapsedUnit::Nanoseconds);
        }
        match self.austin {
            Some(Mode::Memory) => {
                return Err(ImportError::NoTime {
                    format: ImportFormat::Collapsed,
                    found: "bytes of memory of austin".to_owned(),
                });
            }
            Some(_) => return Ok(CollapsedUnit::Microseconds),
            None => {}
        }
        if self.stacks > 0 && self.has_two_weights {
            return Err(ImportError::OtherFormat {
                name: "a difference of two profiles, as difffolded.pl writes it",
                instead: "import both and run `emberline compare`; with --unit, the first number is a part of the name",
            });
        }
        if self.stacks > 0 && self.is_off_cpu {
            return Err(ImportError::NoUnit {
                found: "each stack ends in the scheduler, as bcc's `offcputime -f` writes microseconds off the CPU",
                instead: "--unit microseconds --state other, or another unit",
            });
        }
        // Only samples have an interval.
        Ok(if self.has_long_weights && options.interval_ns.is_none() {
            CollapsedUnit::Nanoseconds
        } else {
            CollapsedUnit::Samples
        })
    }
}

/// The time of a weight of 1.
fn unit_ns(builder: &Builder<'_>, unit: CollapsedUnit) -> u64 {
    match unit {
        CollapsedUnit::Nanoseconds => 1,
        CollapsedUnit::Microseconds => 1_000,
        CollapsedUnit::Milliseconds => 1_000_000,
        CollapsedUnit::Samples => {
            let default_ns = INTERVAL_DEFAULT.as_nanos() as u64;
            builder.options.interval_ns.unwrap_or(default_ns)
        }
    }
}

struct Parser<'a> {
    builder: Builder<'a>,
    unit: CollapsedUnit,
    unit_ns: u64,
    /// Of our exports, whose first frames are tasks.
    is_ours: bool,
    austin: Option<Mode>,
    frames: Vec<FrameId>,
}

/// A thread that a stack begins with.
struct Thread<'l> {
    name: &'l str,
    id: u32,
}

impl Parser<'_> {
    fn invalid_line(&self, line: &str, number: usize) -> ImportError {
        let text = echo(line);
        self.builder.invalid(format!(
            "line {number} is not `frame;frame number`: {text:?}"
        ))
    }

    fn stack(&mut self, stack: Stack<'_>, number: usize) -> Result<(), ImportError> {
        let metrics = Metrics::parse(stack.weight).filter(|_| self.austin == Some(Mode::Full));
        let number_text = metrics
            .as_ref()
            .map_or(stack.weight, |metrics| metrics.time);
        let state = match metrics {
            Some(Metrics { is_idle: true, .. }) => State::Other,
            _ => self.builder.options.state(),
        };
        let Some(units) = Weight::parse(number_text) else {
            return Err(self.invalid_line(&format!("{} {}", stack.frames, stack.weight), number));
        };
        let weight = units
            .nanoseconds(self.unit_ns)
            .ok_or_else(|| self.builder.too_heavy())?;
        let mut names = stack.frames.split(';').peekable();
        let has_task = self.is_ours && self.builder.options.task.is_none();
        let task = if has_task { names.next() } else { None };
        if self.austin.is_some() {
            names.next_if(|name| austin::is_process(name));
        }
        let thread = names
            .peek()
            .filter(|_| !self.is_ours)
            .and_then(|name| self.thread(name));
        if thread.is_some() {
            names.next();
        }
        let Thread { name, id } = thread.unwrap_or(Thread { name: "", id: 0 });
        let top = self.builder.top(task, None)?;
        self.frames.clear();
        for name in names {
            let frame = match self.austin {
                Some(_) => austin::frame(name),
                None if self.is_ours => Frame::function(name, "", 0),
                None => foreign_frame(name),
            };
            self.frames.push(
                self.builder
                    .frame(&frame_of_label(frame, self.builder.options))?,
            );
        }
        let node = self.builder.stack(top, &self.frames)?;
        let thread = self.builder.thread(top, name, id)?;
        self.builder.add(Sample {
            node,
            thread,
            state,
            weight,
            at_ns: 0,
        })
    }

    /// The thread that this frame is.
    fn thread<'l>(&self, frame: &'l str) -> Option<Thread<'l>> {
        match self.austin {
            Some(_) => austin::thread_id(frame).map(|id| Thread { name: "", id }),
            None => thread(frame),
        }
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        if !self.is_stated() {
            self.note_unit();
        }
        self.builder.finish(Times::default())
    }

    /// Whether the options have the time of a weight.
    fn is_stated(&self) -> bool {
        let options = self.builder.options;
        match options.unit {
            Some(CollapsedUnit::Samples) => options.interval_ns.is_some(),
            unit => unit.is_some(),
        }
    }

    fn note_unit(&mut self) {
        let note = match self.unit {
            CollapsedUnit::Nanoseconds => {
                "weights are nanoseconds; --unit samples reads them as samples".to_owned()
            }
            CollapsedUnit::Microseconds => "weights are microseconds".to_owned(),
            CollapsedUnit::Milliseconds => "weights are milliseconds".to_owned(),
            CollapsedUnit::Samples => {
                let interval_ms = self.unit_ns as f64 / 1e6;
                format!(
                    "weights are samples of {interval_ms} ms; --interval sets another time, \
                     --unit nanoseconds reads them as time"
                )
            }
        };
        self.builder.note(note);
    }
}

/// The thread that a stack begins with: `[main tid=17]` of async-profiler, `thread (17): main` of py-spy.
fn thread(frame: &str) -> Option<Thread<'_>> {
    if let Some(rest) = frame.strip_prefix("thread (") {
        let (id, name) = rest.split_once(')')?;
        return Some(Thread {
            name: name.strip_prefix(": ").unwrap_or(name),
            id: id.parse().ok()?,
        });
    }
    let inner = frame.strip_prefix('[')?.strip_suffix(']')?;
    let (name, id) = inner.rsplit_once(" tid=")?;
    Some(Thread {
        name,
        id: id.parse().ok()?,
    })
}

/// Whether a stack has a thread, a kind of frame or a line as other tools write them, which may write nanoseconds too:
/// async-profiler does with `total`.
fn has_foreign_names(content: &[u8]) -> Result<bool, ImportError> {
    for line in lines::lines(content) {
        let Line { text, .. } = line?;
        let Kind::Stack(stack) = Kind::of(&text) else {
            continue;
        };
        let mut names = stack.frames.split(';');
        let has_thread = names
            .clone()
            .next()
            .is_some_and(|name| thread(name).is_some());
        if has_thread || names.any(|name| foreign_frame(name).function != name) {
            return Ok(true);
        }
    }
    Ok(false)
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
