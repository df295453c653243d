//! The text of `perf script`: a header for each sample, then its stack, innermost frame first.

mod event;
mod frame;
mod gaps;
mod header;
mod survey;

use profiler_core::{FrameId, State};

use self::event::{Interval, Meaning, Modes, plain_event};
use self::gaps::Gaps;
use self::header::{Header, lost_samples};
pub(super) use self::header::{
    is_comment, is_header, is_header_without_thread, is_header_without_time, is_record,
};
use self::survey::Survey;
use super::builder::{Builder, Sample, Times};
use super::error::{ImportError, echo};
use super::limits::{ENTRY_BYTES_MAX, INTERVAL_DEFAULT};
use super::model::{ImportFormat, ImportOptions, Imported};

/// Parses the output of `perf script`.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut parser = Parser::new(options, Survey::of(content, options)?);
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

/// A sample whose stack is being read.
struct Open {
    comm: String,
    tid: u32,
    at_ns: u64,
    weight: u64,
    is_wait: bool,
    is_idle: bool,
    /// Innermost first.
    frames: Vec<FrameId>,
}

/// Lines that have no place in a profile.
#[derive(Default)]
struct Unread {
    lines: u64,
    first: String,
}

/// The meaning of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    /// Periods, which are nanoseconds.
    Time,
    /// Periods, which are shares of the time.
    Shares,
    /// Numbers of samples.
    Samples,
}

/// The interval that a comment has for the event in a mode.
struct HeaderInterval {
    modes: Modes,
    nanoseconds: u64,
}

struct Parser<'a> {
    builder: Builder<'a>,
    open: Option<Open>,
    /// Samples that do not count are skipped, but for waits.
    survey: Survey,
    /// `None` before the first sample.
    measure: Option<Measure>,
    /// Samples off the CPU, whose weights are nanoseconds.
    waits: Vec<Sample>,
    skipped: u64,
    lost: u64,
    unread: Unread,
    first_ns: Option<u64>,
    last_ns: u64,
    /// By index of a mode.
    gaps: Vec<Gaps>,
    header_intervals: Vec<HeaderInterval>,
    /// By the command that recorded it.
    command_interval_ns: Option<u64>,
    is_system_wide: bool,
    is_skipping: bool,
}

