//! The workers' protocol: a `u32` length, a byte for the kind, then the fields, all little endian.
//! Every size is checked before memory is allocated for it.

use std::io::{self, ErrorKind, Read};

use ndarray::Array2;

/// Largest frame. A block of 1,000 × 1,000 numbers is 8 MB; one batch's token counts are smaller.
pub(crate) const FRAME_BYTES_MAX: usize = 32 << 20;
/// Most rows or columns of a matrix; with both at the limit a frame is 18 MB.
pub(crate) const SIDE_MAX: usize = 1_500;
/// Most blocks assigned to one worker in one round.
pub(crate) const ASSIGNED_BLOCKS_MAX: usize = 1_000;
/// Longest token. Longer ones are encoded binaries, hashes or rulers of dashes.
pub(crate) const TOKEN_BYTES_MAX: usize = 64;

/// Role of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    /// The R of one block, sent to the leader.
    BlockR = 0,
    /// The rows of Q2 that belong to one block, sent back.
    StackedQ = 1,
    /// The R of the whole matrix.
    FinalR = 2,
}

/// Content of a frame.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    /// First message on every connection: the sender's number.
    Hello { worker: u32 },
    /// From the leader: blocks assigned to the receiver in this round; earlier assignments are
    /// void.
    Round { round: u64, blocks: Vec<u32> },
    /// A matrix follows. The receiver starts the transfer's clock here, when the wait for the
    /// peer's arithmetic is over.
    Announce { round: u64, block: u32, part: Part },
    /// A matrix in transit.
    Block {
        round: u64,
        block: u32,
        part: Part,
        matrix: Array2<f64>,
    },
    /// Relative error of the block's product.
    Verdict {
        round: u64,
        block: u32,
        residual: f64,
    },
    /// One batch's counts of the tokens that the receiver owns.
    Counts {
        batch: u64,
        counts: Vec<(String, u64)>,
    },
}

/// Why a message could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WireError {
    #[error("a frame of {bytes} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    #[error("the peer closed the connection")]
    Closed,
    #[error("a frame that breaks the protocol: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Io(io::Error),
}

impl Message {
    /// Its name in transfers.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Message::Hello { .. } => "hello",
            Message::Round { .. } => "round",
            Message::Announce { .. } => "announce",
            Message::Block { .. } => "matrix",
            Message::Verdict { .. } => "verdict",
            Message::Counts { .. } => "counts",
        }
    }
}

/// The received part of a frame's length.
#[derive(Debug)]
pub(crate) struct Prefix {
    bytes: [u8; 4],
    have: usize,
}

/// Waits for the first bytes of a frame.
///
/// # Errors
/// [`WireError::Closed`] if the peer ended the connection between two frames.
pub(crate) fn await_frame(reader: &mut impl Read) -> Result<Prefix, WireError> {
    let mut bytes = [0u8; 4];
    match reader.read(&mut bytes).map_err(WireError::Io)? {
        0 => Err(WireError::Closed),
        have => Ok(Prefix { bytes, have }),
    }
}

/// Reads the rest of a frame; returns its body.
///
/// # Errors
/// [`WireError`] if it is too long or cut short.
pub(crate) fn read_body(prefix: Prefix, reader: &mut impl Read) -> Result<Vec<u8>, WireError> {
    let Prefix {
        bytes: mut prefix,
        have,
    } = prefix;
    reader
        .read_exact(&mut prefix[have..])
        .map_err(inside_a_frame)?;
    let bytes = u32::from_le_bytes(prefix) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(WireError::TooLong { bytes });
    }
    // Grows with what arrives: a peer that announces much and sends little costs little.
    let mut body = Vec::new();
    let arrived = reader
        .take(bytes as u64)
        .read_to_end(&mut body)
        .map_err(WireError::Io)?;
    if arrived < bytes {
        return Err(WireError::Truncated);
    }
    Ok(body)
}

fn inside_a_frame(error: io::Error) -> WireError {
    match error.kind() {
        ErrorKind::UnexpectedEof => WireError::Truncated,
        _ => WireError::Io(error),
    }
}

