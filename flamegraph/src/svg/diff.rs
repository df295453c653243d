//! Flame graphs of two profiles: the share of each function before and after.

use profiler_core::profile::ProfileNode;
use profiler_core::{Profile, State, Weight};

use super::{SvgError, SvgOptions, folded, frames, label, style, visible, without_frames};
use crate::palette::{ROOT, Rgb, Themed, change};
use crate::text::{cell, percent, push_digits, push_percentage};

/// The weight of each side as a whole: shares count, so that ranges of different lengths compare. Both
/// sides together are below 2^53, to which browsers count.
const WHOLE: u64 = 1_000_000_000_000;

/// Shares that differ by less are equal: each of up to a million nodes loses less than 1 to rounding.
const ROUNDING: u64 = WHOLE / 1_000_000;

/// The states that hold the sides in a profile of both.
const BEFORE: State = State::Other;
const AFTER: State = State::Cpu;

/// Longest title in characters: it leaves room for the legend on its left.
const TITLE_CHARS_MAX: usize = 55;

/// Longest part of the subtitle that comes from the options, in characters.
const SUBTITLE_CHARS_MAX: usize = super::SUBTITLE_CHARS_MAX - 22;

/// Draws a flame graph of how the shares of two profiles differ, as [`svg`](crate::svg()) draws one.
/// Each side is normalized to 100 %. A frame is as wide as the mean of its two shares, red if its share
/// grew and blue if it shrank. Its tooltip has both shares and their difference in percentage points,
/// with and without its callees.
///
/// Sides with equal shares give a gray picture whose subtitle says so. If a side is empty, there is no
/// share to compare, and the picture says which one.
///
/// # Errors
/// [`SvgError`] as for [`svg`](crate::svg()).
pub fn diff_svg(
    before: &Profile,
    after: &Profile,
    options: &SvgOptions,
) -> Result<String, SvgError> {
    let empty = match [before, after].map(|side| side.total().is_zero()) {
        [true, true] => Some("no samples on either side"),
        [true, false] => Some("no samples before: nothing to compare with"),
        [false, true] => Some("no samples after: nothing to compare with"),
        [false, false] => None,
    };
    if let Some(reason) = empty {
        return Ok(without_frames(options, reason));
    }
    let before = shares(&folded(before, options), BEFORE);
    let after = shares(&folded(after, options), AFTER);
    let both = before.merge(&after);
    let is_equal = both
        .nodes()
        .iter()
        .all(|node| Shares::of(node.own).are_equal());

    let drawn = visible(&both);
    let totals = drawn.totals();
    let colors = totals[1..].iter().map(|total| Shares::of(*total).color());
    let colors: Vec<Themed> = [ROOT].into_iter().chain(colors).collect();
    let options = SvgOptions {
        title: cell(&options.title, TITLE_CHARS_MAX),
        subtitle: Some(subtitle(options, is_equal)),
        ..options.clone()
    };
    let mut with_legend = colors.clone();
    with_legend.extend(LEGEND.map(|(before, after)| change(before, after)));
    let before_frames = format!("<style>{}{NARROW}</style>{}", style(&with_legend), legend());
    frames::draw(&drawn, &colors, &options, &before_frames, |text, node| {
        let total = Shares::of(totals[node.index()]);
        total.push_figures(text, Shares::of(label::own(&drawn, node)));
    })
}

/// The profile with shares of [`WHOLE`] for times, in one state.
fn shares(profile: &Profile, side: State) -> Profile {
    let whole = u128::from(profile.total().total_ns());
    let share = |own: Weight| {
        let share = u128::from(own.total_ns()) * u128::from(WHOLE) / whole;
        Weight::of(
            side,
            u64::try_from(share).expect("a part is at most the whole"),
        )
    };
    let rows: Vec<ProfileNode> = profile
        .nodes()
        .iter()
        .map(|node| ProfileNode {
            own: share(node.own),
            ..*node
        })
        .collect();
    profile.with_rows(&rows)
}

fn subtitle(options: &SvgOptions, is_equal: bool) -> String {
    let note = if is_equal {
        "no change of shares"
    } else {
        "width: mean share"
    };
    match options.subtitle.as_deref() {
        None | Some("") => note.to_owned(),
        Some(facts) => format!("{}; {note}", cell(facts, SUBTITLE_CHARS_MAX)),
    }
}

/// Shares of [`WHOLE`] on both sides.
#[derive(Clone, Copy)]
struct Shares {
    before: u64,
    after: u64,
}

