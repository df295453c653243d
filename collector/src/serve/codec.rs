//! The codec of agents' streams: bounds messages before it decodes them.

use profiler_core::wire::check_entries;
use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use prost::Message as _;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<CollectorMessage, AgentMessage>;

/// Initial size of a stream's buffers. Small, because ten thousand agents have a pair each and an ack
/// takes 50 bytes; a larger message grows them.
const BUFFER_BYTES: usize = 1 << 10;

/// Most bytes of answers that are sent at once.
const YIELD_BYTES: usize = 16 << 10;

/// The codec of the generated server: prost's own, but it rejects a message of more entries than any
/// agent sends before decoding it. Two bytes can claim an entry that takes 136 once decoded.
#[derive(Debug, Default)]
pub(crate) struct BoundedCodec;

impl Codec for BoundedCodec {
    type Encode = CollectorMessage;
    type Decode = AgentMessage;
    type Encoder = <Plain as Codec>::Encoder;
    type Decoder = BoundedDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        Plain::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
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
        let length = source.remaining();
        if source.chunk().len() < length {
            return decoded(&source.copy_to_bytes(length));
        }
        // In place: `copy_to_bytes` would take the buffer away from the stream.
        let message = decoded(source.chunk());
        source.advance(length);
        message
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

fn decoded(bytes: &[u8]) -> Result<Option<AgentMessage>, Status> {
    check_entries(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let message = AgentMessage::decode(bytes);
    // The status of prost's own codec.
    Ok(Some(message.map_err(|error| Status::internal(error.to_string()))?))
}
