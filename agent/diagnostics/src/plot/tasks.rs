//! The plot of tasks: when each one ran, and on which thread.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::profiler::TaskData;
use super::color::{Colors, MIXED};
use super::lanes::{ITEMS_MAX, Item, Lane, Lanes, has_failed, items, length_ns};
use super::source::Panel;
use super::text::{duration, grouped, shown, shown_up_to};
use super::time::{Axis, UNITS};

/// Approximate height of all rows together; each row is within its limits.
const HEIGHT: f64 = 320.0;
const ROW_HEIGHT_MIN: f64 = 4.0;
const ROW_HEIGHT_MAX: f64 = 22.0;

/// Space between two lanes.
const GAP: f64 = 4.0;

/// Most characters of a key in a tooltip, of which there are thousands.
const KEY_SHOWN_MAX: usize = 40;
/// Most names in the tooltip of a group.
const NAMES_SHOWN_MAX: usize = 6;
/// Minimum width, in units, of rectangles with an edge of their own.
const WIDE_UNITS: u64 = UNITS / 250;

pub(super) fn panel(tasks: &[TaskData], omitted: u64, axis: &Axis, colors: &Colors) -> Panel {
    let lanes = Lanes::of(tasks);
    let grain_ns = lanes.grain_ns(ITEMS_MAX);
    let rows = lanes.row_count().max(1);
    let row_height = (HEIGHT / rows as f64)
        .clamp(ROW_HEIGHT_MIN, ROW_HEIGHT_MAX)
        .floor();
    let mut drawing = Drawing::new(axis, colors, row_height);
    let mut top = GAP / 2.0;
    let mut labels = String::new();
    for lane in &lanes.lanes {
        let height = row_height * lane.rows.len() as f64;
        write_label(&mut labels, lane, top + height / 2.0);
        for row in &lane.rows {
            items(row, grain_ns)
                .iter()
                .for_each(|item| drawing.add(item, top));
            top += row_height;
        }
        top += GAP;
    }
    let notes = notes(&lanes, &drawing, grain_ns, omitted);
    let threads = match lanes.lanes.len() + lanes.lanes_omitted {
        1 => "1 thread".into(),
        threads => format!("{} threads", grouped(threads as u64)),
    };
    let title = format!("Tasks: {} on {threads}", grouped(tasks.len() as u64));
    let height = (top - GAP / 2.0).max(ROW_HEIGHT_MAX);
    Panel {
        title,
        height,
        body: axis.grid(height) + &drawing.finish(),
        labels,
        notes,
    }
}

fn write_label(labels: &mut String, lane: &Lane<'_>, middle: f64) {
    let name = if lane.worker_name.is_empty() {
        format!("thread {}", lane.worker)
    } else {
        shown_up_to(lane.worker_name, 20)
    };
    let y = middle + 4.0;
    let full = shown(lane.worker_name);
    let _ = writeln!(
        labels,
        "<text class=\"lane\" x=\"-8\" y=\"{y}\">{name}<title>{full}, thread {}</title></text>",
        lane.worker
    );
}

fn notes(lanes: &Lanes<'_>, drawing: &Drawing<'_>, grain_ns: u64, omitted: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if drawing.tasks_grouped > 0 {
        notes.push(format!(
            "{} tasks shorter than {} are drawn in {} groups",
            grouped(drawing.tasks_grouped as u64),
            duration(grain_ns),
            grouped(drawing.groups as u64)
        ));
    }
    if lanes.lanes_omitted > 0 {
        notes.push(format!(
            "{} tasks of {} further threads are not drawn",
            grouped(lanes.tasks_omitted as u64),
            grouped(lanes.lanes_omitted as u64)
        ));
    }
    if lanes.tasks_hidden > 0 {
        let hidden = grouped(lanes.tasks_hidden as u64);
        notes.push(format!("{hidden} tasks cover others of the same thread"));
    }
    if omitted > 0 {
        notes.push(format!(
            "{} tasks came after the profiler was full",
            grouped(omitted)
        ));
    }
    notes
}

/// Rectangles grouped by color, so that their common attributes are written once.
struct Drawing<'a> {
    axis: &'a Axis,
    colors: &'a Colors,
    row_height: f64,
    /// By the index of the name; groups of several names come last.
    by_color: BTreeMap<usize, String>,
    groups: usize,
    tasks_grouped: usize,
}