impl Shares {
    fn of(weight: Weight) -> Shares {
        Shares {
            before: weight.get(BEFORE),
            after: weight.get(AFTER),
        }
    }

    fn are_equal(self) -> bool {
        self.before.abs_diff(self.after) < ROUNDING
    }

    fn color(self) -> Themed {
        change(self.before as f64, self.after as f64)
    }

    /// Appends both shares and their difference, of the function with its callees and of itself. Words are in
    /// capitals because the search covers them too.
    fn push_figures(self, text: &mut String, own: Shares) {
        self.push_text(text);
        if self.before == 0 {
            text.push_str(", New");
        } else if self.after == 0 {
            text.push_str(", Removed");
        }
        if own.before > 0 || own.after > 0 {
            text.push_str(", Self ");
            own.push_text(text);
        }
    }

    /// Appends `25.0% → 40.0%, +15.0 pp`.
    fn push_text(self, text: &mut String) {
        let Shares { before, after } = self;
        push_percentage(text, before, WHOLE);
        text.push_str(" → ");
        push_percentage(text, after, WHOLE);
        text.push_str(", ");
        if self.are_equal() {
            text.push_str("No change");
            return;
        }
        let start = text.len();
        text.push(if after < before { '-' } else { '+' });
        push_digits(text, percent(after.abs_diff(before), WHOLE));
        if &text[start + 1..] == "0.00" {
            text.truncate(start);
            text.push_str("Change below 0.01 pp");
        } else {
            text.push_str(" pp");
        }
    }
}

/// Weights before and after of the legend's colors, as on the page.
const LEGEND: [(f64, f64); 5] = [(1.0, 0.0), (2.0, 1.0), (1.0, 1.0), (1.0, 2.0), (0.0, 1.0)];

/// The title has no room at its side on narrow screens, but the line of the tooltip is free: such
/// screens have no pointer.
const NARROW: &str = " @media (max-width: 700px) { #legend { transform:translate(-86px,40px); } }";

