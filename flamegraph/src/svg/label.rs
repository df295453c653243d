//! Replaces frame numbers in a layout by names and figures.

use profiler_core::limits::bounded;
use profiler_core::{NodeId, Profile, State, Weight};

use super::{FONT_SIZE, FONT_WIDTH, IMAGE_WIDTH, SvgError};
use crate::symbols::{label, short_file};
use crate::text::{duration, percentage, printable, push_xml};

/// Longest name drawn, in bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// Start of a frame in the layout. Of our own text only titles precede the frames, and those are
/// escaped, so no name can forge it.
const FRAME: &str = "<g><title>";

/// Copies `layout`, replacing each frame's number by the name of that node and `figures` of it, and inserts
/// `before_frames`.
pub(super) fn write(
    layout: &str,
    profile: &Profile,
    before_frames: &str,
    figures: impl Fn(NodeId) -> String,
) -> Result<String, SvgError> {
    let (head, frames) = cut(layout, r#"<svg id="frames""#, "the list of frames")?;
    let mut pieces = frames.split(FRAME);
    let mut svg = String::with_capacity(layout.len() * 2);
    svg.push_str(head);
    svg.push_str(before_frames);
    svg.push_str(r#"<svg id="frames""#);
    svg.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (old_title, rest) = cut(piece, "</title>", "a title's end")?;
        let (rectangle, rest) = cut(rest, "<text", "a frame's text")?;
        let (text, rest) = cut(rest, "</text>", "a text's end")?;
        let (position, _) = cut(text, ">", "a text's position")?;
        let frame = Title::new(old_title, profile, &figures)?;

        svg.push_str(FRAME);
        push_xml(&mut svg, &frame.title);
        svg.push_str("</title>");
        svg.push_str(rectangle);
        svg.push_str("<text");
        svg.push_str(position);
        svg.push('>');
        push_xml(&mut svg, &fitted(&frame.name, width_percent(rectangle)?));
        svg.push_str("</text>");
        svg.push_str(rest);
    }
    Ok(svg)
}

/// The text before and after `mark`.
fn cut<'a>(
    text: &'a str,
    mark: &str,
    missing: &'static str,
) -> Result<(&'a str, &'a str), SvgError> {
    text.split_once(mark).ok_or(SvgError::Form { missing })
}

/// Displayed data of a frame.
struct Title {
    name: String,
    title: String,
}

impl Title {
    /// Parses a layout's title, `0017 (1,234 samples, 5.00%)` or `all (…)`.
    fn new(
        layout: &str,
        profile: &Profile,
        figures: impl Fn(NodeId) -> String,
    ) -> Result<Title, SvgError> {
        let missing = "a frame's number";
        let (key, _) = cut(layout, " (", missing)?;
        if key == "all" {
            let figures = figures(NodeId::ROOT);
            return Ok(Title { title: format!("all ({figures})"), name: "all".to_owned() });
        }
        let id: u32 = key.parse().map_err(|_| SvgError::Form { missing })?;
        let index = id.checked_sub(1).ok_or(SvgError::Form { missing })?;
        let node = profile.nodes().get(index as usize).ok_or(SvgError::Form { missing })?;
        let frame = profile.frame(node.frame);

        let name = bounded(&label(&frame), NAME_BYTES_MAX).into_owned();
        let mut figures = figures(NodeId(id));
        // Paths without the directories of the machine that built the program.
        let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
        let library = frame.module.rsplit('/').next().unwrap_or_default();
        let place = if frame.file.is_empty() { library } else { short_file(frame.file) };
        if !place.is_empty() {
            figures.push_str(&format!(", {}{line}", inner(place)));
        }
        let full = frame.label();
        if !name.starts_with(&*printable(&full)) {
            figures.push_str(&format!(", {}", inner(&full)));
        }
        Ok(Title { title: format!("{name} ({figures})"), name })
    }
}

/// Formats text for the last parentheses of a title. inferno's script takes the last opening one as
/// the end of the name, so there may be none inside.
fn inner(text: &str) -> String {
    bounded(&printable(text), NAME_BYTES_MAX).replace('(', "❨").replace(')', "❩")
}

/// Time, share of the whole, own time, states, and kinds of waiting. In capitals, because the
/// search covers these words too: a search for `lock` should find functions, not everything that
/// waited for a lock.
pub(super) fn figures(profile: &Profile, totals: &[Weight], node: NodeId) -> String {
    let total = totals[node.index()];
    let own = own(profile, node);
    let all = total.total_ns();
    let mut figures = format!("{}, {}", duration(all), percentage(all, totals[0].total_ns()));
    if !own.is_zero() {
        figures.push_str(&format!(", Self {}", duration(own.total_ns())));
    }
    let cpu = total.get(State::Cpu);
    let runnable = total.get(State::Runnable);
    for (name, part) in [("CPU", cpu), ("Runnable", runnable), ("Wait", total.wait_ns())] {
        if part > 0 {
            figures.push_str(&format!(", {name} {}", percentage(part, all)));
        }
    }
    let kinds: Vec<String> = State::WAITS
        .into_iter()
        .filter(|state| total.get(*state) > 0)
        .map(|state| format!("{} {}", wait_name(state), duration(total.get(state))))
        .collect();
    if !kinds.is_empty() {
        figures.push_str(&format!(" [{}]", kinds.join(", ")));
    }
    figures
}

/// A node's weight without its children; the root has none.
pub(super) fn own(profile: &Profile, node: NodeId) -> Weight {
    let index = node.index().checked_sub(1);
    index.map(|index| profile.nodes()[index].own).unwrap_or_default()
}

/// Name of a kind of waiting in a title.
const fn wait_name(state: State) -> &'static str {
    match state {
        State::Lock => "Lock",
        State::Sleep => "Sleep",
        State::Network => "Network",
        State::Disk => "Disk",
        State::Cpu | State::Runnable | State::Other => "Other",
    }
}

/// Width of a frame's rectangle, in percent of the picture.
fn width_percent(rectangle: &str) -> Result<f64, SvgError> {
    let missing = "a frame's width";
    let (_, width) = cut(rectangle, r#" width=""#, missing)?;
    let (width, _) = cut(width, "%", missing)?;
    width.parse().map_err(|_| SvgError::Form { missing })
}

/// Cuts the end of `name` to fit the width, as inferno's script does: this is visible where scripts do not
/// run.
fn fitted(name: &str, width_percent: f64) -> String {
    let width = width_percent / 100.0 * IMAGE_WIDTH as f64;
    let fit = (width / (FONT_SIZE as f64 * FONT_WIDTH)) as usize;
    if fit < 3 {
        return String::new();
    }
    if name.chars().count() < fit {
        return name.to_owned();
    }
    let mut head: String = name.chars().take(fit - 2).collect();
    head.push_str("..");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_its_rectangle() {
        // 1,200 pixels hold 169 characters of 7.08 pixels.
        assert_eq!(fitted("main", 100.0), "main");
        assert_eq!(fitted("abcdefgh", 5.0), "abcdef..");
        assert_eq!(fitted("abcdefghi", 5.0), "abcdef..");
        assert_eq!(fitted("äöüäöüäöü", 5.0), "äöüäöü..");
        assert_eq!(fitted("main", 1.0), "");
    }
}
