//! Names of functions as people write them.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

use crate::TEXT_BYTES_MAX;
use crate::functions::Location;

/// Types nested deeper than this in a name are `…`.
const NESTING_MAX: usize = 2;

/// The longest name of Rust of an untrusted file that is written, in bytes. A short one may stand for a megabyte.
const UNTRUSTED_BYTES_MAX: usize = 8 << 10;

/// The name in the source that a linker's name of a file stands for: of Rust, or with the feature `cpp` of C++. `None` for
/// other names, and for those that are too long.
///
/// ```
/// use emberline_symbols::demangled_name;
///
/// assert_eq!(demangled_name("_RNvC6_123foo3bar").as_deref(), Some("123foo::bar"));
/// assert_eq!(demangled_name("main"), None);
/// ```
pub fn demangled_name(linkage_name: &str) -> Option<String> {
    // Most names are not mangled. On macOS they have another underscore.
    let symbol = linkage_name.strip_prefix('_')?;
    if !symbol.trim_start_matches('_').starts_with(['R', 'Z'])
        || linkage_name.len() > TEXT_BYTES_MAX
    {
        return None;
    }
    let of_rust = demangled_within(linkage_name, UNTRUSTED_BYTES_MAX);
    of_rust.or_else(|| cpp_name(linkage_name))
}

/// The path that a linker's name stands for, without hashes and without the types that the function
/// was compiled for; `None` if it is not one of Rust's.
pub(crate) fn demangled(linkage_name: &str) -> Option<String> {
    demangled_within(linkage_name, usize::MAX)
}

/// The same; `None` if it has more bytes with the types that the function was compiled for.
fn demangled_within(linkage_name: &str, bytes_max: usize) -> Option<String> {
    let path = rustc_demangle::try_demangle(linkage_name).ok()?;
    let mut name = BoundedName::new(bytes_max);
    write!(name, "{path:#}").ok()?;
    let name = name.text.replace("{{closure}}", "{closure}");
    Some(without_deep_types(&without_compiled_types(&name)))
}

/// A text that ends the writer when it is too long.
pub(crate) struct BoundedName {
    pub(crate) text: String,
    bytes_max: usize,
}

impl BoundedName {
    pub(crate) fn new(bytes_max: usize) -> BoundedName {
        BoundedName {
            text: String::new(),
            bytes_max,
        }
    }
}

impl Write for BoundedName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.bytes_max {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// `f::<u8>::g` is `f::g`: the function is the same in the source. Only of `drop_in_place` the type
/// is what matters.
fn without_compiled_types(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut removed_from = None;
    for (at, character) in name.char_indices() {
        match character {
            '<' => {
                let added = depth == 0 && short.ends_with("::");
                if added && removed_from.is_none() {
                    short.truncate(short.len() - 2);
                    if !short.ends_with("drop_in_place") {
                        removed_from = Some(depth);
                    }
                }
                depth += 1;
            }
            // Not the one of `->`.
            '>' if !name[..at].ends_with('-') => {
                depth = depth.saturating_sub(1);
                if removed_from == Some(depth) {
                    removed_from = None;
                    continue;
                }
            }
            _ => {}
        }
        if removed_from.is_none() {
            short.push(character);
        }
    }
    short
}

/// `<Vec<Option<Box<T>>> as Drop>::drop` is `<Vec<Option<…>> as Drop>::drop`.
fn without_deep_types(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut depth = 0_usize;
    // The brackets of `<T as Trait>` nest nothing.
    let most = if name.starts_with('<') {
        NESTING_MAX + 1
    } else {
        NESTING_MAX
    };
    for (at, character) in name.char_indices() {
        let closes = character == '>' && !name[..at].ends_with('-');
        if closes {
            depth = depth.saturating_sub(1);
        }
        if depth < most {
            short.push(character);
        } else if !short.ends_with('…') {
            short.push('…');
        }
        if character == '<' {
            depth += 1;
        }
    }
    short
}

/// A function as debug information describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described<'d> {
    /// Its name for the linker; empty if not known.
    pub(crate) linkage_name: &'d str,
    /// Its name in the source, without a path but with types.
    pub(crate) name: &'d str,
    /// The file of its code.
    pub(crate) file: &'d str,
}

