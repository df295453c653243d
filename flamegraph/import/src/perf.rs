//! The text of `perf script`: a header for each sample, then its stack, innermost frame first.

use std::collections::HashMap;

use profiler_core::{Frame, FrameId, FrameKind, State};

use super::builder::{Builder, Sample, Times};
use super::error::{ImportError, echo};
use super::limits::{ENTRY_BYTES_MAX, GAPS_MAX, INTERVAL_DEFAULT, TABLE_ENTRIES_MAX};
use super::model::{ImportFormat, ImportOptions, Imported};

/// Parses the output of `perf script`.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut parser = Parser::new(options);
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

/// Whether a line is the header of a sample.
pub(super) fn is_header(line: &str) -> bool {
    Header::parse(line).is_some_and(|header| header.at_ns.is_some())
}

/// Whether a line is the header of a sample that has no time, before a line with a frame.
pub(super) fn is_header_without_time(line: &str, next: &str) -> bool {
    let address = next.trim_start().split(' ').next().unwrap_or_default();
    let is_frame = next.starts_with([' ', '\t'])
        && !address.is_empty()
        && address.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_frame && Header::parse(line).is_some()
}

/// The first line of a sample: `comm pid/tid [cpu] seconds: period event:`.
#[derive(PartialEq, Debug)]
struct Header<'l> {
    comm: &'l str,
    tid: u32,
    processor: Option<u32>,
    at_ns: Option<u64>,
    period: Option<u64>,
    event: &'l str,
    /// The only frame, of samples without a stack.
    frame: &'l str,
}

impl<'l> Header<'l> {
    fn parse(line: &'l str) -> Option<Header<'l>> {
        let header = Header::parse_trimmed(line.trim_start())?;
        // Frames of a stack are indented, and so are short commands.
        let is_indented = line.starts_with([' ', '\t']);
        (!is_indented || header.at_ns.is_some()).then_some(header)
    }

    fn parse_trimmed(line: &'l str) -> Option<Header<'l>> {
        let mut tokens = Tokens { line, at: 0 };
        // The command may contain blanks, but is followed by numbers.
        let mut tid = None;
        let mut comm_end = 0;
        let mut at_ns = None;
        let mut processor = None;
        while let Some(token) = tokens.next() {
            if comm_end > 0 || tokens.start(token) > 0 {
                if let Some(time) = time(token) {
                    at_ns = Some(time);
                    break;
                }
                if let Some(id) = process(token) {
                    tid = Some(id);
                    comm_end = tokens.start(token);
                    continue;
                }
                let bracketed = token
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix(']'));
                if let Some(number) = bracketed.filter(|_| comm_end > 0) {
                    processor = processor.or(number.parse().ok());
                    continue;
                }
                if comm_end > 0 && token.ends_with(':') && token.len() > 1 {
                    // A sample without a time: this is the event.
                    tokens.at = tokens.start(token);
                    break;
                }
            }
        }
        let tid = tid?;
        let comm = line[..comm_end].trim();
        let mut event = tokens.next()?;
        let period = event.parse().ok();
        if period.is_some() {
            event = tokens.next()?;
        }
        let event = event.strip_suffix(':')?;
        let frame = tokens.rest();
        Some(Header {
            comm,
            tid,
            processor,
            at_ns,
            period,
            event,
            frame,
        })
    }
}

/// Words of a line, separated by blanks.
struct Tokens<'l> {
    line: &'l str,
    at: usize,
}

impl<'l> Tokens<'l> {
    fn next(&mut self) -> Option<&'l str> {
        let rest = &self.line[self.at..];
        let start = rest.find(|c: char| !c.is_ascii_whitespace())?;
        let rest = &rest[start..];
        let length = rest
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        self.at += start + length;
        Some(&rest[..length])
    }

    /// Where the word that was returned last begins.
    fn start(&self, token: &str) -> usize {
        self.at - token.len()
    }

    fn rest(&self) -> &'l str {
        self.line[self.at..].trim()
    }
}

/// `seconds.fraction:` in nanoseconds.
fn time(token: &str) -> Option<u64> {
    let (seconds, fraction) = token.strip_suffix(':')?.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok()?;
    let fraction_ns = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - digits);
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction_ns)
}

