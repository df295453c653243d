//! Pictures are well-formed XML whatever the names, show what the profile holds, and never change:
//! a small one is kept as a golden file, without inferno's script.

use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::testing::{deep_profile, hostile_profiles, profile};

mod xml;

fn draw(profile: &Profile) -> String {
    svg(profile, &SvgOptions::default()).unwrap()
}

/// The text of every element called `name`.
fn texts<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
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

#[test]
fn titles_have_name_time_share_self_states_and_file() {
    let picture = draw(&profile("load;f:3 cpu=1000000\nload;f:3;g:9 lock=3000000"));
    assert_eq!(
        texts(&picture, "title"),
        [
            "all (4.00 ms, 100.00%, CPU 25%, Wait 75% [Lock 3.00 ms])",
            "load (4.00 ms, 100.00%, CPU 25%, Wait 75% [Lock 3.00 ms])",
            "f (4.00 ms, 100.00%, Self 1.00 ms, CPU 25%, Wait 75% [Lock 3.00 ms], app/src/a.rs)",
            "g (3.00 ms, 75.00%, Self 3.00 ms, Wait 100% [Lock 3.00 ms], app/src/a.rs)",
        ]
    );
}

#[test]
fn lines_of_a_function_are_merged_by_default() {
    let profile = profile("t;f:3 cpu=1\nt;f:4 cpu=1");
    let frames = |by_line| {
        let options = SvgOptions { by_line, ..SvgOptions::default() };
        texts(&svg(&profile, &options).unwrap(), "title").len()
    };
    assert_eq!((frames(false), frames(true)), (3, 4));
    let by_line = SvgOptions { by_line: true, ..SvgOptions::default() };
    assert!(svg(&profile, &by_line).unwrap().contains("<title>f:4 ("));
}

#[test]
fn long_arguments_follow_the_file_in_full() {
    let name = "call<fn(u64) -> alloc::string::String>";
    let picture = draw(&profile(&format!("t;{name} cpu=1")));
    assert_eq!(
        texts(&picture, "title")[2],
        "call (1 ns, 100.00%, Self 1 ns, CPU 100%, app/src/a.rs, \
         call&lt;fn❨u64❩ -&gt; alloc::string::String&gt;)"
    );
    assert!(picture.contains(">call</text>"));
}

#[test]
fn siblings_with_equal_names_stay_apart() {
    let frames = ["a.rs", "b.rs"].map(|file| profiler_core::Frame::function("f", file, 0));
    let task = profiler_core::Frame::task("t");
    let rows = frames.map(|frame| (vec![task.clone(), frame], profiler_core::State::Cpu, 1));
    let picture = draw(&crate::testing::from_rows(rows));
    assert_eq!(texts(&picture, "title").len(), 4);
}

#[test]
fn an_empty_profile_says_so() {
    let options = SvgOptions { title: "<b>".to_owned(), ..SvgOptions::default() };
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
fn the_deepest_and_the_widest_profiles_are_drawn() {
    let deep = draw(&deep_profile(1_000));
    assert_eq!(texts(&deep, "title").len(), 1_001);

    let stacks: Vec<String> = (0..110_000).map(|n| format!("t;f{n};g cpu=10")).collect();
    let wide = profile(&format!("{}\nt;big cpu=900000", stacks.join("\n")));
    let picture = draw(&wide);
    assert!(picture.contains("<title>[pruned] (1.10 ms, 55.00%"));
    assert!(picture.contains("<title>big (900 µs, 45.00%"));
    assert!(picture.contains(r#"total_samples="2000000""#));
}

#[test]
fn weights_beyond_what_a_browser_counts_keep_their_proportions() {
    let most = u64::MAX / 4;
    let picture = draw(&profile(&format!("t;a cpu={most}\nt;b cpu={most}\nt;c sleep={most}")));
    let third = "<rect x=\"0.0000%\"";
    assert!(picture.contains(third));
    assert!(picture.contains("33.33%, Self"));
}

#[test]
fn an_inverted_picture_has_tasks_at_the_top() {
    let profile = profile("t;f cpu=1");
    let top = |inverted| {
        let options = SvgOptions { inverted, ..SvgOptions::default() };
        let picture = svg(&profile, &options).unwrap();
        let y = |name: &str| -> u32 {
            let (_, frame) = picture.split_once(&format!("<title>{name} (")).unwrap();
            let (_, y) = frame.split_once(" y=\"").unwrap();
            y.split_once('"').unwrap().0.parse().unwrap()
        };
        y("t") < y("f")
    };
    assert!(top(true) && !top(false));
}

proptest! {
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
