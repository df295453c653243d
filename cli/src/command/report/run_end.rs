//! Waits for the end of a run, and for the data that its worker ships after it.

use std::thread;
use std::time::{Duration, Instant};

use api::{Epoch, Run, RunsAnswer, WorkersAnswer};

use crate::client::{Client, ClientError, Query};
use crate::exit::BadInput;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Flushes after the one that ended the run. That one may hold samples of the second before the end only:
/// a worker's symbolizer is a second behind its sampler, or two on a busy machine.
const FLUSHES_AFTER: u64 = 2;

/// Waits until the newest run of this name has ended and its worker's data of it has arrived, at most for
/// `limit`. Returns the run.
///
/// # Errors
/// [`BadInput`] if the run has not ended by then.
pub(super) fn wait_for(client: &Client, name: &str, limit: Duration) -> anyhow::Result<Run> {
    let deadline = Instant::now() + limit;
    let ended = loop {
        if let Some(run) = newest(client, name)?
            && !run.open
        {
            break run;
        }
        if Instant::now() >= deadline {
            let text = format!(
                "the run {name:?} has not ended within {} s",
                limit.as_secs()
            );
            return Err(BadInput(text).into());
        }
        thread::sleep(LOOK_EVERY);
    };
    let Some(worker) = &ended.worker else {
        return Ok(ended);
    };
    let mut last = None;
    while Instant::now() < deadline {
        let Some(epoch) = newest_epoch(client, worker)?.filter(|epoch| epoch.connected) else {
            // It has shipped everything.
            break;
        };
        let last = *last.get_or_insert(epoch.acked_seq + FLUSHES_AFTER);
        if epoch.acked_seq >= last {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(ended)
}

/// The run of that name, found as the collector finds it: one of the API first.
fn newest(client: &Client, name: &str) -> anyhow::Result<Option<Run>> {
    let RunsAnswer { runs, .. } = client.get_json("runs", &Query::default())?;
    let place = |run: &Run| {
        let by_name = run.name == name;
        let by_worker = run
            .worker
            .as_ref()
            .map(|worker| format!("{worker}/{}", run.name));
        match run.worker {
            None if by_name => Some(0),
            _ if format!("{}@{}", run.name, run.id) == name => Some(1),
            _ if by_worker.as_deref() == Some(name) => Some(2),
            _ => by_name.then_some(3),
        }
    };
    // The newest come first.
    Ok(runs
        .into_iter()
        .filter(|run| place(run).is_some())
        .min_by_key(place))
}

/// `None` if the collector does not know the worker any more.
fn newest_epoch(client: &Client, worker: &str) -> Result<Option<Epoch>, ClientError> {
    let query = Query::default().with("worker", worker);
    let answer: WorkersAnswer = match client.get_json("workers", &query) {
        Err(ClientError::Rejected(_)) => return Ok(None),
        answer => answer?,
    };
    Ok(answer
        .workers
        .into_iter()
        .next()
        .and_then(|mut known| known.epochs.pop()))
}