/// The thread of `pid`, `pid/tid` or `tid`.
fn process(token: &str) -> Option<u32> {
    match token.split_once('/') {
        Some((pid, tid)) => pid.parse::<u32>().ok().and_then(|_| tid.parse().ok()),
        None => token.parse().ok(),
    }
}

/// A sample whose stack is being read.
struct Open {
    comm: String,
    tid: u32,
    at_ns: u64,
    weight: u64,
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
    fn of(header: &Header<'_>) -> Source {
        header
            .processor
            .map_or(Source::Thread(header.tid), Source::Processor)
    }
}

struct Parser<'a> {
    builder: Builder<'a>,
    open: Option<Open>,
    /// The event of the first sample; others are skipped.
    event: Option<String>,
    has_time_weights: bool,
    skipped: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    /// The last sample of each source, and the gaps between them.
    seen_ns: HashMap<Source, u64>,
    gaps_ns: Vec<u64>,
    header_interval_ns: Option<u64>,
    is_skipping: bool,
}

impl<'a> Parser<'a> {
    fn new(options: &'a ImportOptions) -> Parser<'a> {
        Parser {
            builder: Builder::new(ImportFormat::Perf, options),
            open: None,
            event: None,
            has_time_weights: false,
            skipped: 0,
            first_ns: None,
            last_ns: 0,
            seen_ns: HashMap::new(),
            gaps_ns: Vec::new(),
            header_interval_ns: None,
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
        if let Some(comment) = line.strip_prefix('#') {
            self.header_interval_ns = self.header_interval_ns.or_else(|| interval_ns(comment));
            return Ok(());
        }
        if self.open.is_some() || self.is_skipping {
            if line.starts_with([' ', '\t']) && !is_header(line) {
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
        self.header(&header)
    }

    fn header(&mut self, header: &Header<'_>) -> Result<(), ImportError> {
        let event = self.event.get_or_insert_with(|| header.event.to_owned());
        self.is_skipping = plain_event(event) != plain_event(header.event);
        if self.is_skipping {
            self.skipped += 1;
            return Ok(());
        }
        let is_clock =
            header.event.starts_with("cpu-clock") || header.event.starts_with("task-clock");
        if self.first_ns.is_none() {
            self.has_time_weights = is_clock && header.period.is_some();
        }
        let at_ns = header.at_ns.unwrap_or(0);
        // Samples are sorted, but for a few of different processors.
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        self.last_ns = self.last_ns.max(at_ns);
        self.note_gap(Source::of(header), at_ns);
        let weight = match header.period {
            Some(period) if self.has_time_weights => period,
            _ => 1,
        };
        let comm = header.comm.to_owned();
        let at_ns = at_ns.saturating_sub(first_ns);
        self.open = Some(Open {
            comm,
            tid: header.tid,
            at_ns,
            weight,
            frames: Vec::new(),
        });
        if !header.frame.is_empty() {
            self.frame_line(header.frame)?;
        }
        Ok(())
    }

    fn note_gap(&mut self, source: Source, at_ns: u64) {
        if self.gaps_ns.len() >= GAPS_MAX || self.seen_ns.len() >= TABLE_ENTRIES_MAX {
            return;
        }
        let gap_ns = self
            .seen_ns
            .insert(source, at_ns)
            .map(|last_ns| at_ns.saturating_sub(last_ns));
        self.gaps_ns.extend(gap_ns.filter(|gap_ns| *gap_ns > 0));
    }

    /// `address symbol+0xoffset (module)`; lines with a source place are skipped.
    fn frame_line(&mut self, line: &str) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let Some((address, rest)) = line.split_once(' ') else {
            return Ok(());
        };
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(());
        }
        let rest = rest.trim();
        let (symbol, module) = match rest
            .strip_suffix(')')
            .and_then(|rest| rest.rsplit_once(" ("))
        {
            Some((symbol, module)) => (symbol.trim(), module),
            None => (rest, ""),
        };
        let inlined = module == "inlined";
        let module = if inlined || module == "[unknown]" {
            ""
        } else {
            module
        };
        let symbol = match symbol.rsplit_once("+0x") {
            Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
            _ => symbol,
        };
        let is_unknown = symbol.is_empty() || symbol == "[unknown]";
        let kind = if is_unknown {
            FrameKind::Unresolved
        } else {
            FrameKind::Function
        };
        let function = if is_unknown { "" } else { symbol };
        let frame = Frame {
            kind,
            module,
            inlined,
            ..Frame::function(function, "", 0)
        };
        let frame = self.builder.frame(&frame)?;
        // A line of the file takes more bytes than a frame here.
        open.frames.push(frame);
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
        let state = if is_idle {
            State::Sleep
        } else {
            self.builder.options.state
        };
        self.builder.add(Sample {
            node,
            thread,
            state,
            weight: open.weight,
            at_ns: open.at_ns,
        })
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.close()?;
        if self.skipped > 0 {
            let event = echo(self.event.as_deref().unwrap_or_default());
            let skipped = self.skipped;
            let note = format!("samples of other events than {event} were skipped: {skipped}");
            self.builder.note(note);
        }
        let mut interval_ns = 0;
        if !self.has_time_weights {
            interval_ns = self.interval_ns();
            self.builder.scale(interval_ns)?;
        }
        let length_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        // The last sample stands for the time until the next one.
        let duration_ns = (length_ns > 0).then(|| length_ns.saturating_add(interval_ns.max(1)));
        self.builder.finish(Times {
            started_at: None,
            duration_ns,
        })
    }

    /// The time of a sample: as given, as recorded, or as busy threads were sampled.
    fn interval_ns(&mut self) -> u64 {
        if let Some(given_ns) = self.builder.options.interval_ns {
            return given_ns;
        }
        if let Some(recorded_ns) = self.header_interval_ns {
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

/// An event without what it does not differ by: the kind of processor (`cpu_atom/cycles/P`), and modifiers
/// (`cycles:u`).
fn plain_event(event: &str) -> &str {
    const MODIFIERS: &str = "ukhpPGHSDIWeb";
    let of_kind = ["cpu_core/", "cpu_atom/"]
        .iter()
        .find_map(|kind| event.strip_prefix(kind));
    if let Some((plain, _)) = of_kind.and_then(|event| event.split_once('/')) {
        return plain;
    }
    match event.rsplit_once(':') {
        Some((plain, modifiers)) if modifiers.chars().all(|c| MODIFIERS.contains(c)) => plain,
        _ => event,
    }
}

/// The interval that a comment of `perf script --header` tells.
fn interval_ns(comment: &str) -> Option<u64> {
    let event = comment.trim_start().strip_prefix("event : ")?;
    if !event.contains("freq = 1") {
        return None;
    }
    let (_, after) = event.split_once("sample_freq } = ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    let frequency_hz = digits
        .parse::<u64>()
        .ok()
        .filter(|frequency| *frequency > 0)?;
    Some(1_000_000_000 / frequency_hz.min(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let header = Header::parse(line).map(|header| {
            let Header {
                comm,
                tid,
                at_ns,
                period,
                event,
                ..
            } = header;
            format!("{comm}/{tid} at {at_ns:?} for {period:?}: {event}")
        });
        assert_eq!(header.unwrap_or_default(), expected, "{line:?}");
    }

    #[test]
    fn headers_are_read_with_and_without_their_optional_parts() {
        check(
            "app 12/34 [003] 5.5:  250000 cpu-clock:ppp: ",
            "app/34 at Some(5500000000) for Some(250000): cpu-clock:ppp",
        );
        check(
            "tokio runtime w 12 7.000000001: cycles:",
            "tokio runtime w/12 at Some(7000000001) for None: cycles",
        );
        check("java 9 cycles: ", "java/9 at None for None: cycles");
        check(
            "a 1 2 3 [000] 4.0: 1 e:",
            "a 1 2/3 at Some(4000000000) for Some(1): e",
        );
        check("\tffffffff81 do_idle+0x10 (/boot/vmlinux)", "");
        check("main;work 3", "");
        check("", "");
    }
}
