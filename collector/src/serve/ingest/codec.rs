//! The encoding of answers to agents.

use profiler_core::wire::v1::{AgentMessage, CollectorMessage};
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

type Plain = ProstCodec<CollectorMessage, AgentMessage>;

/// Initial size of a stream's buffer. Small, because ten thousand agents have one each and an ack takes
/// 50 bytes; a larger message grows it.
const BUFFER_BYTES: usize = 1 << 8;

/// Most bytes of answers that are sent at once.
const YIELD_BYTES: usize = 16 << 10;

/// An encoder with small buffers.
pub(crate) fn encoder() -> <Plain as Codec>::Encoder {
    Plain::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
}