/// The scale of colors, between the button that resets the zoom and the title.
fn legend() -> String {
    const LEFT: usize = 96;
    const SWATCHES_LEFT: usize = LEFT + 56;
    const SWATCH_WIDTH: usize = 16;
    let mut legend = format!(r#"<g id="legend"><text x="{LEFT}" y="24">removed</text>"#);
    for (index, (before, after)) in LEGEND.into_iter().enumerate() {
        let Rgb(red, green, blue) = change(before, after).light;
        let left = SWATCHES_LEFT + index * SWATCH_WIDTH;
        legend.push_str(&format!(
            r#"<rect x="{left}" y="14" width="{SWATCH_WIDTH}" height="12" fill="rgb({red},{green},{blue})"/>"#
        ));
    }
    let right = SWATCHES_LEFT + LEGEND.len() * SWATCH_WIDTH + 6;
    legend.push_str(&format!(r#"<text x="{right}" y="24">new</text></g>"#));
    legend
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use proptest::prelude::*;

    use super::super::tests::{texts, xml};
    use super::*;
    use crate::testing::{hostile_profiles, profile};

    fn draw(before: &str, after: &str) -> String {
        let [before, after] = [before, after].map(profile);
        diff_svg(&before, &after, &SvgOptions::default()).unwrap()
    }

    #[test]
    fn a_small_difference_matches_the_golden_file() {
        let before = profile("load;app::main cpu=400\nload;read network=400\nload;old cpu=200");
        let after = profile("load;app::main cpu=4000\nload;read network=1000\nload;new cpu=5000");
        let options = SvgOptions {
            title: "Change of <load>".to_owned(),
            subtitle: Some("before & after".to_owned()),
            ..SvgOptions::default()
        };
        let picture = diff_svg(&before, &after, &options).unwrap();
        xml::check(&picture).unwrap();
        let (head, rest) = picture.split_once("<script").unwrap();
        let (_, rest) = rest.split_once("</script>").unwrap();
        let golden = format!("{head}<script>…</script>{rest}").replace("><", ">\n<");
        expect_file!["golden/diff.svg"].assert_eq(&golden);
    }

    #[test]
    fn titles_have_shares_of_ranges_of_different_lengths() {
        let picture = draw(
            "t;f cpu=75\nt;f;g cpu=25",
            "t;f cpu=200\nt;f;g lock=600\nt;h cpu=200",
        );
        assert_eq!(
            texts(&picture, "title"),
            [
                "all (100% → 100%, No change)",
                "t (100% → 100%, No change)",
                "f (100% → 80.0%, -20.0 pp, Self 75.0% → 20.0%, -55.0 pp, app/src/a.rs)",
                "g (25.0% → 60.0%, +35.0 pp, Self 25.0% → 60.0%, +35.0 pp, app/src/a.rs)",
                "h (0% → 20.0%, +20.0 pp, New, Self 0% → 20.0%, +20.0 pp, app/src/a.rs)",
            ]
        );
    }

    #[test]
    fn a_frame_is_as_wide_as_the_mean_of_its_shares() {
        let picture = draw("t;f cpu=1\nt;g cpu=3", "t;f cpu=300\nt;g cpu=100");
        let (_, f) = picture.split_once("<title>f (").unwrap();
        let (_, width) = f.split_once(" width=\"").unwrap();
        assert!(width.starts_with("50.0000%"), "{width:.20}");
    }

    #[test]
    fn equal_shares_are_gray_and_said() {
        let picture = draw("t;f cpu=1\nt;g lock=2", "t;f cpu=50\nt;g lock=100");
        assert!(picture.contains("no change of shares"));
        let (_, frames) = picture.split_once("<svg id=\"frames\"").unwrap();
        let gray = change(1.0, 1.0).light;
        let fill = format!("fill=\"rgb({},{},{})\"", gray.0, gray.1, gray.2);
        assert_eq!(frames.matches(&fill).count(), 3);
        assert!(
            !draw("t;f cpu=1\nt;g cpu=1", "t;f cpu=1\nt;g cpu=2").contains("no change of shares")
        );
    }

    #[test]
    fn rounding_is_no_change() {
        let sevenths = "t;f cpu=1\nt;g cpu=2\nt;h cpu=4";
        let picture = draw(sevenths, "t;f cpu=1\nt;g cpu=1\nt;h cpu=1");
        assert!(picture.contains("<title>all (100% → 100%, No change)"));
        assert!(picture.contains("<title>t (100% → 100%, No change)"));
    }

    #[test]
    fn two_ranges_fit_into_the_subtitle() {
        let range = "2026-11-23 18:48:40.308+00:00 to 2026-11-23 18:48:48.318+00:00";
        let facts = format!("{range}, then {range}");
        let options = SvgOptions {
            subtitle: Some(facts.clone()),
            ..SvgOptions::default()
        };
        let side = profile("t;f cpu=1");
        assert!(diff_svg(&side, &side, &options).unwrap().contains(&facts));
    }

    #[test]
    fn an_empty_side_is_named() {
        for (before, after, reason) in [
            ("", "", "no samples on either side"),
            ("", "t;f cpu=1", "no samples before"),
            ("t;f cpu=1", "", "no samples after"),
        ] {
            let picture = draw(before, after);
            xml::check(&picture).unwrap();
            assert!(picture.contains(reason), "{reason}");
        }
    }

    #[test]
    fn the_legend_and_the_frames_have_colors_for_dark_pages() {
        let picture = draw("t;f cpu=9\nt;g cpu=1", "t;f cpu=1\nt;g cpu=8\nt;h cpu=1");
        let (_, drawn) = picture.split_once("<g id=\"legend\"").unwrap();
        let colors: Vec<&str> = drawn
            .split("fill=\"rgb(")
            .skip(1)
            .map(|rest| rest.split_once(')').unwrap().0)
            .collect();
        assert_eq!(
            colors.len(),
            5 + 5,
            "five swatches, the root, a task and three functions"
        );
        for color in colors {
            assert!(
                picture.contains(&format!("rect[fill=\"rgb({color})\"] {{ fill:#")),
                "{color}"
            );
        }
    }

    #[test]
    fn changes_too_small_to_write_are_no_zeros() {
        let shares = Shares {
            before: WHOLE / 2,
            after: WHOLE / 2 + 2 * ROUNDING,
        };
        let mut text = String::new();
        shares.push_text(&mut text);
        assert_eq!(text, "50.0% → 50.0%, Change below 0.01 pp");
    }

    proptest! {
        #[test]
        fn differences_are_well_formed_and_repeatable_whatever_the_names(
            before in hostile_profiles(), after in hostile_profiles(), title: String, by_line: bool
        ) {
            let subtitle = Some(title.clone());
            let options = SvgOptions { title, subtitle, by_line, ..SvgOptions::default() };
            let picture = diff_svg(&before, &after, &options).unwrap();
            prop_assert_eq!(xml::check(&picture), Ok(()));
            prop_assert_eq!(diff_svg(&before, &after, &options).unwrap(), picture);
        }
    }
}
