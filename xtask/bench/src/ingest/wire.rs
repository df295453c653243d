//! Bytes on the wire in the steady state: real messages, without a socket.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use profiler_core::State;
use profiler_core::wire::v1::agent_message::Kind;
use profiler_core::wire::{FlushDeltaCodec, decode_cycle, v1};
use prost::Message as _;
use simulation::agent::Agent;
use simulation::program::Program;

use super::pprof;

/// Seconds before the steady state: by then nearly every stack has occurred once.
const WARM_UP_S: u64 = 600;
const SECONDS: u64 = 300;
/// The prefix of a gRPC message: a flag and its length.
const PREFIX_BYTES: usize = 5;

/// Bytes of a second in the steady state.
pub(super) struct Wire {
    pub(super) pairs: f64,
    /// Nodes, states and weights.
    pub(super) column_bytes_per_pair: f64,
    /// A whole flush without its tasks, as a gRPC message.
    pub(super) bytes_per_pair: f64,
    /// Dictionary entries of stacks that are still new.
    pub(super) dictionary_bytes_per_pair: f64,
    pub(super) task_bytes_per_pair: f64,
    pub(super) pprof_bytes_per_pair: f64,
}

/// Counts the messages of one agent.
pub(super) fn measure(mut agent: Agent, program: &Arc<Program>) -> Result<Wire> {
    let now = Instant::now();
    let mut pairs = 0;
    let mut columns = 0;
    let mut pprof = 0;
    let mut bytes = 0;
    let mut dictionary = 0;
    let mut tasks = 0;
    let mut said = FlushDeltaCodec::default();
    for seq in 1..=WARM_UP_S + SECONDS {
        agent.make(now);
        let is_steady = seq > WARM_UP_S;
        while let Some(message) = agent.next_message(now) {
            let whole = message.encoded_len() + PREFIX_BYTES;
            match message.kind {
                Some(Kind::Flush(mut flush)) if !is_steady => said.decode(&mut flush),
                Some(Kind::Flush(mut flush)) => {
                    let bare = v1::Flush {
                        tasks: Vec::new(),
                        ..flush.clone()
                    };
                    let message = v1::AgentMessage {
                        kind: Some(Kind::Flush(bare)),
                    };
                    let bare = message.encoded_len() + PREFIX_BYTES;
                    bytes += bare;
                    columns += column_bytes(&flush);
                    tasks += whole - bare;
                    said.decode(&mut flush);
                    let second = stacks(&agent, program, &flush)?;
                    pairs += second.len();
                    pprof += pprof::bytes(&second)?;
                }
                Some(Kind::Dictionary(_)) if is_steady => dictionary += whole,
                _ => {}
            }
        }
        agent.ack(seq, now)?;
    }
    let per_pair = |bytes: usize| bytes as f64 / pairs as f64;
    Ok(Wire {
        pairs: pairs as f64 / SECONDS as f64,
        column_bytes_per_pair: per_pair(columns),
        bytes_per_pair: per_pair(bytes),
        dictionary_bytes_per_pair: per_pair(dictionary),
        task_bytes_per_pair: per_pair(tasks),
        pprof_bytes_per_pair: per_pair(pprof),
    })
}

fn column_bytes(flush: &v1::Flush) -> usize {
    let samples = |cycle: &v1::Cycle| cycle.samples.clone();
    let alone = |cycle| v1::Cycle {
        samples: samples(cycle),
        ..v1::Cycle::default()
    };
    flush
        .cycle
        .as_ref()
        .map_or(0, |cycle| alone(cycle).encoded_len())
}

/// The pairs of a flush with their stacks.
fn stacks<'a>(
    agent: &Agent,
    program: &'a Program,
    flush: &v1::Flush,
) -> Result<Vec<pprof::Pair<'a>>> {
    let cycle = flush.cycle.as_ref().context("a flush without a cycle")?;
    let (_, delta) = decode_cycle(cycle, u32::MAX)?;
    Ok(delta
        .entries()
        .iter()
        .map(|(node, state, weight_ns): &(_, State, u64)| pprof::Pair {
            stack: program.frames_of(agent.program_node(*node)),
            state: Some(state.name()),
            weight_ns: *weight_ns,
        })
        .collect())
}
