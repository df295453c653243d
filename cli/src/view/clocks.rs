//! Notes about clocks that are not the collector's.

use api::{Store, WorkersAnswer};
use flamegraph::text::{counted, duration, printable};

/// Most workers in the note about clocks that are ahead.
const WORKERS_AHEAD_NOTED_MAX: usize = 5;

/// Why a collector's data is at other times in answers.
pub(crate) fn store_clock_note(store: &Store) -> Option<String> {
    let warning = store.clock_warning.as_ref()?;
    Some(format!(
        "{}: {}",
        printable(&store.name),
        printable(warning)
    ))
}

/// Workers whose clocks are ahead of the collector's, each with by how much.
pub(crate) fn workers_ahead(fleet: &WorkersAnswer) -> Vec<String> {
    fleet
        .workers
        .iter()
        .filter_map(|worker| {
            let epoch = worker.epochs.last()?;
            let ahead = duration(epoch.data_ahead_ns);
            let is_ahead = epoch.data_ahead_ns > 0 && epoch.state != "gone";
            is_ahead.then(|| format!("{} ({ahead})", printable(&worker.worker)))
        })
        .collect()
}

/// The workers whose data is missing from answers about the present.
pub(super) fn ahead_note(fleet: &WorkersAnswer) -> Option<String> {
    let workers = workers_ahead(fleet);
    let more = workers.len().saturating_sub(WORKERS_AHEAD_NOTED_MAX);
    let noted = workers.get(..WORKERS_AHEAD_NOTED_MAX).unwrap_or(&workers);
    let others = if more > 0 {
        format!(" and {}", counted(more as u64, "other"))
    } else {
        String::new()
    };
    (!noted.is_empty()).then(|| {
        format!(
            "clocks ahead of the collector's: {}{others}; set them (NTP)",
            noted.join(", ")
        )
    })
}
