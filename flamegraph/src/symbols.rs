//! Names of functions as engineers know them: short labels, crates, and which frames are the
//! program's own. The page has the same rules in `collector/ui/src/core/symbols.ts`;
//! `flamegraph/symbols.json` has the examples that both are tested with.

mod plumbing;

use std::borrow::Cow;

use profiler_core::{Frame, FrameKind};

pub use self::plumbing::{is_main, is_plumbing, is_start, plumbing_of_stack, starts_rust};
use crate::text::printable;

/// Longer names are not parsed, in bytes.
const PARSED_MAX: usize = 4_096;

/// Crates of the language.
const STANDARD: [&str; 5] = ["core", "alloc", "std", "proc_macro", "test"];

/// Names that many functions share: their label includes the file.
const VAGUE: [&str; 4] = ["call", "main", "run", "poll"];

/// Starts of such names.
const VAGUE_STARTS: [&str; 3] = ["{", "call_once", "call_mut"];

/// The label of a frame, as the page draws it: the short name of a function, with its file if the name is
/// vague and with its line if it has one; the whole name of anything else. Printable.
#[must_use]
pub fn label(frame: &Frame<&str>) -> String {
    let full = frame.label();
    let is_function = frame.kind == FrameKind::Function;
    let short = if is_function {
        short_name(&full, frame.module)
    } else {
        Cow::Borrowed(&*full)
    };
    let name = printable(&short).into_owned();
    let is_vague = is_function && !frame.file.is_empty() && is_vague(&name);
    if !is_vague && frame.line == 0 {
        return name;
    }
    let file = printable(file_name(frame.file)).into_owned();
    let line = if frame.line > 0 {
        format!(":{}", frame.line)
    } else {
        String::new()
    };
    format!("{name} · {file}{line}")
}

fn is_vague(name: &str) -> bool {
    let word = &name[..word_end(name, 0)];
    VAGUE.contains(&word) || VAGUE_STARTS.iter().any(|start| name.starts_with(start))
}

/// Whether this is a name of code without one, as in Python: `<module>`, `<lambda>`.
fn is_placeholder(name: &str) -> bool {
    let inside = name
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'));
    inside.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// The last two parts of a function's path, `pipeline::digest_chunk`. Closures have the name of their
/// function, methods that of their type. `module` is the library: names of the C library lose their
/// internal prefixes.
///
/// ```
/// use emberline_flamegraph::symbols::short_name;
/// assert_eq!(short_name("<app::Mat<f64> as core::clone::Clone>::clone", ""), "Mat::clone");
/// assert_eq!(short_name("__GI___libc_read", "/usr/lib/libc.so.6"), "read");
/// ```
#[must_use]
pub fn short_name<'a>(name: &'a str, module: &str) -> Cow<'a, str> {
    if name.len() > PARSED_MAX {
        return name.into();
    }
    let parts = parts_of(name);
    let mut end = parts.len();
    while end > 1 && is_closure(parts[end - 1]) {
        end -= 1;
    }
    let closure = if end < parts.len() { "::{closure}" } else { "" };
    let method = without_generics(parts[end - 1]);
    if end == 1 {
        let own = if closure.is_empty() && is_libc(module) {
            libc_name(&method).to_owned()
        } else if is_placeholder(&method) {
            method.into_owned()
        } else {
            type_of(&method).into_owned()
        };
        return (own + closure).into();
    }
    // `{impl#3}` does not name its type: the module says more.
    let is_impl = end > 2 && parts[end - 2].starts_with("{impl");
    let owner = parts[if is_impl { end - 3 } else { end - 2 }];
    let owner = if is_closure(owner) {
        owner.to_owned()
    } else {
        last_name(&type_of(owner))
    };
    format!("{owner}::{method}{closure}").into()
}

/// The crate of a function, or else its library. Decides colors, and is a column of tables.
#[must_use]
pub fn crate_of<'a>(frame: &Frame<&'a str>) -> &'a str {
    let Frame {
        function,
        file,
        module,
        ..
    } = *frame;
    if let Some(path) = crate_of_path(function) {
        return path;
    }
    if let Some(name) = library_crate(file).or_else(|| registry_crate(file)) {
        return name;
    }
    if is_libc(module) {
        return "[libc]";
    }
    let parts: Vec<&str> = file.split('/').collect();
    match parts.iter().rposition(|part| *part == "src") {
        Some(source) if source > 0 => or_unknown(before_version(parts[source - 1])),
        None if parts.len() > 1 && parts[parts.len() - 2] != "." => {
            or_unknown(parts[parts.len() - 2])
        }
        _ => or_unknown(file_name(module)),
    }
}

/// The name, or "unknown" where neither file nor library says more.
fn or_unknown(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}

