//! Stacks of austin: `P1;T2;file:function:line microseconds`, with comments about the recording.

use profiler_core::Frame;

/// The metric of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Without the comment that has it, as old versions and other programs write.
    Unknown,
    Wall,
    Cpu,
    Memory,
    /// Time, whether the thread was idle, and memory.
    Full,
}

impl Mode {
    /// The metric after a comment: `# austin: 3.5.0`, then `# mode: wall`.
    pub(super) fn of_comment(known: Option<Mode>, comment: &str) -> Option<Mode> {
        let Some((key, value)) = comment.trim_start_matches('#').split_once(':') else {
            return known;
        };
        match (known, key.trim()) {
            (_, "austin") => Some(known.unwrap_or(Mode::Unknown)),
            (Some(_), "mode") => Some(match value.trim() {
                "wall" => Mode::Wall,
                "cpu" => Mode::Cpu,
                "memory" => Mode::Memory,
                "full" => Mode::Full,
                _ => Mode::Unknown,
            }),
            _ => known,
        }
    }
}

/// The metrics of a line of [`Mode::Full`].
pub(super) struct Metrics<'l> {
    pub(super) time: &'l str,
    pub(super) is_idle: bool,
}

impl<'l> Metrics<'l> {
    pub(super) fn parse(weight: &'l str) -> Option<Metrics<'l>> {
        let mut metrics = weight.split(',');
        let time = metrics.next()?;
        let is_idle = metrics.next()? != "0";
        Some(Metrics { time, is_idle })
    }
}

/// The thread of a frame such as `T12` or `T0:12`.
pub(super) fn thread_id(frame: &str) -> Option<u32> {
    let id = frame.strip_prefix('T')?;
    id.rsplit(':').next()?.parse().ok()
}

/// Whether a frame is a process: `P12`.
pub(super) fn is_process(frame: &str) -> bool {
    let id = frame.strip_prefix('P').unwrap_or_default();
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a stack begins with a process and a thread.
pub(super) fn has_thread(stack: &str) -> bool {
    let mut frames = stack.split(';');
    let process = frames.next().unwrap_or_default();
    is_process(process) && frames.next().and_then(thread_id).is_some()
}

/// `file:function:line`.
pub(super) fn frame(name: &str) -> Frame<&str> {
    let mut parts = name.rsplitn(3, ':');
    let [line, function, file] = [parts.next(), parts.next(), parts.next()];
    let line = line.and_then(|line| line.parse().ok());
    match (file, function, line) {
        (Some(file), Some(function), Some(line)) if !function.is_empty() => {
            Frame::function(function, file, line)
        }
        _ => Frame::function(name, "", 0),
    }
}
