//! The mark: which length of which log file was acknowledged, and how far back the log's data goes.
//!
//! A torn write at the end of the log is what a crash leaves, and no damage. Acknowledged records that
//! are missing there look the same, and so does a wrong byte in the last of them. The mark tells them
//! apart. It is written in place after each sync of the log, so it never claims more than is durable. It
//! is synced only when the data goes further back; after a power failure it may claim less.

use super::disk::LogDisk;
use crate::rows::Second;

/// Bytes of an encoded mark. They fit a sector, so no crash leaves half of them.
const MARK_BYTES: usize = 24;

/// The acknowledged part of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The number of the last file.
    pub(super) number: u64,
    /// Its acknowledged bytes.
    pub(super) length: u64,
    /// The first second of data in this and earlier files.
    pub(super) data_from: Option<Second>,
}

impl Mark {
    /// ```text
    /// u64 number · u64 length · u32 first second of data, all ones for none · u32 crc of the above
    /// ```
    pub(super) fn encode(&self) -> Vec<u8> {
        let data_from = self.data_from.map_or(u32::MAX, |second| second.0);
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(data_from.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// `None` if the mark is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Mark> {
        let (body, crc) = bytes.split_at_checked(MARK_BYTES - 4)?;
        if crc32fast::hash(body).to_le_bytes() != *crc {
            return None;
        }
        let (number, rest) = body.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let data_from = u32::from_le_bytes(rest.try_into().ok()?);
        Some(Mark {
            number: u64::from_le_bytes(*number),
            length: u64::from_le_bytes(*length),
            data_from: (data_from != u32::MAX).then_some(Second(data_from)),
        })
    }

    /// The mark of a log; `None` if there is none, as of logs before marks, or if it is damaged.
    pub(super) fn read(disk: &mut dyn LogDisk) -> Option<Mark> {
        match disk.read_mark() {
            Ok(bytes) => Mark::decode(&bytes?),
            Err(error) => {
                tracing::warn!(%error, "the mark of the log's acknowledged length cannot be read");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_a_damaged_one_is_none() {
        for data_from in [None, Some(Second(0)), Some(Second(u32::MAX - 1))] {
            let mark = Mark {
                number: 7,
                length: u64::MAX,
                data_from,
            };
            let bytes = mark.encode();
            assert_eq!(
                (bytes.len(), Mark::decode(&bytes)),
                (MARK_BYTES, Some(mark))
            );
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(Mark::decode(&damaged), None, "byte {at}");
                assert_eq!(Mark::decode(&bytes[..at]), None, "{at} bytes");
            }
        }
    }
}
