//! Connections of agents to collectors. TCP loses no message of a connection and keeps their order, so
//! what is lost is a packet (its message comes later) or the rest of a connection, in one direction
//! or both. Either side may learn of that late, and messages of an old connection may arrive after
//! those of a newer one.

use simulation::random::Random;

use crate::faults::{Fault, FaultCounts};
use crate::scenario::{SECOND, Scenario};

const MILLISECOND: i64 = 1_000_000;

/// First delay of a lost packet; it doubles with each loss.
const RETRANSMIT_NS: i64 = 200 * MILLISECOND;

/// Longest time for which the messages of a connection that the agent has closed may still arrive.
const LINGER_NS: i64 = 120 * SECOND;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) life: usize,
    /// The agent's number of it.
    pub(crate) socket: u64,
    /// The collector's machine.
    pub(crate) host: usize,
    /// Of the stay that it is for, once the agent has sent Hello.
    pub(crate) epoch: Option<u64>,
    /// The agent has said that it ships to another collector.
    pub(crate) has_moved: bool,
    /// The agent has asked whether the collector is there, and has no answer.
    pub(crate) is_pinged: bool,
    /// The agent uses it.
    pub(crate) is_open: bool,
    /// Nothing that is sent from now on arrives.
    pub(crate) is_broken: bool,
    /// Nothing that is under way arrives.
    pub(crate) is_cut: bool,
    pub(crate) collector_heard_at: i64,
    /// When messages of a closed connection are let through.
    pub(crate) hold_until: i64,
    closed_at: Option<i64>,
    last_up: i64,
    last_down: i64,
}

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Connection {
    pub(crate) fn new(life: usize, socket: u64, host: usize, now: i64) -> Connection {
        Connection {
            life,
            socket,
            host,
            epoch: None,
            has_moved: false,
            is_pinged: false,
            is_open: true,
            is_broken: false,
            is_cut: false,
            collector_heard_at: now,
            hold_until: 0,
            closed_at: None,
            last_up: now,
            last_down: now,
        }
    }

    /// When a message that is sent now arrives; `None` if never. `partition_ends` is in the past
    /// unless there is a partition.
    pub(crate) fn send(
        &mut self,
        direction: Direction,
        now: i64,
        partition_ends: i64,
        scenario: &Scenario,
        random: &mut Random,
        faults: &mut FaultCounts,
    ) -> Option<i64> {
        if !self.is_broken && random.chance(scenario.break_share) {
            self.is_broken = true;
            faults.count(Fault::BrokenStream);
            self.is_cut = !random.chance(scenario.duplicates);
        }
        if self.is_broken {
            return None;
        }
        let mut at = now + travel_ns(RETRANSMIT_NS, scenario, random, faults);
        if partition_ends > now {
            at = at.max(partition_ends + between(random, 0, 10 * SECOND));
        }
        let last = match direction {
            Direction::Up => &mut self.last_up,
            Direction::Down => &mut self.last_down,
        };
        *last = at.max(*last + 1);
        Some(*last)
    }

    /// The agent closes the connection. Its messages may arrive much later, or never.
    pub(crate) fn close(&mut self, now: i64, scenario: &Scenario, random: &mut Random) {
        self.is_open = false;
        self.is_broken = true;
        self.closed_at = Some(now);
        if random.chance(scenario.duplicates) {
            self.hold_until = now + between(random, 0, 20 * SECOND);
        } else {
            self.is_cut |= random.chance(0.5);
        }
    }

    /// When the last message from the agent arrives.
    pub(crate) fn last_up(&self) -> i64 {
        self.last_up.max(self.hold_until)
    }

    /// Whether a message that arrives now reaches the collector.
    pub(crate) fn delivers_up(&self, now: i64) -> bool {
        !self.is_cut
            && self
                .closed_at
                .is_none_or(|closed_at| now - closed_at <= LINGER_NS)
    }
}

/// How long a packet is on its way, which is sent again after `retransmit_ns`, and then after twice as long
/// each time.
pub(crate) fn travel_ns(
    mut retransmit_ns: i64,
    scenario: &Scenario,
    random: &mut Random,
    faults: &mut FaultCounts,
) -> i64 {
    let mut delay = MILLISECOND / 5 + between(random, 0, 40 * MILLISECOND);
    while random.chance(scenario.loss) && retransmit_ns < 16 * SECOND {
        faults.count(Fault::LostPacket);
        delay += retransmit_ns;
        retransmit_ns *= 2;
    }
    delay
}

/// A number from `low` to `high`.
pub(crate) fn between(random: &mut Random, low: i64, high: i64) -> i64 {
    let width = usize::try_from(high - low).expect("`low` is not above `high`");
    low + i64::try_from(random.between(0, width)).expect("it is at most `high`")
}
