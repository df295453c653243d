//! Messages of a collector: `replies` decodes and handles them, `http2` reads a whole connection.

use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;
use profiler_core::wire::v1;
use profiler_core::wire::v1::collector_message::Kind;
use prost::Message as _;
use ship::shipper::fuzzing;

/// Each part is a message; an empty one ends the stream, and the next begins another.
pub(crate) const REPLIES: Target = Target {
    name: "replies",
    shape: Shape::Messages { head: 0 },
    run: |input| {
        let (_, rest) = parts::flags(input);
        let parts = parts::split(rest);
        let encoded: Vec<Vec<u8>> = parts.split(|part| part.is_empty()).map(framed).collect();
        let streams: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let _ = fuzzing::replies(&streams);
    },
    seeds: || {
        let conversation: Vec<Vec<u8>> = messages()
            .iter()
            .map(v1::CollectorMessage::encode_to_vec)
            .collect();
        let twice: Vec<Vec<u8>> = conversation
            .iter()
            .chain([&Vec::new()])
            .chain(&conversation)
            .cloned()
            .collect();
        let seed = |parts: &[Vec<u8>]| [vec![0], parts::join(parts)].concat();
        vec![
            ("one-stream".into(), seed(&conversation)),
            ("two-streams".into(), seed(&twice)),
        ]
    },
};

/// The bytes that a collector sends on one connection.
pub(crate) const HTTP2: Target = Target {
    name: "http2",
    shape: Shape::Bytes,
    run: |input| {
        let _ = fuzzing::connection(input);
    },
    seeds: || {
        let encoded: Vec<Vec<u8>> = messages()
            .iter()
            .map(v1::CollectorMessage::encode_to_vec)
            .collect();
        let messages: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let frames = |headers: &[u8], trailers: &[u8]| {
            [
                frame(SETTINGS, 0, 0, &[]),
                frame(SETTINGS, ACK, 0, &[]),
                frame(HEADERS, END_HEADERS, 1, headers),
                frame(DATA, 0, 1, &framed(&messages)),
                frame(PING, 0, 0, &[7; 8]),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers),
            ]
            .concat()
        };
        let ok = header_block(&[(":status", "200"), ("content-type", "application/grpc")]);
        let web = header_block(&[(":status", "404"), ("content-type", "text/html")]);
        let good = header_block(&[("grpc-status", "0")]);
        let bad = header_block(&[
            ("grpc-status", "8"),
            ("grpc-message", "too%20many%20agents"),
        ]);
        vec![
            ("answered".into(), frames(&ok, &good)),
            ("rejected".into(), frames(&ok, &bad)),
            ("no-collector".into(), frames(&web, &good)),
            (
                "goaway".into(),
                [frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &[0; 8])].concat(),
            ),
        ]
    },
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Literal fields without indexing, as HPACK writes them.
fn header_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Length-prefixed messages.
fn framed(messages: &[&[u8]]) -> Vec<u8> {
    let prefixed = messages.iter().map(|message| {
        let length = (message.len() as u32).to_be_bytes();
        [&[0], length.as_slice(), message].concat()
    });
    prefixed.collect::<Vec<_>>().concat()
}

fn messages() -> Vec<v1::CollectorMessage> {
    let receipt = Some(v1::Receipt {
        agent_sent_at_ns: 1_000_006_000_000_000,
        received_at_ns: 1_000_006_100_000_000,
        sent_at_ns: 1_000_006_200_000_000,
    });
    let ack = |seq| Kind::Ack(v1::Ack { seq, receipt });
    let refusal = |seq| {
        Kind::Refusal(v1::Refusal {
            seq,
            reason: "no room".into(),
            ..v1::Refusal::default()
        })
    };
    let settings = v1::Settings {
        revision: 1,
        interval_ns: Some(20_000_000),
        enabled: Some(true),
        ..v1::Settings::default()
    };
    let welcome = v1::Welcome {
        receipt,
        ..v1::Welcome::default()
    };
    let kinds = [
        Kind::Welcome(welcome),
        Kind::Settings(settings),
        ack(1),
        Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id: 1 }),
        refusal(2),
        refusal(0),
        ack(3),
        ack(4),
    ];
    kinds
        .into_iter()
        .map(|kind| v1::CollectorMessage { kind: Some(kind) })
        .collect()
}
