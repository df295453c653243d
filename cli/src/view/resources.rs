//! What workers and their machines used and had.

use serde::Deserialize;

use super::{Answered, Span, bytes, corrupt_files, digits};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Characters of a row's picture.
const PICTURE_COLUMNS: usize = 24;
/// From nothing to the peak.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Series of measures.
#[derive(Deserialize, Debug)]
pub(crate) struct Resources {
    range: Option<Span>,
    #[serde(default)]
    corrupt_files: Vec<String>,
    series: Vec<Series>,
}

#[derive(Deserialize, Debug)]
struct Series {
    worker: String,
    run: Option<String>,
    measure: String,
    unit: String,
    /// Time, mean, most and least.
    points: Vec<(i64, f64, f64, f64)>,
    peak: Option<f64>,
}

impl Series {
    fn mean(&self) -> Option<f64> {
        let sum: f64 = self.points.iter().map(|(_, mean, ..)| mean).sum();
        (!self.points.is_empty()).then(|| sum / self.points.len() as f64)
    }

    fn value(&self, value: Option<f64>) -> String {
        let Some(value) = value else { return "-".to_owned() };
        match self.unit.strip_prefix("bytes") {
            Some(rest) => bytes(value.max(0.0) as u64) + rest,
            None if self.unit == "count" => digits(value).trim_end_matches(".00").to_owned(),
            None => format!("{} {}", digits(value), self.unit),
        }
    }

    /// How it went, each part of the time by its mean, as a part of the largest mean.
    fn picture(&self) -> String {
        let parts = self.points.len().div_ceil(PICTURE_COLUMNS).max(1);
        let means = self.points.chunks(parts).map(|points| {
            points.iter().map(|(_, mean, ..)| mean.max(0.0)).sum::<f64>() / points.len() as f64
        });
        let means: Vec<f64> = means.collect();
        let most = means.iter().copied().fold(0.0, f64::max);
        let level = |mean: &f64| {
            let share = if most > 0.0 { mean / most } else { 0.0 };
            LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
        };
        means.iter().map(level).collect()
    }
}

impl Answered for Resources {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.range.as_ref().map(|range| format!("resources in {range}")));
        if self.series.is_empty() {
            notes.push("nothing of what was asked for was measured in that time".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let with_run = self.series.iter().any(|series| series.run.is_some());
        let run = with_run.then_some(("RUN", Left));
        let titles = [("MEAN", Right), ("PEAK", Right), ("LAST", Right), ("COURSE", Left)];
        let names = [("WORKER", Left), ("MEASURE", Left)].into_iter().chain(run);
        let mut grid = Grid::new(&names.chain(titles).collect::<Vec<_>>());
        for series in &self.series {
            let run = with_run.then(|| series.run.clone().unwrap_or_default());
            let names = [series.worker.clone(), series.measure.clone()].into_iter().chain(run);
            let last = series.points.last().map(|(_, mean, ..)| *mean);
            let values = [series.mean(), series.peak, last].map(|value| series.value(value));
            grid.push(names.chain(values).chain([series.picture()]));
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_has_mean_peak_last_and_its_course() {
        let series = |measure: &str, unit: &str, means: &[f64]| {
            let points: Vec<_> = means
                .iter()
                .enumerate()
                .map(|(t, mean)| json!([t, mean, mean * 2.0, 0.0]))
                .collect();
            let peak = means.iter().copied().reduce(f64::max).map(|most| most * 2.0);
            json!({"worker": "w-1", "host": "h", "run": null, "measure": measure, "unit": unit,
                "cumulative": false, "points": points, "peak": peak})
        };
        let resources: Resources = serde_json::from_value(json!({
            "range": {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:00:02Z"},
            "step_ns": 1, "corrupt_files": [],
            "series": [
                series("process_memory", "bytes", &[1e6, 2e6, 4e6]),
                series("process_cpu", "cores", &[0.0, 0.5]),
                series("network_sent", "bytes/s", &[0.0, 0.0]),
                series("threads", "count", &[12.0]),
                series("disk", "bytes", &[]),
            ]
        }))
        .unwrap();
        expect![[r#"
            WORKER  MEASURE                    MEAN             PEAK             LAST  COURSE
            w-1     process_memory          2.33 MB          8.00 MB          4.00 MB  ▃▅█
            w-1     process_cpu     0.25 processors  1.00 processors  0.50 processors  ▁█
            w-1     network_sent              0 B/s            0 B/s            0 B/s  ▁▁
            w-1     threads                    12.0             24.0             12.0  █
            w-1     disk                          -                -                -
        "#]]
        .assert_eq(&resources.text());
    }
}
