//! Flame graphs as levels of bars: the form of Pyroscope's API, which Grafana draws.

use profiler_core::profile::ProfileNode;
use profiler_core::{FrameId, Profile, State, Weight};

use crate::prune::{depths, prune};
use crate::text::printable;

/// The states that hold the sides in a profile of both.
const BEFORE: State = State::Other;
const AFTER: State = State::Cpu;

/// A flame graph as levels of bars.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flamebearer {
    /// The labels of bars, each once. The first is that of the whole profile.
    pub names: Vec<String>,
    /// By depth, starting with one bar for the whole profile. A bar is four numbers: its distance from the
    /// end of the bar on its left, its time with callees, its own time, and the index of its name. Times
    /// are in nanoseconds. In a difference it is seven numbers: distance and times of the first profile,
    /// those of the second one, and the name.
    pub levels: Vec<Vec<i64>>,
    /// The whole time in nanoseconds, by profile: one, or two in a difference.
    pub totals_ns: Vec<i64>,
    /// The longest own time of a bar in nanoseconds.
    pub most_own_ns: i64,
}

impl Flamebearer {
    /// The whole time of all profiles, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> i64 {
        let totals = self.totals_ns.iter();
        totals.fold(0, |sum, total| sum.saturating_add(*total))
    }
}

/// Lays a profile out as levels of bars. Lines of a function are merged. Of profiles with more than
/// `nodes_max` nodes the heaviest are kept; the others of a parent become one bar `[pruned]`, which comes on
/// top of the limit.
#[must_use]
pub fn flamebearer(profile: &Profile, nodes_max: usize) -> Flamebearer {
    laid_out(&heaviest(&profile.by_function(), nodes_max), |weight| {
        [weight.total_ns()]
    })
}

/// Lays two profiles out on one tree, as [`flamebearer()`] does with one.
#[must_use]
pub fn diff_flamebearer(before: &Profile, after: &Profile, nodes_max: usize) -> Flamebearer {
    let both = in_state(before, BEFORE).merge(&in_state(after, AFTER));
    laid_out(&heaviest(&both, nodes_max), |weight| {
        [BEFORE, AFTER].map(|state| weight.get(state))
    })
}

/// The profile by function, with all its time in one state.
fn in_state(profile: &Profile, state: State) -> Profile {
    let folded = profile.by_function();
    let rows = folded.nodes().iter().map(|node| {
        let mut own = Weight::ZERO;
        own.count(state, node.own.total_ns());
        ProfileNode { own, ..*node }
    });
    folded.with_rows(&rows.collect::<Vec<_>>())
}

/// The profile with its `nodes_max` heaviest nodes.
fn heaviest(profile: &Profile, nodes_max: usize) -> Profile {
    let count = profile.nodes().len();
    let nodes_max = nodes_max.max(1);
    // Nodes without time are left out in any case.
    let mut least_ns = 1;
    if count > nodes_max {
        let mut totals: Vec<u64> = profile.totals()[1..].iter().map(Weight::total_ns).collect();
        // The first that is too many: of equal nodes all or none are kept.
        let (_, excess, _) = totals.select_nth_unstable_by(nodes_max, |a, b| b.cmp(a));
        least_ns = excess.saturating_add(1);
    }
    prune(profile, least_ns)
}

/// Places the bars. `nanoseconds` returns the time of each side.
fn laid_out<const SIDES: usize>(
    profile: &Profile,
    nanoseconds: impl Fn(&Weight) -> [u64; SIDES],
) -> Flamebearer {
    let split = |weight: &Weight| nanoseconds(weight).map(signed);
    let totals: Vec<[i64; SIDES]> = profile.totals().iter().map(split).collect();
    let depths = depths(profile);
    let depth = depths.iter().max().map_or(0, |deepest| *deepest as usize);

    let mut names = vec!["total".to_owned()];
    names.extend((0..profile.symbols().frame_count()).map(|id| {
        let frame = profile.frame(FrameId(id));
        printable(&frame.label()).into_owned()
    }));
    let mut levels = vec![Vec::new(); depth + 1];
    // Where the last bar of each level ends, and where the next child of each node starts.
    let mut ends = vec![[0; SIDES]; depth + 1];
    let mut starts = vec![[0_i64; SIDES]; totals.len()];
    let mut most_own_ns = 0;
    let mut push =
        |level: usize, start: [i64; SIDES], total: [i64; SIDES], own: [i64; SIDES], name| {
            for side in 0..SIDES {
                levels[level].extend([start[side] - ends[level][side], total[side], own[side]]);
                // Sums of times beyond 292 years are cut.
                ends[level][side] = start[side].saturating_add(total[side]);
                most_own_ns = most_own_ns.max(own[side]);
            }
            levels[level].push(name);
        };
    push(0, [0; SIDES], totals[0], [0; SIDES], 0);
    for (id, node) in (1..).zip(profile.nodes()) {
        let parent = node.parent.index();
        let start = starts[parent];
        starts[id] = start;
        for side in 0..SIDES {
            starts[parent][side] = starts[parent][side].saturating_add(totals[id][side]);
        }
        // The first name is that of the whole profile.
        let name = i64::from(node.frame.0) + 1;
        push(
            depths[id] as usize,
            start,
            totals[id],
            split(&node.own),
            name,
        );
    }
    Flamebearer {
        names,
        levels,
        totals_ns: totals[0].to_vec(),
        most_own_ns,
    }
}

