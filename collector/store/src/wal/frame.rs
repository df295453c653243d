//! Encoding of a log file: a header, then frames. All numbers are little-endian.
//!
//! ```text
//! header  magic "EMBRWAL1" · u32 format version · u64 this file's number
//!         · u64 previous file's number, 0 for none · u64 its valid length · u32 crc of the above
//! frame   magic EB FF F7 AE · u32 length of kind and payload
//!         · u32 crc of (u64 the frame's offset in the file, kind, payload) · u8 kind · payload
//! ```
//!
//! A frame's CRC covers its offset, so old blocks that a crash left at another offset are not valid
//! frames, nor are frames inside of a payload that an agent sent.

use std::ops::Range;

use base::limits::{WAL_RECORD_BYTES_MAX, WAL_SEARCH_BYTES_MAX};

/// The format version that this module reads and writes. All versions have the same header.
pub(super) const FORMAT_VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 40;

const FILE_MAGIC: [u8; 8] = *b"EMBRWAL1";

/// It is not valid UTF-8, so no text contains it.
const FRAME_MAGIC: [u8; 4] = [0xEB, 0xFF, 0xF7, 0xAE];

/// Bytes of a frame before its kind.
const HEAD_BYTES: usize = 12;

/// Bytes of a frame without its payload.
pub(super) const FRAME_BYTES: usize = HEAD_BYTES + 1;

/// The header of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) number: u64,
    /// Number and valid length of the file before.
    pub(super) previous: Option<(u64, u64)>,
}

/// An unreadable header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderError {
    /// A valid header of another format version.
    Version(u32),
    /// Anything else.
    Damaged,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (previous, valid_length) = self.previous.unwrap_or_default();
        let mut bytes = FILE_MAGIC.to_vec();
        bytes.extend(FORMAT_VERSION.to_le_bytes());
        for number in [self.number, previous, valid_length] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    pub(super) fn decode(file: &[u8]) -> Result<Header, HeaderError> {
        let bytes = file.get(..HEADER_BYTES).ok_or(HeaderError::Damaged)?;
        let (body, crc) = bytes.split_at(HEADER_BYTES - 4);
        if !body.starts_with(&FILE_MAGIC) || crc32fast::hash(body).to_le_bytes() != *crc {
            return Err(HeaderError::Damaged);
        }
        let version = u32_at(body, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        let [number, previous, valid_length] = [12, 20, 28].map(|at| u64_at(body, at));
        Ok(Header {
            number,
            previous: (previous != 0).then_some((previous, valid_length)),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("it is four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it is eight bytes"))
}

fn checksum(offset: u64, kind_and_payload: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    kind_and_payload.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Appends a frame to a buffer. `offset` is that of the frame in the file.
///
/// # Panics
/// If the payload is larger than [`WAL_RECORD_BYTES_MAX`]: it could not be read back.
pub(super) fn append(to: &mut Vec<u8>, offset: u64, kind: u8, payload: &[u8]) {
    assert!(
        payload.len() <= WAL_RECORD_BYTES_MAX,
        "a record of {} bytes",
        payload.len()
    );
    let length = u32::try_from(1 + payload.len()).expect("the limit is far below 2^32");
    to.extend(FRAME_MAGIC);
    to.extend(length.to_le_bytes());
    to.extend(checksum(offset, &[&[kind], payload]).to_le_bytes());
    to.push(kind);
    to.extend(payload);
}

/// A part of a file after its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece<'a> {
    Frame {
        at: u64,
        kind: u8,
        payload: &'a [u8],
    },
    /// Bytes without a valid frame.
    Damage(Range<u64>),
}

/// Iterates over a file from `offset` on. After damage it continues at the next valid frame, so every
/// intact frame is found. The last piece is damage if the file does not end with a frame.
pub(super) fn scan(file: &[u8], offset: usize) -> Scan<'_> {
    Scan {
        file,
        offset,
        search_bytes: WAL_SEARCH_BYTES_MAX,
    }
}

#[derive(Debug)]
pub(super) struct Scan<'a> {
    file: &'a [u8],
    offset: usize,
    /// Bytes that may still be checksummed in search of a frame, so that a file full of false magic
    /// numbers is scanned in bounded time.
    search_bytes: u64,
}