impl<'a> Drawing<'a> {
    fn new(axis: &'a Axis, colors: &'a Colors, row_height: f64) -> Drawing<'a> {
        let by_color = BTreeMap::new();
        Drawing {
            axis,
            colors,
            row_height,
            by_color,
            groups: 0,
            tasks_grouped: 0,
        }
    }

    fn add(&mut self, item: &Item<'_>, top: f64) {
        match item {
            Item::Task(task) => {
                let color = self.colors.index(&task.name);
                let text = self.explain_task(task);
                self.write(color, &[task], top, &text);
            }
            Item::Group(tasks) => {
                self.groups += 1;
                self.tasks_grouped += tasks.len();
                let first = &tasks[0].name;
                let is_mixed = tasks.iter().any(|task| task.name != *first);
                let color = if is_mixed {
                    usize::MAX
                } else {
                    self.colors.index(first)
                };
                self.write(color, tasks, top, &explain_group(tasks));
            }
        }
    }

    fn write(&mut self, color: usize, tasks: &[&TaskData], top: f64, text: &str) {
        let left = self.axis.x(tasks[0].started_at);
        let right = tasks
            .iter()
            .map(|task| self.axis.x(task.finished_at))
            .max()
            .unwrap_or(left);
        let width = right - left;
        let height = self.row_height - 1.0;
        let class = match (
            tasks.iter().any(|task| has_failed(task)),
            width >= WIDE_UNITS,
        ) {
            (true, _) => " class=\"failed\"",
            (false, true) => " class=\"wide\"",
            (false, false) => "",
        };
        let rects = self.by_color.entry(color).or_default();
        let _ = writeln!(
            rects,
            "<rect{class} x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\">\
             <title>{text}</title></rect>"
        );
    }

    fn explain_task(&self, task: &TaskData) -> String {
        let start = duration(task.started_at.since_ns(self.axis.from));
        let name = shown_up_to(&task.name, KEY_SHOWN_MAX);
        let length = duration(length_ns(task));
        let key = if task.key.is_empty() {
            String::new()
        } else {
            format!("{}\n", shown_up_to(&task.key, KEY_SHOWN_MAX))
        };
        let outcome = if has_failed(task) {
            task.outcome.name()
        } else {
            ""
        };
        let separator = if outcome.is_empty() { "" } else { ", " };
        format!("{key}{name}: {length}{separator}{outcome}\nfrom {start}")
    }

    fn finish(self) -> String {
        let mut body = String::new();
        for (index, rects) in &self.by_color {
            let color = match self.colors.names().get(*index) {
                Some(_) => self.colors.color(*index),
                None => MIXED.into(),
            };
            let name = self
                .colors
                .names()
                .get(*index)
                .map_or("several names".into(), |name| shown(name));
            let _ = write!(
                body,
                "<g class=\"tasks\" data-name=\"{name}\" fill=\"{color}\" stroke=\"{color}\">\n{rects}</g>\n"
            );
        }
        body
    }
}

fn explain_group(tasks: &[&TaskData]) -> String {
    let mut by_name: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for task in tasks {
        let (count, sum_ns) = by_name.entry(&task.name).or_default();
        *count += 1;
        *sum_ns += length_ns(task);
    }
    let sum_ns: u64 = by_name.values().map(|(_, sum_ns)| sum_ns).sum();
    let mut by_name: Vec<_> = by_name.into_iter().collect();
    by_name.sort_by_key(|(_, (_, sum_ns))| std::cmp::Reverse(*sum_ns));
    let mut text = format!(
        "{} tasks: {}",
        grouped(tasks.len() as u64),
        duration(sum_ns)
    );
    let failed = tasks.iter().filter(|task| has_failed(task)).count();
    if failed > 0 {
        let _ = write!(text, ", {} failed", grouped(failed as u64));
    }
    for (name, (count, sum_ns)) in by_name.iter().take(NAMES_SHOWN_MAX) {
        let name = shown_up_to(name, KEY_SHOWN_MAX);
        let count = grouped(*count);
        let _ = write!(text, "\n{name}: {count}, {}", duration(*sum_ns));
    }
    if by_name.len() > NAMES_SHOWN_MAX {
        let _ = write!(
            text,
            "\nand {} further names",
            by_name.len() - NAMES_SHOWN_MAX
        );
    }
    text
}