fn signed(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};

    #[test]
    fn bars_are_placed_by_their_distance_from_the_left_one() {
        let small = profile("t;a cpu=3\nt;a;b cpu=4\nt;c sleep=2\nu;b cpu=1");
        let Flamebearer {
            names,
            levels,
            totals_ns,
            most_own_ns,
        } = flamebearer(&small, 100);
        let named = |level: &Vec<i64>| -> Vec<(String, Vec<i64>)> {
            let bars = level.chunks(4);
            bars.map(|bar| (names[bar[3] as usize].clone(), bar[..3].to_vec()))
                .collect()
        };
        assert_eq!(totals_ns, [10]);
        assert_eq!(most_own_ns, 4);
        assert_eq!(named(&levels[0]), level(&[("total", [0, 10, 0])]));
        assert_eq!(
            named(&levels[1]),
            level(&[("t", [0, 9, 0]), ("u", [0, 1, 0])])
        );
        let third = level(&[("a", [0, 7, 3]), ("c", [0, 2, 2]), ("b", [0, 1, 1])]);
        assert_eq!(named(&levels[2]), third);
        assert_eq!(named(&levels[3]), level(&[("b", [0, 4, 4])]));
    }

    fn level(bars: &[(&str, [i64; 3])]) -> Vec<(String, Vec<i64>)> {
        bars.iter()
            .map(|(name, bar)| ((*name).to_owned(), bar.to_vec()))
            .collect()
    }

    #[test]
    fn a_difference_has_both_sides_on_one_tree() {
        let before = profile("t;a cpu=3\nt;b cpu=1");
        let after = profile("t;a cpu=5\nt;c sleep=2");
        let Flamebearer {
            names,
            levels,
            totals_ns,
            ..
        } = diff_flamebearer(&before, &after, 100);
        assert_eq!(totals_ns, [4, 7]);
        assert_eq!(levels[1][..6], [0, 4, 0, 0, 7, 0]);
        let bars: Vec<&[i64]> = levels[2].chunks(7).collect();
        assert_eq!(bars[0][..6], [0, 3, 3, 0, 5, 5]);
        assert_eq!(bars[1][..6], [0, 1, 1, 0, 0, 0]);
        assert_eq!(bars[2][..6], [0, 0, 0, 0, 2, 2]);
        assert_eq!(
            bars.iter()
                .map(|bar| &*names[bar[6] as usize])
                .collect::<String>(),
            "abc"
        );
    }

    /// Imports may have 292 years of thread time each.
    #[test]
    fn times_of_centuries_are_cut_and_never_negative() {
        let years = i64::MAX as u64 - 1;
        let huge = profile(&format!("t;a cpu={years}\nt;b cpu={years}\nu cpu={years}"));
        for bearer in [flamebearer(&huge, 100), diff_flamebearer(&huge, &huge, 100)] {
            let sides = bearer.totals_ns.len();
            assert_eq!(bearer.totals_ns, vec![i64::MAX; sides]);
            assert_eq!(bearer.total_ns(), i64::MAX);
            for bar in bearer
                .levels
                .iter()
                .flat_map(|level| level.chunks(3 * sides + 1))
            {
                assert!(bar.iter().all(|number| *number >= 0), "{bar:?}");
            }
        }
    }

    #[test]
    fn small_siblings_become_one_bar() {
        let wide = profile("t;a cpu=5\nt;b cpu=4\nt;c cpu=1\nt;d cpu=1");
        let Flamebearer { names, levels, .. } = flamebearer(&wide, 3);
        let shown: Vec<(&str, i64)> = levels[2]
            .chunks(4)
            .map(|bar| (&*names[bar[3] as usize], bar[1]))
            .collect();
        assert_eq!(shown, [("[pruned]", 2), ("a", 5), ("b", 4)]);
    }

    proptest! {
        #[test]
        fn bars_lie_inside_their_parents_and_add_up(all in hostile_profiles(), nodes_max in 0..40_usize) {
            let total = signed(all.total().total_ns());
            let Flamebearer { names, levels, totals_ns, most_own_ns } = flamebearer(&all, nodes_max);
            prop_assert_eq!(&totals_ns, &[total]);
            let bars = levels.iter().flat_map(|level| level.chunks(4));
            let own: i64 = bars.clone().map(|bar| bar[2]).sum();
            prop_assert_eq!(own, total);
            prop_assert_eq!(bars.clone().map(|bar| bar[2]).max(), Some(most_own_ns));
            prop_assert!(bars.clone().all(|bar| bar[0] >= 0 && (bar[3] as usize) < names.len()));
            prop_assert!(bars.count() <= 2 * nodes_max.max(1) + 2);
            let mut above = vec![(0, total)];
            for level in &levels {
                let mut end = 0;
                let mut spans = Vec::new();
                for bar in level.chunks(4) {
                    let start = end + bar[0];
                    end = start + bar[1];
                    prop_assert!(above.iter().any(|(from, to)| *from <= start && end <= *to));
                    spans.push((start, end));
                }
                above = spans;
            }
        }
    }
}
