//! Weights: nanoseconds of a thread's time, by what the thread did with it.

use std::ops::{Add, AddAssign};

/// What a thread did during a span of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Ran on a processor.
    Cpu,
    /// Could have run, but waited for a processor.
    Runnable,
    /// Was blocked in a system call: a lock, a sleep, the network, a disk.
    Wait,
}

impl State {
    /// All states, in the order in which they are written.
    pub const ALL: [State; 3] = [State::Cpu, State::Runnable, State::Wait];

    /// The state's name in queries and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Cpu => "cpu",
            State::Runnable => "runnable",
            State::Wait => "wait",
        }
    }

    /// The state of that name, or `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A set of states; the default is all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSet(u8);

impl StateSet {
    /// Every state.
    pub const ALL: StateSet = StateSet(0b111);

    /// Whether `state` is in the set.
    #[must_use]
    pub const fn contains(self, state: State) -> bool {
        self.0 & (1 << state as u8) != 0
    }
}

impl Default for StateSet {
    fn default() -> Self {
        StateSet::ALL
    }
}

impl FromIterator<State> for StateSet {
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        StateSet(states.into_iter().fold(0, |bits, state| bits | 1 << state as u8))
    }
}

/// Nanoseconds of thread time by state. Adding never wraps: it stops at the largest value, which
/// is 584 years of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Weight {
    /// Nanoseconds on a processor.
    pub cpu_ns: u64,
    /// Nanoseconds ready, but without a processor.
    pub runnable_ns: u64,
    /// Nanoseconds blocked.
    pub wait_ns: u64,
}

impl Weight {
    /// No time at all.
    pub const ZERO: Weight = Weight { cpu_ns: 0, runnable_ns: 0, wait_ns: 0 };

    /// `nanoseconds` in one state.
    #[must_use]
    pub fn of(state: State, nanoseconds: u64) -> Weight {
        let mut weight = Weight::ZERO;
        *weight.get_mut(state) = nanoseconds;
        weight
    }

    /// Nanoseconds in `state`.
    #[must_use]
    pub const fn get(&self, state: State) -> u64 {
        match state {
            State::Cpu => self.cpu_ns,
            State::Runnable => self.runnable_ns,
            State::Wait => self.wait_ns,
        }
    }

    /// Nanoseconds in `state`, to be changed.
    pub fn get_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Cpu => &mut self.cpu_ns,
            State::Runnable => &mut self.runnable_ns,
            State::Wait => &mut self.wait_ns,
        }
    }

    /// Nanoseconds in all states.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.cpu_ns.saturating_add(self.runnable_ns).saturating_add(self.wait_ns)
    }

    /// Whether there is no time in any state.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.total_ns() == 0
    }

    /// Only the states in `states`; the others become 0.
    #[must_use]
    pub fn keep(mut self, states: StateSet) -> Weight {
        for state in State::ALL {
            if !states.contains(state) {
                *self.get_mut(state) = 0;
            }
        }
        self
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        for state in State::ALL {
            let sum = self.get_mut(state);
            *sum = sum.saturating_add(other.get(state));
        }
    }
}

impl Add for Weight {
    type Output = Weight;

    fn add(mut self, other: Weight) -> Weight {
        self += other;
        self
    }
}

impl std::iter::Sum for Weight {
    fn sum<I: Iterator<Item = Weight>>(weights: I) -> Weight {
        weights.fold(Weight::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_keep_what_they_contain() {
        let weight = Weight { cpu_ns: 1, runnable_ns: 2, wait_ns: 4 };
        let set: StateSet = [State::Cpu, State::Wait].into_iter().collect();
        assert_eq!(weight.keep(set), Weight { cpu_ns: 1, runnable_ns: 0, wait_ns: 4 });
        assert_eq!(weight.keep(StateSet::default()), weight);
    }

    #[test]
    fn names_lead_back_to_their_states() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("CPU"), None);
    }
}
