//! The text of `perf script`: a header for each sample, then its stack, innermost frame first.

mod event;
mod frame;
mod header;

use std::collections::HashMap;

use profiler_core::{FrameId, State};

use self::event::{Interval, Meaning, plain_event};
use self::header::{Header, lost_samples};
pub(super) use self::header::{is_comment, is_header, is_header_without_time, is_record};
use super::builder::{Builder, Sample, Times};
use super::error::{ImportError, echo};
use super::limits::{
    ENTRY_BYTES_MAX, GAPS_MAX, INTERVAL_DEFAULT, NAMED_EVENTS_MAX, TABLE_ENTRIES_MAX,
};
use super::model::{ImportFormat, ImportOptions, Imported};

/// Parses the output of `perf script`.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let event = time_event(content, options)?;
    let mut parser = Parser::new(options, event);
    for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
        if line.len() > ENTRY_BYTES_MAX {
            let what = "too many bytes in a line";
            return Err(ImportError::TooMany {
                what,
                limit: ENTRY_BYTES_MAX,
            });
        }
        parser.line(&String::from_utf8_lossy(line.trim_ascii_end()), number)?;
    }
    parser.finish()
}

/// The event whose samples are time on a CPU, without modifiers: the first such one. Without any, the first event if
/// the options have the time of a sample. `None` if the file has no samples, or those of waits only.
fn time_event(content: &[u8], options: &ImportOptions) -> Result<Option<String>, ImportError> {
    let mut others: Vec<String> = Vec::new();
    let mut has_waits = false;
    for bytes in content.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&bytes[..bytes.len().min(ENTRY_BYTES_MAX)]);
        let Some(header) = Header::parse(line.trim_ascii_end()) else {
            continue;
        };
        let plain = plain_event(header.event);
        match Meaning::of(header.event) {
            Meaning::Clock | Meaning::Cycles => return Ok(Some(plain.to_owned())),
            Meaning::OffCpu => has_waits = true,
            Meaning::Count if others.iter().any(|known| known == plain) => {}
            Meaning::Count if others.len() < NAMED_EVENTS_MAX => others.push(plain.to_owned()),
            Meaning::Count => {}
        }
    }
    if others.is_empty() || has_waits {
        return Ok(None);
    }
    if options.interval_ns.is_some() {
        return Ok(Some(others.swap_remove(0)));
    }
    let found = echo(&others.join(", "));
    Err(ImportError::NoTime {
        format: ImportFormat::Perf,
        found: format!("{found}; --interval sets the time of a sample"),
    })
}

/// A sample whose stack is being read.
struct Open {
    comm: String,
    tid: u32,
    at_ns: u64,
    weight: u64,
    is_wait: bool,
    /// Innermost first.
    frames: Vec<FrameId>,
}

/// A source of samples in equal intervals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Source {
    /// Of a recording of the whole system: idle time is the same thread on each.
    Processor(u32),
    Thread(u32),
}

impl Source {
    /// `None` for idle time of an unknown processor.
    fn of(header: &Header<'_>) -> Option<Source> {
        match header.processor {
            Some(processor) => Some(Source::Processor(processor)),
            None => (header.tid != 0).then_some(Source::Thread(header.tid)),
        }
    }
}

/// Lines that have no place in a profile.
#[derive(Default)]
struct Unread {
    lines: u64,
    first: String,
}

struct Parser<'a> {
    builder: Builder<'a>,
    open: Option<Open>,
    /// The event of samples on a CPU; others are skipped, but for waits.
    event: Option<String>,
    /// Whether periods are time; `None` before the first sample.
    has_time_weights: Option<bool>,
    /// Samples off the CPU, whose weights are nanoseconds.
    waits: Vec<Sample>,
    skipped: u64,
    lost: u64,
    unread: Unread,
    first_ns: Option<u64>,
    last_ns: u64,
    /// The last sample of each source, and the gaps between them.
    seen_ns: HashMap<Source, u64>,
    gaps_ns: Vec<u64>,
    header_interval_ns: Option<u64>,
    /// By the command that recorded it.
    command_interval_ns: Option<u64>,
    is_skipping: bool,
}