impl<'d> From<&'d Location> for Described<'d> {
    fn from(location: &'d Location) -> Described<'d> {
        let Location {
            linkage_name,
            name,
            file,
            ..
        } = location;
        Described {
            linkage_name,
            name,
            file,
        }
    }
}

/// The full names of the functions at one address, outermost first, with `compiled` as the name of
/// the first one if it is known. A name is empty if there is none.
pub(crate) fn full_names(
    functions: &[Described<'_>],
    compiled: Option<&str>,
    rust: bool,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(functions.len());
    for (depth, function) in functions.iter().enumerate() {
        let symbol = if depth == 0 { compiled } else { None };
        let linkage_name = symbol.unwrap_or(function.linkage_name);
        let name = match demangled(linkage_name) {
            Some(path) => with_closure_number(path, function.name),
            None if !rust && !linkage_name.is_empty() => source_name(linkage_name),
            None if !rust => function.name.to_owned(),
            // `main` and what has `#[no_mangle]`.
            None if depth == 0 && symbol.is_some() => linkage_name.to_owned(),
            None => qualified(functions, &names, depth),
        };
        names.push(name);
    }
    names
}

/// The name of a function that is not Rust's.
fn source_name(linkage_name: &str) -> String {
    cpp_name(linkage_name).unwrap_or_else(|| linkage_name.to_owned())
}

#[cfg(feature = "cpp")]
fn cpp_name(linkage_name: &str) -> Option<String> {
    crate::cpp::demangled(linkage_name)
}

#[cfg(not(feature = "cpp"))]
fn cpp_name(_: &str) -> Option<String> {
    None
}

/// Older mangling does not number closures; their names in the source do.
fn with_closure_number(path: String, name: &str) -> String {
    let number = name
        .strip_prefix("{closure#")
        .and_then(|rest| rest.split_once('}'));
    match (path.strip_suffix("{closure}"), number) {
        (Some(outer), Some((number, _))) => format!("{outer}{{closure#{number}}}"),
        _ => path,
    }
}

/// The name of a function that debug information has no path for, as with line tables only: with
/// the module that its file suggests, closures with their function.
fn qualified(functions: &[Described<'_>], names: &[String], depth: usize) -> String {
    let function = functions[depth];
    let base = base_name(function.name);
    if base.is_empty() {
        return String::new();
    }
    let outer = || functions[..depth].iter().zip(names).rev();
    if let Some(number) = base
        .strip_prefix("{closure#")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let environment = format!("{{closure_env#{number}}}");
        let mut named = outer();
        let owner = named.find_map(|(outer, _)| owner_of(&environment, outer.name, function.file));
        if let Some(owner) = owner {
            return format!("{owner}{base}");
        }
        let in_same_file = outer().find(|(outer, name)| {
            outer.file == function.file && !name.is_empty() && !name.contains("{closure")
        });
        if let Some((_, name)) = in_same_file {
            return format!("{name}::{base}");
        }
    }
    let same_package = functions.first().filter(|first| {
        depth > 0
            && package_folder(first.file).is_some()
            && package_folder(first.file) == package_folder(function.file)
    });
    let first_name = same_package.and(names.first());
    let krate = first_name.and_then(|name| crate_of(name));
    match module_of(function.file, krate) {
        Some(module) if !module.is_empty() => format!("{module}::{base}"),
        _ => base.into_owned(),
    }
}

/// A name of debug information without the types that the function was compiled for.
fn base_name(name: &str) -> Cow<'_, str> {
    if name.starts_with("drop_in_place<") {
        return without_deep_types(name).into();
    }
    match name.find('<') {
        Some(at) if at > 0 => name[..at].into(),
        _ => name.into(),
    }
}

/// The path before `environment` in the types of an outer function: closures are passed to what is
/// inlined around them, with their full path. It must fit the closure's file.
fn owner_of<'n>(environment: &str, types: &'n str, file: &str) -> Option<&'n str> {
    let stem = Path::new(file).file_stem()?.to_str()?;
    let fits = |path: &str| {
        matches!(stem, "mod" | "lib" | "main") || path.split("::").any(|part| part == stem)
    };
    let mut found = types.match_indices(environment).filter_map(|(end, _)| {
        let before = &types[..end];
        let start = before
            .trim_end_matches(|character: char| {
                character.is_alphanumeric() || "_:{}#".contains(character)
            })
            .len();
        Some(&before[start..]).filter(|path| path.ends_with("::") && fits(path))
    });
    found.next()
}

