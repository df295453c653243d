//! Messages from bytes, bounded before anything is made of them.

use profiler_core::wire::check_entries;
use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use prost::Message as _;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<CollectorMessage, AgentMessage>;

/// What a stream's buffers begin with, in bytes, and how much of answers is sent at once: ten thousand
/// agents have a pair of them each, an ack takes 50 bytes, and a larger message makes room for itself.
const BUFFER_BYTES: usize = 1 << 10;
const SENT_AT_ONCE_BYTES: usize = 16 << 10;

/// The codec of the generated server: as prost's own, but a message of more entries than any agent
/// sends is refused by its bytes. Two bytes can claim an entry that takes 136 once it is decoded.
#[derive(Debug, Default)]
pub(crate) struct BoundedCodec;

impl Codec for BoundedCodec {
    type Encode = CollectorMessage;
    type Decode = AgentMessage;
    type Encoder = <Plain as Codec>::Encoder;
    type Decoder = BoundedDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        Plain::raw_encoder(BufferSettings::new(BUFFER_BYTES, SENT_AT_ONCE_BYTES))
    }

    fn decoder(&mut self) -> BoundedDecoder {
        BoundedDecoder
    }
}

#[derive(Debug)]
pub(crate) struct BoundedDecoder;

impl Decoder for BoundedDecoder {
    type Item = AgentMessage;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<AgentMessage>, Status> {
        // Where they lie: to take them out would leave the stream without its buffer.
        let (whole, length) = (source.remaining(), source.chunk().len());
        if length < whole {
            let bytes = source.copy_to_bytes(whole);
            return decoded(&bytes);
        }
        let message = decoded(source.chunk());
        source.advance(length);
        message
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, SENT_AT_ONCE_BYTES)
    }
}

fn decoded(bytes: &[u8]) -> Result<Option<AgentMessage>, Status> {
    check_entries(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let message = AgentMessage::decode(bytes);
    // As prost's own codec says it.
    Ok(Some(message.map_err(|error| Status::internal(error.to_string()))?))
}
