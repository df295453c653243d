//! Messages to bytes, a few at a time, as a real agent does it.

use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<AgentMessage, CollectorMessage>;

/// What the buffers begin with, in bytes: answers take 50, and a larger message makes room for itself.
const BUFFER_BYTES: usize = 1 << 10;

/// Messages that wait are sent together until they have so many bytes: a collector's buffers for a stream
/// stay as large as what came at once on it, and it has ten thousand of them.
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
