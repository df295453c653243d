//! Resource use of workers and their machines.

use api::{ResourceSeries, ResourcesAnswer};

use super::{View, bytes, corrupt_files, digits, or_dash, range, rounded_percent};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Most characters of a trend.
const TREND_COLUMNS: usize = 24;
/// From nothing to the largest mean.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn mean(series: &ResourceSeries) -> Option<f64> {
    let sum: f64 = series.points.iter().map(|(_, mean, ..)| mean).sum();
    (!series.points.is_empty()).then(|| sum / series.points.len() as f64)
}

fn peak(series: &ResourceSeries) -> Option<f64> {
    (!series.points.is_empty()).then_some(series.peak)
}

fn last(series: &ResourceSeries) -> Option<f64> {
    series.points.last().map(|(_, mean, ..)| *mean)
}

/// A value with its unit.
fn value(value: f64, unit: &str) -> String {
    match unit.strip_prefix("bytes") {
        Some(rest) => bytes(value.max(0.0) as u64) + rest,
        None if unit == "ratio" => rounded_percent(value * 100.0),
        None if unit == "count" => digits(value).trim_end_matches(".00").to_owned(),
        None => format!("{} {unit}", digits(value)),
    }
}

/// The mean of each part of the time, as a share of the largest.
fn trend(series: &ResourceSeries) -> String {
    let parts = series.points.len().div_ceil(TREND_COLUMNS).max(1);
    let means: Vec<f64> = series
        .points
        .chunks(parts)
        .map(|points| {
            points
                .iter()
                .map(|(_, mean, ..)| mean.max(0.0))
                .sum::<f64>()
                / points.len() as f64
        })
        .collect();
    let largest = means.iter().copied().fold(0.0, f64::max);
    means
        .iter()
        .map(|mean: &f64| {
            let share = if largest > 0.0 { mean / largest } else { 0.0 };
            LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
        })
        .collect()
}

impl View for ResourcesAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("resources in {}", range(&self.range))];
        if self.series.is_empty() {
            notes.push("no matching measurements in that range".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let with_run = self.series.iter().any(|series| series.run.is_some());
        let run_column = with_run.then_some(("RUN", Left));
        let names = [("WORKER OR HOST", Left), ("MEASURE", Left)]
            .into_iter()
            .chain(run_column);
        let values = [
            ("AVG", Right),
            ("PEAK", Right),
            ("LAST", Right),
            ("TREND", Left),
        ];
        let mut grid = Grid::new(&names.chain(values).collect::<Vec<_>>());
        for series in &self.series {
            let run = with_run.then(|| series.run.clone().unwrap_or_default());
            let names = [series.worker.clone(), series.measure.to_string()]
                .into_iter()
                .chain(run);
            let values = [mean(series), peak(series), last(series)]
                .map(|known| or_dash(known, |number| value(number, &series.unit)));
            grid.push(names.chain(values).chain([trend(series)]));
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::view::tests::range_of_test;

    #[test]
    fn a_row_has_average_peak_last_value_and_trend() {
        let answer = ResourcesAnswer {
            range: range_of_test(),
            series: vec![
                series("process_memory", "bytes", &[1e6, 2e6, 4e6]),
                series("process_cpu", "cores", &[0.0, 0.5]),
                series("network_sent", "bytes/s", &[0.0, 0.0]),
                series("threads", "count", &[12.0]),
                series("disk", "bytes", &[]),
            ],
            ..ResourcesAnswer::default()
        };
        expect![[r#"
            WORKER OR HOST  MEASURE                AVG        PEAK        LAST  TREND
            w-1             process_memory     2.33 MB     8.00 MB     4.00 MB  ▃▅█
            w-1             process_cpu     0.25 cores  1.00 cores  0.50 cores  ▁█
            w-1             network_sent         0 B/s       0 B/s       0 B/s  ▁▁
            w-1             threads               12.0        24.0        12.0  █
            w-1             disk                     -           -           -
        "#]]
        .assert_eq(&answer.text());
    }

    fn series(measure: &'static str, unit: &'static str, means: &[f64]) -> ResourceSeries {
        ResourceSeries {
            worker: "w-1".to_owned(),
            measure: measure.into(),
            unit: unit.into(),
            points: (0..)
                .zip(means)
                .map(|(t, mean)| (t, *mean, mean * 2.0, 0.0))
                .collect(),
            peak: means.iter().copied().fold(0.0, f64::max) * 2.0,
            ..ResourceSeries::default()
        }
    }
}
