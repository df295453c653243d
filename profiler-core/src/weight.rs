//! Weights: nanoseconds of a thread's time, by state.

use std::fmt;
use std::ops::{Add, AddAssign, BitOr};

/// State of a thread. All but the first two are waits: blocked in a system call of that kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Ran on a CPU core.
    Cpu,
    /// Ready to run, waiting for a CPU core.
    Runnable,
    /// Waited for another thread: futexes (mutexes, condition variables, parking, joins) and
    /// semaphores.
    Lock,
    /// Slept: `nanosleep` and similar calls.
    Sleep,
    /// Waited for a socket, or in `poll`, `epoll_wait` or `select`.
    Network,
    /// Waited for a file: reads, writes, `fsync`, page faults.
    Disk,
    /// Waited for a pipe, a terminal, a child process, or in a call of unknown kind.
    Other,
    /// Waited for the lock of an interpreter, such as the GIL of CPython. On the wire it is a part of [`State::Lock`].
    Interpreter,
}

impl State {
    /// All states, in serialization order.
    pub const ALL: [State; 8] = [
        State::Cpu,
        State::Runnable,
        State::Lock,
        State::Sleep,
        State::Network,
        State::Disk,
        State::Other,
        State::Interpreter,
    ];

    /// The waits, in the order in which they are shown.
    pub const WAITS: [State; 6] = [
        State::Lock,
        State::Interpreter,
        State::Sleep,
        State::Network,
        State::Disk,
        State::Other,
    ];

    /// The state's name in queries and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Cpu => "cpu",
            State::Runnable => "runnable",
            State::Lock => "lock",
            State::Sleep => "sleep",
            State::Network => "network",
            State::Disk => "disk",
            State::Other => "other",
            State::Interpreter => "interpreter",
        }
    }

    /// The state of that name, or `None`. `wait` is a [set](StateSet::from_name), not a state.
    #[must_use]
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether a thread in this state was blocked.
    #[must_use]
    pub const fn is_wait(self) -> bool {
        StateSet::WAIT.contains(self)
    }
}

/// A set of states; the default is all of them.
///
/// ```
/// use emberline_profiler_core::{State, StateSet};
///
/// let set = StateSet::from_name("cpu").unwrap() | StateSet::from_name("wait").unwrap();
/// assert!(set.contains(State::Network) && !set.contains(State::Runnable));
/// assert_eq!(set.names(), ["cpu", "wait"]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSet(u8);

impl StateSet {
    /// No state.
    pub const NONE: StateSet = StateSet(0);

    /// Every state.
    pub const ALL: StateSet = StateSet::of(&State::ALL);

    /// Every [wait](State::WAITS).
    pub const WAIT: StateSet = StateSet::of(&State::WAITS);

    /// Names accepted by [`StateSet::from_name`].
    pub const NAMES: [&'static str; 9] = [
        "cpu",
        "runnable",
        "wait",
        "lock",
        "interpreter",
        "sleep",
        "network",
        "disk",
        "other",
    ];

    const fn of(states: &[State]) -> StateSet {
        let mut bits = 0;
        let mut index = 0;
        while index < states.len() {
            bits |= 1 << states[index] as u8;
            index += 1;
        }
        StateSet(bits)
    }

    /// The set of that name: a single state, or `wait` for all waits. `None` for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StateSet> {
        match name {
            "wait" => Some(StateSet::WAIT),
            name => State::from_name(name).map(|state| StateSet::of(&[state])),
        }
    }

    /// Names that together make up the set, in the order of [`StateSet::NAMES`]: `wait` if all
    /// waits are in it.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let all_waits = self | StateSet::WAIT == self;
        StateSet::NAMES
            .into_iter()
            .filter(|name: &&str| match State::from_name(name) {
                Some(state) => self.contains(state) && !(all_waits && state.is_wait()),
                None => all_waits,
            })
            .collect()
    }

    /// The set as bits: bit n is the n-th of [`State::ALL`].
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of those bits; `None` if it is empty or a bit is no state's.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<StateSet> {
        const { assert!(StateSet::ALL.0 == u8::MAX, "each bit of a byte is a state") };
        let bits = u8::try_from(bits).ok()?;
        (bits != 0).then_some(StateSet(bits))
    }

    /// Whether `state` is in the set.
    #[must_use]
    pub const fn contains(self, state: State) -> bool {
        self.0 & (1 << state as u8) != 0
    }

    /// The states in the set, in serialization order.
    pub fn states(self) -> impl Iterator<Item = State> {
        State::ALL
            .into_iter()
            .filter(move |state| self.contains(*state))
    }
}

impl Default for StateSet {
    fn default() -> Self {
        StateSet::ALL
    }
}

impl BitOr for StateSet {
    type Output = StateSet;

    fn bitor(self, other: StateSet) -> StateSet {
        StateSet(self.0 | other.0)
    }
}

impl FromIterator<State> for StateSet {
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        states
            .into_iter()
            .fold(StateSet::NONE, |set, state| set | StateSet::of(&[state]))
    }
}

/// Nanoseconds of thread time by state. Addition saturates at `u64::MAX`, which is 584 years of one
/// thread.
///
/// ```
/// use emberline_profiler_core::{State, Weight};
///
/// let weight = Weight::of(State::Cpu, 5) + Weight::of(State::Lock, 2) + Weight::of(State::Disk, 1);
/// assert_eq!((weight.get(State::Lock), weight.wait_ns(), weight.total_ns()), (2, 3, 8));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Weight {
    /// By [`State`], as in [`State::ALL`].
    nanoseconds: [u64; State::ALL.len()],
}

