//! Sums of two reports, side by side.

use flamegraph::text::duration;
use serde::Serialize;

use super::compare::ratio;
use super::{grouped, or_dash};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Unit of a sum.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ns,
    Count,
}

/// One sum of both reports.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(crate) struct Total {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// A table of sums. Whether they differ by more than noise is unknown, because a report has each once.
pub(crate) fn totals_text(totals: &[Total]) -> String {
    let mut grid = Grid::new(&[
        ("TOTAL", Left),
        ("BEFORE", Right),
        ("AFTER", Right),
        ("CHANGE", Right),
    ]);
    for Total {
        name,
        unit,
        before,
        after,
    } in totals
    {
        let written = match unit {
            Unit::Ns => duration,
            Unit::Count => grouped,
        };
        let change = (*before > 0).then(|| *after as f64 / *before as f64);
        grid.push([
            name.clone(),
            written(*before),
            written(*after),
            or_dash(change, ratio),
        ]);
    }
    grid.text()
}
