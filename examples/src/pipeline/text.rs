//! The processing steps, one named function each: read, tokenize, count, compress, hash, partition,
//! merge.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::wire::TOKEN_BYTES_MAX;

/// zstd level: common for archives, about 100 MB/s.
const COMPRESSION_LEVEL: i32 = 6;

/// Number of occurrences of each token.
pub(super) type Counts = HashMap<String, u64>;

/// Concatenates the files' text; invalid UTF-8 becomes replacement characters.
#[inline(never)]
pub(super) fn read_files(paths: &[PathBuf]) -> io::Result<String> {
    let mut text = String::new();
    for path in paths {
        text.push_str(&String::from_utf8_lossy(&std::fs::read(path)?));
        text.push('\n');
    }
    Ok(text)
}

/// Words and identifiers: runs of letters, digits and underscores, none longer than the wire's
/// limit.
#[inline(never)]
pub(super) fn tokenize(text: &str) -> Vec<&str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|token| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX)
        .collect()
}

#[inline(never)]
pub(super) fn count_tokens(tokens: &[&str]) -> Counts {
    let mut counts = Counts::new();
    for &token in tokens {
        match counts.get_mut(token) {
            Some(count) => *count += 1,
            None => drop(counts.insert(token.to_owned(), 1)),
        }
    }
    counts
}

#[inline(never)]
pub(super) fn compress_text(text: &str) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(text.as_bytes(), COMPRESSION_LEVEL)
}

/// The name under which the compressed text would be stored.
#[inline(never)]
pub(super) fn hash_content(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Assigns each token to its owner by hash. All members must run the same program, because the
/// standard library's hashes are stable only within one build.
#[inline(never)]
pub(super) fn partition_counts(counts: Counts, members: usize) -> Vec<Vec<(String, u64)>> {
    let mut parts = vec![Vec::new(); members];
    for (token, count) in counts {
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        parts[(hasher.finish() % members as u64) as usize].push((token, count));
    }
    parts
}

#[inline(never)]
pub(super) fn merge_counts(totals: &mut Counts, counts: impl IntoIterator<Item = (String, u64)>) {
    for (token, count) in counts {
        *totals.entry(token).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_words_and_identifiers() {
        check_tokens(
            "fn next_token(&mut self) -> u8;",
            "fn next_token mut self u8",
        );
        check_tokens("  Straße, naïve—日本 ", "Straße naïve 日本");
        check_tokens("", "");
        check_tokens(
            &format!("short {} end", "x".repeat(TOKEN_BYTES_MAX + 1)),
            "short end",
        );
    }

    /// With any number of members, every token goes to exactly one of them with its whole count,
    /// and to the same one from every sender.
    #[test]
    fn every_token_has_exactly_one_owner() {
        let counts: Counts = (1..5_000u64)
            .map(|number| (format!("t{number}"), number))
            .collect();
        for members in [1, 2, 3, 7, 32] {
            let parts = partition_counts(counts.clone(), members);
            let again = partition_counts(counts.clone(), members);
            let mut merged = Counts::new();
            for (part, same) in parts.iter().zip(again) {
                assert!(!part.is_empty());
                assert_eq!(Counts::from_iter(part.clone()), Counts::from_iter(same));
                for (token, count) in part {
                    assert!(
                        merged.insert(token.clone(), *count).is_none(),
                        "{token} twice"
                    );
                }
            }
            assert_eq!(merged, counts);
        }
    }

    /// Compressed text decompresses to the original, and different contents have different hashes.
    #[test]
    fn compression_loses_nothing_and_the_hash_differs() {
        let text = "the same words again and again ".repeat(1_000);
        let compressed = compress_text(&text).unwrap();
        assert!(compressed.len() < text.len() / 10);
        assert_eq!(
            zstd::bulk::decompress(&compressed, text.len()).unwrap(),
            text.as_bytes()
        );
        assert_ne!(hash_content(&compressed), hash_content(&compressed[1..]));
    }

    fn check_tokens(text: &str, expected: &str) {
        assert_eq!(tokenize(text).join(" "), expected);
    }
}