impl Weight {
    /// No time at all.
    pub const ZERO: Weight = Weight {
        nanoseconds: [0; State::ALL.len()],
    };

    /// `nanoseconds` in one state.
    #[must_use]
    pub const fn of(state: State, nanoseconds: u64) -> Weight {
        let mut weight = Weight::ZERO;
        weight.nanoseconds[state as usize] = nanoseconds;
        weight
    }

    /// Nanoseconds in `state`.
    #[must_use]
    pub const fn get(&self, state: State) -> u64 {
        self.nanoseconds[state as usize]
    }

    /// Mutable nanoseconds in `state`.
    pub const fn get_mut(&mut self, state: State) -> &mut u64 {
        &mut self.nanoseconds[state as usize]
    }

    /// Adds `nanoseconds` in one state.
    pub const fn count(&mut self, state: State, nanoseconds: u64) {
        let sum = self.get_mut(state);
        *sum = sum.saturating_add(nanoseconds);
    }

    /// Nanoseconds blocked, over all kinds of waits.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.keep(StateSet::WAIT).total_ns()
    }

    /// Nanoseconds in all states.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.nanoseconds.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether there is no time in any state.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Weight::ZERO
    }

    /// The part `numerator / denominator` of the time in each state, rounded down. A denominator of 0 is 1.
    ///
    /// ```
    /// use emberline_profiler_core::{State, Weight};
    ///
    /// assert_eq!(Weight::of(State::Cpu, 10).scaled(2, 3), Weight::of(State::Cpu, 6));
    /// ```
    #[must_use]
    pub fn scaled(mut self, numerator: u64, denominator: u64) -> Weight {
        let denominator = u128::from(denominator.max(1));
        for nanoseconds in &mut self.nanoseconds {
            let scaled = u128::from(*nanoseconds) * u128::from(numerator) / denominator;
            *nanoseconds = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        self
    }

    /// The time in each state beyond that of `other`; 0 where `other` has more.
    #[must_use]
    pub fn saturating_sub(mut self, other: Weight) -> Weight {
        for (own, of_other) in self.nanoseconds.iter_mut().zip(other.nanoseconds) {
            *own = own.saturating_sub(of_other);
        }
        self
    }

    /// Keeps only `states`; the others become 0.
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

/// The states that are not 0: `{cpu: 5, lock: 2}`.
impl fmt::Debug for Weight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = State::ALL.into_iter().filter(|state| self.get(*state) > 0);
        let mut map = formatter.debug_map();
        for state in parts {
            map.key(&format_args!("{}", state.name()))
                .value(&self.get(state));
        }
        map.finish()
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        for (sum, nanoseconds) in self.nanoseconds.iter_mut().zip(other.nanoseconds) {
            *sum = sum.saturating_add(nanoseconds);
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

    /// 1, 2, 4, … by state, so that each sum identifies its parts.
    fn powers() -> Weight {
        State::ALL
            .into_iter()
            .map(|state| Weight::of(state, 1 << state as u8))
            .sum()
    }

    #[test]
    fn every_state_is_cpu_runnable_or_one_of_the_waits() {
        for (index, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index, "weights are indexed by state");
            assert_eq!(
                state.is_wait(),
                !matches!(state, State::Cpu | State::Runnable)
            );
            assert_eq!(state.is_wait(), State::WAITS.contains(&state));
        }
        assert_eq!(
            (powers().total_ns(), powers().wait_ns()),
            (0b1111_1111, 0b1111_1100)
        );
    }

    #[test]
    fn sets_keep_what_they_contain() {
        for bits in 1..=u32::from(StateSet::ALL.bits()) {
            let set = StateSet::from_bits(bits).unwrap();
            assert_eq!(powers().keep(set).total_ns(), u64::from(bits));
            assert_eq!(set.states().collect::<StateSet>(), set);
            assert_eq!(u32::from(set.bits()), bits);
        }
        assert_eq!(powers().keep(StateSet::default()), powers());
    }

    #[test]
    fn sets_are_their_bits_and_only_those_of_states() {
        for state in State::ALL {
            let set: StateSet = [state].into_iter().collect();
            assert_eq!(StateSet::from_bits(set.bits().into()), Some(set));
            assert_eq!(set.states().collect::<Vec<_>>(), [state]);
        }
        assert_eq!(
            StateSet::from_bits(StateSet::ALL.bits().into()),
            Some(StateSet::ALL)
        );
        assert_eq!(StateSet::ALL.states().collect::<Vec<_>>(), State::ALL);
        for wrong in [0, u32::from(StateSet::ALL.bits()) + 1, 1 << 8, u32::MAX] {
            assert_eq!(StateSet::from_bits(wrong), None, "{wrong:b}");
        }
    }

    #[test]
    fn names_round_trip() {
        for name in StateSet::NAMES {
            assert_eq!(StateSet::from_name(name).unwrap().names(), [name]);
        }
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
            assert!(StateSet::NAMES.contains(&state.name()));
        }
        assert_eq!(
            (State::from_name("CPU"), StateSet::from_name("CPU")),
            (None, None)
        );
        assert_eq!(StateSet::ALL.names(), ["cpu", "runnable", "wait"]);
    }

    #[test]
    fn sums_stop_at_the_largest_value() {
        let most = Weight::of(State::Disk, u64::MAX);
        let sum = most + Weight::of(State::Disk, 1) + Weight::of(State::Lock, 1);
        assert_eq!(sum, most + Weight::of(State::Lock, 1));
        assert_eq!((sum.wait_ns(), sum.total_ns()), (u64::MAX, u64::MAX));
        assert_eq!(format!("{sum:?}"), "{lock: 1, disk: 18446744073709551615}");
    }
}