/// Encodes one frame, with its length.
///
/// # Errors
/// [`WireError::TooLong`].
#[inline(never)]
pub(crate) fn encode_frame(message: &Message) -> Result<Vec<u8>, WireError> {
    let mut frame = vec![0; 4];
    match message {
        Message::Hello { worker } => {
            frame.push(0);
            frame.extend(worker.to_le_bytes());
        }
        Message::Round { round, blocks } => {
            frame.push(1);
            frame.extend(round.to_le_bytes());
            blocks
                .iter()
                .for_each(|block| frame.extend(block.to_le_bytes()));
        }
        Message::Block {
            round,
            block,
            part,
            matrix,
        } => {
            frame.push(2);
            frame.extend(round.to_le_bytes());
            frame.extend(block.to_le_bytes());
            frame.push(*part as u8);
            encode_matrix(&mut frame, matrix);
        }
        Message::Verdict {
            round,
            block,
            residual,
        } => {
            frame.push(3);
            frame.extend(round.to_le_bytes());
            frame.extend(block.to_le_bytes());
            frame.extend(residual.to_le_bytes());
        }
        Message::Counts { batch, counts } => {
            frame.push(4);
            frame.extend(batch.to_le_bytes());
            encode_counts(&mut frame, counts)?;
        }
        Message::Announce { round, block, part } => {
            frame.push(5);
            frame.extend(round.to_le_bytes());
            frame.extend(block.to_le_bytes());
            frame.push(*part as u8);
        }
    }
    let bytes = frame.len() - 4;
    if bytes > FRAME_BYTES_MAX {
        return Err(WireError::TooLong { bytes });
    }
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(frame)
}

fn encode_matrix(frame: &mut Vec<u8>, matrix: &Array2<f64>) {
    frame.extend((matrix.nrows() as u32).to_le_bytes());
    frame.extend((matrix.ncols() as u32).to_le_bytes());
    frame.reserve(matrix.nrows() * matrix.ncols() * 8);
    // Row by row, whatever their order in memory.
    matrix
        .iter()
        .for_each(|value| frame.extend(value.to_le_bytes()));
}

fn encode_counts(frame: &mut Vec<u8>, counts: &[(String, u64)]) -> Result<(), WireError> {
    for (token, count) in counts {
        let length = u8::try_from(token.len())
            .ok()
            .filter(|length| usize::from(*length) <= TOKEN_BYTES_MAX)
            .ok_or(WireError::Malformed("a token is too long to send"))?;
        frame.push(length);
        frame.extend(token.as_bytes());
        frame.extend(count.to_le_bytes());
    }
    Ok(())
}

/// Decodes a frame's body.
///
/// # Errors
/// [`WireError::Malformed`].
#[inline(never)]
pub(crate) fn decode_body(body: &[u8]) -> Result<Message, WireError> {
    let mut fields = Fields { rest: body };
    let message = match fields.byte()? {
        0 => Message::Hello {
            worker: fields.u32()?,
        },
        1 => Message::Round {
            round: fields.u64()?,
            blocks: decode_blocks(&mut fields)?,
        },
        2 => Message::Block {
            round: fields.u64()?,
            block: fields.u32()?,
            part: decode_part(&mut fields)?,
            matrix: decode_matrix(&mut fields)?,
        },
        3 => Message::Verdict {
            round: fields.u64()?,
            block: fields.u32()?,
            residual: f64::from_bits(fields.u64()?),
        },
        4 => Message::Counts {
            batch: fields.u64()?,
            counts: decode_counts(&mut fields)?,
        },
        5 => Message::Announce {
            round: fields.u64()?,
            block: fields.u32()?,
            part: decode_part(&mut fields)?,
        },
        _ => return Err(WireError::Malformed("unknown kind")),
    };
    if !fields.rest.is_empty() {
        return Err(WireError::Malformed("bytes after the last field"));
    }
    Ok(message)
}

fn decode_blocks(fields: &mut Fields<'_>) -> Result<Vec<u32>, WireError> {
    if fields.rest.len() > ASSIGNED_BLOCKS_MAX * 4 {
        return Err(WireError::Malformed("more blocks than a round has"));
    }
    let mut blocks = Vec::new();
    while !fields.rest.is_empty() {
        blocks.push(fields.u32()?);
    }
    Ok(blocks)
}

fn decode_part(fields: &mut Fields<'_>) -> Result<Part, WireError> {
    match fields.byte()? {
        0 => Ok(Part::BlockR),
        1 => Ok(Part::StackedQ),
        2 => Ok(Part::FinalR),
        _ => Err(WireError::Malformed("unknown part")),
    }
}

fn decode_matrix(fields: &mut Fields<'_>) -> Result<Array2<f64>, WireError> {
    let rows = fields.u32()? as usize;
    let columns = fields.u32()? as usize;
    if rows > SIDE_MAX || columns > SIDE_MAX {
        return Err(WireError::Malformed(
            "a matrix wider or taller than allowed",
        ));
    }
    let values = fields
        .take(rows * columns * 8)?
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes))
        .collect();
    Array2::from_shape_vec((rows, columns), values)
        .map_err(|_| WireError::Malformed("a matrix of another size"))
}

