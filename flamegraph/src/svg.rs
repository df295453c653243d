//! Flame graphs. inferno draws the picture with its script; [`frames`] draws the frames into it, where
//! inferno would have them, because names, figures and colors are ours.

mod diff;
mod frames;
mod label;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;

use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};
use profiler_core::Profile;

pub use self::diff::diff_svg;
use crate::palette::{Palette, Rgb, Themed};
use crate::prune::{bounded, prune};
use crate::text::{cell, push_xml};

/// Narrower frames are not drawn, in percent of the width: a tenth of a pixel of 1,180.
const WIDTH_MIN_PERCENT: f64 = 100.0 * 0.1 / 1_180.0;

/// Subtrees below `1 / SHARE_MIN` of the whole become `[pruned]`: most nodes of a large profile are too narrow
/// to see.
const SHARE_MIN: u64 = 10_000;

/// Most frames, about 270 bytes each; beyond it, larger subtrees become `[pruned]`.
const FRAMES_MAX: usize = 1 << 17;

/// The ground of the picture, as that of the page.
const GROUND: Themed = Themed {
    light: Rgb(255, 255, 255),
    dark: Rgb(30, 27, 25),
};
/// Text on it and on frames.
const TEXT: Themed = Themed {
    light: Rgb(28, 25, 22),
    dark: Rgb(246, 242, 236),
};

/// Width in pixels where no script adapts it to the window; inferno's default.
const IMAGE_WIDTH: usize = 1_200;

/// Font size in pixels, and a character's width as a share of it.
const FONT_SIZE: usize = 12;
const FONT_WIDTH: f64 = 0.59;

/// Most characters of a title, which takes one line.
const TITLE_CHARS_MAX: usize = 115;

/// Most characters of a subtitle, which takes one line; longer ones are cut in the middle.
pub const SUBTITLE_CHARS_MAX: usize = 160;

/// Options of a flame graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SvgOptions {
    /// First line.
    pub title: String,
    /// Second line, such as the range, the workers and the achieved rate; omitted if `None`.
    pub subtitle: Option<String>,
    /// Whether tasks are at the top and stacks grow downward (an icicle graph). The default,
    /// because a page opens at its top and stacks of 80 frames are common.
    pub inverted: bool,
    /// Whether each line of a function has its own frame; otherwise lines are merged.
    pub by_line: bool,
}

impl Default for SvgOptions {
    fn default() -> Self {
        SvgOptions {
            title: "Emberline".to_owned(),
            subtitle: None,
            inverted: true,
            by_line: false,
        }
    }
}

/// Why a flame graph could not be drawn. No profile causes it; it indicates a bug.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SvgError {
    /// inferno rejected the stacks.
    #[error("the flame graph could not be laid out")]
    Layout(#[source] io::Error),
    /// inferno's output does not have the form that this version expects.
    #[error("the flame graph's layout lacks {missing} where it is expected")]
    Form {
        /// The missing part.
        missing: &'static str,
    },
}

/// Draws a flame graph that zooms and searches in a browser, as a single file. The first level is
/// the tasks. Width is thread time over all states; the color identifies the crate, and is that of the page.
/// A frame's tooltip has its [label](crate::symbols::label), time, share of the whole,
/// own time, states and the end of its file's path; the full name follows if it is longer.
///
/// An empty profile gives a picture that says so. Subtrees below 0.01 % of the whole are drawn as
/// `[pruned]`. Names are cut at 1,024 bytes. The colors follow the reader's preference of dark or light.
///
/// # Errors
/// [`SvgError`] if inferno behaves differently from the tested version; never because of `profile`.
pub fn svg(profile: &Profile, options: &SvgOptions) -> Result<String, SvgError> {
    if profile.total().is_zero() {
        return Ok(without_frames(options, "no samples in this range"));
    }
    let drawn = visible(&folded(profile, options));
    let totals = drawn.totals();
    let colors = Palette::of(&drawn).colors(&drawn);
    let style = format!("<style>{}</style>", style(&colors));
    frames::draw(&drawn, &colors, options, &style, |text, node| {
        label::push_figures(text, &drawn, &totals, node);
    })
}

/// The profile, with the lines of each function merged unless they have their own frames.
fn folded<'a>(profile: &'a Profile, options: &SvgOptions) -> Cow<'a, Profile> {
    if options.by_line {
        Cow::Borrowed(profile)
    } else {
        Cow::Owned(profile.by_function())
    }
}

