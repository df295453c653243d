//! Transfers, resources and runs.

use std::sync::Arc;

use profiler_core::Timestamp;

use super::time_range;
use query::{
    ResourceAnswer, ResourceQuery, ResourceSeries, TransferAnswer, TransferQuery, TransferSummary,
    displayed_unit, format_time,
};
use state::telemetry::LinkSum;
use store::rows::{RunRow, TransferRow};

/// Answer of `/api/v1/transfers`.
pub(crate) fn transfers(query: &TransferQuery, answer: TransferAnswer) -> api::TransfersAnswer {
    api::TransfersAnswer {
        range: time_range(query.range),
        total: answer.total,
        truncated: answer.total > answer.rows.len() as u64,
        corrupt_files: answer.damaged,
        transfers: answer.rows.iter().map(|row| transfer(row)).collect(),
    }
}

fn transfer(row: &TransferRow) -> api::Transfer {
    let record = &row.record;
    api::Transfer {
        worker: row.worker.to_string(),
        epoch: row.epoch.to_string(),
        id: record.id.0,
        direction: record.direction.name().into(),
        peer: record.peer.to_string(),
        keys: record.keys.iter().map(ToString::to_string).collect(),
        more_keys: record.more_keys,
        type_name: record.type_name.to_string(),
        bytes: record.bytes,
        compressed_bytes: record.compressed_bytes,
        start: format_time(record.start),
        start_ns: record.start.unix_ns(),
        stop: format_time(record.stop),
        stop_ns: record.stop.unix_ns(),
        duration_ns: row.duration_ns(),
        bandwidth: row.bandwidth(),
        task_id: record.task.map(|task| task.0),
        thread_id: record.thread_id,
        outcome: record.outcome.name().into(),
        cause: record.cause.to_string(),
    }
}

/// Answer of `/api/v1/transfers?summary=true`.
pub(crate) fn transfer_summary(summary: TransferSummary) -> api::TransferSummaryAnswer {
    let links = summary
        .links
        .iter()
        .map(|((worker, peer, direction), sum)| api::Link {
            worker: worker.to_string(),
            peer: peer.to_string(),
            direction: direction.name().into(),
            sums: link_sums(sum),
        });
    let types = summary.types.iter().map(|(name, sum)| api::TransferType {
        type_name: name.to_string(),
        sums: link_sums(sum),
    });
    api::TransferSummaryAnswer {
        range: time_range(summary.range),
        corrupt_files: summary.damaged,
        links: links.collect(),
        types: types.collect(),
    }
}

fn link_sums(sum: &LinkSum) -> api::LinkSums {
    // The spread's unit is that of the values: here bytes per second.
    let speeds = sum.bandwidths.percentiles().zip(sum.bandwidth_mean());
    let bandwidth = speeds.map(|(spread, mean)| api::Bandwidth {
        mean,
        p50: spread.p50_ns,
        p90: spread.p90_ns,
        p99: spread.p99_ns,
    });
    api::LinkSums {
        count: sum.count,
        failed: sum.failed,
        bytes: sum.bytes,
        compressed_bytes: sum.compressed_bytes,
        duration_ns: sum.duration_ns,
        bandwidth,
        durations: sum.durations.percentiles(),
    }
}

/// Answer of `/api/v1/resources`.
pub(crate) fn resources(query: &ResourceQuery, answer: ResourceAnswer) -> api::ResourcesAnswer {
    api::ResourcesAnswer {
        range: time_range(query.range),
        corrupt_files: answer.damaged,
        step_ns: query.step_ns,
        align: query.align,
        series: answer.series.into_iter().map(resource_series).collect(),
    }
}

fn resource_series(series: ResourceSeries) -> api::ResourceSeries {
    api::ResourceSeries {
        worker: series.worker.to_string(),
        host: series.host,
        run: series.run,
        measure: series.resource.name().into(),
        unit: displayed_unit(series.resource).into(),
        cumulative: series.resource.is_counted(),
        points: series.points,
        peak: series.peak,
    }
}

/// Answer of `/api/v1/runs`.
pub(crate) fn runs(runs: &[Arc<RunRow>], now: Timestamp) -> api::RunsAnswer {
    api::RunsAnswer {
        runs: runs.iter().map(|row| run(row, now)).collect(),
    }
}

/// A run; `now` is where an open one ends so far.
pub(crate) fn run(row: &RunRow, now: Timestamp) -> api::Run {
    let run = &row.run;
    let stop = row.stop();
    api::Run {
        id: row.id(),
        name: run.name.to_string(),
        worker: row.worker.as_ref().map(ToString::to_string),
        start: format_time(run.start),
        start_ns: run.start.unix_ns(),
        stop: stop.map(format_time),
        stop_ns: stop.map(Timestamp::unix_ns),
        duration_ns: stop.unwrap_or(now).since_ns(run.start),
        open: stop.is_none(),
        lost: run.stop.is_none() && row.lost_at.is_some(),
    }
}
