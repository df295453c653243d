//! How far a run is, as a line in the terminal.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::callback::Callback;
use super::run::{Counts, RunInfo, State};
use crate::spawn::spawn;
use crate::sync::lock;

/// The longest bar, in characters.
const WIDTH_MAX: usize = 1_000;

/// The shortest time between two drawings.
const DT_MIN: Duration = Duration::from_millis(1);

/// Draws how far each run is:
///
/// ```text
/// [################                        ] | 40% Completed | 2.8s
/// ```
///
/// 100 % are the tasks that the run [expects](super::RunBuilder::expect); if it expects none, those
/// that have started so far. When the run has finished the bar is full, unless the run errored, and
/// the line ends. Where nobody looks, that is if the output is no terminal, nothing is written.
///
/// ```
/// use std::time::Duration;
///
/// use emberline_agent::diagnostics::{self, ProgressBar};
///
/// let bar = ProgressBar::new().minimum(Duration::from_secs(1));
/// let _scope = diagnostics::scope(bar.clone());
/// diagnostics::run("nightly").expect("load", 100).during(|| { /* … */ });
/// println!("it took {:.1?}", bar.last_duration());
/// ```
#[derive(Clone, Debug)]
pub struct ProgressBar {
    look: Look,
    even_without_terminal: bool,
    out: Out,
    drawing: Arc<Mutex<Drawing>>,
}

/// What the bar looks like.
#[derive(Clone, Copy, Debug)]
struct Look {
    minimum: Duration,
    width: usize,
    dt: Duration,
}

/// Where the bar goes to.
#[derive(Clone)]
struct Out {
    writer: Arc<Mutex<dyn Write + Send>>,
    is_terminal: bool,
}

impl fmt::Debug for Out {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Out")
            .field("is_terminal", &self.is_terminal)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Drawing {
    drawer: Option<Drawer>,
    last_duration: Duration,
}

impl Default for ProgressBar {
    fn default() -> ProgressBar {
        ProgressBar::new()
    }
}

impl ProgressBar {
    /// Forty characters wide, drawn ten times a second on standard error, from the start.
    #[must_use]
    pub fn new() -> ProgressBar {
        let dt = Duration::from_millis(100);
        let bar = ProgressBar {
            look: Look { minimum: Duration::ZERO, width: 40, dt },
            even_without_terminal: false,
            out: Out { writer: Arc::new(Mutex::new(std::io::sink())), is_terminal: false },
            drawing: Arc::default(),
        };
        bar.out(std::io::stderr())
    }

    /// Draws nothing before a run has lasted so long, and so nothing for a shorter one.
    #[must_use]
    pub fn minimum(mut self, minimum: Duration) -> ProgressBar {
        self.look.minimum = minimum;
        self
    }

    /// The bar's characters between the brackets, up to 1,000.
    #[must_use]
    pub fn width(mut self, characters: usize) -> ProgressBar {
        self.look.width = characters.min(WIDTH_MAX);
        self
    }

    /// The time between two drawings, at least a millisecond.
    #[must_use]
    pub fn dt(mut self, dt: Duration) -> ProgressBar {
        self.look.dt = dt.max(DT_MIN);
        self
    }

    /// Where to draw: standard output, standard error, a file.
    #[must_use]
    pub fn out(mut self, out: impl Write + IsTerminal + Send + 'static) -> ProgressBar {
        self.out = Out { is_terminal: out.is_terminal(), writer: Arc::new(Mutex::new(out)) };
        self
    }

    /// Where to draw: anything that can be written to. It is written to as a terminal would be.
    #[must_use]
    pub fn writer(mut self, out: impl Write + Send + 'static) -> ProgressBar {
        self.out = Out { is_terminal: true, writer: Arc::new(Mutex::new(out)) };
        self
    }

    /// Draws also where the output is no terminal, as for a log that is looked at later.
    #[must_use]
    pub fn even_without_terminal(mut self) -> ProgressBar {
        self.even_without_terminal = true;
        self
    }

    /// How long the last run took that has finished; 0 before.
    #[must_use]
    pub fn last_duration(&self) -> Duration {
        lock(&self.drawing).last_duration
    }

    fn is_seen(&self) -> bool {
        self.out.is_terminal || self.even_without_terminal
    }
}

impl Callback for ProgressBar {
    fn start_state(&self, _: &RunInfo, state: &State) {
        let drawing = &mut lock(&self.drawing);
        let pen = Pen { out: self.out.clone(), look: self.look, columns: 0 };
        drawing.drawer = Some(Drawer::start(pen, state.clone(), self.is_seen()));
    }

    fn finish(&self, _: &RunInfo, state: &State, errored: bool) {
        let drawer = lock(&self.drawing).drawer.take();
        let Some(drawer) = drawer else { return };
        let elapsed = drawer.begun.elapsed();
        lock(&self.drawing).last_duration = elapsed;
        if let Some(mut pen) = drawer.stop()
            && elapsed >= self.look.minimum
        {
            let fraction = if errored { fraction(state.counts()) } else { 1.0 };
            pen.draw(fraction, elapsed);
            pen.end_line();
        }
    }

