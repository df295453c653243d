//! What a simulated worker knows of its own: what it sent, what was acked, and so what a collector
//! must hold. It is kept apart from everything that the collector says.

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
    /// Acked and gone.
    #[error("{life}: flushes up to {acked} were acked, and only those up to {held} are held")]
    Lost {
        /// Whose.
        life: String,
        /// Highest sequence number that was acked.
        acked: u64,
        /// What the collector says.
        held: u64,
    },
    /// Held and never sent.
    #[error("{life}: flushes up to {held} are held, and only those up to {sent} were sent")]
    Invented {
        /// Whose.
        life: String,
        /// Highest sequence number that was sent.
        sent: u64,
        /// What the collector says.
        held: u64,
    },
    /// The flushes that are held do not weigh what was stored.
    #[error("{life}: flushes up to {held} weigh {expected_ns} ns, and {stored_ns} ns are stored")]
    Weight {
        /// Whose.
        life: String,
        /// Highest sequence number that the collector holds.
        held: u64,
        /// What those flushes weigh.
        expected_ns: u64,
        /// What the collector says.
        stored_ns: u64,
    },
    /// The collector claims entries of the dictionary that the agent never had.
    #[error("{life}: the collector holds more of the dictionary than there is: {held}")]
    Dictionary {
        /// Whose.
        life: String,
        /// Which.
        held: String,
    },
    /// A good message was refused.
    #[error("{life}: flush {seq} (0: a dictionary) was refused: {reason}")]
    Refused {
        /// Whose.
        life: String,
        /// Which.
        seq: u64,
        /// What the collector said.
        reason: String,
    },
    /// An answer that the protocol does not allow there.
    #[error("{life}: {got} came where {expected} was due")]
    OutOfOrder {
        /// Whose.
        life: String,
        /// What came.
        got: String,
        /// What the protocol allows.
        expected: String,
    },
    /// An answer to a question is not what the record says.
    #[error("{subject}: {what}")]
    Answer {
        /// Which question.
        subject: String,
        /// What is wrong.
        what: String,
    },
}

/// How much is kept of what is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Sums by second, task, state and stack, and every row of tasks.
    Full,
    /// Only what it weighs.
    Totals,
}

/// One flush as it was meant, in terms of the program and of the collector's clock.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its sequence number.
    pub seq: u64,
    /// The second in which its cycle starts.
    pub second: i64,
    pub(crate) pairs: Vec<Pair>,
    /// Names are indices of the program's strings, times the collector's.
    pub(crate) tasks: Vec<v1::Task>,
    /// The sum of the pairs.
    pub total_ns: u64,
}

/// What flushes add up to.
#[derive(Clone, Default, Debug)]
pub struct Sums {
    /// All weight.
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
            let top = program.top_of(*node);
            *self.by_second.entry((facts.second, top, *state)).or_default() += weight_ns;
            *self.by_node.entry(*node).or_default() += weight_ns;
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
    /// Drawn when it began.
    pub epoch: Epoch,
    /// Every flush up to here was acked, or was held when the collector said Welcome.
    pub acked: u64,
    /// The highest sequence number there is. What is above `acked` may be held or not.
    pub made: u64,
    /// The agent is gone and will not say more.
    pub is_over: bool,
    /// What the flushes up to `acked` add up to.
    pub settled: Sums,
    /// Those above.
    pub open: VecDeque<Facts>,
}

/// One worker: its lives in order. Only the last can be going on.
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
        Record { worker, lives: Vec::new(), program, detail }
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

    /// Takes over all flushes up to `seq` into what must be held.
    pub(crate) fn settle(&mut self, seq: u64) {
        let (program, detail) = (self.program.clone(), self.detail);
        let life = self.life();
        while let Some(facts) = life.open.pop_front_if(|facts| facts.seq <= seq) {
            life.settled.add(&facts, &program, detail);
        }
        life.acked = life.acked.max(seq);
    }
}

impl Life {
    /// Checks what the collector says it holds of this life; what it holds then is known exactly.
    ///
    /// # Errors
    /// If acked flushes are gone, or there are more than were sent, or their weight is another.
    pub fn check(&self, held: u64, stored_ns: u64) -> Result<(), Violation> {
        let life = self.name.clone();
        if held < self.acked {
            return Err(Violation::Lost { life, acked: self.acked, held });
        }
        if held > self.made {
            return Err(Violation::Invented { life, sent: self.made, held });
        }
        let more = self.open.iter().take_while(|facts| facts.seq <= held);
        let expected_ns = self.settled.total_ns + more.map(|facts| facts.total_ns).sum::<u64>();
        if stored_ns != expected_ns {
            return Err(Violation::Weight { life, held, expected_ns, stored_ns });
        }
        Ok(())
    }

    /// What the flushes up to `held` add up to, which [`Life::check`] let pass.
    #[must_use]
    pub fn sums(&self, held: u64, program: &Program) -> Sums {
        let mut sums = self.settled.clone();
        for facts in self.open.iter().take_while(|facts| facts.seq <= held) {
            sums.add(facts, program, Detail::Full);
        }
        sums
    }
}
