//! Encodes messages with small buffers, like a real agent.

use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<AgentMessage, CollectorMessage>;

/// Initial buffer size in bytes: answers take 50, and larger messages grow it.
const BUFFER_BYTES: usize = 1 << 10;

/// Waiting messages are sent together up to this many bytes. A collector's buffers of a stream stay
/// as large as its largest burst, and it has ten thousand streams.
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
