//! `emberline watch`: asks until all that is expected is done, and draws bars meanwhile.

use std::time::{Duration, Instant};

use anyhow::bail;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
    let screen = Screen::new();
    let (mut heard, mut done): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        match ask(client, query) {
            Ok(progress) => {
                heard = Some(Instant::now());
                done = progress.is_done().then(|| done.unwrap_or_else(Instant::now));
                if done.is_some_and(|done| progress.rests() || done.elapsed() >= REST_MAX) {
                    screen.clear();
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
                screen.clear();
                return Err(error.into());
            }
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// A picture on stderr, drawn over the one before; nothing where nobody would see it.
struct Screen(ProgressBar);

impl Screen {
    fn new() -> Screen {
        // One bar that is its message: bars of many names, each drawn by itself, draw all others anew.
        let lines = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Screen(lines.with_style(ProgressStyle::with_template("{msg}").expect("a template")))
    }

    fn draw(&self, picture: impl FnOnce((usize, usize)) -> Vec<String>) {
        if self.0.is_hidden() {
            return;
        }
        let (lines, columns) = Term::stderr().size();
        // The cursor stands below; what fills the last column would wrap on some terminals.
        let size = (usize::from(lines).saturating_sub(1), usize::from(columns).saturating_sub(1));
        self.0.set_message(picture(size).join("\n"));
        self.0.tick();
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}
