//! The query planner: which periods of which tiers cover a range of time.

use std::ops::Range;

use profiler_core::{TimeRange, Timestamp};

use crate::manifest::Manifest;
use crate::sums::table::TableName;
use crate::sums::tier::{Period, Second, Tier};

/// Adjacent periods of one tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub tier: Tier,
    pub periods: Range<Period>,
}

/// The periods to read, and the seconds that they cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In the order of time. Beyond the edges of `seconds` they have no data.
    pub pieces: Vec<Piece>,
    /// The requested seconds; more of them where retention dropped the tiers that could exclude the
    /// rest.
    pub seconds: Range<Second>,
}

impl Plan {
    /// The periods of it that overlap `spans`, which rise. Periods between two spans stay if they share a file with
    /// both, so that it is read once.
    pub fn within(&self, spans: &[Range<Second>]) -> Plan {
        let mut pieces: Vec<Piece> = Vec::new();
        for Piece { tier, periods } in &self.pieces {
            let length = tier.seconds();
            for span in spans {
                let start = periods.start.max(Period(span.start.0 / length));
                let end = periods.end.min(Period(span.end.0.div_ceil(length)));
                if start < end {
                    add_span(&mut pieces, *tier, start..end);
                }
            }
        }
        Plan {
            pieces,
            seconds: self.seconds.clone(),
        }
    }
}

/// Adds periods, which rise, to the last piece if they follow it or begin in the file in which it ends.
fn add_span(pieces: &mut Vec<Piece>, tier: Tier, periods: Range<Period>) {
    let file = |period: u32| period / tier.periods_in_file();
    match pieces.last_mut().filter(|last| last.tier == tier) {
        Some(last)
            if periods.start <= last.periods.end
                || file(last.periods.end.0 - 1) == file(periods.start.0) =>
        {
            last.periods.end = last.periods.end.max(periods.end);
        }
        _ => pieces.push(Piece { tier, periods }),
    }
}

/// The stored time. Each tier is complete from some point on, because retention drops the oldest
/// partitions of the fine tiers first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// By tier: the first second from which it is complete, a multiple of the next tier's period. A
    /// finer tier never reaches back further than a coarser one.
    complete_from: [u64; TIERS],
    /// No data is stored outside of these seconds.
    data: Range<u64>,
    /// The first second with data, as exactly as the tiers tell.
    first: u64,
    /// As in the manifest.
    windows_to: Second,
}

/// Where data begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSpan {
    first: Second,
    /// The end of the newest window.
    newest: Second,
    /// The end of the newest window that is not ahead of the clock; `None` if all are.
    newest_past: Option<Second>,
}

impl DataSpan {
    /// Data from `first` on, in windows with these ends.
    pub fn of(first: Second, ends: impl IntoIterator<Item = Second>, now: Timestamp) -> DataSpan {
        let now = Second::first_from(now);
        let mut span = DataSpan {
            first,
            newest: first,
            newest_past: None,
        };
        for end in ends {
            span.newest = span.newest.max(end);
            if first < end && end <= now {
                span.newest_past = span.newest_past.max(Some(end));
            }
        }
        span
    }

    /// The span of both.
    pub fn hull(self, other: DataSpan) -> DataSpan {
        DataSpan {
            first: self.first.min(other.first),
            newest: self.newest.max(other.newest),
            newest_past: self.newest_past.max(other.newest_past),
        }
    }

    /// Ends where the newest window ends. A sender whose clock is ahead does not move the end, unless there is no
    /// other data.
    pub fn range(self) -> Option<TimeRange> {
        let end = self.newest_past.unwrap_or(self.newest);
        TimeRange::new(self.first.start(), end.start())
    }
}

const TIERS: usize = Tier::ALL.len();

impl Coverage {
    /// `complete_from` is by tier, from the finest. The coarsest counts as complete, because no other
    /// tier could answer where it is not. `data` are the seconds outside of which nothing is stored.
    pub fn new(complete_from: [Second; TIERS], data: Range<Second>) -> Coverage {
        let mut aligned = [0; TIERS];
        for index in (0..TIERS - 1).rev() {
            // Rounded up to where the next tier can take over.
            let from = period_ceil(Tier::ALL[index + 1], complete_from[index].0.into());
            aligned[index] = from.max(aligned[index + 1]);
        }
        let data = Range {
            start: data.start.0.into(),
            end: data.end.0.into(),
        };
        Coverage {
            complete_from: aligned,
            first: data.start,
            data,
            windows_to: Second::default(),
        }
    }

