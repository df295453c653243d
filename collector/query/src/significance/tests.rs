//! The tests against exact figures, and their rates of alarms on simulated tasks.

use super::*;

/// A small generator with a fixed seed: the rates below never change.
struct Random(u64);

impl Random {
    /// Evenly from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn share(hits: u64, total: u64) -> Share {
    Share { hits, total }
}

/// Within a millionth of its value.
fn check_near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= expected.abs() * 1e-6,
        "{found}, not {expected}"
    );
}

#[test]
fn small_tables_have_exact_p_values() {
    // 2 / C(10, 5).
    check_near(evidence_of(share(0, 5), share(5, 5)).p, 2.0 / 252.0);
    // 2 (1 + 25) / 252.
    check_near(evidence_of(share(1, 5), share(4, 5)).p, 2.0 * 26.0 / 252.0);
    check_near(evidence_of(share(1, 5), share(4, 5)).p_min, 2.0 / 252.0);
    // The tea taster, two-sided by doubling: 2 (16 + 1) / 70.
    check_near(evidence_of(share(3, 4), share(1, 4)).p, 34.0 / 70.0);
    assert_eq!(evidence_of(share(2, 4), share(2, 4)).p, 1.0);
    for (before, after) in [
        (share(0, 0), share(3, 9)),
        (share(0, 7), share(0, 9)),
        (share(7, 7), share(9, 9)),
    ] {
        assert_eq!(
            evidence_of(before, after),
            Evidence { p: 1.0, p_min: 1.0 },
            "{before:?} {after:?}"
        );
    }
}

fn evidence_of(before: Share, after: Share) -> Evidence {
    Evidence::of(&[before], &[after])
}

#[test]
fn large_tables_agree_with_the_normal_approximation() {
    // z = 3: the difference of two shares of ten million by its standard error.
    let n = 10_000_000u64;
    let step = (3.0 * (2.0 * n as f64 * 0.25).sqrt()) as u64;
    let p = Evidence::of(&[share(n / 2, n)], &[share(n / 2 + step, n)]).p;
    assert!((p / 0.002_7 - 1.0).abs() < 0.01, "{p}");
    let all = Evidence::of(&[share(0, n)], &[share(n, n)]);
    assert_eq!(all, Evidence { p: 0.0, p_min: 0.0 });
}

#[test]
fn p_values_of_fluctuation_are_those_of_student() {
    // Four slices of ten, twice: variance 4/3 · Σ(±1)² / 40² each, six degrees of freedom.
    let side = |hits: [u64; 4]| hits.map(|hits| share(hits, 10));
    let p = fluctuation_p(&side([2, 4, 2, 4]), &side([4, 6, 4, 6])).unwrap();
    // t = 0.2 / √(2 · 4/3 · 4 / 1600) = √6; P(|T₆| > √6) = 0.0498.
    assert!((p - 0.049_8).abs() < 1e-4, "{p}");
    assert_eq!(
        fluctuation_p(&side([2, 2, 2, 2]), &side([3, 3, 3, 3])),
        Some(0.0)
    );
    assert_eq!(
        fluctuation_p(&side([2, 2, 2, 2]), &side([2, 2, 2, 2])),
        Some(1.0)
    );
    let three = [share(1, 10), share(1, 10), share(1, 10), share(0, 0)];
    assert_eq!(fluctuation_p(&three, &side([9, 9, 9, 9])), None);
}

#[test]
fn levels_are_those_of_benjamini_and_hochberg() {
    let levels = |p_values: &[f64]| Levels::of(p_values.iter().map(|p| evidence(*p)));
    let found = levels(&[0.5, 0.012, 0.001, 0.03]);
    // Ranks 1 and 2 are below 0.0125 and 0.025, rank 3 is below 0.0375.
    check_near(found.significant, 0.037_5);
    assert_eq!(found.judge(evidence(0.03)), Significance::ExceedsNoise);
    assert_eq!(found.judge(evidence(0.5)), Significance::WithinNoise);
    let none = levels(&[0.06, 0.3]);
    assert_eq!((none.tests, none.significant), (2, 0.0));
    assert_eq!(none.judge(evidence(0.06)), Significance::WithinNoise);
    let empty = Levels::of(std::iter::empty());
    assert_eq!(
        empty.judge(Evidence { p: 1.0, p_min: 1.0 }),
        Significance::TooFew
    );
}

fn evidence(p: f64) -> Evidence {
    Evidence { p, p_min: 0.0 }
}

