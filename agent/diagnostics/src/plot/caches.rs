//! The plot of caches: their size over time, stacked by the task names that inserted the values.

use std::fmt::Write as _;
use std::sync::Arc;

use profiler_core::Timestamp;
use rustc_hash::FxHashMap;

use super::super::cache_profiler::{CacheCounts, CacheData};
use super::color::{Colors, MIXED};
use super::resources::write_scale;
use super::source::Panel;
use super::text::{duration, grouped, scaled, shown, shown_up_to};
use super::time::{Axis, UNITS, nice_scale};

const HEIGHT: f64 = 140.0;

/// Most steps of the picture. Past it each step is the maximum over a stretch of time.
const STEPS_MAX: usize = 1_000;

/// Most named layers; the smaller ones share one more layer.
const LAYERS_MAX: usize = 24;

/// The layer of a value: the name of the task that inserted it, or of the cache outside tasks.
pub(super) fn owner(value: &CacheData) -> &Arc<str> {
    value.task.as_ref().unwrap_or(&value.cache)
}

/// The heights of all layers from a time on.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    at: Timestamp,
    heights: Vec<f64>,
}

impl Step {
    fn sum(&self) -> f64 {
        self.heights.iter().sum()
    }
}

pub(super) fn panel(
    values: &[CacheData],
    metric_name: &str,
    counts: CacheCounts,
    axis: &Axis,
    colors: &Colors,
) -> Panel {
    let layers = layers(values);
    let steps = steps(values, &layers, axis.to());
    let steps_all = steps.len();
    let steps = aggregated(steps, axis);
    let largest = steps.iter().map(Step::sum).fold(0.0, f64::max);
    let scale = nice_scale(largest, 1.0);
    let mut body = axis.grid(HEIGHT);
    for (index, layer) in layers.iter().enumerate() {
        let color = layer
            .as_ref()
            .map_or(MIXED.into(), |name| colors.color(colors.index(name)));
        let name = layer
            .as_ref()
            .map_or("other names".into(), |name| shown(name));
        let path = layer_path(&steps, index, scale.top, axis);
        let _ = writeln!(
            body,
            "<path class=\"layer\" data-name=\"{name}\" fill=\"{color}\" d=\"{path}\"/>"
        );
    }
    write_explanations(&mut body, &steps, &layers, axis);

    let mut labels = String::new();
    write_scale(&mut labels, scale, |value| (scaled(value), "lane"));
    let mut notes = Vec::new();
    if steps_all > steps.len() {
        notes.push(format!(
            "{} changes of the caches are drawn as {}, each the maximum of its time",
            grouped(steps_all as u64),
            grouped(steps.len() as u64)
        ));
    }
    if counts.omitted > 0 {
        let omitted = grouped(counts.omitted);
        notes.push(format!(
            "{omitted} values were inserted after the profiler was full"
        ));
    }
    let title = format!(
        "Caches: {} ({} in, {} out, {} hits, {} misses)",
        shown(metric_name),
        grouped(counts.inserted),
        grouped(counts.removed),
        grouped(counts.hits),
        grouped(counts.misses)
    );
    Panel {
        title,
        height: HEIGHT,
        body,
        labels,
        notes,
    }
}

/// The height of a value in the picture; the program's metric may return any number.
fn weight(value: &CacheData) -> f64 {
    if value.metric.is_finite() {
        value.metric.max(0.0)
    } else {
        0.0
    }
}

/// The names with layers, the largest first; `None` stands for all others.
fn layers(values: &[CacheData]) -> Vec<Option<Arc<str>>> {
    let mut sums: FxHashMap<&Arc<str>, f64> = FxHashMap::default();
    for value in values {
        *sums.entry(owner(value)).or_default() += weight(value);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(name, sum), (other, other_sum)| other_sum.total_cmp(sum).then(name.cmp(other)));
    let has_more = sums.len() > LAYERS_MAX;
    sums.truncate(LAYERS_MAX);
    let named = sums.into_iter().map(|(name, _)| Some(name.clone()));
    named.chain(has_more.then_some(None)).collect()
}