    /// The coverage of a manifest's files.
    pub fn of(manifest: &Manifest) -> Coverage {
        let mut spans: [Option<Range<u64>>; TIERS] = Default::default();
        let mut starts: [Option<u64>; TIERS] = [None; TIERS];
        let lost = manifest.lost.iter().map(|lost| (&lost.file, true));
        for (file, is_lost) in manifest.files.iter().map(|file| (file, false)).chain(lost) {
            let TableName::Sums(_, tier) = file.table else {
                continue;
            };
            let length = u64::from(tier.seconds());
            let from = u64::from(file.from.0) * length;
            let to = u64::from(file.to.0) * length;
            let start = starts[tier as usize].get_or_insert(from);
            *start = from.min(*start);
            if !is_lost {
                let span = spans[tier as usize].get_or_insert(from..to);
                *span = span.start.min(from)..span.end.max(to);
            }
        }
        let start = spans
            .iter()
            .flatten()
            .map(|span| span.start)
            .min()
            .unwrap_or(0);
        // The finest tier has the most exact end; retention never drops the newest data.
        let end = spans
            .iter()
            .flatten()
            .map(|span| span.end)
            .next()
            .unwrap_or(0);
        let coverage = Coverage::new(manifest.complete_from(), second(start)..second(end));
        Coverage {
            first: first_of(start, starts, &manifest.complete_from()),
            windows_to: manifest.windows_to,
            ..coverage
        }
    }

    /// From the first second with data on; `None` if there is no data.
    pub fn data(&self, now: Timestamp) -> Option<DataSpan> {
        let ends = [second(self.data.end), self.windows_to];
        self.first_second()
            .map(|first| DataSpan::of(first, ends, now))
    }

    /// The first second with data; `None` if there is no data.
    pub fn first_second(&self) -> Option<Second> {
        (!self.data.is_empty()).then(|| second(self.first))
    }

    /// As [`Coverage::plan`], with no tier coarser than `coarsest` where that tier is complete, and
    /// with the finest complete tier elsewhere.
    pub fn plan_in(&self, seconds: Range<Second>, coarsest: Tier) -> Plan {
        let mut parts = Vec::new();
        let mut end = seconds.end;
        for tier in Tier::ALL.into_iter().filter(|tier| *tier >= coarsest) {
            let complete_from = second(self.complete_from[tier as usize]);
            let start = seconds.start.max(complete_from);
            if start < end {
                parts.push(self.plan_with(start..end, tier));
                end = start;
            }
        }
        let (Some(first), Some(last)) = (parts.last(), parts.first()) else {
            return Plan {
                pieces: Vec::new(),
                seconds,
            };
        };
        Plan {
            seconds: first.seconds.start..last.seconds.end,
            pieces: parts
                .into_iter()
                .rev()
                .flat_map(|plan| plan.pieces)
                .collect(),
        }
    }

    /// Covers `seconds` with the fewest periods that have data. A coarse period may extend past the edges of the data,
    /// because nothing is stored there.
    pub fn plan(&self, seconds: Range<Second>) -> Plan {
        self.plan_with(seconds, Tier::Day)
    }

    /// As [`Coverage::plan`], with no tier coarser than `coarsest`, which must be complete from the
    /// start on.
    ///
    /// The tier that a second is read from does not depend on where the data end before `seconds` do: otherwise an
    /// answer about a damaged file would change with a sealing.
    fn plan_with(&self, seconds: Range<Second>, coarsest: Tier) -> Plan {
        let data = &self.data;
        let start = u64::from(seconds.start.0);
        let end = u64::from(seconds.end.0);
        if start >= end || end <= data.start || data.end <= start || data.is_empty() {
            return Plan {
                pieces: Vec::new(),
                seconds,
            };
        }
        let start_is_free = start <= data.start;
        let end_is_free = data.end <= end;
        // An edge that is not free may only move to the period of the finest complete tier.
        let from = if start_is_free {
            period_start(coarsest, data.start)
        } else {
            self.finest_start(start)
        };
        let to = if end_is_free {
            period_end(coarsest, data.end - 1)
        } else {
            self.finest_end(end - 1)
        };
        Plan {
            pieces: cover(from, to, coarsest),
            seconds: Range {
                start: if start_is_free {
                    seconds.start
                } else {
                    second(from)
                },
                end: if end_is_free { seconds.end } else { second(to) },
            },
        }
    }

