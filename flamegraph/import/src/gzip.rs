//! Decompression with a limit.

use std::borrow::Cow;
use std::io::{self, Read as _};

use flate2::read::MultiGzDecoder;
use zlib_rs::{Inflate, InflateFlush, Status};

use super::error::ImportError;

/// The first bytes of gzip.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The most bytes of content that a byte of gzip can have.
const RATIO_MAX: usize = 1_032;

/// Bits of the window of `zlib`, which mean gzip with the largest window.
const GZIP_WINDOW_BITS: u8 = 16 + 15;

/// The content of a file, decompressed if it is gzip.
///
/// # Errors
/// [`ImportError`] if the content has more than `bytes_max` bytes or is no valid gzip.
pub fn decompressed(bytes: &[u8], bytes_max: usize) -> Result<Cow<'_, [u8]>, ImportError> {
    if bytes.len() > bytes_max {
        return Err(ImportError::content(bytes_max));
    }
    if !bytes.starts_with(&MAGIC) {
        return Ok(bytes.into());
    }
    if let Some(content) = single_member(bytes, bytes_max) {
        return Ok(content.into());
    }
    // Reserved at once, because growing would copy the content and leave as much garbage. Memory that is
    // not written to is not taken from the machine. One byte more tells a full content from one that is cut.
    let mut content = Vec::with_capacity(bytes.len().saturating_mul(RATIO_MAX).min(bytes_max) + 1);
    let read = MultiGzDecoder::new(bytes)
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut content);
    read.map_err(|error| ImportError::Gzip {
        reason: error.to_string(),
    })?;
    if content.len() > bytes_max {
        return Err(ImportError::content(bytes_max));
    }
    Ok(content.into())
}

/// The content of gzip that is one valid member, as nearly all is, in half of the time. `None` for all other gzip, and
/// for content that is too long.
fn single_member(bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    // The member ends with the length of its content. Another length is found below.
    let length = u32::from_le_bytes(*bytes.last_chunk()?) as usize;
    if length > bytes_max.min(bytes.len().saturating_mul(RATIO_MAX)) {
        return None;
    }
    let mut content = vec![0; length];
    let mut inflate = Inflate::new(true, GZIP_WINDOW_BITS);
    let status = inflate.decompress(bytes, &mut content, InflateFlush::Finish);
    let is_whole = status == Ok(Status::StreamEnd)
        && inflate.total_in() == bytes.len() as u64
        && inflate.total_out() == length as u64;
    is_whole.then_some(content)
}

/// The length of what [`decompressed`] would return, which needs no memory for it.
///
/// # Errors
/// As of [`decompressed`].
pub fn decompressed_len(bytes: &[u8], bytes_max: usize) -> Result<usize, ImportError> {
    if !bytes.starts_with(&MAGIC) || bytes.len() > bytes_max {
        return decompressed(bytes, bytes_max).map(|content| content.len());
    }
    let mut content = MultiGzDecoder::new(bytes).take(bytes_max as u64 + 1);
    let read = io::copy(&mut content, &mut io::sink()).map_err(|error| ImportError::Gzip {
        reason: error.to_string(),
    })?;
    let length = usize::try_from(read).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(ImportError::content(bytes_max));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn content_is_decompressed_up_to_the_limit() {
        let bytes = vec![7; 1_000];
        assert_eq!(decompressed(&gzip(&bytes), 1_000).unwrap(), bytes);
        let too_large = Err(ImportError::content(999));
        assert_eq!(decompressed(&gzip(&bytes), 999), too_large);
        assert_eq!(decompressed(&bytes, 1_000).unwrap(), bytes);
        assert_eq!(decompressed(&bytes, 999), too_large);
        for content in [&bytes, &gzip(&bytes), &gzip(b"")] {
            for bytes_max in [10, 999, 1_000] {
                let expected = decompressed(content, bytes_max).map(|content| content.len());
                assert_eq!(decompressed_len(content, bytes_max), expected);
            }
        }
        let cut = &gzip(&bytes)[..20];
        assert!(matches!(
            decompressed(cut, 1_000),
            Err(ImportError::Gzip { .. })
        ));
    }

    #[test]
    fn gzip_of_several_members_or_with_a_wrong_length_is_read_as_the_other_decoder_does() {
        let [one, two] = [&b"main 1\n"[..], &[7; 70_000]].map(gzip);
        let whole = single_member(&two, 70_000).expect("one member is read at once");
        assert_eq!(whole, [7; 70_000]);
        let mut flipped = two.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        let mut wrong_length = two.clone();
        *wrong_length.last_mut().unwrap() ^= 1;
        let several = [&one[..], &two].concat();
        for bytes in [&several, &flipped, &wrong_length, &two[..50].to_vec()] {
            assert_eq!(single_member(bytes, 1 << 20), None);
            let mut content = Vec::new();
            let read = MultiGzDecoder::new(&bytes[..]).read_to_end(&mut content);
            match decompressed(bytes, 1 << 20) {
                Ok(decompressed) => {
                    assert_eq!((read.is_ok(), &decompressed[..]), (true, &content[..]))
                }
                Err(error) => assert_eq!(
                    error.to_string(),
                    ImportError::Gzip {
                        reason: read.unwrap_err().to_string()
                    }
                    .to_string()
                ),
            }
        }
    }

    #[test]
    fn a_gzip_bomb_takes_memory_up_to_the_limit_only() {
        let bomb = gzip(&vec![0; 8 << 20]);
        assert!(bomb.len() < 16 << 10);
        let measured = allocation_counter::measure(|| {
            assert_eq!(
                decompressed(&bomb, 1 << 20),
                Err(ImportError::content(1 << 20))
            );
        });
        let counted = allocation_counter::measure(|| {
            assert_eq!(decompressed_len(&bomb, 8 << 20), Ok(8 << 20));
        });
        assert!(counted.bytes_total < 128 << 10, "{counted:?}");
        // The content, once, and the decoder.
        assert!(
            measured.bytes_total < (1 << 20) + (128 << 10),
            "{measured:?}"
        );
    }
}
