//! Recorded cycles of a real fleet, read back from its collector, so that simulated agents can
//! replay them at other times.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use profiler_core::wire::v1::FrameKind;
use profiler_core::{NodeId, State};
use serde_json::Value;

use crate::api::Api;
use crate::pattern::{Pair, Pattern, QUANTUM_NS};
use crate::program::{Program, ProgramFrame};

/// Cycles of real workers and the program they ran.
#[derive(Debug)]
pub struct Capture {
    /// Frames and nodes of all cycles.
    pub program: Program,
    cycles: Vec<Vec<Pair>>,
}

impl Capture {
    /// Reads each worker's samples for each of `seconds`, of all threads and by line. Task
    /// starts and stops are not read.
    ///
    /// # Errors
    /// If the collector does not answer, or has no samples.
    pub fn read(api: &Api, seconds: Range<i64>) -> Result<Capture> {
        let answer = api.json("workers")?;
        let workers = answer["workers"]
            .as_array()
            .context("an answer without workers")?;
        let mut reading = Reading::default();
        let mut cycles = Vec::new();
        for worker in workers {
            let worker = worker["worker"]
                .as_str()
                .context("a worker without a name")?;
            for second in seconds.clone() {
                let range = format!("from={second}&to={}", second + 1);
                let asked = format!("profile?{range}&worker={worker}&by=line&threads=all");
                let cycle = reading.cycle(&api.json(&asked)?)?;
                cycles.extend((!cycle.is_empty()).then_some(cycle));
            }
        }
        ensure!(!cycles.is_empty(), "the collector holds no cycle");
        reading.program.add_threads();
        Ok(Capture {
            program: reading.program,
            cycles,
        })
    }

    /// Number of cycles.
    #[must_use]
    pub fn cycle_count(&self) -> usize {
        self.cycles.len()
    }

    /// The name of a task that occurs in the cycles.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        let frames = self.program.frames.iter();
        let mut tasks = frames.filter(|frame| frame.kind == FrameKind::Task);
        tasks
            .next()
            .map(|frame| &*self.program.strings[frame.function as usize])
    }

    /// A pattern that replays a random one of the cycles each second.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        Pattern::recorded(self.cycles.clone())
    }
}

/// Profiles that become one program.
struct Reading {
    program: Program,
    strings: HashMap<String, u32>,
    frames: HashMap<ProgramFrame, u32>,
    nodes: HashMap<(NodeId, u32), NodeId>,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            program: Program::empty(),
            strings: HashMap::from([(String::new(), 0)]),
            frames: HashMap::new(),
            nodes: HashMap::new(),
        }
    }
}

impl Reading {
    fn cycle(&mut self, answer: &Value) -> Result<Vec<Pair>> {
        let nodes = answer["profile"]["nodes"]
            .as_array()
            .context("an answer without nodes")?;
        let mut ids = vec![NodeId::ROOT];
        let mut pairs = Vec::new();
        for node in nodes {
            let parent = usize::try_from(number(&node["parent"])?)?;
            let parent = *ids.get(parent).context("a node precedes its parent")?;
            let id = self.node(parent, node)?;
            ids.push(id);
            for state in State::ALL {
                let weight_ns = &node["self"][state.name()];
                let weight_ns = if weight_ns.is_null() {
                    0
                } else {
                    number(weight_ns)?
                };
                ensure!(
                    weight_ns % QUANTUM_NS == 0,
                    "{weight_ns} ns are not whole quanta"
                );
                if weight_ns > 0 {
                    pairs.push((id, state, weight_ns / QUANTUM_NS));
                }
            }
        }
        pairs.sort_unstable_by_key(|(node, state, _)| (*node, *state));
        Ok(pairs)
    }

    fn node(&mut self, parent: NodeId, node: &Value) -> Result<NodeId> {
        let text = |name: &str| {
            node[name]
                .as_str()
                .with_context(|| format!("a node without {name}"))
        };
        let frame = ProgramFrame {
            kind: match text("kind")? {
                "task" => FrameKind::Task,
                "no_task" => FrameKind::NoTask,
                "agent" => FrameKind::Agent,
                "truncated" => FrameKind::Truncated,
                "no_stack" => FrameKind::NoStack,
                "overflow" => FrameKind::Overflow,
                // Frames without a name use their displayed label.
                _ => FrameKind::Function,
            },
            function: self.string(text("name")?),
            file: self.string(text("file")?),
            line: u32::try_from(number(&node["line"])?)?,
        };
        let program = &mut self.program;
        let frame = *self.frames.entry(frame).or_insert_with(|| {
            program.frames.push(frame);
            count(program.frames.len() - 1)
        });
        Ok(*self.nodes.entry((parent, frame)).or_insert_with(|| {
            program.nodes.push((parent, frame));
            NodeId(count(program.nodes.len() - 1))
        }))
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        self.program.strings.push(text.to_owned());
        let id = count(self.program.strings.len() - 1);
        self.strings.insert(text.to_owned(), id);
        id
    }
}

fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .with_context(|| format!("{value} is no number"))
}

fn count(index: usize) -> u32 {
    u32::try_from(index).expect("a capture is small")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(parent: u32, name: &str, kind: &str, own: &Value) -> Value {
        json!({"parent": parent, "name": name, "kind": kind, "file": "", "line": 3, "self": own})
    }

    #[test]
    fn cycles_of_several_answers_share_one_program() {
        let none = json!({"cpu": 0, "runnable": 0, "wait": 0});
        let waits = json!({"cpu": 2_000_000, "runnable": 0, "wait": 5_000_000, "lock": 5_000_000});
        let first = [
            node(0, "load", "task", &none),
            node(1, "read", "function", &waits),
        ];
        let second = [
            node(0, "[no task]", "no_task", &none),
            node(1, "read", "function", &waits),
            node(0, "load", "task", &waits),
        ];
        let mut reading = Reading::default();
        let mut cycle = |nodes: &[Value]| reading.cycle(&json!({"profile": {"nodes": nodes}}));
        assert_eq!(cycle(&first).unwrap(), samples_of(2));
        assert_eq!(
            cycle(&second).unwrap(),
            [samples_of(1), samples_of(4)].concat()
        );
        let orphan = node(7, "f", "function", &none);
        assert!(cycle(&[orphan]).is_err());
        let part = json!({"cpu": 1, "runnable": 0, "wait": 0});
        assert!(cycle(&[node(0, "load", "task", &part)]).is_err());
        assert_eq!(reading.program.path(NodeId(4)), ["[no task]", "read"]);
        assert_eq!(reading.program.path(NodeId(2)), ["load", "read"]);
    }

    fn samples_of(node: u32) -> [(NodeId, State, u64); 2] {
        [
            (NodeId(node), State::Cpu, 2),
            (NodeId(node), State::Lock, 5),
        ]
    }
}
