//! `emberline watch`: draws bars until all expected tasks are done.

use std::time::{Duration, Instant};

use anyhow::bail;
use api::ProgressAnswer;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{RowFormat, WatchArgs};
use crate::client::{Client, ClientError, Query};
use crate::command::range_query;
use crate::output::{print, print_json, say_wrapped};
use crate::view::View as _;
use crate::view::progress::{failed, is_done, is_idle, picture};

/// Time between two requests.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for unexpected tasks after all expected ones are done: a next round may be about to
/// start, and a service is never idle.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a collector that has responded before may be unreachable: it may be restarting.
const UNREACHABLE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let query = range_query(&args.range).with_each("task", &args.task);
    let progress = if args.once {
        request(&client, &query)?
    } else {
        watch(&client, &query)?
    };
    match args.ask.format {
        RowFormat::Json => print_json(serde_json::to_vec(&progress)?)?,
        RowFormat::Table => {
            progress.notes().iter().for_each(|note| say_wrapped(note));
            print(progress.text().as_bytes())?;
        }
    }
    match failed(&progress) {
        0 => Ok(()),
        1 => bail!("a task has failed or was lost"),
        failed => bail!("{failed} tasks have failed or were lost"),
    }
}

fn request(client: &Client, query: &Query) -> Result<ProgressAnswer, ClientError> {
    client.get_json("progress", query)
}

/// Polls until all expected tasks are done and the others are idle or out of time. Draws only if stderr
/// is a terminal.
fn watch(client: &Client, query: &Query) -> anyhow::Result<ProgressAnswer> {
    let screen = Screen::new();
    let mut last_response: Option<Instant> = None;
    let mut done: Option<Instant> = None;
    loop {
        match request(client, query) {
            Ok(progress) => {
                last_response = Some(Instant::now());
                done = is_done(&progress).then(|| done.unwrap_or_else(Instant::now));
                if done.is_some_and(|done| is_idle(&progress) || done.elapsed() >= IDLE_WAIT_MAX) {
                    screen.clear();
                    return Ok(progress);
                }
                screen.draw(|lines, columns| picture(&progress, lines, columns));
            }
            Err(ClientError::Unreachable { .. })
                if last_response.is_some_and(|response| response.elapsed() < UNREACHABLE_MAX) =>
            {
                screen.draw(|_, _| vec!["the collector does not respond; retrying".to_owned()]);
            }
            Err(error) => {
                screen.clear();
                return Err(error.into());
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A picture on stderr that replaces the one before; nothing if stderr is no terminal.
struct Screen(ProgressBar);

impl Screen {
    fn new() -> Screen {
        // One bar whose message is the picture: of several bars, each redraws all others.
        let lines = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Screen(lines.with_style(ProgressStyle::with_template("{msg}").expect("a template")))
    }

    fn draw(&self, picture: impl FnOnce(usize, usize) -> Vec<String>) {
        if self.0.is_hidden() {
            return;
        }
        let (lines, columns) = Term::stderr().size();
        // The last line is for the cursor; text in the last column wraps on some terminals.
        let lines = usize::from(lines).saturating_sub(1);
        let columns = usize::from(columns).saturating_sub(1);
        self.0.set_message(picture(lines, columns).join("\n"));
        self.0.tick();
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}