/// Whether a function is of the profiled program itself and not of a dependency.
#[must_use]
pub fn is_own(frame: &Frame<&str>) -> bool {
    if !frame.file.is_empty() {
        return place_of_dependency(frame.file).is_none();
    }
    crate_of_path(frame.function).is_some_and(|name| !STANDARD.contains(&name))
}

/// Whether a function is one of Python, as agents and other profilers name them.
#[must_use]
pub fn is_python(frame: &Frame<&str>) -> bool {
    frame.module == "python" || (frame.module.is_empty() && frame.file.ends_with(".py"))
}

/// Where the first directory of dependencies begins in a path.
fn place_of_dependency(file: &str) -> Option<usize> {
    const PLACES: [&str; 7] = [
        "/registry/src/",
        "/git/checkouts/",
        "/library/",
        "/rustc/",
        "/usr/include/",
        "/usr/src/",
        "/usr/lib/",
    ];
    PLACES.iter().filter_map(|place| file.find(place)).min()
}

/// A path without the directories of the machine that built the program, for files that leave it: that
/// of a dependency from the directory of dependencies, that of the program's own code [short](short_file).
/// Crate and ownership of a function stay what they are.
///
/// ```
/// use emberline_flamegraph::symbols::portable_file;
/// assert_eq!(portable_file("/home/me/app/src/main.rs"), "app/src/main.rs");
/// let file = "/home/me/.cargo/registry/src/index.crates.io-1949/tokio-1.40.0/src/task.rs";
/// assert_eq!(portable_file(file), "/registry/src/index.crates.io-1949/tokio-1.40.0/src/task.rs");
/// ```
#[must_use]
pub fn portable_file(file: &str) -> &str {
    match place_of_dependency(file) {
        Some(start) => &file[start..],
        None => short_file(file),
    }
}

/// The informative end of a path, for display: from the crate's directory, or the last two parts.
#[must_use]
pub fn short_file(file: &str) -> &str {
    if let Some((_, inside)) = file.split_once("/registry/src/")
        && let Some((_, inside)) = inside.split_once('/')
    {
        return inside;
    }
    if let Some((_, inside)) = file.split_once("/library/") {
        return inside;
    }
    let starts: Vec<usize> = starts_of_parts(file).collect();
    let from = match starts
        .iter()
        .rposition(|at: &usize| file[*at..].split('/').next() == Some("src"))
    {
        Some(source) => source.saturating_sub(1),
        None => starts.len().saturating_sub(2),
    };
    &file[starts[from]..]
}

fn starts_of_parts(path: &str) -> impl Iterator<Item = usize> + '_ {
    std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The parts of a path, split at `::` outside of brackets.
fn parts_of(path: &str) -> Vec<&str> {
    let bytes = path.as_bytes();
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut from = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at == 0 || bytes[at - 1] != b'-' => depth -= 1,
            b')' | b']' | b'}' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                parts.push(&path[from..at]);
                from = at + 2;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&path[from..]);
    parts
}

/// The type of `<Type as Trait>` or `<Type>`; any other part as it is.
fn type_of(part: &str) -> Cow<'_, str> {
    let Some(inside) = part
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'))
    else {
        return part.into();
    };
    let bytes = part.as_bytes();
    let mut depth = 0;
    let mut type_end = None;
    for at in 0..bytes.len() {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' if bytes[at - 1] != b'-' => depth -= 1,
            b' ' if depth == 1 && type_end.is_none() && bytes[at..].starts_with(b" as ") => {
                type_end = Some(at);
            }
            _ => {}
        }
        // The first bracket ends before the last one: it belongs to the type.
        if depth == 0 && at < bytes.len() - 1 {
            return part.into();
        }
    }
    if let Some(end) = type_end {
        return type_of(&part[1..end]);
    }
    let of_impl = inside
        .strip_prefix("impl ")
        .and_then(|rest| rest.rsplit_once(" for "));
    type_of(of_impl.map_or(inside, |(_, own)| own))
}

/// `Vec` for `alloc::vec::Vec<T>`; references and slices keep their sign.
fn last_name(part: &str) -> String {
    const SIGNS: [&str; 5] = ["&mut ", "&", "*const ", "*mut ", "dyn "];
    let mut rest = part;
    while let Some(after) = SIGNS.iter().find_map(|sign| rest.strip_prefix(sign)) {
        rest = after;
    }
    let sign = &part[..part.len() - rest.len()];
    let parts = parts_of(rest);
    let name = parts[parts.len() - 1];
    let end = name.find('<').filter(|at| *at > 0).unwrap_or(name.len());
    format!("{sign}{}", &name[..end])
}

fn is_closure(part: &str) -> bool {
    part.starts_with('{')
}

