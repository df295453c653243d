//! Streams of bytes, cut anywhere.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use profiler_core::wire::v1::{self, agent_message::Kind};
use tonic::Code;

use super::*;
use base::limits::DECODED_BYTES_MAX;
use shares::Quota;
use state::testing::at_once;

fn memory() -> MessageMemory {
    MessageMemory {
        begun: MemoryPool::new(Quota::BegunBytes, 1 << 20),
        decoded: Arc::new(DecodeBudget::default()),
        large_turns: Turns::new(2),
    }
}

/// A stream that receives these chunks.
fn stream_of(chunks: &[&[u8]], memory: &MessageMemory) -> MessageStream {
    let chunks: Vec<_> = chunks
        .iter()
        .map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk)))
        .collect();
    let body = Body::from_stream(tokio_stream::iter(chunks));
    MessageStream::new(body, Account::of_test(1), memory.clone())
}

fn framed(kind: Kind) -> Vec<u8> {
    let body = AgentMessage { kind: Some(kind) }.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &body].concat()
}

fn tasks(count: usize) -> Kind {
    Kind::Flush(v1::Flush {
        tasks: vec![v1::Task::default(); count],
        ..Default::default()
    })
}

#[tokio::test]
async fn messages_are_the_same_wherever_their_bytes_are_cut() {
    let kinds = [
        tasks(3),
        Kind::Goodbye(v1::Goodbye::default()),
        tasks(40),
        tasks(1),
    ];
    let bytes: Vec<u8> = kinds.iter().cloned().flat_map(framed).collect();
    for chunk_bytes in 1..=bytes.len() {
        let memory = memory();
        let chunks: Vec<_> = bytes.chunks(chunk_bytes).collect();
        let mut stream = stream_of(&chunks, &memory);
        for kind in &kinds {
            let received = stream.next().await.unwrap().unwrap();
            assert_eq!(received.message.kind.as_ref(), Some(kind), "{chunk_bytes}");
            assert!(memory.decoded.charged() > 0);
        }
        assert!(stream.next().await.unwrap().is_none());
        assert_eq!(
            (memory.begun.bytes(), memory.decoded.charged()),
            (0, 0),
            "{chunk_bytes}"
        );
    }
}

/// The connection reads into buffers of 8 KiB and more, and ten thousand streams have read a last message each.
#[tokio::test]
async fn a_stream_that_waits_holds_no_buffer_of_its_connection() {
    let buffer = Arc::new(framed(tasks(3)));
    let chunk = Bytes::from_owner(ConnectionBuffer(buffer.clone()));
    let chunks = tokio_stream::iter([Ok::<_, std::io::Error>(chunk)]);
    let body = Body::from_stream(chunks.chain(tokio_stream::pending()));
    let mut stream = MessageStream::new(body, Account::of_test(1), memory());
    assert!(stream.next().await.unwrap().is_some());
    assert_eq!(Arc::strong_count(&buffer), 1);
    assert!(stream.chunk.is_empty());
}

struct ConnectionBuffer(Arc<Vec<u8>>);

impl AsRef<[u8]> for ConnectionBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn invalid_frames_end_the_stream() {
    let check = async |bytes: &[u8], code, text| {
        let status = stream_of(&[bytes], &memory()).next().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    };
    check(
        &[1, 0, 0, 0, 0],
        Code::Unimplemented,
        "messages must not be compressed",
    )
    .await;
    let text = "a message has 4194305 bytes; at most 4194304 are allowed";
    check(&[0, 0, 64, 0, 1], Code::OutOfRange, text).await;
    check(
        &[0, 0, 0, 0, 9, 0],
        Code::Cancelled,
        "the stream ended within a message",
    )
    .await;
    check(
        &[0, 0],
        Code::Cancelled,
        "the stream ended within a message",
    )
    .await;
}

/// Decoded messages that wait are memory too: a stream goes on when there is room again.
#[test]
fn a_message_is_not_decoded_before_there_is_room() {
    let memory = memory();
    let large = framed(tasks(60_000));
    let count = DECODED_BYTES_MAX / (60_000 * 384) + 1;
    let mut held: Vec<_> = (0..count).map(|_| stream_of(&[&large], &memory)).collect();
    let mut received = Vec::new();
    let waiting = held
        .iter_mut()
        .find_map(|stream| {
            let mut context = Context::from_waker(Waker::noop());
            let next = pin!(stream.next()).poll(&mut context);
            match next {
                Poll::Ready(message) => {
                    received.push(message.unwrap().unwrap());
                    None
                }
                Poll::Pending => Some(stream),
            }
        })
        .expect("not all of them have room");
    // Small messages do not wait.
    drop(
        at_once(stream_of(&[&framed(tasks(100))], &memory).next())
            .unwrap()
            .unwrap(),
    );
    assert!(memory.decoded.charged() <= DECODED_BYTES_MAX);
    received.clear();
    assert!(at_once(waiting.next()).unwrap().is_some());
}

#[tokio::test]
async fn the_part_of_a_message_that_arrived_is_counted() {
    let memory = memory();
    let half = &framed(tasks(1_000))[..1_500];
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender
        .send(Ok::<_, std::io::Error>(Bytes::copy_from_slice(half)))
        .await
        .unwrap();
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let mut stream = MessageStream::new(body, Account::of_test(1), memory.clone());
    {
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(stream.next()).poll(&mut context).is_pending());
    }
    assert_eq!(memory.begun.bytes(), half.len());
    drop(stream);
    assert_eq!(memory.begun.bytes(), 0);
}
