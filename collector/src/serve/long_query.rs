//! Long queries. Every query starts as a short one. One that has used its allowance goes on in a turn
//! of long queries; if none is free, it stops, so that short ones are not kept waiting, and starts again in its turn.
//! What it had computed until then is small, and takes no memory while it waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use base::limits::{SHORT_QUERY_CPU_MAX, SHORT_QUERY_TIME_MAX};
use base::sync::{Mutex, lock, rank};
use front::admission::ComputePermit;
use query::Allowance;
use shares::{Account, Turns};

/// Processor time and time that a query may use before it is a long one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortMax {
    pub(super) cpu: Duration,
    pub(super) time: Duration,
}

impl ShortMax {
    pub(super) const DEFAULT: ShortMax = ShortMax {
        cpu: SHORT_QUERY_CPU_MAX,
        time: SHORT_QUERY_TIME_MAX,
    };
}

/// The allowance of a query that began as a short one.
pub(super) struct ShortAllowance {
    max: ShortMax,
    long_turns: Arc<Turns>,
    account: Arc<Account>,
    permit: ComputePermit,
    state: Mutex<AllowanceState, rank::QueryAllowance>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AllowanceState {
    /// It has not begun to compute.
    Waiting,
    /// When it began: the time, and the processor time of its thread.
    Short(Instant, Duration),
    /// It has a turn of long queries.
    Long,
    /// It must stop.
    Used,
}

impl ShortAllowance {
    pub(super) fn new(
        max: ShortMax,
        long_turns: Arc<Turns>,
        account: Arc<Account>,
        permit: ComputePermit,
    ) -> ShortAllowance {
        let state = Mutex::new(AllowanceState::Waiting);
        ShortAllowance {
            max,
            long_turns,
            account,
            permit,
            state,
        }
    }

    /// The calling thread begins to compute.
    pub(super) fn begin(&self) {
        *lock(&self.state) = AllowanceState::Short(Instant::now(), thread_cpu());
    }

    /// Whether the query was stopped.
    pub(super) fn is_used(&self) -> bool {
        *lock(&self.state) == AllowanceState::Used
    }
}

impl Allowance for ShortAllowance {
    fn goes_on(&self) -> bool {
        let mut state = lock(&self.state);
        let (begin, cpu_before) = match *state {
            AllowanceState::Waiting | AllowanceState::Long => return true,
            AllowanceState::Used => return false,
            AllowanceState::Short(begin, cpu_before) => (begin, cpu_before),
        };
        let cpu = thread_cpu().saturating_sub(cpu_before);
        if cpu < self.max.cpu && begin.elapsed() < self.max.time {
            return true;
        }
        let turn = self.long_turns.try_take(&self.account);
        *state = if turn.is_some() {
            AllowanceState::Long
        } else {
            AllowanceState::Used
        };
        turn.map(|turn| self.permit.exchange(turn)).is_some()
    }
}

/// The processor time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).expect("it is below a billion");
    Duration::new(
        u64::try_from(time.tv_sec).expect("it is never negative"),
        nanoseconds,
    )
}
