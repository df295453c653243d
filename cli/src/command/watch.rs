//! `emberline watch`: asks until all that is expected is done, and draws bars meanwhile.

use std::time::{Duration, Instant};

use anyhow::bail;
use console::Term;

use super::range_query;
use crate::args::{RowFormat, WatchArgs};
use crate::client::{Client, ClientError, Query};
use crate::output::{print, say};
use crate::view::Answered as _;
use crate::view::progress::Progress;

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long what nobody expects may run on when all that is expected is done: a next round may be
/// about to begin, and a service never rests.
const REST_MAX: Duration = Duration::from_secs(10);
/// How long a collector may be away that has answered before: it may be starting again.
const AWAY_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let query = range_query(&args.range).with_each("task", &args.task);
    let progress = if args.once { ask(&client, &query)? } else { watch(&client, &query)? };
    match args.ask.format {
        RowFormat::Json => print(progress.json().as_bytes())?,
        RowFormat::Table => {
            progress.notes().iter().for_each(|note| say(note));
            print(progress.text().as_bytes())?;
        }
    }
    match progress.failed() {
        0 => Ok(()),
        1 => bail!("a task has failed or was lost"),
        failed => bail!("{failed} tasks have failed or were lost"),
    }
}

fn ask(client: &Client, query: &Query) -> Result<Progress, ClientError> {
    client.get_json("progress", query)
}

/// Until all that is expected is done, and what else runs rests or has had its time. Without a terminal
/// on stderr nothing is drawn.
fn watch(client: &Client, query: &Query) -> anyhow::Result<Progress> {
    let mut screen = Screen::new();
    let (mut heard, mut done): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        match ask(client, query) {
            Ok(progress) => {
                heard = Some(Instant::now());
                done = progress.is_done().then(|| done.unwrap_or_else(Instant::now));
                if done.is_some_and(|done| progress.rests() || done.elapsed() >= REST_MAX) {
                    screen.draw(|_| Vec::new());
                    return Ok(progress);
                }
                screen.draw(|size| progress.picture(size));
            }
            Err(ClientError::Unreachable { .. })
                if heard.is_some_and(|heard| heard.elapsed() < AWAY_MAX) =>
            {
                screen.draw(|_| vec!["the collector does not answer; trying again".to_owned()]);
            }
            Err(error) => {
                screen.draw(|_| Vec::new());
                return Err(error.into());
            }
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// The lines that were drawn last on stderr, to be drawn over.
struct Screen {
    /// `None` where nobody would see it.
    term: Option<Term>,
    lines: usize,
}

impl Screen {
    fn new() -> Screen {
        let term = Term::buffered_stderr();
        Screen { term: term.is_term().then_some(term), lines: 0 }
    }

    /// Draws a picture in place of the one before. Each line is written over and then cut, and all of
    /// them at once, so that nothing flickers.
    fn draw(&mut self, picture: impl FnOnce((usize, usize)) -> Vec<String>) {
        let Some(term) = &self.term else { return };
        let (lines, columns) = term.size();
        // The cursor stands below; what fills the last column would wrap on some terminals.
        let size = (usize::from(lines).saturating_sub(1), usize::from(columns).saturating_sub(1));
        let picture = picture(size);
        let rows: String = picture.iter().map(|line| format!("{line}\x1b[K\n")).collect();
        // A terminal that is gone has nobody to be told.
        let _ = term
            .move_cursor_up(self.lines.min(size.0))
            .and_then(|()| term.write_str(&format!("{rows}\x1b[J")))
            .and_then(|()| term.flush());
        self.lines = picture.len();
    }
}
