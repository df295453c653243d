//! The plot of resources: CPU and memory, each with its own scale.

use std::fmt::Write as _;

use profiler_core::Timestamp;

use super::super::resources::ResourceData;
use super::source::Panel;
use super::text::{duration, grouped, scaled, three_digits};
use super::time::{Axis, Scale, UNITS, nice_scale};

const HEIGHT: f64 = 140.0;

/// Most points of a line. Past it neighbors are merged.
const POINTS_MAX: usize = 2_000;

/// A point of both lines.
#[derive(Clone, Copy)]
struct Point {
    at: Timestamp,
    memory_mb: f64,
    cpu_percent: Option<f64>,
}

pub(super) fn panel(rows: &[ResourceData], omitted: u64, axis: &Axis) -> Panel {
    let per_point = rows.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<Point> = rows.chunks(per_point).map(merge).collect();
    let largest = |of: fn(&ResourceData) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let cpu_scale = nice_scale(largest(|row| row.cpu_percent.unwrap_or(0.0)), 100.0);
    let memory_scale = nice_scale(largest(|row| row.memory_mb), 1.0);
    let y = |value: f64, top: f64| HEIGHT * (1.0 - value / top);

    let mut body = format!("{}<path class=\"line memory\" d=\"", axis.grid(HEIGHT));
    for (index, point) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(
            body,
            "{letter}{} {:.1}",
            axis.x(point.at),
            y(point.memory_mb, memory_scale.top)
        );
    }
    body.push_str("\"/>\n<path class=\"line cpu\" d=\"");
    // A percentage is for the time before its point, so the line has steps.
    let mut letter = 'M';
    for pair in points.windows(2) {
        if let Some(cpu_percent) = pair[1].cpu_percent {
            let from = axis.x(pair[0].at);
            let to = axis.x(pair[1].at);
            let height = y(cpu_percent, cpu_scale.top);
            let _ = write!(body, "{letter}{from} {height:.1}H{to}");
            letter = 'L';
        }
    }
    body.push_str("\"/>\n");
    write_explanations(&mut body, &points, axis);

    let mut labels = String::new();
    write_scale(&mut labels, cpu_scale, |value| {
        (format!("{} %", scaled(value)), "lane cpu")
    });
    write_scale(&mut labels, memory_scale, |value| {
        (
            format!("{}B", with_space(scaled(value * 1e6))),
            "right memory",
        )
    });
    let mut notes = Vec::new();
    if per_point > 1 {
        notes.push(format!(
            "{} resource samples are drawn as {} points",
            grouped(rows.len() as u64),
            grouped(points.len() as u64)
        ));
    }
    if omitted > 0 {
        notes.push(format!(
            "{} resource samples came after the profiler was full",
            grouped(omitted)
        ));
    }
    let title = "CPU (left) and memory (right) of the process and its children".into();
    Panel {
        title,
        height: HEIGHT,
        body,
        labels,
        notes,
    }
}

/// `20 M` and `B` make `20 MB`, `20` and `B` make `20 B`.
fn with_space(number: String) -> String {
    if number.contains(' ') {
        number
    } else {
        number + " "
    }
}

/// Merges neighbors at the time of the last one: the maximum of the memory, and the mean of the
/// percentages weighted by time.
fn merge(rows: &[ResourceData]) -> Point {
    let last = rows[rows.len() - 1];
    let memory_mb = rows.iter().map(|row| row.memory_mb).fold(0.0, f64::max);
    let mut sum = 0.0;
    let mut length = 0.0;
    for (index, row) in rows.iter().enumerate() {
        // The row before the first one is unknown, so its time is taken to be as long as the next one's.
        let length_ns = match index {
            0 if rows.len() > 1 => rows[1].at.since_ns(row.at),
            0 => 0,
            _ => row.at.since_ns(rows[index - 1].at),
        };
        let weight = length_ns.max(1) as f64;
        if let Some(cpu_percent) = row.cpu_percent {
            sum += weight * cpu_percent;
            length += weight;
        }
    }
    let cpu_percent = (length > 0.0).then(|| sum / length);
    Point {
        at: last.at,
        memory_mb,
        cpu_percent,
    }
}

/// Strips over the whole height whose tooltips have the values.
fn write_explanations(body: &mut String, points: &[Point], axis: &Axis) {
    body.push_str("<g class=\"hover\">\n");
    for (index, point) in points.iter().enumerate() {
        let from = index
            .checked_sub(1)
            .map_or(0, |before| axis.x(points[before].at));
        let to = if index + 1 == points.len() {
            UNITS
        } else {
            axis.x(point.at)
        };
        let cpu = point.cpu_percent.map_or("–".into(), three_digits);
        let memory = three_digits(point.memory_mb);
        let at = duration(point.at.since_ns(axis.from));
        let width = to.saturating_sub(from);
        let _ = writeln!(
            body,
            "<rect x=\"{from}\" y=\"0\" width=\"{width}\" height=\"{HEIGHT}\">\
             <title>CPU {cpu} %\nmemory {memory} MB\nat {at}</title></rect>"
        );
    }
    body.push_str("</g>\n");
}

/// Writes the numbers next to a plot; `label` returns text and class.
pub(super) fn write_scale(
    labels: &mut String,
    scale: Scale,
    label: impl Fn(f64) -> (String, &'static str),
) {
    for index in 0..=(scale.top / scale.step).round() as u32 {
        let value = f64::from(index) * scale.step;
        let (text, class) = label(value);
        let x = if class.starts_with("right") {
            super::picture::PLOT_WIDTH + 8.0
        } else {
            -8.0
        };
        let y = HEIGHT * (1.0 - value / scale.top) + 4.0;
        let _ = writeln!(
            labels,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y:.1}\">{text}</text>"
        );
    }
}
