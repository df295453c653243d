//! A simulated worker's own record: what it sent, what was acknowledged, and therefore what a
//! collector must hold. Independent of everything that the collector reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use profiler_core::wire::v1;
use profiler_core::{Epoch, NodeId, State};
use rustc_hash::FxHashMap;

use crate::pattern::{Pair, QUANTUM_NS};
use crate::program::Program;

/// A promise that the collector broke.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Acknowledged and lost.
    #[error("{life}: flushes up to {acked} were acked, but only those up to {held} are held")]
    Lost {
        /// The life.
        life: String,
        /// Highest acknowledged sequence number.
        acked: u64,
        /// Sequence number that the collector reports.
        held: u64,
    },
    /// Held and never sent.
    #[error("{life}: flushes up to {held} are held, but only those up to {sent} were sent")]
    Invented {
        /// The life.
        life: String,
        /// Highest sequence number that was sent.
        sent: u64,
        /// Sequence number that the collector reports.
        held: u64,
    },
    /// The weight of the held flushes differs from the stored weight.
    #[error("{life}: flushes up to {held} weigh {expected_ns} ns, but {stored_ns} ns are stored")]
    Weight {
        /// The life.
        life: String,
        /// Highest sequence number that the collector holds.
        held: u64,
        /// Weight of those flushes.
        expected_ns: u64,
        /// Weight that the collector reports.
        stored_ns: u64,
    },
    /// The collector claims dictionary entries that the agent never had.
    #[error("{life}: the collector claims dictionary entries that were never sent: {held}")]
    Dictionary {
        /// The life.
        life: String,
        /// The entries.
        held: String,
    },
    /// A valid message was rejected.
    #[error("{life}: flush {seq} (0: a dictionary) was rejected: {reason}")]
    Refused {
        /// The life.
        life: String,
        /// Sequence number.
        seq: u64,
        /// Reason given by the collector.
        reason: String,
    },
    /// An answer that the protocol does not allow there.
    #[error("{life}: received {got}, expected {expected}")]
    OutOfOrder {
        /// The life.
        life: String,
        /// The received answer.
        got: String,
        /// The expected answer.
        expected: String,
    },
    /// An answer differs from the record.
    #[error("{subject}: {what}")]
    Answer {
        /// The query.
        subject: String,
        /// The difference.
        what: String,
    },
}

/// How much is kept of acknowledged flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Sums by second, task, state and stack, and every task row.
    Full,
    /// Sums by stack.
    Stacks,
    /// Total weight only.
    Totals,
}

/// One flush as intended, in terms of the program and of the collector's clock.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its sequence number.
    pub seq: u64,
    /// The second in which its cycle starts.
    pub second: i64,
    pub(crate) pairs: Vec<Pair>,
    /// Names are indices of the program's strings; times are the collector's.
    pub(crate) tasks: Vec<v1::Task>,
    /// Sum of the pairs.
    pub total_ns: u64,
}

/// Sums of flushes.
#[derive(Clone, Default, Debug)]
pub struct Sums {
    /// Total weight.
    pub total_ns: u64,
    /// By second, first-level node and state.
    pub by_second: BTreeMap<(i64, NodeId, State), u64>,
    /// By stack.
    pub by_node: FxHashMap<NodeId, u64>,
    /// The last row of each task, by its id.
    pub tasks: BTreeMap<u64, v1::Task>,
}

impl Sums {
    pub(crate) fn add(&mut self, facts: &Facts, program: &Program, detail: Detail) {
        self.total_ns += facts.total_ns;
        if detail == Detail::Totals {
            return;
        }
        for (node, state, quanta) in &facts.pairs {
            let weight_ns = quanta * QUANTUM_NS;
            *self.by_node.entry(*node).or_default() += weight_ns;
            if detail == Detail::Full {
                let top = program.top_of(*node);
                *self
                    .by_second
                    .entry((facts.second, top, *state))
                    .or_default() += weight_ns;
            }
        }
        for task in &facts.tasks {
            self.tasks.insert(task.id, task.clone());
        }
    }
}

/// One life of one agent.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its name in violations.
    pub name: String,
    /// Drawn at its start.
    pub epoch: Epoch,
    /// Every flush up to here was acknowledged, or was held at a Welcome.
    pub acked: u64,
    /// Highest sequence number in use. Flushes above `acked` may be held or not.
    pub made: u64,
    /// The agent has ended and will send nothing more.
    pub is_over: bool,
    /// Sums of the flushes up to `acked`.
    pub settled: Sums,
    /// The flushes above.
    pub open: VecDeque<Facts>,
}

/// One worker: its lives in order. Only the last can be active.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its id.
    pub worker: String,
    /// At least one.
    pub lives: Vec<Life>,
    pub(crate) program: Arc<Program>,
    pub(crate) detail: Detail,
}

impl Record {
    pub(crate) fn new(worker: String, program: Arc<Program>, detail: Detail) -> Record {
        Record {
            worker,
            lives: Vec::new(),
            program,
            detail,
        }
    }

    /// Returns the program that the worker runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn begin_life(&mut self, epoch: Epoch) {
        if let Some(last) = self.lives.last_mut() {
            last.is_over = true;
        }
        self.lives.push(Life {
            name: format!("{} {epoch}", self.worker),
            epoch,
            acked: 0,
            made: 0,
            is_over: false,
            settled: Sums::default(),
            open: VecDeque::new(),
        });
    }

    pub(crate) fn life(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a worker begins with a life")
    }

    pub(crate) fn made(&mut self, facts: Facts) {
        let life = self.life();
        life.made = facts.seq;
        life.open.push_back(facts);
    }

    /// Moves all flushes up to `seq` into the sums that must be held.
    pub(crate) fn acknowledge(&mut self, seq: u64) {
        let program = self.program.clone();
        let detail = self.detail;
        let life = self.life();
        while let Some(facts) = life.open.pop_front_if(|facts| facts.seq <= seq) {
            life.settled.add(&facts, &program, detail);
        }
        life.acked = life.acked.max(seq);
    }
}

impl Life {
    /// Checks the state that the collector reports for this life, which is then known exactly.
    ///
    /// # Errors
    /// If acknowledged flushes are missing, more flushes are held than were sent, or their weight
    /// differs.
    pub fn check(&self, held: u64, stored_ns: u64) -> Result<(), Violation> {
        let life = self.name.clone();
        if held < self.acked {
            return Err(Violation::Lost {
                life,
                acked: self.acked,
                held,
            });
        }
        if held > self.made {
            return Err(Violation::Invented {
                life,
                sent: self.made,
                held,
            });
        }
        let more = self.open.iter().take_while(|facts| facts.seq <= held);
        let expected_ns = self.settled.total_ns + more.map(|facts| facts.total_ns).sum::<u64>();
        if stored_ns != expected_ns {
            return Err(Violation::Weight {
                life,
                held,
                expected_ns,
                stored_ns,
            });
        }
        Ok(())
    }

    /// Sums of the flushes up to `held`, which [`Life::check`] accepted.
    #[must_use]
    pub fn sums(&self, held: u64, program: &Program) -> Sums {
        let mut sums = self.settled.clone();
        for facts in self.open.iter().take_while(|facts| facts.seq <= held) {
            sums.add(facts, program, Detail::Full);
        }
        sums
    }
}