/// The crate of a full name.
fn crate_of(name: &str) -> Option<&str> {
    let name = name.trim_start_matches(['<', '&', '*', '[', '(']);
    let end = name.find("::")?;
    let krate = &name[..end];
    let plain = krate
        .chars()
        .all(|character| character.is_alphanumeric() || character == '_');
    (plain && !krate.is_empty()).then_some(krate)
}

/// The folder of the package that a file belongs to.
fn package_folder(file: &str) -> Option<&str> {
    let at = file.rfind("/src/")?;
    Some(&file[..at])
}

/// The module that a file usually holds: `/…/serde_json-1.0.154/src/de/mod.rs` is `serde_json::de`.
fn module_of(file: &str, krate: Option<&str>) -> Option<String> {
    let (folder, within) = match package_folder(file) {
        Some(folder) => (folder, &file[folder.len() + "/src/".len()..]),
        // A test, an example or a single file: each is a crate.
        None => ("", file.rsplit('/').next()?),
    };
    let within = within.strip_suffix(".rs")?;
    let package = folder.rsplit('/').next().unwrap_or(folder);
    let krate = krate.map_or_else(|| without_version(package).replace('-', "_"), str::to_owned);
    let mut module = krate;
    for part in within.split('/') {
        // Nor does a file of macros say where they are used.
        let names_module = !matches!(part, "mod" | "lib" | "main" | "bin" | "");
        if !names_module || part.ends_with("macros") {
            continue;
        }
        if !module.is_empty() {
            module.push_str("::");
        }
        module.push_str(part);
    }
    Some(module)
}