    /// The tiers that are complete at a second, from the finest.
    fn complete_tiers_at(&self, second: u64) -> impl Iterator<Item = Tier> + '_ {
        let tiers = Tier::ALL.into_iter().zip(self.complete_from);
        tiers
            .filter(move |(tier, from)| *from <= period_start(*tier, second))
            .map(|(tier, _)| tier)
    }

    fn finest_start(&self, second: u64) -> u64 {
        period_start(self.finest_at(second), second)
    }

    fn finest_end(&self, second: u64) -> u64 {
        period_end(self.finest_at(second), second)
    }

    fn finest_at(&self, second: u64) -> Tier {
        self.complete_tiers_at(second).next().unwrap_or(Tier::Day)
    }
}

/// The first second with data: each finer tier that is complete from there on narrows down where in a
/// coarse period, such as a day, the data begin.
fn first_of(start: u64, starts: [Option<u64>; TIERS], complete_from: &[Second; TIERS]) -> u64 {
    let mut first = start;
    for (start, complete) in starts.iter().zip(complete_from).rev() {
        match start {
            Some(start) if u64::from(complete.0) <= first => first = first.max(*start),
            _ => break,
        }
    }
    first
}

/// The fewest periods between two seconds, each of which starts a period of some tier: ever coarser
/// periods up to the first that does not fit, then ever finer ones.
///
/// If both ends are at periods of complete tiers, all periods are. Proof: a period of an incomplete,
/// finer tier would start where a period of a complete tier starts, and that one would fit, because a
/// tier is complete from a multiple of the next tier's period on.
fn cover(from: u64, to: u64, coarsest: Tier) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = from;
    let tiers = &Tier::ALL[..=coarsest as usize];
    for pair in tiers.windows(2) {
        let next_starts = period_ceil(pair[1], at);
        if next_starts > to {
            break;
        }
        add_periods(&mut pieces, pair[0], &mut at, next_starts);
    }
    for tier in tiers.iter().copied().rev() {
        if at == period_start(tier, at) {
            add_periods(&mut pieces, tier, &mut at, period_start(tier, to));
        }
    }
    pieces
}

/// Adds the periods from `at` to `until`, and moves `at` there.
fn add_periods(pieces: &mut Vec<Piece>, tier: Tier, at: &mut u64, until: u64) {
    if until <= *at {
        return;
    }
    let periods = period(tier, *at)..period(tier, until);
    *at = until;
    match pieces.last_mut() {
        Some(Piece {
            tier: last,
            periods: before,
        }) if *last == tier => {
            before.end = periods.end;
        }
        _ => pieces.push(Piece { tier, periods }),
    }
}

fn period(tier: Tier, second: u64) -> Period {
    Period(u32::try_from(second / u64::from(tier.seconds())).expect("at most a day past 2106"))
}

fn second(second: u64) -> Second {
    Second(u32::try_from(second).unwrap_or(u32::MAX))
}

/// Start of the period that contains `second`.
fn period_start(tier: Tier, second: u64) -> u64 {
    second / u64::from(tier.seconds()) * u64::from(tier.seconds())
}

/// Start of the first period that starts at `second` or later.
fn period_ceil(tier: Tier, second: u64) -> u64 {
    second.next_multiple_of(u64::from(tier.seconds()))
}