    // A run may go on, whose end will not be told any more.
    fn exit(&self) {
        let drawer = lock(&self.drawing).drawer.take();
        if let Some(mut pen) = drawer.and_then(Drawer::stop) {
            pen.end_line();
        }
    }
}

/// The part of the known tasks that has ended. It may shrink when more become known.
fn fraction(counts: Counts) -> f64 {
    match counts.expected {
        0 => 0.0,
        expected => counts.finished as f64 / expected as f64,
    }
}

/// The thread that draws while the run goes on.
struct Drawer {
    begun: Instant,
    /// `None` if nobody looks.
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
    pen: Arc<Mutex<Pen>>,
}

impl Drawer {
    fn start(pen: Pen, state: State, is_seen: bool) -> Drawer {
        let begun = Instant::now();
        let (Look { minimum, dt, .. }, pen) = (pen.look, Arc::new(Mutex::new(pen)));
        if !is_seen {
            return Drawer { begun, thread: None, pen };
        }
        let (stop, stopped) = sync_channel::<()>(0);
        let pen_of_thread = pen.clone();
        let body = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(dt) {
                let elapsed = begun.elapsed();
                if elapsed > minimum {
                    // The full bar is for the end, which is not known to be near.
                    lock(&pen_of_thread).draw(fraction(state.counts()).min(0.99), elapsed);
                }
            }
        };
        let thread = spawn("progress", body);
        if let Err(error) = &thread {
            tracing::warn!("progress is not shown: {error}");
        }
        Drawer { begun, thread: thread.ok().map(|thread| (stop, thread)), pen }
    }

    /// Ends the drawing; gives the pen for the last line if anybody looks.
    fn stop(self) -> Option<Pen> {
        let (stop, thread) = self.thread?;
        drop(stop);
        // A panic of the thread is in the log.
        let _ = thread.join();
        Arc::into_inner(self.pen)
            .map(|pen| pen.into_inner().unwrap_or_else(|error| error.into_inner()))
    }
}

impl fmt::Debug for Drawer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Drawer").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// What writes the line.
struct Pen {
    out: Out,
    look: Look,
    /// How long the line is that stands there: a shorter one must cover it.
    columns: usize,
}

impl Pen {
    fn draw(&mut self, fraction: f64, elapsed: Duration) {
        let line = line(fraction, self.look.width, elapsed);
        let before = std::mem::replace(&mut self.columns, line.len());
        self.write(format_args!("\r{line:before$}"));
    }

    /// Ends a line that was begun.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.columns) > 0 {
            self.write(format_args!("\n"));
        }
    }

    fn write(&self, text: fmt::Arguments<'_>) {
        let mut out = lock(&self.out.writer);
        // An output that is gone is no reason to stop the program.
        let _ = out.write_fmt(text).and_then(|()| out.flush());
    }
}

fn line(fraction: f64, width: usize, elapsed: Duration) -> String {
    let fraction = fraction.clamp(0.0, 1.0);
    let bar = "#".repeat((width as f64 * fraction) as usize);
    let percent = (100.0 * fraction) as u32;
    format!("[{bar:width$}] | {percent}% Completed | {}", duration(elapsed))
}

/// As `2.8s`, `16min 40.4s` or `1h 2min 3.0s`.
fn duration(elapsed: Duration) -> String {
    let tenths = (elapsed.as_millis() + 50) / 100;
    let (minutes, tenths) = (tenths / 600, tenths % 600);
    let seconds = format!("{}.{}s", tenths / 10, tenths % 10);
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}min {seconds}"),
        (hours, minutes) => format!("{hours}h {minutes}min {seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_like_the_origins() {
        for (fraction, width, elapsed_ms, expected) in [
            (0.0, 8, 0, "[        ] | 0% Completed | 0.0s"),
            (0.5, 8, 2_800, "[####    ] | 50% Completed | 2.8s"),
            (0.999, 8, 2_849, "[####### ] | 99% Completed | 2.8s"),
            (1.0, 8, 59_949, "[########] | 100% Completed | 59.9s"),
            (1.0, 4, 59_950, "[####] | 100% Completed | 1min 0.0s"),
            (0.4, 40, 1_000_400, &format!("[{:40}] | 40% Completed | 16min 40.4s", "#".repeat(16))),
            (0.1, 0, 3_723_000, "[] | 10% Completed | 1h 2min 3.0s"),
            (7.0, 2, 100, "[##] | 100% Completed | 0.1s"),
            (f64::NAN, 2, 100, "[  ] | 0% Completed | 0.1s"),
        ] {
            assert_eq!(line(fraction, width, Duration::from_millis(elapsed_ms)), expected);
        }
    }

    /// What is known may grow, and then the line shrinks: nothing of the longer one stays.
    #[test]
    fn a_shorter_line_covers_the_longer_one() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Out { writer: written.clone(), is_terminal: true };
        let look = Look { minimum: Duration::ZERO, width: 4, dt: DT_MIN };
        let mut pen = Pen { out, look, columns: 0 };
        pen.draw(0.10, Duration::from_secs(1));
        pen.draw(0.09, Duration::from_secs(1));
        pen.end_line();
        pen.end_line();
        let written = String::from_utf8(lock(&written).clone()).unwrap();
        assert_eq!(written, "\r[    ] | 10% Completed | 1.0s\r[    ] | 9% Completed | 1.0s \n");
    }
}