impl<'a> Iterator for Scan<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let from = self.offset;
        if from >= self.file.len() {
            return None;
        }
        // The expected offset of a frame is not part of the search.
        let mut unlimited = u64::MAX;
        if let Some((kind, payload)) = frame_at(self.file, from, &mut unlimited) {
            self.offset = from + FRAME_BYTES + payload.len();
            return Some(Piece::Frame {
                at: from as u64,
                kind,
                payload,
            });
        }
        self.offset = self.next_frame(from + 1);
        Some(Piece::Damage(from as u64..self.offset as u64))
    }
}

impl Scan<'_> {
    /// The offset of the next valid frame, or the end of the file.
    fn next_frame(&mut self, from: usize) -> usize {
        let mut at = from;
        while let Some(found) = find(&self.file[at..], FRAME_MAGIC) {
            at += found;
            if frame_at(self.file, at, &mut self.search_bytes).is_some() {
                return at;
            }
            if self.search_bytes == 0 {
                break;
            }
            at += 1;
        }
        self.file.len()
    }
}

fn find(bytes: &[u8], magic: [u8; 4]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == magic[0]) {
        from += at;
        if bytes[from..].starts_with(&magic) {
            return Some(from);
        }
        from += 1;
    }
    None
}

/// Kind and payload of the frame at `at`, if it is valid. Subtracts the checksummed bytes from
/// `bytes_max`; when none are left, no frame is valid.
fn frame_at<'a>(file: &'a [u8], at: usize, bytes_max: &mut u64) -> Option<(u8, &'a [u8])> {
    let rest = file.get(at..)?;
    if !rest.starts_with(&FRAME_MAGIC) || rest.len() < HEAD_BYTES {
        return None;
    }
    let length = u32_at(rest, 4) as usize;
    if length == 0 || length > 1 + WAL_RECORD_BYTES_MAX {
        return None;
    }
    let body = rest.get(HEAD_BYTES..HEAD_BYTES + length)?;
    *bytes_max = bytes_max.saturating_sub(length as u64);
    if *bytes_max == 0 || checksum(at as u64, &[body]) != u32_at(rest, 8) {
        return None;
    }
    let (kind, payload) = body.split_first()?;
    Some((*kind, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with these payloads, all of kind 7, and the range of each frame.
    fn file(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<Range<usize>>) {
        let mut bytes = Header {
            number: 3,
            previous: Some((2, 99)),
        }
        .encode();
        let mut places = Vec::new();
        for payload in payloads {
            let at = bytes.len();
            append(&mut bytes, at as u64, 7, payload);
            places.push(at..bytes.len());
        }
        (bytes, places)
    }

    fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Some contain frames, as an agent could send them.
        let nested = prop::collection::vec(any::<u8>(), 0..9).prop_map(|payload| {
            let mut bytes = vec![1; 5];
            append(&mut bytes, 40, 7, &payload);
            bytes
        });
        let plain = prop::collection::vec(any::<u8>(), 0..60);
        prop::collection::vec(prop_oneof![4 => plain, 1 => nested], 0..12)
    }

    #[test]
    fn a_header_is_read_back_and_a_damaged_one_is_rejected() {
        for previous in [None, Some((1, 40)), Some((u64::MAX - 1, u64::MAX))] {
            let header = Header {
                number: u64::MAX,
                previous,
            };
            let bytes = header.encode();
            assert_eq!(
                (bytes.len(), Header::decode(&bytes)),
                (HEADER_BYTES, Ok(header))
            );
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(
                    Header::decode(&damaged),
                    Err(HeaderError::Damaged),
                    "byte {at}"
                );
                assert_eq!(
                    Header::decode(&bytes[..at]),
                    Err(HeaderError::Damaged),
                    "{at} bytes"
                );
            }
        }
    }

    #[test]
    fn a_header_of_another_version_is_recognized() {
        let mut bytes = Header {
            number: 1,
            previous: None,
        }
        .encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..36]).to_le_bytes();
        bytes[36..].copy_from_slice(&crc);
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Version(2)));
    }

    #[test]
    fn a_frame_is_valid_at_its_own_offset_only() {
        let (bytes, places) = file(&[vec![5; 30], vec![6; 30]]);
        let mut moved = bytes.clone();
        moved.copy_within(places[0].clone(), places[1].start);
        let pieces: Vec<Piece> = scan(&moved, HEADER_BYTES).collect();
        let damage = Piece::Damage(places[1].start as u64..places[1].end as u64);
        assert_eq!(pieces[1..], [damage]);
    }

    proptest! {
        #[test]
        fn frames_are_read_back(payloads in payloads()) {
            let (bytes, places) = file(&payloads);
            let pieces: Vec<Piece> = scan(&bytes, HEADER_BYTES).collect();
            let expected: Vec<Piece> = payloads.iter().zip(&places)
                .map(|(payload, place)| Piece::Frame { at: place.start as u64, kind: 7, payload })
                .collect();
            prop_assert_eq!(pieces, expected);
        }

        /// Any bytes may be overwritten, and the end cut: frames that were not touched are found,
        /// the rest is reported as damage, and nothing else is found.
        #[test]
        fn damage_costs_only_the_frames_that_it_touches(
            payloads in payloads(), at in any::<prop::sample::Index>(), length in 1..90usize,
            by in 1..=255u8, cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let (mut bytes, places) = file(&payloads);
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes[start..end].iter_mut().for_each(|byte| *byte ^= by);
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
            let whole: Vec<Piece> = payloads.iter().zip(&places)
                .filter(|(_, place)| place.end <= bytes.len()
                    && (place.end <= start || end <= place.start))
                .map(|(payload, place)| Piece::Frame { at: place.start as u64, kind: 7, payload })
                .collect();
            let mut found = Vec::new();
            let mut next = HEADER_BYTES.min(bytes.len()) as u64;
            for piece in scan(&bytes, HEADER_BYTES) {
                let range = match &piece {
                    Piece::Damage(range) => range.clone(),
                    Piece::Frame { at, payload, .. } => {
                        let range = *at..at + (FRAME_BYTES + payload.len()) as u64;
                        found.push(piece.clone());
                        range
                    }
                };
                prop_assert_eq!(range.start, next);
                next = range.end;
            }
            prop_assert_eq!(found, whole);
            prop_assert_eq!(next, bytes.len() as u64);
        }

        #[test]
        fn any_bytes_are_walked_over(bytes in prop::collection::vec(
            prop::sample::select(&[0xEB, 0xFF, 0xF7, 0xAE, 0, 1, 5][..]), 0..300)
        ) {
            let found = scan(&bytes, 0).any(|piece| matches!(piece, Piece::Frame { .. }));
            prop_assert!(!found);
        }
    }

    #[test]
    fn a_search_ends_when_its_limit_is_reached() {
        let mut bytes = vec![0];
        for _ in 0..3 {
            bytes.extend(FRAME_MAGIC);
            bytes.extend(20u32.to_le_bytes());
        }
        bytes.extend([0; 40]);
        let at = bytes.len();
        append(&mut bytes, at as u64, 7, &[1]);
        let first = |search_bytes| {
            Scan {
                search_bytes,
                ..scan(&bytes, 0)
            }
            .next()
            .unwrap()
        };
        assert_eq!(first(1_000), Piece::Damage(0..at as u64));
        assert_eq!(first(50), Piece::Damage(0..bytes.len() as u64));
    }
}
