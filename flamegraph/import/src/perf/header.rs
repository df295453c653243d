//! Headers of samples: `comm pid/tid [cpu] seconds: period event:`.

use super::event::Meaning;
use super::frame::is_bare;

/// The start of lines about mappings, processes and losses, which are not samples.
const RECORD: &str = "PERF_RECORD_";

/// Whether a line is the header of a sample.
pub(in super::super) fn is_header(line: &str) -> bool {
    Header::parse(line).is_some_and(|header| header.at_ns.is_some())
}

/// Whether a line is the header of a sample that has no time, before a line with a frame.
pub(in super::super) fn is_header_without_time(line: &str, next: &str) -> bool {
    has_address(next) && Header::parse(line).is_some()
}

/// Whether a line is the header of a sample that has neither a thread nor a time, before a line with a frame.
pub(in super::super) fn is_header_without_thread(line: &str, next: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let event = match words[..] {
        [event] => event,
        [period, event] if period.bytes().all(|byte| byte.is_ascii_digit()) => event,
        _ => return false,
    };
    let is_time = event
        .strip_suffix(':')
        .is_some_and(|event| !event.is_empty() && Meaning::of(event) != Meaning::Count);
    is_time && has_address(next)
}

/// Whether a line is a frame with an address.
fn has_address(line: &str) -> bool {
    let address = line
        .trim_start()
        .split([' ', '\t'])
        .next()
        .unwrap_or_default();
    (line.starts_with([' ', '\t']) || is_bare(line))
        && !address.is_empty()
        && address.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a line is a comment. The name of a thread may begin like one: `#1 worker 12 [000] 5.5: cycles:`.
pub(in super::super) fn is_comment(line: &str) -> bool {
    let Some(rest) = line.strip_prefix('#') else {
        return false;
    };
    let is_plain = rest.is_empty() || rest.starts_with([' ', '\t', '#']);
    !Header::parse(line).is_some_and(|header| header.at_ns.is_some() || !is_plain)
}

/// Whether a line is a record that is not a sample, as `--show-mmap-events` and others print.
pub(in super::super) fn is_record(line: &str) -> bool {
    let Some(at) = line.find(RECORD) else {
        return false;
    };
    let before = line[..at].trim();
    is_before_record(before) && !is_header(line)
}

/// Whether a text is what precedes the name of a record: nothing, a time, or a command with its thread or processor.
/// A frame has only an address before its name.
fn is_before_record(text: &str) -> bool {
    let Some((command, last)) = text.rsplit_once([' ', '\t']) else {
        return text.is_empty() || text.ends_with(':');
    };
    let is_processor = last.starts_with('[') && last.ends_with(']');
    last.ends_with(':') || is_processor || process(last).is_some() && !command.is_empty()
}

/// The number of samples that a record counts as lost.
pub(super) fn lost_samples(record: &str) -> u64 {
    let lost = record.split_once(" PERF_RECORD_LOST");
    let count = lost.and_then(|(_, rest)| rest.split_once("lost "));
    let digits = count.and_then(|(_, rest)| rest.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The first line of a sample.
#[derive(PartialEq, Debug)]
pub(super) struct Header<'l> {
    pub(super) comm: &'l str,
    pub(super) tid: u32,
    pub(super) processor: Option<u32>,
    pub(super) at_ns: Option<u64>,
    pub(super) period: Option<u64>,
    /// Empty if it is not printed.
    pub(super) event: &'l str,
    /// The only frame, of samples without a stack.
    pub(super) frame: &'l str,
}

impl<'l> Header<'l> {
    /// Whether it is of the thread that runs where nothing else does.
    pub(super) fn is_idle(&self) -> bool {
        self.tid == 0 && self.comm.starts_with("swapper")
    }

    pub(super) fn parse(line: &'l str) -> Option<Header<'l>> {
        let header = Header::parse_trimmed(line.trim_start())?;
        // Frames of a stack are indented, and so are short commands.
        let is_indented = line.starts_with([' ', '\t']);
        (!is_indented || header.at_ns.is_some()).then_some(header)
    }

    fn parse_trimmed(line: &'l str) -> Option<Header<'l>> {
        let mut tokens = Tokens { line, at: 0 };
        // The command may contain blanks, but is followed by numbers.
        let mut thread = None;
        // Whether a further number is not the thread's.
        let mut is_thread_complete = false;
        let mut comm_end = 0;
        let mut at_ns = None;
        let mut processor = None;
        let mut processor_start = None;
        while let Some(token) = tokens.next() {
            let start = tokens.start(token);
            if let Some(time) = time(token)
                && (thread.is_some() || !has_thread_and_time(&line[tokens.at..]))
            {
                at_ns = Some(time);
                if thread.is_none() {
                    comm_end = processor_start.unwrap_or(start);
                }
                break;
            }
            let bracketed = token
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .and_then(|number| number.parse().ok());
            if bracketed.is_some() && processor.is_none() {
                processor = bracketed;
                processor_start = Some(start);
                is_thread_complete |= thread.is_some();
            } else if let Some(id) = process(token).filter(|_| start > 0) {
                let is_pair = token.contains('/');
                // Without a time, a period may follow the thread.
                let is_behind = thread.is_some() && !is_pair;
                if is_behind && (is_thread_complete || is_period(line, start, token)) {
                    tokens.at = start;
                    break;
                }
                thread = Some(id);
                is_thread_complete = is_pair;
                comm_end = start;
                // What stood before is of the command.
                processor = None;
                processor_start = None;
            } else if thread.is_some() && token.ends_with(':') && token.len() > 1 {
                // A sample without a time: this is the event.
                tokens.at = start;
                break;
            }
        }
        let mut comm = line[..comm_end].trim();
        // Each field may be missing, but a line without a thread and a time is anything.
        if thread.is_none() && at_ns.is_some() {
            thread = process(comm);
            if thread.is_some() {
                comm = "";
            }
        }
        let tid = match at_ns {
            Some(_) => thread.unwrap_or(0),
            None => thread?,
        };
        let mut word = tokens.next();
        let period = word.and_then(|period| period.parse().ok());
        if period.is_some() {
            word = tokens.next();
        }
        let event = match word {
            Some(event) => event.strip_suffix(':')?,
            None if at_ns.is_some() => "",
            None => return None,
        };
        if event.starts_with(RECORD) {
            return None;
        }
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
        let token = &rest[start..];
        let length = token
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(token.len());
        self.at += start + length;
        Some(&token[..length])
    }

    /// Where the word that was returned last begins.
    fn start(&self, token: &str) -> usize {
        self.at - token.len()
    }

    fn rest(&self) -> &'l str {
        self.line[self.at..].trim()
    }
}

/// Whether a thread and a time follow, so that what stands before is of the command.
fn has_thread_and_time(line: &str) -> bool {
    let mut tokens = Tokens { line, at: 0 };
    let mut is_behind_thread = false;
    while let Some(token) = tokens.next() {
        if is_behind_thread && time(token).is_some() {
            return true;
        }
        // The processor is between them.
        is_behind_thread = process(token).is_some() || is_behind_thread && token.starts_with('[');
    }
    false
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

/// Whether a number behind that of a thread is a period: perf aligns periods to 10 columns and threads to at most 7.
/// Any other number may be the thread of a command whose name ends with a number.
fn is_period(line: &str, start: usize, token: &str) -> bool {
    const PERIOD_WIDTH: usize = 10;
    const THREAD_ID_MAX: u64 = 1 << 22;
    let before = &line[..start];
    let blanks = before.len() - before.trim_end().len();
    let is_aligned = blanks + token.len() > PERIOD_WIDTH;
    let exceeds_threads = token
        .parse::<u64>()
        .is_ok_and(|number| number > THREAD_ID_MAX);
    is_aligned || exceeds_threads
}

/// The thread of `pid`, `pid/tid` or `tid`.
fn process(token: &str) -> Option<u32> {
    match token.split_once('/') {
        Some((pid, tid)) => pid.parse::<u32>().ok().and_then(|_| tid.parse().ok()),
        None => token.parse().ok(),
    }
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
        check(
            "app 9 U     4.0: 1 e:",
            "app/9 at Some(4000000000) for Some(1): e",
        );
        check(
            "VM guest 9/9 VM:12 VCPU:03 4.0: e:",
            "VM guest/9 at Some(4000000000) for None: e",
        );
        check(
            "job 1.5: x 9/11 [000] 10.010000: 10 e: ",
            "job 1.5: x/11 at Some(10010000000) for Some(10): e",
        );
        check(
            "app 1.5: e: 1f work+0x1 (/opt/app)",
            "app/0 at Some(1500000000) for None: e",
        );
        check(
            "#1 worker 9 4.0: 1 e:",
            "#1 worker/9 at Some(4000000000) for Some(1): e",
        );
        check("app 4.0: e: ", "app/0 at Some(4000000000) for None: e");
        check(
            "an app [002] 4.0: e: ",
            "an app/0 at Some(4000000000) for None: e",
        );
        check(
            "burn  2946    1003009 cpu-clock:u: ",
            "burn/2946 at None for Some(1003009): cpu-clock:u",
        );
        check(
            "pool 7    12     250000 e:",
            "pool 7/12 at None for Some(250000): e",
        );
        check("pool 7      12 e:", "pool 7/12 at None for None: e");
        check("pool 7 4194304 e:", "pool 7/4194304 at None for None: e");
        check("app 12/34 5 e:", "app/34 at None for Some(5): e");
        check(
            "pool 7 25196/25198 28635.253110:    3333333 cpu-clock:ppp:",
            "pool 7/25198 at Some(28635253110000) for Some(3333333): cpu-clock:ppp",
        );
        check(
            "part 1/2 25196/25198    3333333 cpu-clock:",
            "part 1/2/25198 at None for Some(3333333): cpu-clock",
        );
        check(
            "app 34 [002] 1003009000 e:",
            "app/34 at None for Some(1003009000): e",
        );
        check(
            "app 34 1003009000 e:",
            "app/34 at None for Some(1003009000): e",
        );
        check("4.0: e: ", "/0 at Some(4000000000) for None: e");
        check("9 [002] 4.0: e: ", "/9 at Some(4000000000) for None: e");
        check("app 9 4.0: ", "app/9 at Some(4000000000) for None: ");
        check(
            "app 9 4.0:   250000 ",
            "app/9 at Some(4000000000) for Some(250000): ",
        );
        check("\tffffffff81 do_idle+0x10 (/boot/vmlinux)", "");
        check("app 9 4.0: PERF_RECORD_COMM: app:9/9", "");
        check("app 9 4.0: PERF_RECORD_LOST lost 12", "");
        check("main;work 3", "");
        check("", "");
    }

    #[test]
    fn losses_are_counted() {
        assert_eq!(lost_samples("app 9 4.0: PERF_RECORD_LOST lost 12"), 12);
        assert_eq!(
            lost_samples("app 9 4.0: PERF_RECORD_LOST_SAMPLES lost 3"),
            3
        );
        assert_eq!(lost_samples("app 9 4.0: PERF_RECORD_COMM: lost 3:9/9"), 0);
    }
}
