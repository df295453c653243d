//! The bytes of HTTP/2 and gRPC, valid or not.

use profiler_core::wire::v1::{self, collector_message};
use prost::Message as _;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const UNKNOWN: u8 = 0x77;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;

/// Bytes that a peer may send on a stream before the agent gives it more room.
pub(super) const WINDOW_BYTES: i64 = 65_535;

/// The agent's only stream.
pub(super) const STREAM: u32 = 1;

/// A frame as received.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(super) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = values
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(super) fn ping() -> Vec<u8> {
    frame(PING, 0, 0, b"hostile!")
}

pub(super) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// A block of headers: a status, and fields without compression.
pub(super) fn header_block(status: u16, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    // Literal values of the static names at 8, `:status`.
    block.push(8);
    push_text(&mut block, &status.to_string());
    block.extend(field_block(fields));
    block
}

/// Fields without compression.
pub(super) fn field_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        push_text(&mut block, name);
        push_text(&mut block, value);
    }
    block
}

/// A length with a prefix of seven bits, and the text.
fn push_text(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).unwrap());
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        block.push(u8::try_from(length).unwrap());
    }
    block.extend_from_slice(text.as_bytes());
}

/// The headers of a collector's response.
pub(super) fn response() -> Vec<u8> {
    let block = header_block(200, &[("content-type", "application/grpc")]);
    frame(HEADERS, END_HEADERS, STREAM, &block)
}

/// A whole message of the collector, in a frame of its own.
pub(super) fn message(kind: collector_message::Kind) -> Vec<u8> {
    frame(DATA, 0, STREAM, &message_bytes(kind))
}

/// A whole message of the collector.
pub(super) fn message_bytes(kind: collector_message::Kind) -> Vec<u8> {
    let body = v1::CollectorMessage { kind: Some(kind) }.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &body].concat()
}

/// A data frame with a prefix of gRPC, which may not fit to the body.
pub(super) fn grpc(compressed: u8, length: u32, body: &[u8]) -> Vec<u8> {
    let data = [&[compressed], &length.to_be_bytes()[..], body].concat();
    frame(DATA, 0, STREAM, &data)
}

pub(super) fn welcome() -> v1::Welcome {
    v1::Welcome::default()
}

pub(super) fn ack(seq: u64) -> collector_message::Kind {
    collector_message::Kind::Ack(v1::Ack { seq, receipt: None })
}

pub(super) fn symbol_request(id: u64, build_id: &str, offset: u64) -> collector_message::Kind {
    let build_id = build_id.to_owned();
    collector_message::Kind::SymbolRequest(v1::SymbolRequest {
        id,
        build_id,
        offset,
    })
}

pub(super) fn refusal(seq: u64) -> collector_message::Kind {
    let reason = "no".repeat(5_000);
    collector_message::Kind::Refusal(v1::Refusal {
        seq,
        reason,
        ..Default::default()
    })
}