/// The profile with subtrees that are too narrow to see, or too many to draw, as `[pruned]`.
fn visible(folded: &Profile) -> Profile {
    let wide = prune(folded, folded.total().total_ns() / SHARE_MIN);
    match bounded(&wide, FRAMES_MAX, u64::MAX, |_| 0) {
        Cow::Owned(few) => few,
        Cow::Borrowed(_) => wide,
    }
}

/// Style rules: what inferno leaves hardly visible, and the colors of the dark theme.
fn style(colors: &[Themed]) -> String {
    let different: BTreeSet<Themed> = colors.iter().copied().collect();
    let mut style = format!(
        "#search {{ opacity:0.7; }} text {{ fill:{}; }} @media (prefers-color-scheme: dark) {{ \
         svg > rect {{ fill:{}; }} text {{ fill:{}; }}",
        TEXT.light.hex(),
        GROUND.dark.hex(),
        TEXT.dark.hex(),
    );
    for Themed {
        light: Rgb(red, green, blue),
        dark,
    } in different
    {
        style.push_str(&format!(
            " g rect[fill=\"rgb({red},{green},{blue})\"] {{ fill:{}; }}",
            dark.hex()
        ));
    }
    style.push_str(" }");
    style
}

/// inferno's picture of one stack, whose frames all have the whole width.
fn around(options: &SvgOptions, depth: usize, whole: u64) -> Result<String, SvgError> {
    let stack = format!("{} {whole}", vec!["-"; depth].join(";"));
    picture(options, &[stack])
}

/// inferno's picture of stacks.
fn picture(options: &SvgOptions, stacks: &[String]) -> Result<String, SvgError> {
    let mut look = Options::default();
    look.title = cell(&options.title, TITLE_CHARS_MAX);
    look.subtitle = options
        .subtitle
        .as_deref()
        .map(|text| cell(text, SUBTITLE_CHARS_MAX));
    look.direction = if options.inverted {
        Direction::Inverted
    } else {
        Direction::Straight
    };
    look.text_truncate_direction = TextTruncateDirection::Right;
    look.deterministic = true;
    look.bgcolors = Some(BackgroundColor::Flat(rgb(GROUND.light)));
    look.min_width = WIDTH_MIN_PERCENT;
    look.font_size = FONT_SIZE;
    look.font_width = FONT_WIDTH;
    // The first level is tasks, so "Function:" before each name would be wrong.
    look.name_type = String::new();

    let mut svg = Vec::new();
    from_lines(&mut look, stacks.iter().map(String::as_str), &mut svg).map_err(SvgError::Layout)?;
    let drawn = String::from_utf8(svg)
        .map_err(|error| SvgError::Layout(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    with_search_by_name(&drawn)
}

/// The picture with a search that finds names as they are displayed, and patterns after `re:`, as everywhere else.
/// inferno's takes all text as a pattern, in which `operator()(int)` does not match itself.
fn with_search_by_name(picture: &str) -> Result<String, SvgError> {
    const CHANGES: [[&str; 2]; 3] = [
        ["search term (regexp ", "name, or re: and a pattern ("],
        ["allowed, eg: ^ext4_)", "eg: re:^ext4_)"],
        [
            "new RegExp(term);",
            r"new RegExp(term.startsWith('re:') ? term.slice(3) : term.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));",
        ],
    ];
    let mut changed = picture.to_owned();
    for [before, after] in CHANGES {
        if !changed.contains(before) {
            return Err(SvgError::Form { missing: "search" });
        }
        changed = changed.replacen(before, after, 1);
    }
    Ok(changed)
}

fn rgb(Rgb(r, g, b): Rgb) -> Color {
    Color { r, g, b }
}

/// A picture that says why it has no frames.
fn without_frames(options: &SvgOptions, reason: &str) -> String {
    let mut svg = String::from(concat!(
        r#"<?xml version="1.0" encoding="UTF-8"?>"#,
        "\n",
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="120" viewBox="0 0 1200 120">"#,
        r##"<rect width="100%" height="100%" fill="#ffffff"/>"##,
        r#"<g font-family="monospace" font-size="12" text-anchor="middle">"#,
    ));
    svg.push_str(&format!("<style>{}</style>", style(&[])));
    let lines = [
        (24, 17, options.title.as_str()),
        (48, 12, options.subtitle.as_deref().unwrap_or("")),
        (84, 12, reason),
    ];
    for (y, size, text) in lines {
        svg.push_str(&format!(r#"<text x="50%" y="{y}" font-size="{size}">"#));
        push_xml(&mut svg, &cell(text, SUBTITLE_CHARS_MAX));
        svg.push_str("</text>");
    }
    svg.push_str("</g></svg>\n");
    svg
}

#[cfg(test)]
mod tests;
