//! Activity of a worker in a second: stacks of its threads, and tasks that begin and end.

use profiler_core::wire::v1;
use profiler_core::{NodeId, State};

use crate::program::Program;
use crate::random::{Random, Zipf};

/// How busy a worker is. The defaults give about 50 pairs a second.
#[derive(Clone, Copy, Debug)]
pub struct Busyness {
    /// Concurrent tasks.
    pub slots: usize,
    /// Samples per task and second.
    pub samples: usize,
    /// Probability that a slot's task ends in a second and another begins.
    pub switch: f64,
    /// Whether there are threads outside any task.
    pub idle: bool,
    /// Largest deviation of a pair's weight from its number of samples, in quanta: real weights are
    /// measured time, never whole samples.
    pub noise_quanta: u64,
    /// Number of prepared draws from which a slot's samples are picked; 0 draws each time, which is
    /// more varied and costs the generator more than everything else.
    pub prepared: usize,
}

impl Default for Busyness {
    fn default() -> Self {
        Busyness {
            slots: 3,
            samples: 70,
            switch: 0.15,
            idle: true,
            noise_quanta: 3,
            prepared: 512,
        }
    }
}

/// A quantum: a tenth of the default interval, as in real agents.
pub(crate) const QUANTUM_NS: u64 = 1_000_000;
/// Quanta per sample.
const SAMPLE_QUANTA: u64 = 10;
/// Share of a task's leaves that mostly wait.
const WAITING_SHARE: f64 = 0.3;
/// Share of a leaf's samples in its other state.
const ODD_SHARE: f64 = 0.01;

/// One pair on the wire: a node of the program, a state, a weight in quanta.
pub(crate) type Pair = (NodeId, State, u64);

/// State shared by all workers of a fleet.
#[derive(Debug)]
pub struct Pattern {
    busyness: Busyness,
    tasks: Zipf,
    stacks: Zipf,
    /// For each node of the program: the usual state of its samples.
    states: Vec<State>,
    /// Draws: rank of a leaf, whether its state is the unusual one, samples.
    prepared: Vec<Vec<(usize, bool, u64)>>,
    /// Recorded cycles, replayed at random instead of drawing; empty to draw.
    recorded: Vec<Vec<Pair>>,
}

impl Pattern {
    /// Replays these cycles at random, and runs no task.
    pub(crate) fn recorded(cycles: Vec<Vec<Pair>>) -> Pattern {
        let none = Zipf::new(1, 1.0);
        let busyness = Busyness {
            slots: 0,
            idle: false,
            noise_quanta: 0,
            ..Busyness::default()
        };
        Pattern {
            busyness,
            tasks: none.clone(),
            stacks: none,
            states: Vec::new(),
            prepared: Vec::new(),
            recorded: cycles,
        }
    }

    /// Options for running `program`.
    #[must_use]
    pub fn new(program: &Program, busyness: Busyness, random: &mut Random) -> Pattern {
        let state = |_| {
            if random.chance(WAITING_SHARE) {
                State::WAITS[random.below(State::WAITS.len())]
            } else {
                State::Cpu
            }
        };
        let mut pattern = Pattern {
            busyness,
            tasks: Zipf::new(program.tasks.len(), 0.8),
            stacks: Zipf::new(program.tasks[0].leaves.len(), 1.5),
            states: (0..=program.node_count()).map(state).collect(),
            prepared: Vec::new(),
            recorded: Vec::new(),
        };
        pattern.prepared = (0..busyness.prepared)
            .map(|_| pattern.draw(random))
            .collect();
        pattern
    }

    /// Samples of one slot, by leaf.
    fn draw(&self, random: &mut Random) -> Vec<(usize, bool, u64)> {
        let mut samples: Vec<_> = (0..self.busyness.samples)
            .map(|_| (self.stacks.draw(random), random.chance(ODD_SHARE)))
            .collect();
        samples.sort_unstable();
        let runs = samples.chunk_by(|a, b| a == b);
        runs.map(|run| (run[0].0, run[0].1, run.len() as u64))
            .collect()
    }
}

/// A running task.
#[derive(Clone, Copy, Debug)]
struct Slot {
    task: usize,
    id: u64,
    start_ns: i64,
}

/// One worker's threads.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    slots: Vec<Slot>,
    last_task_id: u64,
}

/// Content of a second.
#[derive(Debug, Default)]
pub(crate) struct Second {
    /// In no order; each (node, state) once.
    pub(crate) pairs: Vec<Pair>,
    /// Their names are indices of the program's strings.
    pub(crate) tasks: Vec<v1::Task>,
}

impl Threads {
    pub(crate) fn new() -> Threads {
        Threads {
            slots: Vec::new(),
            last_task_id: 0,
        }
    }

