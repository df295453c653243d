//! `emberline time`

use api::TimelineAnswer;

use crate::args::{FileFormat, TimeArgs, TimeRow, word};
use crate::client::Client;
use crate::command::{range_query, write_rows};
use crate::exit::BadInput;
use crate::format;
use crate::view::thread_time::{ByPhase, ByThread};

const THREAD_TIME: &str = "thread-time";

pub(crate) fn run(args: &TimeArgs) -> anyhow::Result<()> {
    let file = args.file.output.file();
    let format = format::choose(args.file.format, file)?;
    let has_steps_only = !matches!(format, FileFormat::Table | FileFormat::Json);
    let default = if has_steps_only {
        TimeRow::Step
    } else {
        TimeRow::Phase
    };
    let by = args.by.unwrap_or(default);
    if has_steps_only && by != TimeRow::Step {
        let text = format!("--format {} has steps only: --by step", word(format));
        return Err(BadInput(text).into());
    }
    let client = Client::new(&args.url.url)?;
    let query = range_query(&args.range).with("threads", word(args.threads));
    let by_worker = query.clone().with("by", "worker");
    let by_thread = query.clone().with("by", "thread");
    let by_step = query.with("state", "all");
    match by {
        TimeRow::Phase => write_rows::<ByPhase>(&client, THREAD_TIME, &by_worker, format, file),
        TimeRow::Worker => write_rows::<ByThread>(&client, THREAD_TIME, &by_worker, format, file),
        TimeRow::Thread => write_rows::<ByThread>(&client, THREAD_TIME, &by_thread, format, file),
        TimeRow::Step => write_rows::<TimelineAnswer>(&client, "timeline", &by_step, format, file),
    }
}
