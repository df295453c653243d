//! Pictures are well-formed XML whatever the names, show what the profile holds, and never change:
//! a small one is kept as a golden file, without inferno's script.

use std::collections::BTreeSet;

use expect_test::expect_file;
use profiler_core::{Frame, State};
use proptest::prelude::*;

use super::*;
use crate::testing::{deep_profile, hostile_profiles, profile};

pub(super) mod xml;

fn draw(profile: &Profile) -> String {
    svg(profile, &SvgOptions::default()).unwrap()
}

/// The text of every element called `name`.
pub(super) fn texts<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
    let open = format!("<{name}");
    let close = format!("</{name}>");
    svg.split(&open)
        .skip(1)
        .filter_map(|piece| piece.split_once('>')?.1.split_once(&close))
        .map(|(text, _)| text)
        .collect()
}

#[test]
fn a_small_picture_matches_the_golden_file() {
    let profile = profile(
        "load;app::main:3;faer::qr cpu=600000000\nload;app::main:4;read network=300000000\n\
         count;app::main:3;std::io::read runnable=50000000\n[no task];[truncated];poll other=50000000",
    );
    let options = SvgOptions {
        title: "Where <time> went".to_owned(),
        subtitle: Some("4 workers & 1 s".to_owned()),
        ..SvgOptions::default()
    };
    let picture = svg(&profile, &options).unwrap();
    xml::check(&picture).unwrap();
    let (head, rest) = picture.split_once("<script").unwrap();
    let (script, rest) = rest.split_once("</script>").unwrap();
    assert!(script.contains("function zoom(") && script.contains("function search("));
    let golden = format!("{head}<script>…</script>{rest}").replace("><", ">\n<");
    expect_file!["golden/small.svg"].assert_eq(&golden);
}

/// The step `readers` of the tests types names into a browser.
#[test]
fn the_search_takes_names_and_patterns_only_after_re() {
    let picture = draw(&profile("load;operator()(int) cpu=1000000"));
    assert!(
        !picture.contains("new RegExp(term);"),
        "all text is a pattern"
    );
    let literal = r"term.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')";
    for part in [
        literal,
        "term.slice(3)",
        "name, or re: and a pattern (",
        "eg: re:^ext4_)",
    ] {
        assert_eq!(picture.matches(part).count(), 1, "{part}");
    }
}

#[test]
fn titles_have_name_time_share_self_states_and_file() {
    let picture = draw(&profile("load;f:3 cpu=1000000\nload;f:3;g:9 lock=3000000"));
    assert_eq!(
        texts(&picture, "title"),
        [
            "all (4.00 ms, 100%, CPU 25.0%, Wait 75.0% [Lock 3.00 ms])",
            "load (4.00 ms, 100%, CPU 25.0%, Wait 75.0% [Lock 3.00 ms])",
            "f (4.00 ms, 100%, Self 1.00 ms, CPU 25.0%, Wait 75.0% [Lock 3.00 ms], app/src/a.rs)",
            "g (3.00 ms, 75.0%, Self 3.00 ms, Wait 100% [Lock 3.00 ms], app/src/a.rs)",
        ]
    );
}

#[test]
fn lines_of_a_function_are_merged_by_default() {
    let profile = profile("t;f:3 cpu=1\nt;f:4 cpu=1");
    assert_eq!(
        (title_count(&profile, false), title_count(&profile, true)),
        (3, 4)
    );
    let by_line = SvgOptions {
        by_line: true,
        ..SvgOptions::default()
    };
    assert!(
        svg(&profile, &by_line)
            .unwrap()
            .contains("<title>f · a.rs:4 (")
    );
}

fn title_count(profile: &Profile, by_line: bool) -> usize {
    let options = SvgOptions {
        by_line,
        ..SvgOptions::default()
    };
    texts(&svg(profile, &options).unwrap(), "title").len()
}

#[test]
fn full_names_follow_the_file() {
    let name = "app::call<fn(u64) -> alloc::string::String>";
    let picture = draw(&profile(&format!("t;{name} cpu=1")));
    assert_eq!(
        texts(&picture, "title")[2],
        "app::call&lt;…&gt; (1 ns, 100%, Self 1 ns, CPU 100%, app/src/a.rs, \
         app::call&lt;fn❨u64❩ -&gt; alloc::string::String&gt;)"
    );
    assert!(picture.contains(">app::call&lt;…&gt;</text>"));
}

