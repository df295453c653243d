//! Compression of responses (RFC 1952).

use std::io::Write as _;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Smaller bodies fit into a packet or two as they are.
pub const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// Compression level of an answer: it is used once, so the time to compress it matters more than the
/// last tenth of its size.
const ANSWER_LEVEL: u32 = 2;

/// The types of answers that compress well. Streams of events are written as they happen.
const COMPRESSED_TYPES: [&str; 4] = [
    "application/json",
    "text/csv",
    "text/plain",
    "image/svg+xml",
];

/// The gzip form of an answer.
pub fn gzip_answer(plain: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(ANSWER_LEVEL));
    gzip.write_all(plain).expect("memory takes bytes");
    gzip.finish().expect("memory takes bytes")
}

/// Whether `accept-encoding` names gzip, and not with a weight of 0.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip && weight.and_then(|weight| weight.parse::<f32>().ok()) != Some(0.0)
    })
}

/// Whether this response is sent compressed to clients that accept it.
pub fn is_compressible(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    COMPRESSED_TYPES.contains(&kind.split(';').next().unwrap_or_default())
}

/// Marks a response whose form depends on what the client accepts.
pub fn add_vary(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
}

/// Marks a compressed response.
pub fn add_encoding(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn texts_are_compressed_and_files_that_are_compressed_already_are_not() {
        for kind in [
            "application/json",
            "text/csv; charset=utf-8",
            "text/plain",
            "image/svg+xml",
        ] {
            assert!(is_compressed(kind), "{kind}");
        }
        for kind in [
            "application/vnd.apache.parquet",
            "text/event-stream",
            "image/png",
        ] {
            assert!(!is_compressed(kind), "{kind}");
        }
    }

    fn is_compressed(kind: &'static str) -> bool {
        is_compressible(&([(header::CONTENT_TYPE, kind)], "").into_response())
    }
}
