//! Delta encoding of flushes against the previous flush on the same stream. Without it, a steady
//! second would spend more bytes on times and sums than on a third of its pairs.

use super::cycle::sum_of_quanta;
use super::v1;

/// State of the delta encoding of one stream. The sender [encodes](FlushDeltaCodec::encode) and the
/// receiver [decodes](FlushDeltaCodec::decode) every flush, from the first one on, in stream order,
/// before it is checked. Both states depend only on the messages, so they stay equal even if a
/// flush is rejected, repeated or invalid.
///
/// Differences wrap around, so decoding is exact and never out of range.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FlushDeltaCodec {
    seq: u64,
    clock: Option<v1::Clock>,
    stop_ns: i64,
    length_ns: i64,
    quantum_ns: u64,
    account: v1::LossAccount,
}

impl FlushDeltaCodec {
    /// Removes from the next flush whatever the receiver can predict.
    pub fn encode(&mut self, flush: &mut v1::Flush) {
        let seq = flush.seq;
        if seq == self.seq.wrapping_add(1) {
            flush.seq = 0;
        }
        self.seq = seq;
        match flush.clock {
            Some(clock) if self.clock != Some(clock) => self.clock = Some(clock),
            _ => flush.clock = None,
        }
        let mut weight_ns = 0;
        if let Some(cycle) = &mut flush.cycle {
            weight_ns = weight_of(cycle);
            self.encode_cycle(cycle);
        }
        flush.sent_at_ns = flush.sent_at_ns.wrapping_sub(self.stop_ns);
        self.account.accepted_ns = self.account.accepted_ns.wrapping_add(weight_ns);
        if let Some(account) = flush.account {
            let differs = each(account, self.account, u64::wrapping_sub);
            flush.account = Some(differs).filter(|differs| *differs != v1::LossAccount::default());
            self.account = account;
        }
    }

    fn encode_cycle(&mut self, cycle: &mut v1::Cycle) {
        let start_ns = cycle.start_ns;
        let stop_ns = cycle.stop_ns;
        let length_ns = stop_ns.wrapping_sub(start_ns);
        cycle.start_ns = start_ns.wrapping_sub(self.stop_ns);
        cycle.stop_ns = length_ns.wrapping_sub(self.length_ns);
        self.stop_ns = stop_ns;
        self.length_ns = length_ns;
        if cycle.quantum_ns == self.quantum_ns {
            cycle.quantum_ns = 0;
        } else {
            self.quantum_ns = cycle.quantum_ns;
        }
        cycle.ticks = cycle.ticks_expected.wrapping_sub(cycle.ticks);
    }

    /// Restores the fields that the sender of the next flush removed.
    pub fn decode(&mut self, flush: &mut v1::Flush) {
        if flush.seq == 0 {
            flush.seq = self.seq.wrapping_add(1);
        }
        self.seq = flush.seq;
        flush.clock = flush.clock.or(self.clock);
        self.clock = flush.clock;
        let mut weight_ns = 0;
        if let Some(cycle) = &mut flush.cycle {
            self.decode_cycle(cycle);
            weight_ns = weight_of(cycle);
        }
        flush.sent_at_ns = flush.sent_at_ns.wrapping_add(self.stop_ns);
        self.account.accepted_ns = self.account.accepted_ns.wrapping_add(weight_ns);
        self.account = each(
            flush.account.unwrap_or_default(),
            self.account,
            u64::wrapping_add,
        );
        flush.account = Some(self.account);
    }

    fn decode_cycle(&mut self, cycle: &mut v1::Cycle) {
        cycle.start_ns = cycle.start_ns.wrapping_add(self.stop_ns);
        self.length_ns = cycle.stop_ns.wrapping_add(self.length_ns);
        cycle.stop_ns = cycle.start_ns.wrapping_add(self.length_ns);
        self.stop_ns = cycle.stop_ns;
        if cycle.quantum_ns == 0 {
            cycle.quantum_ns = self.quantum_ns;
        }
        self.quantum_ns = cycle.quantum_ns;
        cycle.ticks = cycle.ticks_expected.wrapping_sub(cycle.ticks);
    }
}

/// Weight of the samples, modulo 2^64. Decoding the cycle rejects larger sums.
fn weight_of(cycle: &v1::Cycle) -> u64 {
    sum_of_quanta(&cycle.samples).wrapping_mul(cycle.quantum_ns)
}