#[test]
fn no_directory_of_the_machine_that_built_the_program_is_written() {
    let registry = "/home/builder/.cargo/registry/src/index.crates.io-1949/serde-1.0.0/src/de.rs";
    let mut library = Frame::function("read", "", 0);
    library.module = "/home/builder/lib/libtool.so";
    let stack = vec![
        Frame::task("t"),
        Frame::function("app::run", "/home/builder/work/app/src/main.rs", 0),
        Frame::function("serde::parse", registry, 7),
        library,
    ];
    let options = SvgOptions {
        by_line: true,
        ..SvgOptions::default()
    };
    let picture = svg(
        &crate::testing::from_rows([(stack, State::Cpu, 5)]),
        &options,
    )
    .unwrap();
    assert!(!picture.contains("builder"), "{picture}");
    for place in [
        ", app/src/main.rs)",
        ", serde-1.0.0/src/de.rs:7)",
        ", libtool.so)",
    ] {
        assert!(picture.contains(place), "{place}");
    }
}

#[test]
fn siblings_with_equal_names_stay_apart() {
    let frames = ["a.rs", "b.rs"].map(|file| Frame::function("f", file, 0));
    let task = Frame::task("t");
    let rows = frames.map(|frame| (vec![task.clone(), frame], State::Cpu, 1));
    let picture = draw(&crate::testing::from_rows(rows));
    assert_eq!(texts(&picture, "title").len(), 4);
}

#[test]
fn an_empty_profile_says_so() {
    let options = SvgOptions {
        title: "<b>".to_owned(),
        ..SvgOptions::default()
    };
    let picture = svg(&Profile::default(), &options).unwrap();
    xml::check(&picture).unwrap();
    assert!(picture.contains("no samples in this range") && picture.contains("&lt;b&gt;"));
}

