//! A report: the page's bundle in one document, and in it the collector's answers as they arrive.
//!
//! ```text
//! answer ─▶ escape ─┬▶ <script type="application/json" id="answer-NAME">  (document)
//!                   └▶ "NAME": …                                           (JSON)
//! ```
//!
//! An answer is copied in pieces, so a report of any size needs the memory of one piece.

use std::io::{self, Read, Write};

/// Where the bundle's document has its answers.
const ANSWERS: &str = "<!-- answers -->";

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 64 << 10;

/// A report that is being written.
pub(crate) struct Report<'a> {
    document: Counted<'a>,
    json: &'a mut dyn Write,
    end: String,
    parts: usize,
}

impl<'a> Report<'a> {
    /// Writes the beginning of both.
    pub(crate) fn start(document: &'a mut dyn Write, json: &'a mut dyn Write) -> io::Result<Self> {
        let text = collector::report_document();
        let (start, end) = text
            .split_once(ANSWERS)
            .expect("`cargo xtask page` writes a document with a place for answers");
        let mut document = Counted {
            out: document,
            bytes: 0,
        };
        document.write_all(start.as_bytes())?;
        json.write_all(b"{")?;
        Ok(Report {
            document,
            json,
            end: end.to_owned(),
            parts: 0,
        })
    }

    /// Copies one answer, which is JSON.
    pub(crate) fn part(&mut self, name: &str, answer: &mut dyn Read) -> io::Result<()> {
        writeln!(
            self.document,
            "<script type=\"application/json\" id=\"answer-{name}\">"
        )?;
        let comma = if self.parts == 0 { "" } else { "," };
        write!(self.json, "{comma}\n\"{name}\": ")?;
        self.parts += 1;
        let mut piece = vec![0; PIECE_BYTES];
        let mut escape = Escape::default();
        let mut escaped = Vec::with_capacity(2 * PIECE_BYTES);
        loop {
            let read = match answer.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            escaped.clear();
            if read == 0 {
                escape.finish(&mut escaped);
            } else {
                escape.push(&piece[..read], &mut escaped);
            }
            self.document.write_all(&escaped)?;
            self.json.write_all(&escaped)?;
            if read == 0 {
                break;
            }
        }
        self.document.write_all(b"\n</script>\n")
    }

    /// Writes the end of both. Returns the size of the document.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.document.write_all(self.end.as_bytes())?;
        self.document.flush()?;
        self.json.write_all(b"\n}\n")?;
        self.json.flush()?;
        Ok(self.document.bytes)
    }
}

/// Replaces what could end the element around JSON, or a line of JavaScript, by JSON's own escapes. All of
/// it occurs only in strings.
#[derive(Default)]
struct Escape {
    /// The beginning of U+2028 or U+2029, which may continue in the next piece.
    held: Vec<u8>,
}

/// The first bytes of U+2028 and U+2029 in UTF-8.
const SEPARATOR: [u8; 2] = [0xE2, 0x80];

impl Escape {
    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        for &byte in piece {
            if self.held.len() == SEPARATOR.len() && matches!(byte, 0xA8 | 0xA9) {
                self.held.clear();
                out.extend_from_slice(if byte == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                continue;
            }
            if SEPARATOR.get(self.held.len()) == Some(&byte) {
                self.held.push(byte);
                continue;
            }
            self.finish(out);
            match byte {
                b'<' => out.extend_from_slice(b"\\u003c"),
                byte if byte == SEPARATOR[0] => self.held.push(byte),
                byte => out.push(byte),
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

/// Counts what is written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.out.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a byte at a time, so that every escape is split.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else {
                return Ok(0);
            };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn report_of(answer: &str) -> (String, String) {
        let mut document = Vec::new();
        let mut json = Vec::new();
        let mut report = Report::start(&mut document, &mut json).unwrap();
        report
            .part("tasks", &mut Slowly(answer.as_bytes()))
            .unwrap();
        let bytes = report.finish().unwrap();
        assert_eq!(bytes, document.len() as u64);
        (
            String::from_utf8(document).unwrap(),
            String::from_utf8(json).unwrap(),
        )
    }

    /// The text of the element with that answer.
    fn embedded(document: &str) -> &str {
        let start = "id=\"answer-tasks\">";
        let from = document.find(start).unwrap() + start.len();
        let length = document[from..].find("</script>").unwrap();
        &document[from..from + length]
    }

    #[test]
    fn hostile_names_stay_in_their_element_and_are_read_back() {
        for name in [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "</SCRIPT\u{2028}\u{2029}",
            "\u{2027}\u{202a}\u{20ac}€\u{2028}",
            "]]>&lt;\"\\",
        ] {
            let answer = serde_json::to_string(&[name]).unwrap();
            let (document, json) = report_of(&answer);
            let text = embedded(&document);
            assert!(!text.contains(['<', '\u{2028}', '\u{2029}']), "{text}");
            let read: Vec<String> = serde_json::from_str(text).unwrap();
            assert_eq!(read, [name]);
            let read_json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(read_json["tasks"][0], name);
        }
    }

    #[test]
    fn the_document_allows_its_own_script_and_style_and_no_request() {
        let (document, _) = report_of("[]");
        let policy = "content=\"default-src 'none'; script-src 'sha256-";
        assert_eq!(document.matches(policy).count(), 1);
        assert!(
            !document.contains("unsafe") && !document.contains(ANSWERS),
            "{document}"
        );
        for address in ["src=\"", "<link", "@import", "url(http"] {
            assert!(!document.contains(address), "{address}");
        }
    }

    #[test]
    fn the_same_answers_give_the_same_bytes() {
        assert_eq!(report_of("[1]"), report_of("[1]"));
        let (_, json) = report_of("[1]");
        assert_eq!(json, "{\n\"tasks\": [1]\n}\n");
    }

    /// A model of an answer that no memory could hold: what is held is a piece.
    #[test]
    fn an_answer_is_copied_in_pieces() {
        struct Largest(usize);
        impl Write for Largest {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.0 = self.0.max(data.len());
                Ok(data.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = 64 << 20;
        let mut document = io::sink();
        let mut json = Largest(0);
        let mut report = Report::start(&mut document, &mut json).unwrap();
        report
            .part("tasks", &mut io::repeat(b' ').take(bytes))
            .unwrap();
        assert!(report.finish().unwrap() > bytes);
        assert!(json.0 <= PIECE_BYTES, "{}", json.0);
    }
}