/// A function's name with the contents of angle brackets elided.
fn without_generics(name: &str) -> Cow<'_, str> {
    if !name.contains('<') {
        return name.into();
    }
    let mut depth = 0u32;
    let mut text = String::new();
    let mut last = None;
    for unit in name.chars() {
        // The leading bracket of `<Type as Trait>::method` holds the name itself.
        let follows_name = last.is_some_and(|last| is_word(last) || last == ':' || last == '}');
        if unit == '<' && follows_name {
            if depth == 0 {
                text.push_str("<…");
            }
            depth += 1;
        }
        if depth == 0 {
            text.push(unit);
        }
        let is_arrow = matches!(last, Some('-' | '='));
        if unit == '>' && !is_arrow && depth > 0 {
            depth -= 1;
            if depth == 0 {
                text.push('>');
            }
        }
        last = Some(unit);
    }
    if depth == 0 { text.into() } else { name.into() }
}

/// A function of the C library without its internal prefixes and variants.
fn libc_name(name: &str) -> &str {
    let inside = ["__GI_", "_IO_"]
        .iter()
        .find_map(|start| name.strip_prefix(start));
    let plain = inside.unwrap_or(name).trim_start_matches('_');
    let is_doubled = plain
        .strip_prefix("pthread_")
        .filter(|rest| rest.starts_with("pthread"));
    let mut short = plain.strip_prefix("libc_").or(is_doubled).unwrap_or(plain);
    while let Some(shorter) = before_variant(short) {
        short = shorter;
    }
    if short.is_empty() { name } else { short }
}

/// The name before a variant, which the C library selects by processor.
fn before_variant(name: &str) -> Option<&str> {
    const VARIANTS: [&str; 8] = [
        "ssse3",
        "erms",
        "unaligned",
        "movbe",
        "rtm",
        "nocancel",
        "cancel",
        "internal",
    ];
    let (head, last) = name.rsplit_once('_')?;
    if VARIANTS.contains(&last)
        || is_sse(last)
        || is_numbered("avx", last)
        || is_numbered("evex", last)
    {
        return Some(head);
    }
    // `sse4_2`
    let (start, version) = head.rsplit_once('_')?;
    (is_digit(last) && is_sse(version)).then_some(start)
}

fn is_digit(text: &str) -> bool {
    text.len() == 1 && text.as_bytes()[0].is_ascii_digit()
}

fn is_sse(text: &str) -> bool {
    text.strip_prefix("sse")
        .is_some_and(|version| version.is_empty() || is_digit(version))
}

fn is_numbered(start: &str, text: &str) -> bool {
    let number = text.strip_prefix(start);
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a library is part of the C library.
fn is_libc(module: &str) -> bool {
    starts_of_parts(module).skip(1).any(|at| {
        let part = &module[at..];
        let names = ["libc", "libm", "libpthread"];
        let rest = names
            .iter()
            .find_map(|name| part.strip_prefix(name))
            .or_else(|| {
                let rest = part.strip_prefix("ld-linux")?;
                Some(rest.trim_start_matches(|unit| is_word(unit) || unit == '-'))
            });
        rest.is_some_and(|rest| {
            let suffix =
                rest.trim_start_matches(|unit: char| unit.is_ascii_digit() || "-.".contains(unit));
            let version = &rest[..rest.len() - suffix.len()];
            version.ends_with('.') && suffix.starts_with("so")
        })
    })
}

/// The crate at the start of a path, or of a method's type or trait. The type of a method comes first; that
/// of `<usize as core::ops::Add>` has no crate, but its trait does.
fn crate_of_path(name: &str) -> Option<&str> {
    if name.len() > PARSED_MAX {
        return None;
    }
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !is_identifier_start(bytes[at]) {
            at += 1;
            continue;
        }
        let end = word_end(name, at);
        let follows = bytes[end..]
            .strip_prefix(b"::")
            .and_then(|rest| rest.first());
        if follows.is_some_and(|byte| is_identifier_start(*byte) || *byte == b'{') {
            return Some(&name[at..end]);
        }
        at = end;
    }
    None
}

fn is_identifier_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// The crate of the standard library that a file belongs to.
fn library_crate(file: &str) -> Option<&str> {
    const PLACE: &str = "/library/";
    file.match_indices(PLACE).find_map(|(at, _)| {
        let (name, _) = file[at + PLACE.len()..].split_once('/')?;
        (!name.is_empty() && name.chars().all(|unit: char| is_word(unit) || unit == '-'))
            .then_some(name)
    })
}

