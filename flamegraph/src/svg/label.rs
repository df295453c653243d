//! Replaces frame numbers in a layout by names and figures.

use profiler_core::limits::bounded;
use profiler_core::{Profile, State, Weight};

use super::{FONT_SIZE, FONT_WIDTH, IMAGE_WIDTH, SvgError};
use crate::text::{duration, percent, printable, push_xml, short_name};

/// Longest name drawn, in bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// Start of a frame in the layout. Of our own text only titles precede the frames, and those are
/// escaped, so no name can forge it.
const FRAME: &str = "<g><title>";

/// Copies `layout`, replacing each frame's number by the name of that node.
pub(super) fn write(
    layout: &str,
    profile: &Profile,
    totals: &[Weight],
) -> Result<String, SvgError> {
    let (head, frames) = cut(layout, r#"<svg id="frames""#, "the list of frames")?;
    let mut pieces = frames.split(FRAME);
    let mut svg = String::with_capacity(layout.len() * 2);
    svg.push_str(head);
    // inferno's search button is hardly visible.
    svg.push_str("<style>#search { opacity:0.7; }</style>");
    svg.push_str(r#"<svg id="frames""#);
    svg.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (old_title, rest) = cut(piece, "</title>", "a title's end")?;
        let (rectangle, rest) = cut(rest, "<text", "a frame's text")?;
        let (text, rest) = cut(rest, "</text>", "a text's end")?;
        let (position, _) = cut(text, ">", "a text's position")?;
        let frame = Title::new(old_title, profile, totals)?;

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
    fn new(layout: &str, profile: &Profile, totals: &[Weight]) -> Result<Title, SvgError> {
        let missing = "a frame's number";
        let (key, _) = cut(layout, " (", missing)?;
        if key == "all" {
            let figures = figures(totals[0], totals[0], None);
            return Ok(Title { title: format!("all ({figures})"), name: "all".to_owned() });
        }
        let id: usize = key.parse().map_err(|_| SvgError::Form { missing })?;
        let index = id.checked_sub(1).ok_or(SvgError::Form { missing })?;
        let node = profile.nodes().get(index).ok_or(SvgError::Form { missing })?;
        let frame = profile.frame(node.frame);

        let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
        let full = frame.label();
        let short = short_name(&full);
        let mut name = bounded(&printable(&short), NAME_BYTES_MAX).into_owned();
        name.push_str(&line);
        let place = if frame.file.is_empty() { frame.module } else { frame.file };
        let mut figures = figures(totals[id], totals[0], Some(node.own));
        if !place.is_empty() {
            figures.push_str(&format!(", {}{line}", inner(place)));
        }
        if short != full {
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
fn figures(total: Weight, whole: Weight, own: Option<Weight>) -> String {
    let all = total.total_ns();
    let share = percent(all, whole.total_ns());
    let mut figures = format!("{}, {share:.2}%", duration(all));
    if let Some(own) = own.filter(|own| !own.is_zero()) {
        figures.push_str(&format!(", Self {}", duration(own.total_ns())));
    }
    let (cpu, runnable) = (total.get(State::Cpu), total.get(State::Runnable));
    for (name, part) in [("CPU", cpu), ("Runnable", runnable), ("Wait", total.wait_ns())] {
        if part > 0 {
            figures.push_str(&format!(", {name} {:.0}%", percent(part, all)));
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

/// Cuts `name` to the width, from its start, as inferno's script does: this is visible where
/// scripts do not run.
fn fitted(name: &str, width_percent: f64) -> String {
    let width = width_percent / 100.0 * IMAGE_WIDTH as f64;
    let fit = (width / (FONT_SIZE as f64 * FONT_WIDTH)) as usize;
    let length = name.chars().count();
    if fit < 3 {
        return String::new();
    }
    if length < fit {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length + 2 - fit).collect();
    format!("..{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_its_rectangle() {
        // 1,200 pixels hold 169 characters of 7.08 pixels.
        assert_eq!(fitted("main", 100.0), "main");
        assert_eq!(fitted("abcdefgh", 5.0), "..cdefgh");
        assert_eq!(fitted("abcdefghi", 5.0), "..defghi");
        assert_eq!(fitted("äöüäöüäöü", 5.0), "..äöüäöü");
        assert_eq!(fitted("main", 1.0), "");
    }
}
