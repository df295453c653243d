//! `emberline watch`: asks until all that is expected is done, and draws bars meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::range_query;
use crate::args::{RowFormat, WatchArgs};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::Answered as _;
use crate::view::progress::{Progress, Tasks};

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Most bars: more lines than a terminal has would only flicker.
const BARS_MAX: usize = 30;

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    let query =
        range_query(&args.range).with_each("task", &args.task).with_each("worker", &args.worker);
    let progress = if args.once { ask(&client, &query)? } else { watch(&client, &query)? };
    match args.format {
        RowFormat::Json => print(progress.json().as_bytes())?,
        RowFormat::Table => {
            progress.notes().iter().for_each(|note| say(note));
            print(progress.text().as_bytes())?;
        }
    }
    match progress.failed() {
        0 => Ok(()),
        failed => bail!("{failed} tasks have failed or were lost"),
    }
}

fn ask(client: &Client, query: &Query) -> anyhow::Result<Progress> {
    Ok(client.get_json("progress", query)?)
}

/// Until all that is expected is done. Without a terminal on stderr nothing is drawn.
fn watch(client: &Client, query: &Query) -> anyhow::Result<Progress> {
    let mut bars = Bars::default();
    loop {
        let progress = ask(client, query)?;
        bars.draw(&progress);
        if progress.is_done() {
            bars.all.clear()?;
            return Ok(progress);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// A bar for each name, in the order in which they came.
#[derive(Default)]
struct Bars {
    all: MultiProgress,
    by_name: BTreeMap<String, ProgressBar>,
}

impl Bars {
    fn draw(&mut self, progress: &Progress) {
        for tasks in progress.tasks() {
            if !self.by_name.contains_key(tasks.name()) {
                if self.by_name.len() == BARS_MAX {
                    continue;
                }
                let bar = self.all.add(ProgressBar::no_length());
                bar.set_style(style(tasks));
                self.by_name.insert(tasks.name().to_owned(), bar);
            }
            let bar = &self.by_name[tasks.name()];
            if let Some(expected) = tasks.expected() {
                if bar.length().is_none() {
                    bar.set_style(style(tasks));
                }
                bar.set_length(expected);
            }
            bar.set_position(tasks.ended());
            bar.set_message(tasks.line());
        }
    }
}

/// Of what is expected a bar can be drawn, else only a count.
fn style(tasks: &Tasks) -> ProgressStyle {
    let template = match tasks.expected() {
        Some(_) => "[{bar:40}] {percent:>3}% {msg}",
        None => "{pos:>7} done {msg}",
    };
    let style = ProgressStyle::with_template(template).expect("the templates above are right");
    style.progress_chars("#> ")
}