/// `serde_json-1.0.154` is `serde_json`.
fn without_version(package: &str) -> &str {
    let mut dashes = package.match_indices('-');
    let version =
        dashes.find(|(at, _)| package[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    version.map_or(package, |(at, _)| &package[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_manglings_become_paths_without_hashes_and_compiled_types() {
        check_demangled("_ZN1a5inner3gen17hc5424c1275e0932dE", "a::inner::gen");
        check_demangled(
            "_ZN4core4iter8adapters3map8map_fold28_$u7b$$u7b$closure$u7d$$u7d$17hac1e6a4a269d38e9E",
            "core::iter::adapters::map::map_fold::{closure}",
        );
        check_demangled(
            "_ZN66_$LT$core..option..Option$LT$T$GT$$u20$as$u20$core..fmt..Debug$GT$3fmt17h6c2de25a841a2b6cE",
            "<core::option::Option<T> as core::fmt::Debug>::fmt",
        );
        check_demangled(
            "_RINvNvMs2_NtCslNYArtu3iFV_5alloc7raw_vecINtB8_11RawVecInnerpE7reserve21do_reserve_and_handleNtNtBa_5alloc6GlobalEBa_",
            "<alloc::raw_vec::RawVecInner<_>>::reserve::do_reserve_and_handle",
        );
        assert_eq!(demangled("write"), None);
        assert_eq!(demangled("_ZN3foo3barEv"), None, "C++");
    }

    fn check_demangled(mangled: &str, path: &str) {
        assert_eq!(demangled(mangled).as_deref(), Some(path), "{mangled}");
    }

    #[test]
    fn names_of_files_are_those_of_rust_and_cpp() {
        for name in ["main", "R1a", "ZN3foo3barEv", "_start", "_ZN3foo", "_", ""] {
            assert_eq!(demangled_name(name), None, "{name}");
        }
        let path = "a::inner::gen";
        for mangled in [
            "_ZN1a5inner3gen17hc5424c1275e0932dE",
            "__ZN1a5inner3gen17hc5424c1275e0932dE",
        ] {
            assert_eq!(demangled_name(mangled).as_deref(), Some(path), "{mangled}");
        }
        #[cfg(feature = "cpp")]
        assert_eq!(demangled_name("_ZN3foo3bazEv").as_deref(), Some("foo::baz"));
    }

    /// Each type argument is a pair of the one before.
    #[test]
    fn a_name_of_a_file_that_grows_without_end_is_not_written() {
        const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut mangled = "_RINvC1a1b".to_owned();
        let mut last = "u".to_owned();
        for _ in 0..12 {
            let at = mangled.len() - "_R".len();
            mangled.push_str(&format!("T{last}{last}E"));
            let digits = [(at - 1) / 62, (at - 1) % 62].map(|digit| char::from(DIGITS[digit]));
            last = format!("B{}_", String::from_iter(digits));
        }
        mangled.push('E');
        assert_eq!(demangled(&mangled).as_deref(), Some("a::b"), "{mangled}");
        assert_eq!(demangled_name(&mangled), None);
    }

    #[test]
    fn types_are_removed_or_cut_where_they_nest() {
        assert_eq!(
            without_compiled_types("a::f::<u8, fn(u8) -> b::C<D>>::g"),
            "a::f::g"
        );
        assert_eq!(
            without_compiled_types("a::drop_in_place::<b::C>"),
            "a::drop_in_place<b::C>"
        );
        let deep = "<a::V<b::O<c::B<d::E>>> as f::G<h::I>>::j";
        assert_eq!(without_deep_types(deep), "<a::V<b::O<…>> as f::G<h::I>>::j");
        assert_eq!(
            without_deep_types("a::drop_in_place<b::V<c::D<e::F>>>"),
            "a::drop_in_place<b::V<…>>"
        );
    }

    #[test]
    fn a_file_suggests_a_module() {
        check_module(
            "/rustc/0123/library/core/src/slice/iter/macros.rs",
            "core::slice::iter",
        );
        check_module(
            "/r/registry/src/index-1/serde-json-1.0.154/src/de/mod.rs",
            "serde_json::de",
        );
        check_module("/w/tool/src/main.rs", "tool");
        check_module("/w/tool/src/lib.rs", "tool");
        check_module("/w/tool/tests/golden.rs", "golden");
        assert_eq!(
            module_of("/w/a/src/b.rs", Some("whole_a")).unwrap(),
            "whole_a::b"
        );
        assert_eq!(module_of("/w/a/src/b.c", None), None);
    }

    fn check_module(file: &str, module: &str) {
        assert_eq!(module_of(file, None).unwrap(), module)
    }

    /// Debug information of line tables only: bare names, and types of what is inlined.
    #[test]
    fn inlined_functions_without_paths_are_qualified_and_closures_have_their_function() {
        let here = "/w/demo/src/pipeline.rs";
        let map = "/rustc/0123/library/core/src/iter/adapters/map.rs";
        let functions = [
            function("digest_chunk", here),
            function(
                "fold<u64, app::pipeline::digest_chunk::{closure_env#1}>",
                map,
            ),
            function("{closure#0}<u64>", map),
            function("{closure#1}", here),
            function("mix", here),
            function("{closure#0}", here),
        ];
        let names = full_names(
            &functions,
            Some("_ZN3app8pipeline12digest_chunk17hc5424c1275e0932dE"),
            true,
        );
        assert_eq!(
            names,
            [
                "app::pipeline::digest_chunk",
                "core::iter::adapters::map::fold",
                "core::iter::adapters::map::fold::{closure#0}",
                "app::pipeline::digest_chunk::{closure#1}",
                "app::pipeline::mix",
                "app::pipeline::mix::{closure#0}",
            ]
        );
    }

    fn function<'a>(name: &'a str, file: &'a str) -> Described<'a> {
        Described {
            linkage_name: "",
            name,
            file,
        }
    }

    #[test]
    fn closures_of_older_mangling_get_their_number_from_the_source() {
        let function = Described {
            linkage_name: "_ZN4core4iter8adapters3map8map_fold28_$u7b$$u7b$closure$u7d$$u7d$17hac1e6a4a269d38e9E",
            name: "{closure#0}<&u64, u64>",
            file: "",
        };
        let names = full_names(&[function], None, true);
        assert_eq!(names, ["core::iter::adapters::map::map_fold::{closure#0}"]);
    }
}
