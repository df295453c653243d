//! Attacks of a hostile collector, each on every connection.

use std::io;
use std::iter::repeat;
use std::thread;
use std::time::Duration;

use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::v1::{Receipt, Settings, ThreadDumpRequest, Welcome};

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS, MAX_FRAME_SIZE, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, STREAM,
    UNKNOWN, ack, field_block, frame, grpc, header_block, message, ping, refusal, response,
    settings, symbol_request, welcome, window_update,
};
use super::server::{Attack, Peer};

/// Most flushes that an agent sends without an answer.
const IN_FLIGHT_MAX: u64 = 16;

/// Data that a healthy collector gets after the attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retained {
    /// Everything.
    All,
    /// Data that the hostile one neither acknowledged nor rejected.
    Unanswered,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) kept: Retained,
    pub(super) attack: Attack,
}

const fn case(name: &'static str, attack: Attack) -> Case {
    Case {
        name,
        kept: Retained::All,
        attack,
    }
}

/// An attack by answers to flushes, or one that switches sampling off.
const fn lie(name: &'static str, attack: Attack) -> Case {
    Case {
        name,
        kept: Retained::Unanswered,
        attack,
    }
}

pub(super) const CASES: &[Case] = &[
    case("accepts and is silent", Peer::hold),
    case("greets and is silent", |peer| {
        peer.await_request(&[])?;
        peer.hold()
    }),
    case("welcomes and never reads", |peer| {
        peer.welcome(welcome())?;
        peer.hold()
    }),
    case("closes at once", |_| Ok(())),
    case("welcomes and closes", |peer| peer.welcome(welcome())),
    case("sends one byte a millisecond", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        drip(peer, &frame(UNKNOWN, 0, 0, &[0; 1_000]))
    }),
    case("sends its greeting byte by byte", |peer| {
        drip(
            peer,
            &[settings(&[]), frame(UNKNOWN, 0, 0, &[0; 10_000])].concat(),
        )
    }),
    case("gives no room to send", |peer| {
        peer.await_request(&[(INITIAL_WINDOW_SIZE, 0)])?;
        peer.write(&response())?;
        peer.write(&message(Kind::Welcome(welcome())))?;
        peer.drain()?;
        peer.hold()
    }),
    case("gives room byte by byte", |peer| {
        peer.await_request(&[(INITIAL_WINDOW_SIZE, 0)])?;
        peer.write(&response())?;
        peer.write(&message(Kind::Welcome(welcome())))?;
        peer.drain()?;
        peer.flood(&window_update(STREAM, 1))
    }),
    case("allows no stream", |peer| {
        peer.greet(&[(MAX_CONCURRENT_STREAMS, 0)])?;
        peer.drain()?;
        peer.hold()
    }),
    case("redirects", |peer| {
        peer.await_request(&[])?;
        let block = header_block(307, &[("location", "http://127.0.0.1:1/")]);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &block))
    }),
    case("answers in HTTP/1.1", |peer| {
        peer.write(b"HTTP/1.1 301 Moved Permanently\r\nLocation: http://127.0.0.1:1/\r\n\r\n")
    }),
    case("sends garbage", |peer| {
        peer.flood(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    }),
    case("sends a frame of 16 MiB", |peer| {
        peer.greet(&[])?;
        peer.write(&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1])?;
        peer.flood(&[0])
    }),
    case("sends invalid settings", |peer| {
        peer.greet(&[(MAX_FRAME_SIZE, 1)])
    }),
    case("floods with settings of HTTP/2", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(SETTINGS, 0, 0, &[]))
    }),
    case("floods with pings", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&ping())
    }),
    case("floods with pings and never reads", |peer| {
        peer.welcome(welcome())?;
        peer.flood(&ping())
    }),
    case("floods before its greeting", |peer| {
        peer.flood(&frame(UNKNOWN, 0, 0, &[0; 100]))
    }),
    case("floods with unknown frames", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(UNKNOWN, 0, 0, &[]))
    }),
    case("floods with priorities", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 9]))
    }),
    case("floods with empty data", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(DATA, 0, STREAM, &[]))
    }),
    case("floods with room", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&window_update(0, 1))
    }),
    case("gives more room than exists", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&window_update(0, i32::MAX.unsigned_abs()))
    }),
    case("resets the stream", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(RST_STREAM, 0, STREAM, &[0, 0, 0, 8]))
    }),
    case("resets streams that do not exist", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&frame(RST_STREAM, 0, 7, &[0, 0, 0, 8]))
    }),
    case("goes away at once", |peer| {
        peer.greet(&[])?;
        peer.write(&go_away(0))
    }),
    case("welcomes and goes away", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.flood(&go_away(1))
    }),
    case("sends headers without end", |peer| {
        peer.await_request(&[])?;
        peer.write(&frame(HEADERS, 0, STREAM, &header_block(200, &[])))?;
        peer.flood(&frame(CONTINUATION, 0, STREAM, &field_block(&[("a", "b")])))
    }),
    case("sends 4 MiB of headers", |peer| {
        peer.await_request(&[])?;
        let field = field_block(&[("a", &"b".repeat(1_000))]);
        peer.write(&frame(HEADERS, 0, STREAM, &header_block(200, &[])))?;
        for _ in 0..256 {
            peer.write(&frame(CONTINUATION, 0, STREAM, &field.repeat(16)))?;
        }
        peer.write(&frame(CONTINUATION, END_HEADERS, STREAM, &[]))
    }),
    case("sends one header many times", |peer| {
        peer.await_request(&[])?;
        // One byte each: the newest entry of the dynamic table, with 4,000 bytes.
        let entry = [&[0x40, 1, b'a', 127, 0xa1, 0x1e][..], &[b'b'; 4_000]].concat();
        let block = [&header_block(200, &[]), &entry[..], &[0xbe; 8_000]].concat();
        peer.write(&frame(HEADERS, END_HEADERS, STREAM, &block))
    }),
    case("sends interim responses without end", |peer| {
        peer.await_request(&[])?;
        peer.drain()?;
        let block = header_block(103, &[("link", "x")]);
        peer.flood(&frame(HEADERS, END_HEADERS, STREAM, &block))
    }),
    case("pushes", |peer| {
        peer.await_request(&[])?;
        peer.flood(&frame(
            PUSH_PROMISE,
            END_HEADERS,
            STREAM,
            &[0, 0, 0, 2, 0x82],
        ))
    }),
    case("opens a stream of its own", |peer| {
        peer.welcome(welcome())?;
        peer.flood(&frame(HEADERS, END_HEADERS, 2, &header_block(200, &[])))
    }),
    case("has another type of content", |peer| {
        peer.await_request(&[])?;
        let block = header_block(200, &[("content-type", "text/html")]);
        peer.write(&frame(HEADERS, END_HEADERS, STREAM, &block))?;
        peer.flood(&frame(DATA, 0, STREAM, &[b'x'; 1_000]))
    }),
    case("rejects the call in its headers", |peer| {
        peer.await_request(&[])?;
        let text = "%1B[2J%0A".repeat(500);
        let fields = [
            ("content-type", "application/grpc"),
            ("grpc-status", "13"),
            ("grpc-message", &text),
        ];
        let block = header_block(200, &fields);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &block))
    }),
    case("ends the call with trailers", |peer| {
        peer.welcome(welcome())?;
        let block = field_block(&[("grpc-status", "8"), ("grpc-message", "%1B]0;x%07")]);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &block))
    }),
    case("sends a compressed message", |peer| {
        peer.await_request(&[])?;
        peer.write(&response())?;
        peer.write(&grpc(1, 4, &[0; 4]))
    }),
    case("announces a message of 4 GiB", |peer| {
        peer.welcome(welcome())?;
        peer.write(&grpc(0, u32::MAX, &[]))?;
        peer.flood(&frame(DATA, 0, STREAM, &[0; 1_000]))
    }),
    case("announces a message of 4 MiB", |peer| {
        peer.welcome(welcome())?;
        peer.write(&grpc(0, 4 << 20, &[]))?;
        peer.flood(&frame(DATA, 0, STREAM, &[0; 1_000]))
    }),
    case("begins a message and never ends it", |peer| {
        peer.welcome(welcome())?;
        peer.write(&grpc(0, 60_000, &[0; 1_000]))?;
        peer.drain()?;
        peer.hold()
    }),
    case("sends an invalid message", |peer| {
        peer.welcome(welcome())?;
        peer.write(&grpc(0, 3, &[0xff; 3]))
    }),
    case("sends a message of a later version", |peer| {
        peer.await_request(&[])?;
        peer.write(&response())?;
        // Field 99 holds two bytes.
        peer.write(&grpc(0, 5, &[0x9a, 6, 2, 8, 1]))
    }),
    case("sends no Welcome but an answer", |peer| {
        peer.await_request(&[])?;
        peer.write(&response())?;
        peer.write(&message(ack(1)))
    }),
    case("welcomes twice", |peer| {
        peer.welcome(welcome())?;
        peer.write(&message(Kind::Welcome(welcome())))
    }),
    case("welcomes with flushes of the future", |peer| {
        peer.welcome(Welcome {
            acked_seq: u64::MAX,
            ..welcome()
        })
    }),
    case("welcomes with absurd numbers", |peer| {
        let receipt = Receipt {
            agent_sent_at_ns: i64::MIN,
            received_at_ns: i64::MAX,
            sent_at_ns: i64::MAX,
        };
        let all = u32::MAX;
        let welcome = Welcome {
            stored_ns: u64::MAX,
            strings: all,
            frames: all,
            nodes: all,
            receipt: Some(receipt),
            ..welcome()
        };
        peer.welcome(welcome)?;
        peer.drain()?;
        peer.hold()
    }),
    case(
        "welcomes with a flush that follows those in flight",
        |peer| {
            let newest_seq = peer.newest_seq();
            let acked_seq = if newest_seq == 0 {
                0
            } else {
                newest_seq + IN_FLIGHT_MAX + 1
            };
            peer.welcome(Welcome {
                acked_seq,
                stored_ns: u64::MAX,
                ..welcome()
            })?;
            peer.next_flush().map(drop)
        },
    ),
    lie("welcomes with flushes in flight as stored", |peer| {
        let acked_seq = peer.newest_seq();
        peer.welcome(Welcome {
            acked_seq,
            stored_ns: u64::MAX,
            ..welcome()
        })?;
        peer.next_flush().map(drop)
    }),
    lie("welcomes with flushes in flight, then with none", |peer| {
        let acked_seq = if peer.is_odd_connection() {
            peer.newest_seq()
        } else {
            0
        };
        let stored_ns = if acked_seq == 0 { 0 } else { u64::MAX };
        peer.welcome(Welcome {
            acked_seq,
            stored_ns,
            ..welcome()
        })?;
        let seq = peer.next_flush()?;
        peer.write(&message(ack(seq)))?;
        peer.next_flush().map(drop)
    }),
    case("acknowledges the future", |peer| {
        peer.welcome(welcome())?;
        peer.write(&message(ack(u64::MAX)))
    }),
    case("acknowledges the second flush only", |peer| {
        peer.welcome(welcome())?;
        let first = peer.next_flush()?;
        peer.next_flush()?;
        peer.write(&message(ack(first + 1)))
    }),
    case("acknowledges an unsent flush", |peer| {
        peer.welcome(welcome())?;
        let first = peer.next_flush()?;
        peer.write(&message(ack(first + 1)))
    }),
    case("acknowledges the past", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.send_messages(repeat(ack(0)))
    }),
    lie("acknowledges each flush three times", |peer| {
        peer.welcome(welcome())?;
        loop {
            let seq = peer.next_flush()?;
            peer.write(&message(ack(seq)).repeat(3))?;
        }
    }),
    lie("acknowledges one flush and closes", |peer| {
        peer.welcome(welcome())?;
        let seq = peer.next_flush()?;
        peer.write(&message(ack(seq)))?;
        thread::park_timeout(Duration::from_millis(50));
        Ok(())
    }),
    lie("rejects each flush", |peer| {
        peer.welcome(welcome())?;
        loop {
            let seq = peer.next_flush()?;
            peer.write(&message(refusal(seq)))?;
        }
    }),
    case("rejects dictionaries", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.send_messages(repeat(refusal(0)))
    }),
    case("rejects the future", |peer| {
        peer.welcome(welcome())?;
        peer.write(&message(refusal(u64::MAX)))
    }),
    case("requests absurd settings", |peer| {
        peer.welcome(welcome())?;
        let absurd = Settings {
            revision: 1,
            interval_ns: Some(1),
            ..Settings::default()
        };
        peer.write(&message(Kind::Settings(absurd)))
    }),
    case("floods with settings", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        let valid = |revision| Settings {
            revision,
            enabled: Some(true),
            ..Settings::default()
        };
        peer.send_messages((1..).map(|revision| Kind::Settings(valid(revision))))
    }),
    lie("switches sampling off and on", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.send_messages((1..).map(|revision| {
            let enabled = Some(revision % 2 == 0);
            Kind::Settings(Settings {
                revision,
                enabled,
                ..Settings::default()
            })
        }))
    }),
    case("requests thread dumps without end", |peer| {
        peer.welcome(welcome())?;
        peer.drain()?;
        peer.send_messages((1..).map(|id| Kind::ThreadDumpRequest(ThreadDumpRequest { id })))
    }),
    case("requests thread dumps and never reads", |peer| {
        peer.welcome(welcome())?;
        peer.send_messages((1..4_000).map(|id| Kind::ThreadDumpRequest(ThreadDumpRequest { id })))?;
        peer.hold()
    }),
    case("requests symbols without end", |peer| {
        peer.welcome(welcome())?;
        let build_id = peer.next_build_id()?;
        peer.write(&message(symbol_request(1, &build_id, 0)))?;
        peer.next_piece()?;
        peer.drain()?;
        peer.send_messages((2..).map(|id| symbol_request(id, &build_id, id << 10)))
    }),
    case("requests symbols at absurd offsets", |peer| {
        peer.welcome(welcome())?;
        let build_id = peer.next_build_id()?;
        peer.drain()?;
        let long = "f".repeat(60_000);
        let offsets = [u64::MAX, i64::MAX as u64, u64::MAX - 1];
        let requests = offsets
            .into_iter()
            .cycle()
            .zip(1..)
            .flat_map(|(offset, id)| {
                [
                    symbol_request(id, &build_id, offset),
                    symbol_request(id, &long, offset),
                ]
            });
        peer.send_messages(requests)
    }),
    case("requests symbols and never reads", |peer| {
        peer.welcome(welcome())?;
        let build_id = peer.next_build_id()?;
        peer.send_messages((1..500).map(|id| symbol_request(id, &build_id, 0)))?;
        peer.hold()
    }),
    case("asks for a delay of ages", |peer| {
        peer.welcome(welcome())?;
        let ages = u64::MAX.to_string();
        let block = field_block(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", &ages)]);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &block))
    }),
];

fn go_away(last_stream: u32) -> Vec<u8> {
    let text = [b'\x1b'; 4_000];
    let head = [&last_stream.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &[&head[..], &text].concat())
}

/// Sends these bytes one by one, without end.
fn drip(peer: &mut Peer, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes.iter().cycle() {
        peer.write(&[*byte])?;
        thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}