impl<'a> Parser<'a> {
    fn new(options: &'a ImportOptions, event: Option<String>) -> Parser<'a> {
        Parser {
            builder: Builder::new(ImportFormat::Perf, options),
            open: None,
            event,
            has_time_weights: None,
            waits: Vec::new(),
            skipped: 0,
            lost: 0,
            unread: Unread::default(),
            first_ns: None,
            last_ns: 0,
            seen_ns: HashMap::new(),
            gaps_ns: Vec::new(),
            header_interval_ns: None,
            command_interval_ns: None,
            is_skipping: false,
        }
    }

    fn line(&mut self, line: &str, number: usize) -> Result<(), ImportError> {
        if line.is_empty() {
            let has_frames = self
                .open
                .as_ref()
                .is_some_and(|open| !open.frames.is_empty());
            // Some versions write an empty line between a header and its stack.
            return if has_frames { self.close() } else { Ok(()) };
        }
        if is_comment(line) {
            self.comment(&line[1..]);
            return Ok(());
        }
        if is_record(line) {
            self.lost += lost_samples(line);
            return self.close();
        }
        if self.open.is_some() || self.is_skipping {
            let is_frame = if line.starts_with([' ', '\t']) {
                !is_header(line)
            } else {
                frame::is_bare(line) && Header::parse(line).is_none()
            };
            if is_frame {
                return self.frame_line(line.trim());
            }
            self.close()?;
        }
        let Some(header) = Header::parse(line) else {
            let text = echo(line);
            let reason =
                format!("line {number} is neither the header of a sample nor a frame: {text:?}");
            return Err(self.builder.invalid(reason));
        };
        self.header(&header, number)
    }

    fn comment(&mut self, comment: &str) {
        let command = comment.trim_start().strip_prefix("cmdline : ");
        self.command_interval_ns = self
            .command_interval_ns
            .or(command.and_then(event::interval_of_command));
        let interval = Interval::parse(comment)
            .filter(|interval| self.event.as_deref() == Some(plain_event(interval.event)));
        let interval_ns = interval.map(|interval| interval.nanoseconds);
        self.header_interval_ns = self.header_interval_ns.or(interval_ns);
    }

    fn header(&mut self, header: &Header<'_>, number: usize) -> Result<(), ImportError> {
        let is_wait = Meaning::of(header.event) == Meaning::OffCpu && header.period.is_some();
        let is_chosen = self.event.as_deref() == Some(plain_event(header.event));
        self.is_skipping = !is_wait && !is_chosen;
        if self.is_skipping {
            self.skipped += 1;
            return Ok(());
        }
        let at_ns = header.at_ns.unwrap_or(0);
        // Samples are sorted, but for a few of different processors.
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        self.last_ns = self.last_ns.max(at_ns);
        let stated = if is_wait {
            header.period
        } else {
            self.note_gap(header, at_ns);
            self.weight(header)
        };
        let weight = stated.ok_or_else(|| {
            let reason = format!("the sample of line {number} has no period, others have one");
            self.builder.invalid(reason)
        })?;
        self.open = Some(Open {
            comm: header.comm.to_owned(),
            tid: header.tid,
            at_ns: at_ns.saturating_sub(first_ns),
            weight,
            is_wait,
            frames: Vec::new(),
        });
        if !header.frame.is_empty() {
            self.frame_line(header.frame)?;
        }
        Ok(())
    }

    /// Nanoseconds of a clock, or 1 for a sample; `None` if a clock has no period here, but had one before.
    fn weight(&mut self, header: &Header<'_>) -> Option<u64> {
        let is_clock = Meaning::of(header.event) == Meaning::Clock;
        let has_time = *self
            .has_time_weights
            .get_or_insert(is_clock && header.period.is_some());
        if has_time { header.period } else { Some(1) }
    }

    fn note_gap(&mut self, header: &Header<'_>, at_ns: u64) {
        let Some(source) = Source::of(header) else {
            return;
        };
        if self.gaps_ns.len() >= GAPS_MAX || self.seen_ns.len() >= TABLE_ENTRIES_MAX {
            return;
        }
        let gap_ns = self
            .seen_ns
            .insert(source, at_ns)
            .map(|last_ns| at_ns.saturating_sub(last_ns));
        self.gaps_ns.extend(gap_ns.filter(|gap_ns| *gap_ns > 0));
    }

    /// A frame; lines with a source are skipped, others counted.
    fn frame_line(&mut self, line: &str) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if let Some(frame) = frame::frame(line) {
            // A line of the file takes more bytes than a frame here.
            open.frames.push(self.builder.frame(&frame)?);
            return Ok(());
        }
        let is_source = line
            .rsplit_once(':')
            .is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_source {
            self.unread.lines += 1;
            if self.unread.first.is_empty() {
                self.unread.first = echo(line);
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), ImportError> {
        self.is_skipping = false;
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.frames.reverse();
        let top = self.builder.top(None, None)?;
        let node = self.builder.stack(top, &open.frames)?;
        let thread = self.builder.thread(top, &open.comm, open.tid)?;
        // The thread that runs where nothing else does.
        let is_idle = open.tid == 0 && open.comm.starts_with("swapper");
        let state = if open.is_wait {
            State::Other
        } else if is_idle {
            State::Sleep
        } else {
            self.builder.options.state
        };
        let sample = Sample {
            node,
            thread,
            state,
            weight: open.weight,
            at_ns: open.at_ns,
        };
        if open.is_wait {
            self.waits.push(sample);
            return Ok(());
        }
        self.builder.add(sample)
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.close()?;
        self.note_losses();
        let mut interval_ns = 0;
        if self.has_time_weights == Some(false) {
            interval_ns = self.interval_ns();
            self.builder.scale(interval_ns)?;
        }
        for wait in self.waits {
            self.builder.add(wait)?;
        }
        let length_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        // The last sample stands for the time until the next one.
        let duration_ns = (length_ns > 0).then(|| length_ns.saturating_add(interval_ns.max(1)));
        self.builder.finish(Times {
            started_at: None,
            duration_ns,
        })
    }

    fn note_losses(&mut self) {
        if self.skipped > 0 {
            let event = echo(self.event.as_deref().unwrap_or("offcpu-time"));
            let skipped = self.skipped;
            let note = format!("samples of other events than {event} were skipped: {skipped}");
            self.builder.note(note);
        }
        if self.lost > 0 {
            let lost = self.lost;
            self.builder.note(format!("perf lost samples: {lost}"));
        }
        let Unread { lines, first } = &self.unread;
        if *lines > 0 {
            let note = format!(
                "lines below samples that are no frames were skipped: {lines}; the first is {first:?}"
            );
            self.builder.note(note);
        }
    }

    /// The time of a sample: as given, as recorded, or as busy threads were sampled.
    fn interval_ns(&mut self) -> u64 {
        if let Some(given_ns) = self.builder.options.interval_ns {
            return given_ns;
        }
        if let Some(recorded_ns) = self.header_interval_ns.or(self.command_interval_ns) {
            return recorded_ns;
        }
        // A thread that is not always busy has longer gaps.
        let quarter = self.gaps_ns.len() / 4;
        let estimated_ns = (!self.gaps_ns.is_empty()).then(|| {
            let (_, gap_ns, _) = self.gaps_ns.select_nth_unstable(quarter);
            *gap_ns
        });
        let interval_ns = estimated_ns.unwrap_or(INTERVAL_DEFAULT.as_nanos() as u64);
        let interval_ms = interval_ns as f64 / 1e6;
        let source = if estimated_ns.is_some() {
            "estimated from gaps between samples"
        } else {
            "assumed"
        };
        self.builder.note(format!(
            "a sample is {interval_ms} ms, {source}; --interval sets another time"
        ));
        interval_ns
    }
}
