//! The frames of a picture. inferno draws what is around them and one frame of each depth, which says where
//! frames of that depth are.

use profiler_core::{FrameId, NodeId, Profile};

use super::label::Label;
use super::{FONT_SIZE, FONT_WIDTH, IMAGE_WIDTH, SvgError, SvgOptions, WIDTH_MIN_PERCENT, around};
use crate::palette::{Rgb, Themed};
use crate::prune::{depths, own_ns};
use crate::text::{push_fixed, push_xml};

/// Space between the left edge of a frame and its text, in percent of the picture.
const TEXT_LEFT_PERCENT: f64 = 100.0 * 3.0 / IMAGE_WIDTH as f64;

/// Bytes of a frame in the picture, about.
const FRAME_BYTES: usize = 300;

/// Draws a profile in the colors of its nodes, which begin with the root's. `figures` appends the text about a
/// node to its title; `before_frames` are further elements.
pub(super) fn draw(
    profile: &Profile,
    colors: &[Themed],
    options: &SvgOptions,
    before_frames: &str,
    figures: impl Fn(&mut String, NodeId),
) -> Result<String, SvgError> {
    let layout = Layout::of(profile);
    let picture = around(options, layout.depth_max, layout.whole)?;
    let Around {
        head,
        container,
        rows,
    } = Around::of(&picture)?;
    let size = picture.len() + before_frames.len() + layout.boxes.len() * FRAME_BYTES;
    let mut svg = String::with_capacity(size);
    svg.push_str(head);
    svg.push_str(before_frames);
    svg.push_str(container);
    let mut labels = Labels::new(profile);
    let mut about = String::new();
    for place in &layout.boxes {
        about.clear();
        figures(&mut about, place.node);
        let row = rows.get(place.depth).ok_or(SvgError::Form {
            missing: "a row of frames",
        })?;
        let label = labels.of(place.node);
        svg.push_str("<g><title>");
        label.push_title(&mut svg, &about);
        svg.push_str("</title>");
        layout.push_rectangle(&mut svg, place, row, colors[place.node.index()].light);
        layout.push_text(&mut svg, place, row, &label.name);
        svg.push_str("</g>");
    }
    svg.push_str("</svg></svg>");
    Ok(svg)
}

/// The frame of a node, in units of weight from the left.
struct FrameBox {
    node: NodeId,
    depth: usize,
    start: u64,
    width: u64,
}

/// Where frames are, from left to right, callers before what they call.
struct Layout {
    boxes: Vec<FrameBox>,
    /// Width of the root.
    whole: u64,
    /// Depth of the deepest frame; that of the root is 0.
    depth_max: usize,
}

impl Layout {
    fn of(profile: &Profile) -> Layout {
        // A browser counts exactly up to 2^53: 104 days of thread time in nanoseconds. Larger weights
        // lose low bits; figures are written from the exact weights.
        let exact: u128 = profile
            .nodes()
            .iter()
            .map(|node| u128::from(own_ns(node)))
            .sum();
        let shift = (128 - exact.leading_zeros()).saturating_sub(53);
        // Nodes come in depth-first order: those to the left of a node come before it.
        let mut starts = vec![0];
        let mut widths = vec![0];
        let mut whole = 0;
        for node in profile.nodes() {
            let own = own_ns(node) >> shift;
            starts.push(whole);
            widths.push(own);
            whole += own;
        }
        for (index, node) in profile.nodes().iter().enumerate().rev() {
            widths[node.parent.index()] += widths[index + 1];
        }
        let width_min = WIDTH_MIN_PERCENT / 100.0 * whole as f64;
        let all = (0..)
            .zip(depths(profile))
            .zip(starts.into_iter().zip(widths));
        let boxes: Vec<FrameBox> = all
            .filter(|(_, (_, width))| *width as f64 >= width_min)
            .map(|((id, depth), (start, width))| FrameBox {
                node: NodeId(id),
                depth: depth as usize,
                start,
                width,
            })
            .collect();
        let depth_max = boxes.iter().map(|place| place.depth).max().unwrap_or(0);
        Layout {
            boxes,
            whole,
            depth_max,
        }
    }

    fn percent(&self, weight: u64) -> f64 {
        100.0 * weight as f64 / self.whole as f64
    }

