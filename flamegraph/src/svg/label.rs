//! Texts of frames: names, places and figures.

use profiler_core::limits::bounded;
use profiler_core::{Frame, NodeId, Profile, State, Weight};

use crate::symbols::{label, short_file};
use crate::text::{printable, push_duration, push_percentage, push_xml};

/// Longest name drawn, in bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// Texts that all frames of a function show.
pub(super) struct Label {
    pub(super) name: String,
    /// The name as XML.
    name_xml: String,
    /// The end of a title as XML, with its comma: file, and full name if it is longer.
    place_xml: String,
}

impl Label {
    pub(super) fn root() -> Label {
        let name = "all".to_owned();
        Label {
            name_xml: name.clone(),
            name,
            place_xml: String::new(),
        }
    }

    pub(super) fn of(frame: &Frame<&str>) -> Label {
        let name = bounded(&label(frame), NAME_BYTES_MAX).into_owned();
        let mut place_xml = String::new();
        // Paths without the directories of the machine that built the program.
        let library = frame.module.rsplit('/').next().unwrap_or_default();
        let place = if frame.file.is_empty() {
            library
        } else {
            short_file(frame.file)
        };
        if !place.is_empty() {
            let line = if frame.line > 0 {
                format!(":{}", frame.line)
            } else {
                String::new()
            };
            push_xml(&mut place_xml, &format!(", {}{line}", inner(place)));
        }
        let full = frame.label();
        if !name.starts_with(&*printable(&full)) {
            push_xml(&mut place_xml, &format!(", {}", inner(&full)));
        }
        let mut name_xml = String::new();
        push_xml(&mut name_xml, &name);
        Label {
            name,
            name_xml,
            place_xml,
        }
    }

    /// Appends the title of a frame: `run (4.00 ms, 75.0%, app/src/main.rs)`.
    pub(super) fn push_title(&self, svg: &mut String, figures: &str) {
        svg.push_str(&self.name_xml);
        svg.push_str(" (");
        push_xml(svg, figures);
        svg.push_str(&self.place_xml);
        svg.push(')');
    }
}

/// Formats text for the last parentheses of a title. inferno's script takes the last opening one as
/// the end of the name, so there may be none inside.
fn inner(text: &str) -> String {
    bounded(&printable(text), NAME_BYTES_MAX)
        .replace('(', "❨")
        .replace(')', "❩")
}

/// Appends time, share of the whole, own time, states, and kinds of waiting. In capitals, because the
/// search covers these words too: a search for `lock` should find functions, not everything that
/// waited for a lock.
pub(super) fn push_figures(text: &mut String, profile: &Profile, totals: &[Weight], node: NodeId) {
    let total = totals[node.index()];
    let own = own(profile, node);
    let all = total.total_ns();
    push_duration(text, all);
    text.push_str(", ");
    push_percentage(text, all, totals[0].total_ns());
    if !own.is_zero() {
        text.push_str(", Self ");
        push_duration(text, own.total_ns());
    }
    let cpu = total.get(State::Cpu);
    let runnable = total.get(State::Runnable);
    for (name, part) in [
        (", CPU ", cpu),
        (", Runnable ", runnable),
        (", Wait ", total.wait_ns()),
    ] {
        if part > 0 {
            text.push_str(name);
            push_percentage(text, part, all);
        }
    }
    let kinds = State::WAITS
        .into_iter()
        .filter(|state| total.get(*state) > 0);
    let mut before = " [";
    for state in kinds {
        text.push_str(before);
        text.push_str(wait_name(state));
        text.push(' ');
        push_duration(text, total.get(state));
        before = ", ";
    }
    if before == ", " {
        text.push(']');
    }
}

/// A node's weight without its children; the root has none.
pub(super) fn own(profile: &Profile, node: NodeId) -> Weight {
    let index = node.index().checked_sub(1);
    index
        .map(|index| profile.nodes()[index].own)
        .unwrap_or_default()
}

/// Name of a kind of waiting in a title.
const fn wait_name(state: State) -> &'static str {
    match state {
        State::Lock => "Lock",
        State::Interpreter => "GIL",
        State::Sleep => "Sleep",
        State::Network => "Network",
        State::Disk => "Disk",
        State::Cpu | State::Runnable | State::Other => "Other",
    }
}