/// Applies `of` to each pair of fields.
fn each(a: v1::LossAccount, b: v1::LossAccount, of: impl Fn(u64, u64) -> u64) -> v1::LossAccount {
    v1::LossAccount {
        accepted_ns: of(a.accepted_ns, b.accepted_ns),
        lost_rejected_ns: of(a.lost_rejected_ns, b.lost_rejected_ns),
        lost_by_collector_ns: of(a.lost_by_collector_ns, b.lost_by_collector_ns),
        lost_tasks: of(a.lost_tasks, b.lost_tasks),
        lost_queue_ns: of(a.lost_queue_ns, b.lost_queue_ns),
        lost_telemetry: of(a.lost_telemetry, b.lost_telemetry),
        lost_unseen_ns: of(a.lost_unseen_ns, b.lost_unseen_ns),
        aggregated_tasks: of(a.aggregated_tasks, b.aggregated_tasks),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    /// Few distinct numbers, so that some repeat, and the ends of the range.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..3u64, Just(u64::MAX), any::<u64>()]
    }

    fn time() -> impl Strategy<Value = i64> {
        prop_oneof![
            number().prop_map(u64::cast_signed),
            Just(i64::MIN),
            Just(i64::MAX)
        ]
    }

    fn cycle() -> impl Strategy<Value = v1::Cycle> {
        let list = prop::collection::vec(any::<u8>(), 0..9);
        (
            time(),
            time(),
            1..4u64,
            list,
            prop::array::uniform3(number()),
        )
            .prop_map(
                |(
                    start_ns,
                    stop_ns,
                    quantum_ns,
                    samples,
                    [ticks, ticks_expected, ticks_throttled],
                )| {
                    v1::Cycle {
                        start_ns,
                        stop_ns,
                        quantum_ns,
                        threads: samples.clone(),
                        samples_interpreter: samples.clone(),
                        threads_interpreter: samples.clone(),
                        samples,
                        ticks,
                        ticks_expected,
                        ticks_throttled,
                    }
                },
            )
    }

    fn account() -> impl Strategy<Value = v1::LossAccount> {
        prop::array::uniform8(number()).prop_map(|[a, b, c, d, e, f, g, h]| v1::LossAccount {
            accepted_ns: a,
            lost_rejected_ns: b,
            lost_by_collector_ns: c,
            lost_tasks: d,
            lost_queue_ns: e,
            lost_telemetry: f,
            aggregated_tasks: g,
            lost_unseen_ns: h,
        })
    }

    fn flush() -> impl Strategy<Value = v1::Flush> {
        let clock = (time(), number()).prop_map(|(offset_ns, error_ns)| v1::Clock {
            offset_ns,
            error_ns,
        });
        let cycle = prop::option::of(cycle());
        (1..4u64, time(), clock, cycle, account()).prop_map(
            |(seq, sent_at_ns, clock, cycle, account)| v1::Flush {
                seq,
                sent_at_ns,
                clock: Some(clock),
                cycle,
                account: Some(account),
                ..Default::default()
            },
        )
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(flushes in prop::collection::vec(flush(), 0..9)) {
            let mut sender = FlushDeltaCodec::default();
            let mut receiver = FlushDeltaCodec::default();
            for whole in flushes {
                let mut flush = whole.clone();
                sender.encode(&mut flush);
                receiver.decode(&mut flush);
                prop_assert_eq!(flush, whole);
                prop_assert_eq!(&receiver, &sender);
            }
        }

        /// Input that no agent sends decodes to numbers that are checked like any others.
        #[test]
        fn arbitrary_flushes_decode(
            flushes in prop::collection::vec((flush(), 0..3u64, any::<[bool; 3]>()), 0..9),
        ) {
            let mut codec = FlushDeltaCodec::default();
            for (mut flush, small, [clock, account, quantum]) in flushes {
                flush.seq = if small == 0 { u64::MAX } else { small - 1 };
                flush.clock = flush.clock.filter(|_| clock);
                flush.account = flush.account.filter(|_| account);
                if let Some(cycle) = &mut flush.cycle && quantum {
                    cycle.quantum_ns = 0;
                }
                codec.decode(&mut flush);
                prop_assert_eq!(flush.account, Some(codec.account));
            }
        }
    }

    /// A second of 40 ms on one thread; consecutive seconds leave no gap.
    fn second(seq: u64) -> v1::Flush {
        let start_ns = 1_770_000_000 * SECOND_NS + seq.cast_signed() * SECOND_NS;
        v1::Flush {
            seq,
            sent_at_ns: start_ns + SECOND_NS,
            clock: Some(v1::Clock {
                offset_ns: -1_250_000,
                error_ns: 180_000,
            }),
            cycle: Some(v1::Cycle {
                start_ns,
                stop_ns: start_ns + SECOND_NS,
                quantum_ns: 1_000_000,
                samples: vec![0, 49, 9, 14, 19, 3, 9],
                threads: vec![0, 56, 39],
                ticks: 100,
                ticks_expected: 100,
                ..v1::Cycle::default()
            }),
            account: Some(v1::LossAccount {
                accepted_ns: seq * 40_000_000,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_steady_second_sends_little_but_its_pairs() {
        let mut codec = FlushDeltaCodec::default();
        let mut next = |seq| {
            let mut flush = second(seq);
            codec.encode(&mut flush);
            flush
        };
        next(1);
        let cycle = v1::Cycle {
            samples: vec![0, 49, 9, 14, 19, 3, 9],
            threads: vec![0, 56, 39],
            ticks_expected: 100,
            ..Default::default()
        };
        let steady = v1::Flush {
            cycle: Some(cycle),
            ..Default::default()
        };
        assert_eq!(next(2), steady);
        assert_eq!(next(3), steady);
        assert_eq!(steady.encoded_len(), 2 + 2 + 7 + 2 + 3 + 2);
        // Repeated or skipped sequence numbers are sent in full.
        assert_eq!((next(3).seq, next(5).seq), (3, 5));
    }

    #[test]
    fn the_account_is_sent_as_its_difference() {
        let mut codec = FlushDeltaCodec::default();
        codec.encode(&mut second(1));
        let mut flush = second(2);
        let account = flush.account.as_mut().unwrap();
        account.accepted_ns += 5;
        account.lost_queue_ns = 5;
        codec.encode(&mut flush);
        let differs = v1::LossAccount {
            accepted_ns: 5,
            lost_queue_ns: 5,
            ..Default::default()
        };
        assert_eq!(flush.account, Some(differs));
    }
}