#[test]
fn frames_below_a_pixel_are_not_drawn() {
    let picture = draw(&profile("t;big cpu=1000000\nt;tiny cpu=50"));
    assert!(picture.contains("<title>big (") && !picture.contains("<title>tiny ("));
    assert!(picture.contains(r#"total_samples="1000050""#));
}

#[test]
fn subtrees_below_a_ten_thousandth_are_one_frame() {
    let narrow: Vec<String> = (0..40)
        .map(|n| format!("t;narrow{n};inner cpu=99"))
        .collect();
    let picture = draw(&profile(&format!(
        "t;big cpu=996040\n{}",
        narrow.join("\n")
    )));
    assert!(!picture.contains("narrow") && !picture.contains("inner"));
    assert!(picture.contains("<title>[pruned] (3.96 µs, 0.40%, Self 3.96 µs"));
    assert!(picture.contains(r#"total_samples="1000000""#));
}

#[test]
fn dark_colors_are_left_to_the_reader() {
    for picture in [draw(&profile("t;f cpu=1")), draw(&Profile::default())] {
        assert_eq!(
            picture
                .matches("@media (prefers-color-scheme: dark)")
                .count(),
            1
        );
    }
}

#[test]
fn every_color_of_a_frame_has_one_for_dark_pages() {
    let picture = draw(&profile(
        "t;tokio::a cpu=1\nt;serde::b cpu=1\nother;tokio::c cpu=1",
    ));
    let (_, frames) = picture.split_once("<svg id=\"frames\"").unwrap();
    let fills = frames.split("fill=\"rgb(").skip(1);
    let colors: BTreeSet<&str> = fills.map(|rest| rest.split_once(')').unwrap().0).collect();
    assert_eq!(colors.len(), 5, "the root, two tasks and two crates");
    for color in colors {
        assert!(
            picture.contains(&format!("rect[fill=\"rgb({color})\"] {{ fill:#")),
            "{color}"
        );
    }
}

#[test]
fn the_deepest_and_the_widest_profiles_are_drawn() {
    let deep = draw(&deep_profile(1_000));
    assert_eq!(texts(&deep, "title").len(), 1_001);

    let stacks: Vec<String> = (0..110_000).map(|n| format!("t;f{n};g cpu=10")).collect();
    let wide = profile(&format!("{}\nt;big cpu=900000", stacks.join("\n")));
    let picture = draw(&wide);
    assert!(picture.contains("<title>[pruned] (1.10 ms, 55.0%"));
    assert!(picture.contains("<title>big (900 µs, 45.0%"));
    assert!(picture.contains(r#"total_samples="2000000""#));
}

#[test]
fn weights_beyond_what_a_browser_counts_keep_their_proportions() {
    let most = u64::MAX / 4;
    let picture = draw(&profile(&format!(
        "t;a cpu={most}\nt;b cpu={most}\nt;c sleep={most}"
    )));
    let third = "<rect x=\"0.0000%\"";
    assert!(picture.contains(third));
    assert!(picture.contains("33.3%, Self"));
}

#[test]
fn an_inverted_picture_has_tasks_at_the_top() {
    let profile = profile("t;f cpu=1");
    assert!(is_above(&profile, true) && !is_above(&profile, false));
}

fn is_above(profile: &Profile, inverted: bool) -> bool {
    let options = SvgOptions {
        inverted,
        ..SvgOptions::default()
    };
    let picture = svg(profile, &options).unwrap();
    y_of(&picture, "t") < y_of(&picture, "f")
}

fn y_of(picture: &str, name: &str) -> u32 {
    let (_, frame) = picture.split_once(&format!("<title>{name} (")).unwrap();
    let (_, y) = frame.split_once(" y=\"").unwrap();
    y.split_once('"').unwrap().0.parse().unwrap()
}

/// Position and size of each frame, in the units of weight and in pixels.
fn places(svg: &str) -> Vec<[u64; 4]> {
    let (_, frames) = svg.split_once("<svg id=\"frames\"").unwrap();
    let rectangles = frames.split("<rect").skip(1);
    let mut places: Vec<[u64; 4]> = rectangles
        .map(|frame| ["fg:x", "fg:w", "y", "height"].map(|name| number(frame, name)))
        .collect();
    places.sort_unstable();
    places
}

fn number(frame: &str, name: &str) -> u64 {
    let (_, rest) = frame.split_once(&format!(" {name}=\"")).unwrap();
    rest.split_once('"').unwrap().0.parse().unwrap()
}

/// inferno's picture of a profile, with numbers for names: it requires stacks in order.
fn picture_by_inferno(profile: &Profile, options: &SvgOptions) -> String {
    let mut paths = vec![String::new()];
    let mut stacks = Vec::new();
    for (id, node) in (1..).zip(profile.nodes()) {
        let path = format!("{};{id:06}", paths[node.parent.index()]);
        if !node.own.is_zero() {
            stacks.push(format!("{} {}", &path[1..], node.own.total_ns()));
        }
        paths.push(path);
    }
    picture(options, &stacks).unwrap()
}

proptest! {
    #[test]
    fn frames_are_where_inferno_has_them(profile in hostile_profiles(), inverted: bool) {
        let options = SvgOptions { inverted, by_line: true, ..SvgOptions::default() };
        let drawn = visible(&profile);
        prop_assume!(!drawn.total().is_zero());
        let ours = svg(&profile, &options).unwrap();
        let theirs = picture_by_inferno(&drawn, &options);
        prop_assert_eq!(places(&ours), places(&theirs));
        let head = |svg: &str| svg.split_once("<style").unwrap().0.to_owned();
        prop_assert_eq!(head(&ours), head(&theirs), "the height is the same");
    }

    #[test]
    fn pictures_are_well_formed_and_repeatable_whatever_the_names(
        profile in hostile_profiles(), title: String, by_line: bool, inverted: bool
    ) {
        let options = SvgOptions { subtitle: Some(title.clone()), title, inverted, by_line };
        let picture = svg(&profile, &options).unwrap();
        prop_assert_eq!(xml::check(&picture), Ok(()));
        prop_assert_eq!(picture.matches("<script").count(), usize::from(!profile.is_empty()));
        prop_assert_eq!(svg(&profile, &options).unwrap(), picture);
    }
}
