//! The page around the picture: a single file that loads nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::lanes::{has_failed, length_ns};
use super::picture::Picture;
use super::text::{duration, grouped, shown};

const STYLE: &str = concat!(include_str!("picture.css"), include_str!("page.css"));
const SCRIPT: &str = include_str!("page.js");

/// SHA-256 of the only style and script that the page allows. A test compares them with the files.
const STYLE_HASH: &str = "9gPcweWgk2Go08UOKek21VS110fW6ILTJN2PZoIarLw=";
const SCRIPT_HASH: &str = "1rFarjrjzb7F4eTVzmNaQqMxWJO5SbjKQ5Ex0oSmONw=";

/// Most names in the table of sums; the smaller ones share one more row.
const NAMES_MAX: usize = 200;

/// Sums over the tasks of one name.
#[derive(Clone, Copy, Default)]
struct Sums {
    tasks: u64,
    failed: u64,
    total_ns: u64,
    longest_ns: u64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.tasks += other.tasks;
        self.failed += other.failed;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

pub(super) fn html(picture: &Picture<'_>) -> String {
    let heading = picture.heading();
    let svg = picture.svg("");
    let table = table(picture);
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{STYLE_HASH}'; script-src 'sha256-{SCRIPT_HASH}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Local diagnostics, {heading}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Local diagnostics</h1>
<p>{heading}</p>
<p>Ctrl + wheel or double click zooms, drag moves, a click on a name highlights it.</p>
<div><button data-zoom="in" aria-label="Zoom in">+</button> <button data-zoom="out" aria-label="Zoom out">−</button> <button data-zoom="all">All</button></div>
</header>
{svg}{table}<div id="tip" hidden></div>
<script>{SCRIPT}</script>
</body>
</html>
"#
    )
}

/// Exact sums by name, also of tasks that the picture groups; empty without tasks.
fn table(picture: &Picture<'_>) -> String {
    let mut by_name: BTreeMap<&str, Sums> = BTreeMap::new();
    for task in picture.tasks() {
        let length_ns = length_ns(task);
        let failed = u64::from(has_failed(task));
        let sums = Sums {
            tasks: 1,
            failed,
            total_ns: length_ns,
            longest_ns: length_ns,
        };
        by_name.entry(&task.name).or_default().add(sums);
    }
    let mut rows: Vec<(&str, Sums)> = by_name.into_iter().collect();
    rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.total_ns));
    if rows.is_empty() {
        return String::new();
    }
    let mut table = String::from(
        "<table>\n<caption>Tasks by name</caption>\n<thead><tr><th>name</th><th>tasks</th><th>failed</th>\
         <th>total</th><th>mean</th><th>longest</th></tr></thead>\n<tbody>\n",
    );
    let named = rows.len().min(NAMES_MAX);
    let mut others = Sums::default();
    rows[named..].iter().for_each(|(_, sums)| others.add(*sums));
    for (name, sums) in &rows[..named] {
        write_row(&mut table, &shown(name), *sums);
    }
    if rows.len() > named {
        let names = format!("{} further names", grouped((rows.len() - named) as u64));
        write_row(&mut table, &names, others);
    }
    table.push_str("</tbody>\n</table>\n");
    table
}

fn write_row(table: &mut String, name: &str, sums: Sums) {
    let Sums {
        tasks,
        failed,
        total_ns,
        longest_ns,
    } = sums;
    let mean_ns = total_ns / tasks.max(1);
    let _ = writeln!(
        table,
        "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        grouped(tasks),
        grouped(failed),
        duration(total_ns),
        duration(mean_ns),
        duration(longest_ns)
    );
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Base64 of the SHA-256 of an element's content, as browsers compute it.
    fn hash(text: &str) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digest = Sha256::digest(text.as_bytes());
        let mut encoded = String::new();
        for bytes in digest.chunks(3) {
            let word = (0..3).fold(0, |word, at| {
                word << 8 | u32::from(*bytes.get(at).unwrap_or(&0))
            });
            for digit in 0..4 {
                let index = word >> (18 - 6 * digit) & 63;
                let has_digit = digit <= bytes.len();
                encoded.push(if has_digit {
                    char::from(DIGITS[index as usize])
                } else {
                    '='
                });
            }
        }
        encoded
    }

    #[test]
    fn the_page_allows_its_own_style_and_script_and_nothing_else() {
        assert_eq!((STYLE_HASH, SCRIPT_HASH), (&*hash(STYLE), &*hash(SCRIPT)));
        assert_eq!(hash(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("http") && !text.contains("innerHTML"));
        }
    }
}
