//! Shows which references are edges, on small crates.

use expect_test::{Expect, expect};

use super::*;

/// `files`: paths below `src`, with their text; `lib.rs` is the root.
fn graph(files: &[(&str, &str)]) -> Graph {
    Graph::new(
        &modules::read("src/lib.rs", |path: &str| {
            let file = files.iter().find(|(name, _)| path == format!("src/{name}"));
            file.map(|(_, text)| (*text).to_owned())
        })
        .unwrap(),
    )
}

fn check_edges(files: &[(&str, &str)], expected: Expect) {
    let graph = graph(files);
    let mut text = String::new();
    for (edge, reference) in &graph.references {
        let [from, to] =
            [edge.from, edge.to].map(|file| graph.files[file].trim_start_matches("src/"));
        let names: Vec<&str> = reference.names.iter().map(String::as_str).collect();
        let _ = writeln!(
            text,
            "{from}:{} -> {to}: {}",
            reference.line,
            names.join(", ")
        );
    }
    expected.assert_eq(&text);
}

#[test]
fn imports_and_paths_are_edges_to_the_file_that_defines_the_item() {
    check_edges(
        &[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "use crate::b::Thing;\nfn f() -> usize { crate::b::deep::count() }",
            ),
            (
                "b.rs",
                "pub mod deep;\npub struct Thing;\nfn g() { deep::Counter::new() }",
            ),
            (
                "b/deep.rs",
                "pub struct Counter;\npub fn count() { super::super::a::f() }",
            ),
        ],
        expect![[r#"
            a.rs:1 -> b.rs: crate::b::Thing
            a.rs:2 -> b/deep.rs: crate::b::deep::count
            b.rs:3 -> b/deep.rs: deep::Counter::new
            b/deep.rs:2 -> a.rs: super::super::a::f
        "#]],
    );
}

#[test]
fn re_exports_are_followed_and_are_no_edges_themselves() {
    check_edges(
        &[
            (
                "lib.rs",
                "mod a;\nmod b;\npub use b::Thing;\npub(crate) use self::b::{Other as Alias, all::*};",
            ),
            (
                "a.rs",
                "use crate::{Alias, Thing};\nfn f(last: crate::Last) {}",
            ),
            (
                "b.rs",
                "mod inner; pub mod all;\npub use inner::{Other, Thing};\nfn g(other: Other) {}",
            ),
            ("b/inner.rs", "pub enum Thing {} pub struct Other;"),
            ("b/all.rs", "pub struct Last;"),
        ],
        expect![[r#"
            a.rs:1 -> b/inner.rs: crate::Alias, crate::Thing
            a.rs:2 -> b/all.rs: crate::Last
            b.rs:2 -> b/inner.rs: inner::Other
        "#]],
    );
}

#[test]
fn an_imported_module_is_an_edge_where_it_is_used() {
    check_edges(
        &[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "use crate::b::{self, deep as far};\nfn f() {\n    far::go(b::Thing)\n}",
            ),
            ("b.rs", "pub mod deep; pub struct Thing;"),
            ("b/deep.rs", "pub fn go() {}"),
        ],
        expect![[r#"
            a.rs:3 -> b.rs: b::Thing
            a.rs:3 -> b/deep.rs: far::go
        "#]],
    );
}

#[test]
fn a_glob_is_an_edge_to_each_file_whose_names_are_used() {
    check_edges(
        &[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "use super::b::*;\nuse crate::b::Kind::*;\nfn f(x: Used) {}",
            ),
            (
                "b.rs",
                "mod inner; pub use inner::Used; pub struct Unused; pub enum Kind { A }",
            ),
            ("b/inner.rs", "pub struct Used;"),
        ],
        expect![[r#"
            a.rs:2 -> b.rs: crate::b::Kind
            a.rs:3 -> b/inner.rs: Used
        "#]],
    );
}

#[test]
fn tests_comments_strings_and_other_crates_are_no_edges() {
    check_edges(
        &[
            ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod helper;"),
            (
                "a.rs",
                "#[cfg(test)]\nuse crate::b::Thing;\n// crate::b::Thing\nuse other::b::Thing;\n\
                 const X: &str = \"crate::b::Thing\";\n#[cfg(all(test, x))]\nmod tests { use crate::b::Thing; }\n\
                 struct S { #[cfg(test)] field: crate::b::Thing, x: u8 }",
            ),
            ("b.rs", "pub struct Thing;"),
            ("helper.rs", "use crate::b::Thing;"),
        ],
        expect![""],
    );
}

#[test]
fn inline_modules_belong_to_their_file_and_macros_may_define_items() {
    check_edges(
        &[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "mod inner {\n    use super::super::b::{CELL, Made};\n}\npub fn f() {}",
            ),
            (
                "b.rs",
                "thread_local! { pub static CELL: u8 = 0; }\nmake! { Made }\nfn g() { $crate::a::f() }",
            ),
        ],
        expect![[r#"
            a.rs:2 -> b.rs: super::super::b::CELL, super::super::b::Made
            b.rs:3 -> a.rs: crate::a::f
        "#]],
    );
}

#[test]
fn circles_are_described_with_what_closes_them() {
    let graph = graph(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "pub fn a() { crate::b::b() }"),
        ("b.rs", "pub fn b() { crate::c::c(); crate::a::a() }"),
        ("c.rs", "pub fn c() { crate::a::a(); crate::d::d() }"),
        ("d.rs", "pub fn d() {}"),
    ]);
    let components = graph.components();
    expect![[r#"
        small: 5 files, largest circle 3
            src/a.rs
            src/b.rs
            src/c.rs
          src/a.rs:1 -> src/b.rs: crate::b::b  (without it 1)
          src/b.rs:1 -> src/a.rs: crate::a::a
          src/b.rs:1 -> src/c.rs: crate::c::c  (without it 2)
          src/c.rs:1 -> src/a.rs: crate::a::a  (without it 2)
    "#]]
    .assert_eq(&describe("small", &graph, components.first()));
}
