//! The progress of a run as a line in the terminal.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::callback::Callback;
use super::run::{Counts, RunInfo, State};
use crate::sync::lock;
use emberline_agent::observe::spawn_thread;

/// Largest width of the bar, in characters.
const WIDTH_MAX: usize = 1_000;

/// Shortest time between two updates.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Draws the progress of each run:
///
/// ```text
/// [################                        ] | 40% Completed | 2.8s
/// ```
///
/// 100 % are the tasks that the run [expects](super::RunBuilder::expect), or if it expects none, the
/// tasks that have started so far. At the end of the run the bar is full, unless the run failed.
/// Nothing is written if the output is not a terminal.
///
/// ```
/// use std::time::Duration;
///
/// use emberline_diagnostics::{self as diagnostics, ProgressBar};
///
/// let bar = ProgressBar::new().minimum(Duration::from_secs(1));
/// let _scope = diagnostics::scope(bar.clone());
/// diagnostics::run("nightly").expect("load", 100).during(|| { /* … */ });
/// println!("it took {:.1?}", bar.last_duration());
/// ```
#[derive(Clone, Debug)]
pub struct ProgressBar {
    style: BarStyle,
    even_without_terminal: bool,
    out: Out,
    drawing: Arc<Mutex<Drawing>>,
}

/// The appearance of the bar.
#[derive(Clone, Copy, Debug)]
struct BarStyle {
    minimum: Duration,
    width: usize,
    interval: Duration,
}

/// The output of the bar.
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
    /// Returns a bar of forty characters on standard error, updated ten times a second.
    #[must_use]
    pub fn new() -> ProgressBar {
        let interval = Duration::from_millis(100);
        let bar = ProgressBar {
            style: BarStyle {
                minimum: Duration::ZERO,
                width: 40,
                interval,
            },
            even_without_terminal: false,
            out: Out {
                writer: Arc::new(Mutex::new(std::io::sink())),
                is_terminal: false,
            },
            drawing: Arc::default(),
        };
        bar.out(std::io::stderr())
    }

    /// Sets how long a run must last before it is shown. The default is zero.
    #[must_use]
    pub fn minimum(mut self, minimum: Duration) -> ProgressBar {
        self.style.minimum = minimum;
        self
    }

    /// Sets the characters between the brackets, up to 1,000.
    #[must_use]
    pub fn width(mut self, characters: usize) -> ProgressBar {
        self.style.width = characters.min(WIDTH_MAX);
        self
    }

    /// Sets the time between two updates, at least a millisecond.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> ProgressBar {
        self.style.interval = interval.max(INTERVAL_MIN);
        self
    }

    /// Sets the output: standard output, standard error or a file.
    #[must_use]
    pub fn out(mut self, out: impl Write + IsTerminal + Send + 'static) -> ProgressBar {
        self.out = Out {
            is_terminal: out.is_terminal(),
            writer: Arc::new(Mutex::new(out)),
        };
        self
    }

    /// Sets any writer as the output. It is treated as a terminal.
    #[must_use]
    pub fn writer(mut self, out: impl Write + Send + 'static) -> ProgressBar {
        self.out = Out {
            is_terminal: true,
            writer: Arc::new(Mutex::new(out)),
        };
        self
    }

    /// Draws even if the output is not a terminal, for example a log.
    #[must_use]
    pub fn even_without_terminal(mut self) -> ProgressBar {
        self.even_without_terminal = true;
        self
    }

    /// Returns the duration of the last run that has ended; zero before the first.
    #[must_use]
    pub fn last_duration(&self) -> Duration {
        lock(&self.drawing).last_duration
    }

    fn is_visible(&self) -> bool {
        self.out.is_terminal || self.even_without_terminal
    }
}

impl Callback for ProgressBar {
    fn start_state(&self, _: &RunInfo, state: &State) {
        let drawing = &mut lock(&self.drawing);
        let pen = Pen {
            out: self.out.clone(),
            style: self.style,
            columns: 0,
        };
        drawing.drawer = Some(Drawer::start(pen, state.clone(), self.is_visible()));
    }

    fn finish(&self, _: &RunInfo, state: &State, failed: bool) {
        let drawer = lock(&self.drawing).drawer.take();
        let Some(drawer) = drawer else { return };
        let elapsed = drawer.started.elapsed();
        lock(&self.drawing).last_duration = elapsed;
        let pen = drawer.stop().filter(|_| elapsed >= self.style.minimum);
        if let Some(mut pen) = pen {
            let fraction = if failed {
                fraction(state.counts())
            } else {
                1.0
            };
            pen.draw(fraction, elapsed);
            pen.end_line();
        }
    }

    // A run may continue, but `finish` is not called any more.
    fn exit(&self) {
        let drawer = lock(&self.drawing).drawer.take();
        if let Some(mut pen) = drawer.and_then(Drawer::stop) {
            pen.end_line();
        }
    }
}