/// All changes in the order of time, each with the heights after it.
fn steps(values: &[CacheData], layers: &[Option<Arc<str>>], end: Timestamp) -> Vec<Step> {
    let index_of = |value: &CacheData| {
        let name = owner(value);
        let named = layers.iter().position(|layer| layer.as_ref() == Some(name));
        named.unwrap_or(layers.len() - 1)
    };
    let mut changes: Vec<(Timestamp, usize, f64)> = Vec::with_capacity(2 * values.len());
    for value in values {
        let layer = index_of(value);
        let weight = weight(value);
        changes.push((value.entered_at, layer, weight));
        changes.push((value.exited_at.unwrap_or(end), layer, -weight));
    }
    changes.sort_by_key(|(at, layer, _)| (*at, *layer));
    let mut steps: Vec<Step> = Vec::new();
    let mut heights = vec![0.0; layers.len()];
    for (at, layer, change) in changes {
        // Rounding may make a sum slightly negative.
        heights[layer] = f64::max(heights[layer] + change, 0.0);
        match steps.last_mut() {
            Some(last) if last.at == at => last.heights.clone_from(&heights),
            _ => steps.push(Step {
                at,
                heights: heights.clone(),
            }),
        }
    }
    steps
}

/// Reduces the steps to one per stretch of time, its maximum.
fn aggregated(steps: Vec<Step>, axis: &Axis) -> Vec<Step> {
    if steps.len() <= STEPS_MAX {
        return steps;
    }
    let stretch = |step: &Step| axis.x(step.at) * (STEPS_MAX as u64 - 1) / UNITS;
    let mut aggregated: Vec<Step> = Vec::new();
    for step in steps {
        match aggregated.last_mut() {
            Some(last) if stretch(last) == stretch(&step) => {
                if step.sum() > last.sum() {
                    last.heights = step.heights;
                }
            }
            _ => aggregated.push(step),
        }
    }
    aggregated
}

/// The outline of one layer: its upper edge forwards, its lower edge backwards.
fn layer_path(steps: &[Step], layer: usize, top: f64, axis: &Axis) -> String {
    let y = |step: &Step, layers: usize| {
        HEIGHT * (1.0 - step.heights[..layers].iter().sum::<f64>() / top)
    };
    let Some(first) = steps.first() else {
        return String::new();
    };
    let mut path = format!("M{} {:.1}", axis.x(first.at), y(first, layer));
    for step in steps {
        let _ = write!(path, "H{}V{:.1}", axis.x(step.at), y(step, layer + 1));
    }
    let _ = write!(path, "H{UNITS}");
    for step in steps.iter().rev() {
        let _ = write!(path, "V{:.1}H{}", y(step, layer), axis.x(step.at));
    }
    path.push('Z');
    path
}

fn write_explanations(body: &mut String, steps: &[Step], layers: &[Option<Arc<str>>], axis: &Axis) {
    body.push_str("<g class=\"hover\">\n");
    for (index, step) in steps.iter().enumerate() {
        let from = axis.x(step.at);
        let to = steps.get(index + 1).map_or(UNITS, |next| axis.x(next.at));
        let mut text = scaled(step.sum());
        for (layer, height) in layers
            .iter()
            .zip(&step.heights)
            .filter(|(_, height)| **height > 0.0)
        {
            let name = layer
                .as_ref()
                .map_or("other names".into(), |name| shown_up_to(name, 40));
            let _ = write!(text, "\n{name}: {}", scaled(*height));
        }
        let at = duration(step.at.since_ns(axis.from));
        let _ = writeln!(
            body,
            "<rect x=\"{from}\" y=\"0\" width=\"{}\" height=\"{HEIGHT}\"><title>{text}\nfrom {at}</title></rect>",
            to - from
        );
    }
    body.push_str("</g>\n");
}