    fn push_rectangle(&self, svg: &mut String, place: &FrameBox, row: &Row<'_>, color: Rgb) {
        let mut number = itoa::Buffer::new();
        svg.push_str("<rect x=\"");
        push_fixed(svg, self.percent(place.start), 4);
        svg.push_str("%\" y=\"");
        svg.push_str(row.y);
        svg.push_str("\" width=\"");
        push_fixed(svg, self.percent(place.width), 4);
        svg.push_str("%\" height=\"");
        svg.push_str(row.height);
        let Rgb(red, green, blue) = color;
        for (before, part) in [("\" fill=\"rgb(", red), (",", green), (",", blue)] {
            svg.push_str(before);
            svg.push_str(number.format(part));
        }
        svg.push_str(")\" fg:x=\"");
        svg.push_str(number.format(place.start));
        svg.push_str("\" fg:w=\"");
        svg.push_str(number.format(place.width));
        svg.push_str("\"/>");
    }

    fn push_text(&self, svg: &mut String, place: &FrameBox, row: &Row<'_>, name: &str) {
        svg.push_str("<text x=\"");
        push_fixed(svg, self.percent(place.start) + TEXT_LEFT_PERCENT, 4);
        svg.push_str("%\" y=\"");
        svg.push_str(row.text_y);
        svg.push_str("\">");
        push_fitted(svg, name, self.percent(place.width));
        svg.push_str("</text>");
    }
}

/// Appends `name` without the end that does not fit into the width, as inferno's script does: this is visible
/// where scripts do not run.
fn push_fitted(svg: &mut String, name: &str, width_percent: f64) {
    let width = width_percent / 100.0 * IMAGE_WIDTH as f64;
    let fit = (width / (FONT_SIZE as f64 * FONT_WIDTH)) as usize;
    if fit < 3 {
        return;
    }
    let is_cut = name.chars().nth(fit - 1).is_some();
    let end = name
        .char_indices()
        .nth(fit - 2)
        .map(|(at, _)| at)
        .filter(|_| is_cut);
    push_xml(svg, &name[..end.unwrap_or(name.len())]);
    if is_cut {
        svg.push_str("..");
    }
}

/// The label of each frame, made when it is needed first: many nodes have the same frame.
struct Labels<'a> {
    profile: &'a Profile,
    root: Label,
    by_frame: Vec<Option<Label>>,
}

impl Labels<'_> {
    fn new(profile: &Profile) -> Labels<'_> {
        let mut by_frame = Vec::new();
        by_frame.resize_with(profile.symbols().frame_count() as usize, || None);
        Labels {
            profile,
            root: Label::root(),
            by_frame,
        }
    }

    fn of(&mut self, node: NodeId) -> &Label {
        let Some(index) = node.index().checked_sub(1) else {
            return &self.root;
        };
        let frame: FrameId = self.profile.nodes()[index].frame;
        let label = &mut self.by_frame[frame.0 as usize];
        label.get_or_insert_with(|| Label::of(&self.profile.frame(frame)))
    }
}

/// Where frames of one depth are: values of their attributes.
struct Row<'a> {
    y: &'a str,
    height: &'a str,
    text_y: &'a str,
}

/// A picture of inferno's without its frames.
struct Around<'a> {
    head: &'a str,
    /// The start of the element that holds the frames.
    container: &'a str,
    /// By depth.
    rows: Vec<Row<'a>>,
}

impl<'a> Around<'a> {
    /// Takes a picture apart that has one frame of each depth.
    fn of(picture: &'a str) -> Result<Around<'a>, SvgError> {
        let missing = "the list of frames";
        let start = picture
            .find(r#"<svg id="frames""#)
            .ok_or(SvgError::Form { missing })?;
        let (head, rest) = picture.split_at(start);
        let end = rest.find('>').ok_or(SvgError::Form { missing })? + 1;
        let (container, frames) = rest.split_at(end);
        let rows = frames
            .split("<rect")
            .skip(1)
            .map(Row::of)
            .collect::<Result<_, _>>()?;
        Ok(Around {
            head,
            container,
            rows,
        })
    }
}

impl<'a> Row<'a> {
    /// Reads the attributes of a rectangle and of the text that follows.
    fn of(rectangle: &'a str) -> Result<Row<'a>, SvgError> {
        let (_, text) = cut(rectangle, "<text", "a frame's text")?;
        Ok(Row {
            y: attribute(rectangle, " y=\"")?,
            height: attribute(rectangle, " height=\"")?,
            text_y: attribute(text, " y=\"")?,
        })
    }
}

fn attribute<'a>(element: &'a str, start: &'static str) -> Result<&'a str, SvgError> {
    let (_, rest) = cut(element, start, start)?;
    Ok(cut(rest, "\"", start)?.0)
}

/// The text before and after `mark`.
fn cut<'a>(
    text: &'a str,
    mark: &str,
    missing: &'static str,
) -> Result<(&'a str, &'a str), SvgError> {
    text.split_once(mark).ok_or(SvgError::Form { missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(name: &str, width_percent: f64) -> String {
        let mut text = String::new();
        push_fitted(&mut text, name, width_percent);
        text
    }

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
