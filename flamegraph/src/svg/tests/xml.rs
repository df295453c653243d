//! A checker of XML's form, as strict as a browser's: elements nest and close, attributes are
//! quoted and unique, entities are known, characters are legal.

/// Says what is wrong with `text`, if anything is.
pub(in crate::svg) fn check(text: &str) -> Result<(), String> {
    if let Some(illegal) = text.chars().find(|c| !legal(*c)) {
        return Err(format!("illegal character {illegal:?}"));
    }
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        content(before)?;
        if open.is_empty() && !before.trim().is_empty() {
            return Err(format!("text outside the root: {before:?}"));
        }
        rest = if let Some(comment) = after.strip_prefix("!--") {
            let (comment, rest) = until(comment, "-->")?;
            if comment.contains("--") {
                return Err("two dashes in a comment".to_owned());
            }
            rest
        } else if let Some(data) = after.strip_prefix("![CDATA[") {
            until(data, "]]>")?.1
        } else if let Some(instruction) = after.strip_prefix('?') {
            until(instruction, "?>")?.1
        } else if let Some(kind) = after.strip_prefix("!DOCTYPE") {
            until(kind, ">")?.1
        } else {
            let (tag, rest) = until(after, ">")?;
            element(tag, &mut open)?;
            rest
        };
    }
    if !open.is_empty() || !rest.trim().is_empty() {
        return Err(format!("{open:?} never close, {rest:?} follows"));
    }
    Ok(())
}

fn until<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(mark).ok_or_else(|| format!("no {mark}"))
}

fn legal(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Text, or an attribute's value.
fn content(text: &str) -> Result<(), String> {
    if text.contains("]]>") {
        return Err("]]> in text".to_owned());
    }
    for piece in text.split('&').skip(1) {
        let (entity, _) = until(piece, ";")?;
        if !["amp", "lt", "gt", "quot", "apos"].contains(&entity) {
            return Err(format!("unknown entity {entity:?}"));
        }
    }
    Ok(())
}

fn element<'a>(tag: &'a str, open: &mut Vec<&'a str>) -> Result<(), String> {
    if let Some(name) = tag.strip_prefix('/') {
        return match open.pop() {
            Some(last) if last == name => Ok(()),
            last => Err(format!("{last:?} is closed by {name:?}")),
        };
    }
    let (tag, empty) = match tag.strip_suffix('/') {
        Some(tag) => (tag, true),
        None => (tag, false),
    };
    let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(format!("bad name {name:?}"));
    }
    let mut seen = Vec::new();
    let mut rest = attributes.trim();
    while !rest.is_empty() {
        let (key, value) = until(rest, "=\"")?;
        let (value, after) = until(value, "\"")?;
        let key = key.trim();
        if seen.contains(&key)
            || !key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ":_-".contains(c))
        {
            return Err(format!("bad attribute {key:?}"));
        }
        if value.contains('<') {
            return Err(format!("< in {key}"));
        }
        content(value)?;
        seen.push(key);
        rest = after.trim_start();
    }
    if !empty {
        open.push(name);
    }
    Ok(())
}

#[test]
fn broken_pictures_are_refused() {
    for broken in [
        "<a><b></a></b>",
        "<a>",
        "<a x=1/>",
        "<a x=\"1\" x=\"2\"/>",
        "<a>&nbsp;</a>",
        "<a>& b</a>",
        "<a>\u{1}</a>",
        "<a/>text",
        "<a><!-- -- --></a>",
        "<a x=\"<\"/>",
        "<a>]]></a>",
    ] {
        assert!(check(broken).is_err(), "{broken}");
    }
    assert_eq!(
        check("<?xml?><a x=\"1\" y:z=\"&lt;\"><b/>t<![CDATA[<]]></a>\n"),
        Ok(())
    );
}
