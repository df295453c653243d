//! Encodes messages to bytes, a few at a time.

use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<AgentMessage, CollectorMessage>;

/// Initial bytes of the buffers, which grow for larger messages. Answers take 50.
const BUFFER_BYTES: usize = 1 << 10;

/// Most bytes of waiting messages that are sent together. The collector's buffers for a stream stay as
/// large as the largest chunk received on it, and it has ten thousand of them.
const SENT_AT_ONCE_BYTES: usize = 2 << 10;

/// The codec of the generated client: prost's own, with smaller buffers.
#[derive(Debug, Default)]
pub(crate) struct SmallCodec;

impl Codec for SmallCodec {
    type Encode = AgentMessage;
    type Decode = CollectorMessage;
    type Encoder = <Plain as Codec>::Encoder;
    type Decoder = <Plain as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        Plain::raw_encoder(BufferSettings::new(BUFFER_BYTES, SENT_AT_ONCE_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        Plain::raw_decoder(BufferSettings::new(BUFFER_BYTES, SENT_AT_ONCE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use profiler_core::wire::v1::{Dictionary, agent_message::Kind};
    use prost::Message as _;
    use tonic::codec::EncodeBody;
    use tonic::codegen::Body as _;

    use super::*;

    #[test]
    fn waiting_messages_are_sent_in_small_parts() {
        let strings = vec!["n".repeat(300)];
        let kind = Some(Kind::Dictionary(Dictionary { strings, ..Dictionary::default() }));
        let message = AgentMessage { kind };
        let message_bytes = message.encoded_len() + 5;
        let source = tokio_stream::iter(vec![Ok(message); 40]);
        let mut body = pin!(EncodeBody::new_client(SmallCodec.encoder(), source, None, None));
        let mut parts = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
            parts.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(parts.iter().sum::<usize>(), 40 * message_bytes);
        assert!(parts.iter().all(|bytes| *bytes < SENT_AT_ONCE_BYTES + message_bytes), "{parts:?}");
    }
}