impl<'a> Parser<'a> {
    fn new(options: &'a ImportOptions, survey: Survey) -> Parser<'a> {
        let modes = survey.modes.len().max(1);
        Parser {
            builder: Builder::new(ImportFormat::Perf, options),
            open: None,
            gaps: (0..modes).map(|_| Gaps::default()).collect(),
            is_system_wide: survey.has_idle,
            survey,
            measure: None,
            waits: Vec::new(),
            skipped: 0,
            lost: 0,
            unread: Unread::default(),
            first_ns: None,
            last_ns: 0,
            header_intervals: Vec::new(),
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
        if line.starts_with('|') && (self.open.is_some() || self.is_skipping) {
            // Source code, of `-F +srccode`.
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
        if let Some(command) = comment.trim_start().strip_prefix("cmdline : ") {
            self.command_interval_ns = self
                .command_interval_ns
                .or_else(|| event::interval_of_command(command));
            self.is_system_wide |= event::is_system_wide(command);
        }
        let interval = Interval::parse(comment)
            .filter(|interval| self.survey.event.as_deref() == Some(plain_event(interval.event)));
        if let Some(Interval { event, nanoseconds }) = interval {
            self.header_intervals.push(HeaderInterval {
                modes: Modes::of(event),
                nanoseconds,
            });
        }
    }

    fn header(&mut self, header: &Header<'_>, number: usize) -> Result<(), ImportError> {
        let is_wait = Meaning::of(header.event) == Meaning::OffCpu && header.period.is_some();
        self.is_skipping = !is_wait && !self.survey.counts(header.event);
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
            let mode = self.survey.mode(header.event).unwrap_or(0);
            self.gaps[mode].note(header, at_ns);
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
            is_idle: header.is_idle(),
            frames: Vec::new(),
        });
        if !header.frame.is_empty() {
            self.frame_line(header.frame)?;
        }
        Ok(())
    }

    /// `None` if the sample has no period, but those before it had one.
    fn weight(&mut self, header: &Header<'_>) -> Option<u64> {
        let first = self.measure_of(header);
        match *self.measure.get_or_insert(first) {
            Measure::Time | Measure::Shares => header.period,
            Measure::Samples => Some(1),
        }
    }

    /// The meaning of the weights, if this is the first sample.
    fn measure_of(&self, header: &Header<'_>) -> Measure {
        // Cycles come in equal intervals, but for some before the kernel knows their frequency.
        let has_interval = self.builder.options.interval_ns.is_some()
            || !self.header_intervals.is_empty()
            || self.command_interval_ns.is_some();
        if Meaning::of(header.event) == Meaning::Clock && header.period.is_some() {
            Measure::Time
        } else if self.survey.has_shares
            || self.survey.is_cycles && self.survey.has_periods && !has_interval
        {
            Measure::Shares
        } else {
            Measure::Samples
        }
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
        let state = if open.is_wait {
            State::Other
        } else if open.is_idle {
            State::Sleep
        } else {
            self.builder.options.state()
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
        let interval_ns = match self.measure {
            Some(Measure::Shares) if self.survey.has_shares => self.share_by_mode()?,
            Some(Measure::Shares) => self.share()?,
            Some(Measure::Samples) => {
                let interval_ns = self.interval_ns();
                self.builder.scale(interval_ns)?;
                interval_ns
            }
            Some(Measure::Time) | None => 0,
        };
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
            let event = echo(self.survey.event.as_deref().unwrap_or("offcpu-time"));
            let skipped = self.skipped;
            let note = format!("samples of other events than {event} were skipped: {skipped}");
            self.builder.note(note);
        }
        if self.survey.event.as_deref() == Some("") {
            let note = "the samples do not name their event, which is taken for cycles; `perf script -F +event` names it";
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

    /// Divides the time of the mode that was sampled most among all samples, by their periods: each mode is sampled
    /// all the time, however rare it is. Returns the time between two samples.
    fn share_by_mode(&mut self) -> Result<u64, ImportError> {
        let modes = self.gaps.len();
        let mut total_ns = 0_u64;
        let mut shortest_ns = u64::MAX;
        for mode in 0..modes {
            let samples = self.gaps[mode].samples;
            let known = self.interval_of_mode(mode);
            let default_ns = INTERVAL_DEFAULT.as_nanos() as u64;
            let interval_ns = known.map_or(default_ns, |interval| interval.nanoseconds);
            shortest_ns = shortest_ns.min(interval_ns);
            let time_ns = samples
                .checked_mul(interval_ns)
                .ok_or_else(|| self.builder.too_heavy())?;
            total_ns = total_ns.max(time_ns);
        }
        self.builder.share(total_ns);
        let event = echo(self.survey.event.as_deref().unwrap_or_default());
        let seconds = total_ns as f64 / 1e9;
        self.builder.note(format!(
            "samples of {event} in {modes} modes share {seconds:.3} s, by their periods; --interval sets a time for each"
        ));
        Ok(shortest_ns)
    }

    /// Divides the time in which a busy thread has as many cycles, by the periods of the samples. Returns the time
    /// between two samples.
    fn share(&mut self) -> Result<u64, ImportError> {
        let samples = self.gaps[0].samples;
        let Some(rate) = self.gaps[0].busy_rate(self.is_system_wide) else {
            // The same for each sample, of which there are too few.
            let interval_ns = self.interval_ns();
            let total_ns = samples.checked_mul(interval_ns);
            self.builder
                .share(total_ns.ok_or_else(|| self.builder.too_heavy())?);
            return Ok(interval_ns);
        };
        let total_ns = rate
            .time_ns(self.builder.total())
            .ok_or_else(|| self.builder.too_heavy())?;
        self.builder.share(total_ns);
        let hertz = rate.per_second();
        self.builder.note(format!(
            "a second is {hertz:.3e} cycles, estimated from gaps between samples; --interval sets a time for each \
             sample"
        ));
        Ok(total_ns / samples.max(1))
    }

    /// The time of a sample: as given, as recorded, or as busy threads were sampled.
    fn interval_ns(&mut self) -> u64 {
        if let Some(given_ns) = self.builder.options.interval_ns {
            return given_ns;
        }
        // Modes in which a processor is seldom have long gaps.
        let shortest = (0..self.gaps.len())
            .filter_map(|mode| self.interval_of_mode(mode))
            .min_by_key(|interval| interval.nanoseconds);
        let (interval_ns, source) = match shortest {
            Some(ModeInterval {
                nanoseconds,
                is_recorded: true,
            }) => return nanoseconds,
            Some(interval) => (interval.nanoseconds, "estimated from gaps between samples"),
            None => (INTERVAL_DEFAULT.as_nanos() as u64, "assumed"),
        };
        let interval_ms = interval_ns as f64 / 1e6;
        self.builder.note(format!(
            "a sample is {interval_ms} ms, {source}; --interval sets another time"
        ));
        interval_ns
    }

    /// The interval of a mode, as recorded or estimated.
    fn interval_of_mode(&mut self, mode: usize) -> Option<ModeInterval> {
        let modes = self.survey.modes.get(mode);
        let same_first = self
            .header_intervals
            .iter()
            .find(|interval| Some(&interval.modes) == modes)
            .or(self.header_intervals.first());
        let recorded_ns = same_first
            .map(|interval| interval.nanoseconds)
            .or(self.command_interval_ns);
        if let Some(nanoseconds) = recorded_ns {
            return Some(ModeInterval {
                nanoseconds,
                is_recorded: true,
            });
        }
        // Cycles come fast at the start, until the kernel knows their frequency.
        let part = if self.survey.is_cycles { 4 } else { 20 };
        let estimated_ns = self.gaps[mode].estimated_ns(self.is_system_wide, part);
        estimated_ns.map(|nanoseconds| ModeInterval {
            nanoseconds,
            is_recorded: false,
        })
    }
}

/// The time between samples of a mode.
struct ModeInterval {
    nanoseconds: u64,
    is_recorded: bool,
}