#[test]
fn what_no_outcome_could_show_is_too_few() {
    let five = Evidence::of(&[share(0, 5)], &[share(5, 5)]);
    let alone = Levels::of([five].into_iter());
    assert_eq!(alone.judge(five), Significance::ExceedsNoise);
    // Among many names that do not differ, five tasks a side cannot stand out.
    let same = Evidence {
        p: 0.7,
        p_min: 1e-9,
    };
    let among = Levels::of(std::iter::repeat_n(same, 50).chain([five]));
    assert_eq!(among.judge(five), Significance::TooFew);
    assert_eq!(among.judge(same), Significance::WithinNoise);
    let two = Evidence::of(&[share(0, 2)], &[share(2, 2)]);
    let few = Levels::of([two, two].into_iter());
    assert_eq!((few.tests, few.judge(two)), (0, Significance::TooFew));
}

/// Whether a property differs of tasks in twenty slices a side, `per_slice` in each. Its probability
/// fluctuates from slice to slice by `fluctuation` of its logit.
fn simulate(random: &mut Random, per_slice: u64, fluctuation: f64, logits: [f64; 2]) -> Evidence {
    let [before, after] = sides(random, per_slice, fluctuation, logits);
    Evidence::of(&before, &after)
}

fn sides(
    random: &mut Random,
    per_slice: u64,
    fluctuation: f64,
    logits: [f64; 2],
) -> [Vec<Share>; 2] {
    logits.map(|logit| {
        let slices = (0..20).map(|_| {
            let chance = 1.0 / (1.0 + (-logit - fluctuation * random.normal()).exp());
            let hits = (0..per_slice).filter(|_| random.unit() < chance).count() as u64;
            share(hits, per_slice)
        });
        slices.collect()
    })
}

/// The share of trials with any alarm among `names` questions.
fn alarm_rate(names: usize, trials: u32, mut ask: impl FnMut() -> Evidence) -> f64 {
    f64::from(
        (0..trials)
            .filter(|_: &u32| {
                let all: Vec<Evidence> = (0..names).map(|_| ask()).collect();
                let levels = Levels::of(all.iter().copied());
                all.iter()
                    .any(|one| levels.judge(*one) == Significance::ExceedsNoise)
            })
            .count() as u32,
    ) / f64::from(trials)
}

/// Questions of a simulation, and three standard errors of a rate of 5 % among them.
const TRIALS: u32 = 800;
const ERROR_MAX: f64 = 0.023;

#[test]
fn equal_sides_cause_false_alarms_at_the_stated_rate_at_most() {
    let mut random = Random(1);
    for (names, per_slice, logit) in [
        (1, 1, 0.0),
        (1, 20, 0.0),
        (1, 20, -2.2),
        (1, 50, -4.6),
        (10, 5, 0.0),
        (20, 10, -2.2),
    ] {
        let trials = TRIALS / names as u32;
        let error = ERROR_MAX * (names as f64).sqrt();
        let rate = alarm_rate(names, trials, || {
            simulate(&mut random, per_slice, 0.0, [logit; 2])
        });
        assert!(
            rate <= FALSE_ALARMS + error,
            "{names} names, {per_slice} a slice: {rate}"
        );
    }
}

#[test]
fn sides_that_fluctuate_alike_cause_no_more() {
    let mut random = Random(2);
    for (names, per_slice, fluctuation) in [(1, 50, 0.5), (1, 50, 1.5), (10, 20, 1.0)] {
        let trials = TRIALS / names as u32;
        let error = ERROR_MAX * (names as f64).sqrt();
        let rate = alarm_rate(names, trials, &mut || {
            simulate(&mut random, per_slice, fluctuation, [0.0; 2])
        });
        assert!(
            rate <= FALSE_ALARMS + error,
            "{names} names, {fluctuation}: {rate}"
        );
    }
}

/// Why slices matter: tasks of a slice that share its luck are not as many witnesses.
#[test]
fn without_slices_fluctuation_would_be_taken_for_a_difference() {
    let mut random = Random(4);
    let rate = alarm_rate(1, 500, &mut || {
        let [before, after] = sides(&mut random, 50, 0.5, [0.0; 2]);
        Evidence::of(&[Share::sum(&before)], &[Share::sum(&after)])
    });
    assert!(rate > 0.2, "{rate}");
}

#[test]
fn a_difference_is_found() {
    let mut random = Random(3);
    for (names, per_slice, fluctuation, difference) in [
        (1, 2, 0.0, 2.5),
        (1, 50, 0.0, 0.5),
        (1, 50, 0.5, 1.0),
        (20, 50, 0.5, 1.5),
    ] {
        let mut found = 0;
        let trials = 100;
        for _ in 0..trials {
            let mut ask = |logits| simulate(&mut random, per_slice, fluctuation, logits);
            let slower = ask([0.0, difference]);
            let others: Vec<Evidence> = (1..names).map(|_| ask([0.0; 2])).collect();
            let levels = Levels::of(others.into_iter().chain([slower]));
            found += u32::from(levels.judge(slower) == Significance::ExceedsNoise);
        }
        assert!(
            found >= 95,
            "{found} of {trials} with {per_slice} a slice, {difference}"
        );
    }
}
