//! The crate or library that a frame belongs to.

use std::borrow::Cow;

use profiler_core::Frame;

/// The crate of a function, else the file name of its library; empty if neither is known. The
/// source file takes precedence, because names of inlined functions have no path.
pub(crate) fn owner<'a>(frame: &Frame<&'a str>) -> Cow<'a, str> {
    let of_file = crate_of_file(frame.file);
    of_file
        .or_else(|| crate_of_path(frame.function).map(Cow::Borrowed))
        .unwrap_or_else(|| file_name(frame.module).into())
}

/// The package of a source file: the registry package, such as `faer`, or the directory that
/// contains `src`, such as `core` of the standard library.
fn crate_of_file(file: &str) -> Option<Cow<'_, str>> {
    // …/registry/src/index.crates.io-1949cf8c6b5b557f/zstd-sys-2.0.16+zstd.1.5.7/zstd/lib/….c
    let name = match file.split_once("/registry/src/") {
        Some((_, inside)) => without_version(inside.split('/').nth(1)?),
        None => file_name(file.rsplit_once("/src/")?.0),
    };
    if name.is_empty() {
        return None;
    }
    Some(if name.contains('-') { name.replace('-', "_").into() } else { name.into() })
}

/// The `name` of `name-1.2.3`.
fn without_version(folder: &str) -> &str {
    let version = folder.match_indices('-').find(|(at, _)| is_version(&folder[at + 1..]));
    version.map_or(folder, |(at, _)| &folder[..at])
}

fn is_version(text: &str) -> bool {
    let major = text.split_once('.').map_or("", |(major, _)| major);
    !major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit())
}

/// The crate of a Rust path, such as `faer` of `<&faer::Mat<f64> as core::ops::Mul>::mul`; `None`
/// for a name that is not a path, such as a C function.
fn crate_of_path(function: &str) -> Option<&str> {
    let start = function.find(|c: char| c.is_alphanumeric() || c == '_')?;
    let mut path = &function[start..];
    while let Some(rest) =
        ["mut ", "dyn ", "const ", "impl "].iter().find_map(|word| path.strip_prefix(word))
    {
        path = rest;
    }
    let (name, _) = path.split_once("::")?;
    name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: &str, file: &str, expected: &str) {
        let mut frame = Frame::function(function, file, 0);
        frame.module = "/usr/lib/libc.so.6";
        assert_eq!(owner(&frame), expected, "{function} in {file}");
    }

    #[test]
    fn files_name_their_crate() {
        let registry = "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        check("write<f64>", "/rustc/59807616/library/core/src/ptr/mut_ptr.rs", "core");
        check(
            "{closure#0}",
            &format!("{registry}/private-gemm-x86-0.1.22/src/lib.rs"),
            "private_gemm_x86",
        );
        check("f", &format!("{registry}/serde_core-1.0.0-rc.1/src/de/mod.rs"), "serde_core");
        check("ZSTD_x", &format!("{registry}/zstd-sys-2.0.16+zstd.1.5.7/zstd/lib/x.c"), "zstd_sys");
        check("f", "/registry/src/", "libc.so.6");
        check("faer::f", "/work/main/examples/src/qr.rs", "examples");
        check("faer::f", "src/qr.rs", "faer");
        check("read", "./nptl/lowlevellock.c", "libc.so.6");
    }

    #[test]
    fn paths_name_their_crate() {
        for (function, expected) in [
            ("faer::linalg::qr::solve", Some("faer")),
            ("<&mut faer::Mat<f64> as core::ops::Mul>::mul", Some("faer")),
            ("<dyn core::ops::Fn() as Y>::call", Some("core")),
            ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", Some("core")),
            ("epoll_wait", None),
            ("<T as Into<U>>::into", None),
            ("", None),
        ] {
            assert_eq!(crate_of_path(function), expected, "{function}");
        }
    }
}
