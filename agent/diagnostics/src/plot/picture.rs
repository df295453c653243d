//! The whole picture as SVG: a legend, the plots one below the other, and their common axis.

use std::fmt::Write as _;

use super::super::profiler::TaskData;
use super::color::Colors;
use super::lanes::length_ns;
use super::source::{Panel, Source};
use super::text::{date, duration, grouped, shown, shown_up_to};
use super::time::{Axis, UNITS};
use super::{caches, resources, tasks};

const WIDTH: f64 = 1_180.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
pub(super) const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;

const TITLE_HEIGHT: f64 = 28.0;
const PANEL_GAP: f64 = 14.0;
const AXIS_HEIGHT: f64 = 44.0;
const LEGEND_ROW_HEIGHT: f64 = 20.0;
const NOTE_HEIGHT: f64 = 18.0;

/// Most names in the legend, and characters of each. Further names have colors too.
const LEGEND_NAMES_MAX: usize = 24;
const LEGEND_CHARACTERS_MAX: usize = 28;
/// Approximate width of a character.
const CHARACTER_WIDTH: f64 = 7.2;

pub(super) const STYLE: &str = include_str!("picture.css");

/// The content of a page or picture.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) sources: &'a [Source],
    pub(super) axis: Axis,
    pub(super) colors: Colors,
    panels: Vec<Panel>,
}

impl<'a> Picture<'a> {
    pub(super) fn of(sources: &'a [Source]) -> Picture<'a> {
        let axis = Axis::of(sources);
        let colors = Colors::of(sources);
        let panels = sources
            .iter()
            .map(|source| draw(source, &axis, &colors))
            .collect();
        Picture {
            sources,
            axis,
            colors,
            panels,
        }
    }

    /// The start and the length.
    pub(super) fn heading(&self) -> String {
        format!(
            "{}, {}",
            date(self.axis.from),
            duration(self.axis.length_ns)
        )
    }

    /// All tasks of all profilers.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &'a TaskData> {
        self.sources.iter().flat_map(|source| match source {
            Source::Tasks { results, .. } => &results[..],
            _ => &[],
        })
    }

    /// Returns the text of an SVG file.
    pub(super) fn svg_file(&self) -> String {
        let style = format!("<style>{STYLE}</style>\n");
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}",
            self.svg(&style)
        )
    }

    /// Returns the SVG element, with `style` inside.
    pub(super) fn svg(&self, style: &str) -> String {
        let (legend, mut top) = self.legend();
        let mut body = legend;
        for panel in &self.panels {
            top += TITLE_HEIGHT;
            write_panel(&mut body, panel, top);
            top += panel.height + PANEL_GAP;
        }
        self.write_axis(&mut body, top - PANEL_GAP);
        top += AXIS_HEIGHT - PANEL_GAP;
        for note in self.panels.iter().flat_map(|panel| &panel.notes) {
            top += NOTE_HEIGHT;
            let _ = writeln!(
                body,
                "<text class=\"note\" x=\"{LEFT}\" y=\"{:.1}\">{note}.</text>",
                top - 6.0
            );
        }
        let height = top + 8.0;
        let heading = self.heading();
        format!(
            "<svg class=\"diagnostics\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" aria-label=\"Local diagnostics: {heading}\" \
             data-seconds=\"{}\">\n{style}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
            self.axis.length_ns as f64 / 1e9
        )
    }

    /// Returns the names with their colors, those with the most time first, and the height.
    fn legend(&self) -> (String, f64) {
        let mut svg = String::from("<g class=\"legend\">\n");
        let mut x = LEFT;
        let mut y = 8.0;
        let names = self.colors.names();
        for index in self.names_by_time().into_iter().take(LEGEND_NAMES_MAX) {
            let name = &names[index];
            let characters = name.chars().count().min(LEGEND_CHARACTERS_MAX + 1);
            let width = 30.0 + CHARACTER_WIDTH * characters as f64;
            if x + width > WIDTH - RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_ROW_HEIGHT);
            }
            let color = self.colors.color(index);
            let full = shown(name);
            let text = shown_up_to(name, LEGEND_CHARACTERS_MAX);
            let text_x = x + 18.0;
            let text_y = y + 10.5;
            let _ = writeln!(
                svg,
                "<g class=\"name\" data-name=\"{full}\">\
                 <rect x=\"{x:.1}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{color}\"/>\
                 <text x=\"{text_x:.1}\" y=\"{text_y}\">{text}</text></g>"
            );
            x += width;
        }
        if names.len() > LEGEND_NAMES_MAX {
            y += LEGEND_ROW_HEIGHT;
            let further = grouped((names.len() - LEGEND_NAMES_MAX) as u64);
            let text_y = y + 10.5;
            let _ = writeln!(
                svg,
                "<text class=\"note\" x=\"{LEFT}\" y=\"{text_y}\">and {further} further names</text>"
            );
        }
        svg.push_str("</g>\n");
        let height = if names.is_empty() {
            0.0
        } else {
            y + LEGEND_ROW_HEIGHT
        };
        (svg, height)
    }

    fn names_by_time(&self) -> Vec<usize> {
        let mut sums_ns = vec![0; self.colors.names().len()];
        for task in self.tasks() {
            sums_ns[self.colors.index(&task.name)] += length_ns(task);
        }
        let mut indices: Vec<usize> = (0..sums_ns.len()).collect();
        indices.sort_by_key(|index| std::cmp::Reverse(sums_ns[*index]));
        indices
    }

    fn write_axis(&self, body: &mut String, top: f64) {
        let (ticks, decimals) = self.axis.ticks_seconds();
        let _ = writeln!(
            body,
            "<g class=\"axis\" transform=\"translate({LEFT} {top:.1})\">"
        );
        body.push_str("<g class=\"ticks\">\n");
        for tick in ticks {
            let x = self.axis.x_of_seconds(tick) as f64 / UNITS as f64 * PLOT_WIDTH;
            let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"16\">{tick:.decimals$}</text>");
        }
        let middle = PLOT_WIDTH / 2.0;
        let start = date(self.axis.from);
        let _ = writeln!(
            body,
            "</g><text x=\"{middle}\" y=\"36\">seconds since {start}</text></g>"
        );
    }
}

/// Draws the plot of one profiler.
fn draw(source: &Source, axis: &Axis, colors: &Colors) -> Panel {
    match source {
        Source::Tasks {
            results, omitted, ..
        } => tasks::panel(results, *omitted, axis, colors),
        Source::Resources {
            results, omitted, ..
        } => resources::panel(results, *omitted, axis),
        Source::Caches {
            results,
            metric_name,
            counts,
            ..
        } => caches::panel(results, metric_name, *counts, axis, colors),
    }
}

fn write_panel(body: &mut String, panel: &Panel, top: f64) {
    let Panel {
        title,
        height,
        body: plot,
        labels,
        ..
    } = panel;
    let title_y = -9.0;
    let _ = write!(
        body,
        "<g transform=\"translate({LEFT} {top:.1})\">\n<text class=\"title\" x=\"0\" y=\"{title_y}\">{title}</text>\n\
         <rect class=\"frame\" width=\"{PLOT_WIDTH}\" height=\"{height}\"/>\n\
         <svg class=\"plot\" width=\"{PLOT_WIDTH}\" height=\"{height}\" viewBox=\"0 0 {UNITS} {height}\" \
         preserveAspectRatio=\"none\">\n{plot}</svg>\n{labels}</g>\n"
    );
}