/// The package of a registry that a file belongs to.
fn registry_crate(file: &str) -> Option<&str> {
    let (_, inside) = file.split_once("/registry/src/")?;
    let mut parts = inside.split('/').skip(1);
    let package = parts.next()?;
    parts.next()?;
    let name = before_version(package);
    (name.len() < package.len() && !name.is_empty()).then_some(name)
}

/// The `name` of `name-1.2.3`.
fn before_version(folder: &str) -> &str {
    let version = folder
        .match_indices('-')
        .find(|(at, _)| is_version(&folder[at + 1..]));
    version.map_or(folder, |(at, _)| &folder[..at])
}

fn is_version(text: &str) -> bool {
    let Some((major, rest)) = text.split_once('.') else {
        return false;
    };
    is_number(major) && rest.starts_with(|unit: char| unit.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(unit: char) -> bool {
    unit.is_ascii_alphanumeric() || unit == '_'
}

/// The end of the word that starts at `from`.
fn word_end(text: &str, from: usize) -> usize {
    text[from..]
        .find(|unit| !is_word(unit))
        .map_or(text.len(), |length| from + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const EXAMPLES: &str = include_str!("../symbols.json");

    /// Functions with their labels, crates and files.
    #[derive(Deserialize)]
    struct Examples {
        functions: Vec<Example>,
        plumbing: Vec<String>,
        not_plumbing: Vec<String>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Example {
        name: String,
        file: String,
        line: u32,
        module: String,
        label: Option<String>,
        #[serde(rename = "crate")]
        owner: Option<String>,
        own: Option<bool>,
        short_file: Option<String>,
        portable_file: Option<String>,
    }

    fn examples() -> Examples {
        serde_json::from_str(EXAMPLES).unwrap()
    }

    #[test]
    fn functions_are_named_as_on_the_page() {
        for example in examples().functions {
            let mut frame =
                Frame::function(example.name.as_str(), example.file.as_str(), example.line);
            frame.module = &example.module;
            let name = &example.name;
            if let Some(expected) = &example.label {
                assert_eq!(&label(&frame), expected, "the label of {name}");
            }
            if let Some(expected) = &example.owner {
                assert_eq!(crate_of(&frame), expected, "the crate of {name}");
            }
            if let Some(expected) = example.own {
                assert_eq!(is_own(&frame), expected, "own code: {name}");
            }
            if let Some(expected) = &example.short_file {
                assert_eq!(short_file(&example.file), expected);
            }
            if let Some(expected) = &example.portable_file {
                assert_eq!(portable_file(&example.file), expected);
            }
        }
    }

    #[test]
    fn plumbing_says_nothing_about_the_program() {
        let Examples {
            plumbing,
            not_plumbing,
            ..
        } = examples();
        for name in plumbing {
            assert!(is_plumbing(&name), "{name}");
        }
        for name in not_plumbing {
            assert!(!is_plumbing(&name), "{name}");
        }
    }

    #[test]
    fn only_functions_have_short_names() {
        assert_eq!(label(&Frame::task("a::b::c")), "a::b::c");
        assert_eq!(label(&Frame::function("a::b::c", "", 0)), "b::c");
        let mut unresolved = Frame::function("", "", 0);
        unresolved.kind = FrameKind::Unresolved;
        unresolved.module = "/opt/app";
        assert_eq!(label(&unresolved), unresolved.label());
    }

    fn path_part() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["src", "core", "lib", "app", "tokio-1.40.0", "main.rs"])
    }

    proptest! {
        #[test]
        fn any_name_has_a_label(name in "[a-z<>{}:& *é-]{0,40}", module in "[a-z/.-]{0,20}") {
            let mut frame = Frame::function(name.as_str(), module.as_str(), 1);
            frame.module = &module;
            let _ = label(&frame);
            let _ = crate_of(&frame);
            let _ = is_own(&frame);
            let _ = is_plumbing(&name);
            let _ = short_file(&module);
        }

        #[test]
        fn a_portable_path_keeps_crate_and_ownership(
            start in prop::sample::select(vec!["", "/", "/home/", "/home/me/app/", "/home/me/app-1.2.3/"]),
            place in prop::sample::select(vec!["", "registry/src/index/", "git/checkouts/", "library/", "rustc/ab/"]),
            parts in prop::collection::vec(path_part(), 1..6),
        ) {
            let file = format!("{start}{place}{}", parts.join("/"));
            let portable = portable_file(&file);
            let whole = Frame::function("f", file.as_str(), 1);
            let short = Frame { file: portable, ..whole };
            prop_assert_eq!(crate_of(&short), crate_of(&whole), "{} of {}", portable, file);
            prop_assert_eq!(is_own(&short), is_own(&whole), "{} of {}", portable, file);
            prop_assert_eq!(short_file(portable), short_file(&file));
            prop_assert_eq!(portable_file(portable), portable);
        }
    }
}
