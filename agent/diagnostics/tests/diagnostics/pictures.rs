//! Pages and pictures: colors, hostile names, and size.

use std::collections::BTreeMap;

use emberline_agent::task;
use emberline_diagnostics::{
    self as diagnostics, CacheProfiler, Plot, Profiler, ResourceProfiler, VisualizeError, visualize,
};

use crate::turn;

fn file(profilers: &[&dyn Plot], name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    visualize(profilers, &path).unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// Every text between `before` and the next `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before)
        .skip(1)
        .map(|rest| rest.split(after).next().unwrap())
        .collect()
}

/// The elements of an SVG are closed in the order in which they were opened.
fn check_nesting(svg: &str) {
    let mut open = Vec::new();
    for tag in between(svg, "<", ">") {
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{svg}"),
            None if tag.ends_with('/') || tag.starts_with('?') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn svg_of(page: &str) -> &str {
    let start = page.find("<svg").unwrap();
    &page[start..page.rfind("</svg>").unwrap() + 6]
}

/// Tasks of one name have one color, in the plot of tasks, the plot of caches and the legend, and
/// different names have different colors.
#[test]
fn defect_5_local_plots_have_one_colour_for_each_name() {
    let _turn = turn();
    let profiler = Profiler::new();
    let caches = CacheProfiler::new();
    let scopes = (
        diagnostics::scope(profiler.clone()),
        diagnostics::scope(caches.clone()),
    );
    let cache = diagnostics::cache("blocks");
    let mut held = Vec::new();
    for index in 0..7 {
        for name in ["load", "parse", "save"] {
            let _task = task(name).key(format!("{name}-{index}")).start();
            held.push(cache.hold(format!("{name}-{index}"), index));
        }
    }
    drop(scopes);
    for name in ["picture.svg", "picture.html"] {
        let text = file(&[&profiler, &caches], name);
        let groups = between(&text, "<g class=\"tasks\" data-name=\"", "</g>");
        let mut colors = BTreeMap::new();
        for group in &groups {
            let (name, rest) = group.split_once('"').unwrap();
            assert_eq!(group.matches("<rect").count(), 7, "{name}");
            colors.insert(name, between(rest, "fill=\"", "\"")[0]);
        }
        assert_eq!(
            colors.keys().copied().collect::<Vec<_>>(),
            ["load", "parse", "save"]
        );
        assert_eq!(groups.len(), 3, "one group of one colour for each name");
        assert!(colors["load"] != colors["parse"] && colors["parse"] != colors["save"]);
        for part in [
            "<path class=\"layer\" data-name=\"",
            "<g class=\"name\" data-name=\"",
        ] {
            let same: BTreeMap<_, _> = between(&text, part, "/>")
                .into_iter()
                .map(|each| {
                    (
                        each.split('"').next().unwrap(),
                        between(each, "fill=\"", "\"")[0],
                    )
                })
                .collect();
            assert_eq!(same, colors, "{part}");
        }
    }
}

const ATTACKS: [&str; 8] = [
    "</title></rect></svg><script>alert(1)</script>",
    "\" onmouseover=\"alert(1)",
    "' onload='alert(1)",
    "a\u{202e}gpj.exe\u{200f}\u{2066}",
    "]]><!-- <![CDATA[",
    "&lt;b&gt;\0\u{1b}[31m\n\r\t\u{fffe}",
    "\u{feff}javascript:alert(1)",
    "größe 🦀 ١٢٣",
];

/// Names are escaped: they open no element or attribute, do not change the direction of text, and stay
/// readable.
#[test]
fn hostile_names_are_escaped() {
    let _turn = turn();
    let profiler = Profiler::new();
    let caches = CacheProfiler::by(ATTACKS[0], |_| f64::NAN);
    let scopes = (
        diagnostics::scope(profiler.clone()),
        diagnostics::scope(caches.clone()),
    );
    for name in ATTACKS {
        let work = move || {
            let guard = task(name).key(name).start();
            drop(diagnostics::cache(name).hold(name, 1));
            guard.fail(name);
        };
        // A thread's name is the program's too; it cannot hold a NUL.
        let thread = std::thread::Builder::new().name(name.replace('\0', ""));
        thread.spawn(work).unwrap().join().unwrap();
    }
    drop(scopes);
    let page = file(&[&profiler, &caches], "a.html");
    let svg = file(&[&profiler, &caches], "a.svg");
    for text in [svg_of(&page), &svg] {
        check_nesting(text);
        for attack in [
            "<script",
            "<!--",
            "<![CDATA[",
            "onmouseover=\"",
            "onload='",
            "\u{202e}",
            "\0",
        ] {
            assert!(!text.contains(attack), "{attack:?}");
        }
        assert!(text.contains("größe 🦀 ١٢٣") && text.contains("gpj.exe"));
    }
    assert_eq!(page.matches("<script").count(), 1, "its own");
    assert!(page.contains("default-src 'none'"));
    for origin in ["http://", "https://", "//cdn", "url(", "@import"] {
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!without_namespace.contains(origin), "{origin}");
    }
}

/// A hundred thousand real tasks make a small file with exact sums, which notes the grouped tasks.
#[test]
fn a_hundred_thousand_tasks_fit_a_small_page() {
    let _turn = turn();
    let profiler = Profiler::new();
    let scope = diagnostics::scope(profiler.clone());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for index in 0..25_000 {
                    let name = ["load", "parse", "a rather longer name of a task"][index % 3];
                    drop(task(name).key(format!("{name}-{index:06}")).start());
                }
            });
        }
    });
    drop(scope);
    let page = file(&[&profiler], "large.html");
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let rects = page.matches("<rect").count();
    assert!(
        (1_000..=20_000 + 100).contains(&rects),
        "{rects} rectangles"
    );
    assert!(page.contains("Tasks: 100,000 on 4 threads") && page.contains("are drawn in "));
    for (name, tasks) in [("load", "33,336"), ("parse", "33,332")] {
        assert!(
            page.contains(&format!("<tr><td>{name}</td><td>{tasks}</td>")),
            "{name}"
        );
    }
    check_nesting(svg_of(&page));
}

#[test]
fn empty_results_make_a_picture() {
    let _turn = turn();
    let profiler = Profiler::new();
    let resources = ResourceProfiler::new();
    let nothing: [&[&dyn Plot]; 2] = [&[], &[&profiler, &resources, &CacheProfiler::new()]];
    for profilers in nothing {
        check_nesting(&file(profilers, "empty.svg"));
        check_nesting(svg_of(&file(profilers, "empty.HTML")));
    }
}

#[test]
fn errors_name_the_allowed_extensions() {
    let message = |path: &str| visualize(&[], path).unwrap_err();
    let error = message("picture.png");
    assert!(matches!(error, VisualizeError::Extension { .. }));
    assert_eq!(
        error.to_string(),
        "unknown extension of `picture.png`; expected .html, .htm or .svg"
    );
    let error = message("/no/such/folder/picture.svg");
    assert!(matches!(error, VisualizeError::Write { .. }), "{error}");
}
