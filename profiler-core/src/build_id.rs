//! Identifiers of builds of programs and libraries.

/// Longest build id, in bytes.
pub const BUILD_ID_BYTES_MAX: usize = 256;

/// Returns `text` if it can be a build id, and nothing otherwise: a build id stands in headers, paths and
/// commands to copy. GNU's and Apple's are hexadecimal, Go's have letters, digits, `-`, `_` and `/`.
///
/// ```
/// use emberline_profiler_core::valid_build_id;
///
/// assert_eq!(valid_build_id("59fd0a2c77e31b8a"), "59fd0a2c77e31b8a");
/// assert_eq!(valid_build_id("bad\nid"), "");
/// ```
#[must_use]
pub fn valid_build_id(text: &str) -> &str {
    // A first `-` would be an option of a command, `.` and `/` a path.
    let bytes = text.as_bytes();
    let is_valid = bytes.len() <= BUILD_ID_BYTES_MAX
        && bytes
            .first()
            .is_some_and(|byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_')
        && bytes
            .iter()
            .all(|byte: &u8| byte.is_ascii_alphanumeric() || b"-_./".contains(byte));
    if is_valid { text } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_all_linkers_are_valid_and_nothing_that_acts_elsewhere_is() {
        let longest = "a".repeat(BUILD_ID_BYTES_MAX);
        for valid in [
            "59fd0a2c77e31b8a",
            "5A0B6C8D-0000-1111-2222-333344445555",
            "_yNc8Yx9/F4wQ1-x/Zk3.ab_c",
            &longest,
        ] {
            assert_eq!(valid_build_id(valid), valid);
        }
        let too_long = "a".repeat(BUILD_ID_BYTES_MAX + 1);
        for invalid in [
            "",
            "b\n",
            "bad\nid",
            "a\0",
            "a\u{7f}",
            "aa;curl x|sh #",
            "$(id)",
            "a b",
            "a'b",
            "../x",
            "/x",
            "-x",
            "é",
            "[overflow]",
            "<b>",
            "a%20",
            &too_long,
        ] {
            assert_eq!(valid_build_id(invalid), "", "{invalid:?}");
        }
    }
}