/// End of the period that contains `second`.
fn period_end(tier: Tier, second: u64) -> u64 {
    period_start(tier, second) + u64::from(tier.seconds())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FileEntry, SumTable};

    /// The seconds of the model: two days.
    const UNIVERSE: u64 = 2 * 86_400;

    fn seconds_of(piece: &Piece) -> Range<u64> {
        let length = u64::from(piece.tier.seconds());
        u64::from(piece.periods.start.0) * length..u64::from(piece.periods.end.0) * length
    }

    /// The part of some seconds outside of which a coverage has no data.
    fn with_data(coverage: &Coverage, seconds: &Range<u64>) -> Range<u64> {
        seconds.start.max(coverage.data.start)..seconds.end.min(coverage.data.end)
    }

    /// The number of a piece's periods that may have data.
    fn periods_with_data(coverage: &Coverage, piece: &Piece) -> u64 {
        let found = with_data(coverage, &seconds_of(piece));
        if found.is_empty() {
            return 0;
        }
        let length = u64::from(piece.tier.seconds());
        found.end.div_ceil(length) - found.start / length
    }

    /// The fewest periods with data that cover the requested seconds, by trying each tier at each second.
    fn fewest(coverage: &Coverage, from: &[u64], to: impl Fn(u64) -> bool) -> Option<u64> {
        let mut fewest: Vec<Option<u64>> = vec![None; UNIVERSE as usize + 1];
        for at in (0..=UNIVERSE).rev() {
            let steps = Tier::ALL
                .into_iter()
                .zip(coverage.complete_from)
                .filter_map(|(tier, held)| {
                    let length = u64::from(tier.seconds());
                    let fits = at % length == 0 && held <= at && at + length <= UNIVERSE;
                    let has_data = !with_data(coverage, &(at..at + length)).is_empty();
                    fits.then(|| {
                        fewest[(at + length) as usize].map(|rest| rest + u64::from(has_data))
                    })
                    .flatten()
                });
            fewest[at as usize] = if to(at) { Some(0) } else { steps.min() };
        }
        from.iter().filter_map(|at| fewest[*at as usize]).min()
    }

    /// The pieces of three hours by second within some spans, by their first and last seconds.
    fn check_within(spans: &[(u32, u32)], expected: &[(u32, u32)]) {
        let plan = Plan {
            pieces: vec![Piece {
                tier: Tier::Second,
                periods: Period(7_200)..Period(18_000),
            }],
            seconds: Second(7_200)..Second(18_000),
        };
        let spans: Vec<_> = spans
            .iter()
            .map(|(from, to)| Second(*from)..Second(*to))
            .collect();
        let found = plan.within(&spans);
        let pieces = found.pieces.iter();
        let found: Vec<(u32, u32)> = pieces
            .map(|piece| (piece.periods.start.0, piece.periods.end.0))
            .collect();
        assert_eq!(found, expected, "{spans:?}");
    }

    #[test]
    fn a_part_of_a_plan_has_a_piece_for_each_file() {
        check_within(&[], &[]);
        check_within(&[(0, 7_200), (18_000, 18_001)], &[]);
        check_within(&[(7_100, 7_201), (10_700, 10_701)], &[(7_200, 10_701)]);
        check_within(
            &[(7_205, 7_206), (10_800, 10_802)],
            &[(7_205, 7_206), (10_800, 10_802)],
        );
        check_within(&[(10_799, 10_800), (10_800, 10_801)], &[(10_799, 10_801)]);
        check_within(&[(0, 90_000)], &[(7_200, 18_000)]);
    }

    fn second_of() -> impl Strategy<Value = u64> {
        let length = prop::sample::select(Tier::ALL.map(|tier| u64::from(tier.seconds())).to_vec());
        (length, 0..UNIVERSE).prop_map(|(length, at)| at / length * length)
    }

    fn spans() -> impl Strategy<Value = Range<u64>> {
        (second_of(), second_of()).prop_map(|(a, b)| a.min(b)..a.max(b) + 1)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn pieces_cover_exactly_and_are_the_fewest(
            asked in spans(), data in spans(),
            complete in prop::array::uniform5(prop_oneof![3 => Just(0), 1 => second_of()]),
            coarsest in prop_oneof![1 => Just(Tier::Day), 1 => prop::sample::select(&Tier::ALL[..])],
        ) {
            let [asked_seconds, data_seconds] =
                [&asked, &data].map(|span| second(span.start)..second(span.end));
            let coverage = Coverage::new(complete.map(second), data_seconds);
            let Plan { pieces, seconds } = coverage.plan_in(asked_seconds, coarsest);
            let answered = u64::from(seconds.start.0)..u64::from(seconds.end.0);

            // The pieces cover the answered seconds exactly: no gap, no overlap, no more.
            for pair in pieces.windows(2) {
                prop_assert_eq!(seconds_of(&pair[0]).end, seconds_of(&pair[1]).start);
                prop_assert_ne!(pair[0].tier, pair[1].tier);
            }
            let within = |span: Range<u64>| with_data(&coverage, &span);
            let found = match &pieces[..] {
                [] => 0..0,
                [first, ..] => seconds_of(first).start..seconds_of(&pieces[pieces.len() - 1]).end,
            };
            let found = within(found);
            let expected = within(answered.clone());
            prop_assert!(found == expected || (found.is_empty() && expected.is_empty()));

            // Each period is complete.
            for piece in &pieces {
                let held = coverage.complete_from[piece.tier as usize];
                prop_assert!(held <= seconds_of(piece).start, "{:?}", piece);
            }

            // The answer is longer than the request only up to the edges of the finest complete period.
            let finest = |at: u64| coverage.complete_tiers_at(at).next().unwrap();
            let first = asked.start;
            let last = asked.end - 1;
            prop_assert!([first, period_start(finest(first), first)].contains(&answered.start));
            prop_assert!([last + 1, period_end(finest(last), last)].contains(&answered.end));

            // No period is coarser than necessary.
            for piece in &pieces {
                let finest = finest(seconds_of(piece).start);
                prop_assert!(piece.tier <= coarsest.max(finest), "{:?}", piece);
            }

            if found.is_empty() {
                prop_assert!(pieces.is_empty());
                return Ok(());
            }
            if coarsest < Tier::Day {
                return Ok(());
            }
            let starts: Vec<u64> = if asked.start <= data.start {
                (0..=data.start).collect()
            } else {
                vec![answered.start]
            };
            let fewest = if data.end <= asked.end {
                fewest(&coverage, &starts, |at| data.end <= at)
            } else {
                fewest(&coverage, &starts, |at| at == answered.end)
            };
            let count: u64 = pieces.iter().map(|piece| periods_with_data(&coverage, piece)).sum();
            prop_assert_eq!(Some(count), fewest);
        }

        /// A sealing adds data after the data of the tables, and the files before stay where they are.
        #[test]
        fn more_data_does_not_move_a_second_to_another_tier(
            start in second_of(), data in spans(), more in second_of(),
            complete in prop::array::uniform5(prop_oneof![3 => Just(0), 1 => second_of()]),
            coarsest in prop_oneof![1 => Just(Tier::Day), 1 => prop::sample::select(&Tier::ALL[..])],
        ) {
            let asked = start..UNIVERSE;
            let later = data.start..data.end.max(more);
            let [before, after] = [&data, &later].map(|span| {
                let stored = second(span.start)..second(span.end);
                let coverage = Coverage::new(complete.map(second), stored);
                coverage.plan_in(second(asked.start)..second(asked.end), coarsest).pieces
            });
            let tier_at = |pieces: &[Piece], at: u64| {
                let piece = pieces.iter().find(|piece| seconds_of(piece).contains(&at));
                piece.map(|piece| piece.tier)
            };
            let edges = before.iter().chain(&after).map(seconds_of);
            for at in edges.flat_map(|piece| [piece.start, piece.end - 1]) {
                let is_read = data.contains(&at) && asked.contains(&at);
                prop_assert!(!is_read || tier_at(&before, at) == tier_at(&after, at), "{}", at);
            }
        }
    }

    /// `complete` is from the finest tier; `expected` are the answered seconds and the pieces.
    fn check(complete: [u32; TIERS], data: Range<u32>, asked: Range<u32>, expected: &str) {
        let plan = Coverage::new(complete.map(Second), seconds(data)).plan(seconds(asked));
        let mut text = format!("{}..{}:", plan.seconds.start.0, plan.seconds.end.0);
        for Piece { tier, periods } in plan.pieces {
            text += &format!(" {}x{}..{}", tier.name(), periods.start.0, periods.end.0);
        }
        assert_eq!(text, expected);
    }

    fn seconds(span: Range<u32>) -> Range<Second> {
        Second(span.start)..Second(span.end)
    }

    #[test]
    fn coarse_periods_inside_and_fine_ones_at_the_edges() {
        let all = 0..u32::MAX;
        check([0; 5], all.clone(), 7..7, "7..7:");
        check([0; 5], all.clone(), 7..8, "7..8: 1sx7..8");
        check([0; 5], all.clone(), 59..62, "59..62: 1sx59..62");
        check(
            [0; 5],
            all.clone(),
            58..121,
            "58..121: 1sx58..60 1mx1..2 1sx120..121",
        );
        check(
            [0; 5],
            all,
            86_399..3 * 86_400 + 3_600 + 61,
            "86399..262861: 1sx86399..86400 1dx1..3 1hx72..73 1mx4380..4381 1sx262860..262861",
        );
        // No data is stored after 700: coarser periods are as exact.
        check(
            [0; 5],
            0..700,
            60..700,
            "60..700: 1mx1..10 10mx1..6 1hx1..24",
        );
    }

    #[test]
    fn missing_fine_tiers_widen_the_answer() {
        // Seconds are complete from 3,600 on, minutes from 600 on.
        let complete = [3_600, 600, 0, 0, 0];
        check(
            complete,
            0..90_000,
            3_601..3_603,
            "3601..3603: 1sx3601..3603",
        );
        check(complete, 0..90_000, 1_250..1_260, "1200..1260: 1mx20..21");
        check(complete, 0..90_000, 1_250..1_290, "1200..1320: 1mx20..22");
        check(complete, 0..90_000, 10..20, "0..600: 10mx0..1");
    }

    #[test]
    fn late_data_do_not_make_an_expired_time_complete() {
        let files = vec![
            file(1, Tier::Second, 3_500, 3_600),
            file(2, Tier::Second, 3_600, 3_700),
            file(3, Tier::Minute, 58, 62),
            file(4, Tier::TenMinutes, 5, 7),
            file(5, Tier::Hour, 0, 2),
            file(6, Tier::Day, 0, 1),
        ];
        let mut manifest = Manifest {
            files,
            ..Manifest::default()
        };
        assert_eq!(data_of(&manifest), Some(Second(3_500)..Second(3_700)));
        check_plan(
            &manifest,
            "3510..3605: 1sx3510..3540 1mx59..60 1sx3600..3605",
        );
        manifest.expire(&[1], Timestamp::MAX);
        check_plan(&manifest, "3480..3605: 1mx58..60 1sx3600..3605");
        // Late data do not bring back the rest of an expired time.
        manifest.files.push(file(7, Tier::Second, 3_520, 3_521));
        check_plan(&manifest, "3480..3605: 1mx58..60 1sx3600..3605");
        // Minutes are complete, seconds are not.
        assert_eq!(data_of(&manifest), Some(Second(3_480)..Second(3_700)));
        // A damaged file does not hide where the data begin.
        manifest.lose(file(3, Tier::Minute, 58, 62), "damaged".to_owned());
        assert_eq!(data_of(&manifest), Some(Second(3_480)..Second(3_700)));
        manifest.expire(&[2, 4, 7], Timestamp::MAX);
        assert_eq!(data_of(&manifest), Some(Second(0)..Second(7_200)));
        assert_eq!(data_of(&Manifest::default()), None);
    }

    fn file(id: u64, tier: Tier, from: u32, to: u32) -> FileEntry {
        FileEntry {
            table: TableName::Sums(SumTable::Cycles, tier),
            id,
            bytes: 1,
            rows: 1,
            crc32: 0,
            from: Period(from),
            to: Period(to),
            level: 0,
        }
    }

    fn check_plan(manifest: &Manifest, expected: &str) {
        let plan = Coverage::of(manifest).plan(Second(3_510)..Second(3_605));
        let pieces = plan.pieces.iter().map(|piece| {
            let Piece { tier, periods } = piece;
            format!(" {}x{}..{}", tier.name(), periods.start.0, periods.end.0)
        });
        let start = plan.seconds.start.0;
        let end = plan.seconds.end.0;
        assert_eq!(
            format!("{start}..{end}:{}", pieces.collect::<String>()),
            expected
        );
    }

    fn data_of(manifest: &Manifest) -> Option<Range<Second>> {
        let span = Coverage::of(manifest).data(Timestamp::MAX)?;
        span.range().map(Second::starting_in)
    }
}