/// Returns the part of the known tasks that has ended. It shrinks when more become known.
fn fraction(counts: Counts) -> f64 {
    match counts.expected {
        0 => 0.0,
        expected => counts.finished as f64 / expected as f64,
    }
}

/// The thread that updates the bar during a run.
struct Drawer {
    started: Instant,
    /// `None` if the bar is not visible.
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
    pen: Arc<Mutex<Pen>>,
}

impl Drawer {
    fn start(pen: Pen, state: State, is_visible: bool) -> Drawer {
        let started = Instant::now();
        let BarStyle {
            minimum, interval, ..
        } = pen.style;
        let pen = Arc::new(Mutex::new(pen));
        if !is_visible {
            return Drawer {
                started,
                thread: None,
                pen,
            };
        }
        let (stop, stopped) = sync_channel::<()>(0);
        let pen_of_thread = pen.clone();
        let body = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                let elapsed = started.elapsed();
                if elapsed > minimum {
                    // A full bar is for the end of the run only.
                    lock(&pen_of_thread).draw(fraction(state.counts()).min(0.99), elapsed);
                }
            }
        };
        let thread = spawn_thread("progress", body);
        if let Err(error) = &thread {
            tracing::warn!("progress is not shown: {error}");
        }
        Drawer {
            started,
            thread: thread.ok().map(|thread| (stop, thread)),
            pen,
        }
    }

    /// Ends the thread and returns the pen for the last line, if the bar is visible.
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
        formatter
            .debug_struct("Drawer")
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

/// Writes the line.
struct Pen {
    out: Out,
    style: BarStyle,
    /// Length of the present line, which a shorter one must overwrite.
    columns: usize,
}

impl Pen {
    fn draw(&mut self, fraction: f64, elapsed: Duration) {
        let line = line(fraction, self.style.width, elapsed);
        let before = std::mem::replace(&mut self.columns, line.len());
        self.write(format_args!("\r{line:before$}"));
    }

    /// Ends the line, if there is one.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.columns) > 0 {
            self.write(format_args!("\n"));
        }
    }

    fn write(&self, text: fmt::Arguments<'_>) {
        let mut out = lock(&self.out.writer);
        // A closed output must not stop the program.
        let _ = out.write_fmt(text).and_then(|()| out.flush());
    }
}

fn line(fraction: f64, width: usize, elapsed: Duration) -> String {
    let fraction = fraction.clamp(0.0, 1.0);
    let bar = "#".repeat((width as f64 * fraction) as usize);
    let percent = (100.0 * fraction) as u32;
    format!(
        "[{bar:width$}] | {percent}% Completed | {}",
        duration(elapsed)
    )
}

/// Formats a duration: `2.8s`, `16min 40.4s` or `1h 2min 3.0s`.
fn duration(elapsed: Duration) -> String {
    let tenths = (elapsed.as_millis() + 50) / 100;
    let minutes = tenths / 600;
    let tenths = tenths % 600;
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
    fn lines_have_the_format_of_dasks() {
        for (fraction, width, elapsed_ms, expected) in [
            (0.0, 8, 0, "[        ] | 0% Completed | 0.0s"),
            (0.5, 8, 2_800, "[####    ] | 50% Completed | 2.8s"),
            (0.999, 8, 2_849, "[####### ] | 99% Completed | 2.8s"),
            (1.0, 8, 59_949, "[########] | 100% Completed | 59.9s"),
            (1.0, 4, 59_950, "[####] | 100% Completed | 1min 0.0s"),
            (
                0.4,
                40,
                1_000_400,
                &format!("[{:40}] | 40% Completed | 16min 40.4s", "#".repeat(16)),
            ),
            (0.1, 0, 3_723_000, "[] | 10% Completed | 1h 2min 3.0s"),
            (7.0, 2, 100, "[##] | 100% Completed | 0.1s"),
            (f64::NAN, 2, 100, "[  ] | 0% Completed | 0.1s"),
        ] {
            assert_eq!(
                line(fraction, width, Duration::from_millis(elapsed_ms)),
                expected
            );
        }
    }

    /// The line gets shorter when more tasks become known.
    #[test]
    fn a_shorter_line_overwrites_the_longer_one() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Out {
            writer: written.clone(),
            is_terminal: true,
        };
        let style = BarStyle {
            minimum: Duration::ZERO,
            width: 4,
            interval: INTERVAL_MIN,
        };
        let mut pen = Pen {
            out,
            style,
            columns: 0,
        };
        pen.draw(0.10, Duration::from_secs(1));
        pen.draw(0.09, Duration::from_secs(1));
        pen.end_line();
        pen.end_line();
        let written = String::from_utf8(lock(&written).clone()).unwrap();
        assert_eq!(
            written,
            "\r[    ] | 10% Completed | 1.0s\r[    ] | 9% Completed | 1.0s \n"
        );
    }
}