fn decode_counts(fields: &mut Fields<'_>) -> Result<Vec<(String, u64)>, WireError> {
    let mut counts = Vec::new();
    while !fields.rest.is_empty() {
        let length = usize::from(fields.byte()?);
        if length > TOKEN_BYTES_MAX {
            return Err(WireError::Malformed("a token longer than allowed"));
        }
        let token = str::from_utf8(fields.take(length)?)
            .map_err(|_| WireError::Malformed("a token that is not UTF-8"))?;
        counts.push((token.to_owned(), fields.u64()?));
    }
    Ok(counts)
}

/// The undecoded rest of a frame.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireError::Malformed(
                "a field reaches past the end of its frame",
            ))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], WireError> {
        let mut array = [0; LENGTH];
        array.copy_from_slice(self.take(LENGTH)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_message(reader: &mut impl Read) -> Result<Message, WireError> {
        let prefix = await_frame(reader)?;
        decode_body(&read_body(prefix, reader)?)
    }

    /// Every kind of message round-trips.
    #[test]
    fn every_message_survives_the_wire() {
        let matrix =
            Array2::from_shape_fn((3, 2), |(row, column)| row as f64 - 0.5 * column as f64);
        check_round_trip(Message::Hello { worker: 63 });
        check_round_trip(Message::Round {
            round: 7,
            blocks: vec![],
        });
        check_round_trip(Message::Round {
            round: u64::MAX,
            blocks: vec![0, 9, u32::MAX],
        });
        check_round_trip(Message::Block {
            round: 1,
            block: 2,
            part: Part::BlockR,
            matrix,
        });
        let empty = Array2::zeros((0, 0));
        check_round_trip(Message::Block {
            round: 1,
            block: 2,
            part: Part::FinalR,
            matrix: empty,
        });
        check_round_trip(Message::Announce {
            round: 1,
            block: 2,
            part: Part::StackedQ,
        });
        check_round_trip(Message::Verdict {
            round: 1,
            block: 2,
            residual: 1e-16,
        });
        let counts = vec![("Straße".to_owned(), 3), (String::new(), 0)];
        check_round_trip(Message::Counts { batch: 5, counts });
    }

    /// A frame cut anywhere is an error, never a panic or a shorter message.
    #[test]
    fn a_truncated_stream_is_an_error_at_every_length() {
        let matrix = Array2::from_shape_fn((2, 2), |(row, column)| (row + column) as f64);
        let frame = encode_frame(&Message::Block {
            round: 1,
            block: 2,
            part: Part::StackedQ,
            matrix,
        })
        .unwrap();
        for length in 0..frame.len() {
            let error = read_message(&mut &frame[..length]).unwrap_err();
            match length {
                0 => assert!(matches!(error, WireError::Closed), "{error}"),
                _ => assert!(matches!(error, WireError::Truncated), "{length}: {error}"),
            }
        }
    }

    /// Each limit holds: the length before the body is read, the others before memory is allocated.
    #[test]
    fn oversized_and_broken_frames_are_refused() {
        let too_long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        let error = read_message(&mut too_long.as_slice()).unwrap_err();
        assert!(matches!(error, WireError::TooLong { bytes } if bytes == FRAME_BYTES_MAX + 1));

        let side = (SIDE_MAX as u32 + 1).to_le_bytes();
        check_refused(&[&[2], &[0; 12][..], &[0], &side, &side], "wider or taller");
        check_refused(&[&[2], &[0; 12][..], &[9], &[0; 8]], "unknown part");
        check_refused(
            &[&[2], &[0; 12][..], &[0], &[2, 0, 0, 0, 2, 0, 0, 0]],
            "past the end",
        );
        check_refused(
            &[&[1], &[0; 8][..], &[0; 4 * ASSIGNED_BLOCKS_MAX + 4]],
            "more blocks",
        );
        check_refused(
            &[&[4], &[0; 8][..], &[TOKEN_BYTES_MAX as u8 + 1]],
            "longer than allowed",
        );
        check_refused(&[&[4], &[0; 8][..], &[1, 0xff], &[0; 8]], "not UTF-8");
        check_refused(&[&[0], &[0; 5]], "after the last field");
        check_refused(&[&[200]], "unknown kind");
        check_refused(&[], "past the end");
    }

    /// A writer checks the limits too, so that a peer never has to reject our messages.
    #[test]
    fn a_writer_refuses_a_token_that_no_reader_would_take() {
        let counts = vec![("x".repeat(TOKEN_BYTES_MAX + 1), 1)];
        let error = encode_frame(&Message::Counts { batch: 0, counts }).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }

    fn check_round_trip(message: Message) {
        let stream = encode_frame(&message).unwrap();
        assert_eq!(read_message(&mut stream.as_slice()).unwrap(), message);
    }

    fn check_refused(fields: &[&[u8]], why: &str) {
        let body = fields.concat();
        let stream = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        let error = read_message(&mut stream.as_slice()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