    /// The second that begins at `start_ns`.
    pub(crate) fn second(
        &mut self,
        program: &Program,
        pattern: &Pattern,
        start_ns: i64,
        random: &mut Random,
    ) -> Second {
        let mut second = Second::default();
        let busyness = &pattern.busyness;
        if !pattern.recorded.is_empty() {
            second
                .pairs
                .clone_from(&pattern.recorded[random.below(pattern.recorded.len())]);
        }
        for index in 0..busyness.slots {
            if self.slots.len() <= index {
                let slot = self.begin(pattern, start_ns, random);
                second.tasks.push(row(program, slot, None, random));
                self.slots.push(slot);
            } else if random.chance(busyness.switch) {
                let slot = self.slots[index];
                // When time starts over, a task ends at its start.
                let drawn_ns = start_ns + nanoseconds(random.below(900_000_000));
                let stop_ns = drawn_ns.max(slot.start_ns);
                second.tasks.push(row(program, slot, Some(stop_ns), random));
                self.slots[index] = self.begin(pattern, stop_ns, random);
                second
                    .tasks
                    .push(row(program, self.slots[index], None, random));
            }
            let task = &program.tasks[self.slots[index].task];
            let mut take = |draw: &[(usize, bool, u64)]| {
                for (rank, odd, samples) in draw {
                    let node = task.leaves[*rank];
                    let state = match (odd, pattern.states[node.index()]) {
                        (false, state) => state,
                        (true, State::Cpu) => State::Runnable,
                        (true, _) => State::Cpu,
                    };
                    second.pairs.push((node, state, samples * SAMPLE_QUANTA));
                }
            };
            match pattern.prepared.len() {
                0 => take(&pattern.draw(random)),
                count => take(&pattern.prepared[random.below(count)]),
            }
        }
        for (index, node) in program.idle.iter().enumerate().filter(|_| busyness.idle) {
            let state = [State::Sleep, State::Network][index % 2];
            let samples = 50 + random.below(50) as u64;
            second.pairs.push((*node, state, samples * SAMPLE_QUANTA));
        }
        sum(&mut second.pairs);
        if busyness.noise_quanta > 0 {
            let spread = usize::try_from(2 * busyness.noise_quanta).expect("noise is small");
            for (_, _, quanta) in &mut second.pairs {
                *quanta = (*quanta + random.between(0, spread) as u64) - busyness.noise_quanta;
            }
        }
        second
    }

    fn begin(&mut self, pattern: &Pattern, start_ns: i64, random: &mut Random) -> Slot {
        self.last_task_id += 1;
        Slot {
            task: pattern.tasks.draw(random),
            id: self.last_task_id,
            start_ns,
        }
    }
}

/// Sums the weights of several threads by pair.
fn sum(pairs: &mut Vec<Pair>) {
    pairs.sort_unstable_by_key(|(node, state, _)| (*node, *state));
    pairs.dedup_by(|next, sum| {
        let same = (next.0, next.1) == (sum.0, sum.1);
        if same {
            sum.2 += next.2;
        }
        same
    });
}

fn row(program: &Program, slot: Slot, stop_ns: Option<i64>, random: &mut Random) -> v1::Task {
    let outcome = match stop_ns {
        None => v1::Outcome::Running,
        Some(_) if random.chance(0.05) => v1::Outcome::Failed,
        Some(_) => v1::Outcome::Ok,
    };
    let name = program.tasks[slot.task].name;
    v1::Task {
        id: slot.id,
        name,
        key: format!("{}-{}", slot.task, slot.id),
        thread_id: 1_000 + u32::try_from(slot.id % 64).expect("it is below 64"),
        thread_name: "pool".into(),
        parent_id: 0,
        start_ns: slot.start_ns,
        stop_ns: stop_ns.unwrap_or(0),
        outcome: outcome.into(),
        cause: if outcome == v1::Outcome::Failed {
            "no such block".into()
        } else {
            String::new()
        },
        ..Default::default()
    }
}

fn nanoseconds(count: usize) -> i64 {
    i64::try_from(count).expect("it is below a second")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Shape;

    #[test]
    fn a_second_has_each_pair_once_and_all_its_time() {
        let shape = Shape {
            tasks: 5,
            stacks_per_task: 60,
            idle: 7,
            depths: 10..=30,
        };
        let program = Program::generate(shape, &mut Random(3));
        for prepared in [0, 16] {
            let busyness = Busyness {
                slots: 3,
                noise_quanta: 0,
                prepared,
                ..Busyness::default()
            };
            let mut random = Random(5);
            let pattern = Pattern::new(&program, busyness, &mut random);
            let mut threads = Threads::new();
            let mut rows = 0;
            for second in 0..200 {
                let second =
                    threads.second(&program, &pattern, second * 1_000_000_000, &mut random);
                assert!(second.pairs.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
                let (in_tasks, idle): (Vec<_>, Vec<_>) = second
                    .pairs
                    .iter()
                    .partition(|(node, _, _)| !program.idle.contains(node));
                assert_eq!(idle.len(), 7);
                let quanta: u64 = in_tasks.iter().map(|(_, _, quanta)| quanta).sum();
                assert_eq!(quanta, 3 * 70 * SAMPLE_QUANTA);
                rows += second.tasks.len();
            }
            assert!((3 + 120..3 + 240).contains(&rows), "{rows}");
        }
    }
}
