//! Links: numbers for the pairs of peer and type by which transfers are summed.

use std::sync::Arc;

use profiler_core::hash::KeyedMap;

use crate::lists::telemetry_lists::LinkRow;
use base::limits::LINKS_MAX;

/// Replaces peers and types past the limit.
const OVERFLOW: &str = "[overflow]";

/// All links, by number from 1.
#[derive(Debug, Default)]
pub(crate) struct Links {
    rows: Vec<Link>,
    numbers: KeyedMap<Link, u32>,
}

/// Peer and type.
pub(crate) type Link = (Arc<str>, Arc<str>);

impl Links {
    /// The number of a link; assigns the next one to a new link. New links past [`LINKS_MAX`] share one
    /// number.
    pub(crate) fn assign(&mut self, peer: &Arc<str>, type_name: &Arc<str>) -> u32 {
        let pair = (peer.clone(), type_name.clone());
        self.add(pair, || false).unwrap_or_else(|| {
            let pair: Link = (OVERFLOW.into(), OVERFLOW.into());
            let known = self.numbers.get(&pair).copied();
            known.unwrap_or_else(|| self.push(pair))
        })
    }

    /// The number of a link, assigned to a new one. Past [`LINKS_MAX`] it is assigned only if `may_reserve`;
    /// past twice as many it is not.
    pub(crate) fn add(&mut self, link: Link, may_reserve: impl FnOnce() -> bool) -> Option<u32> {
        if let Some(number) = self.numbers.get(&link) {
            return Some(*number);
        }
        let count = self.rows.len();
        let has_room = count < LINKS_MAX || (count < 2 * LINKS_MAX && may_reserve());
        has_room.then(|| self.push(link))
    }

    /// Whether a link has a number.
    pub(crate) fn contains(&self, link: &Link) -> bool {
        self.numbers.contains_key(link)
    }

    fn push(&mut self, pair: Link) -> u32 {
        self.rows.push(pair.clone());
        let number = u32::try_from(self.rows.len()).expect("links are limited");
        self.numbers.insert(pair, number);
        number
    }

    /// Rows from the `from`th pair on.
    pub(crate) fn rows_from(&self, from: usize) -> Vec<LinkRow> {
        let rows = self.rows.iter().zip(1u32..).skip(from);
        rows.map(|((peer, type_name), number): (&Link, u32)| LinkRow {
            number,
            peer: peer.clone(),
            type_name: type_name.clone(),
        })
        .collect()
    }

    /// Restores the links from tables. `[damaged]` replaces those of lost files.
    pub(crate) fn restore(&mut self, rows: Vec<LinkRow>, count: usize) {
        let damaged: Arc<str> = "[damaged]".into();
        self.rows = vec![(damaged.clone(), damaged); count];
        for LinkRow {
            number,
            peer,
            type_name,
        } in rows
        {
            if let Some(row) = number
                .checked_sub(1)
                .and_then(|at| self.rows.get_mut(at as usize))
            {
                *row = (peer, type_name);
            }
        }
        self.numbers = self.rows.iter().cloned().zip(1..).collect();
    }

    /// Peers and types in the order of their numbers, from 1.
    pub(crate) fn all(&self) -> Vec<Link> {
        self.rows.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_past_the_limit_share_a_number_and_lost_files_keep_numbers() {
        let mut links = Links::default();
        let numbers: Vec<u32> = (0..LINKS_MAX + 3)
            .map(|n| links.assign(&text(n), &text(0)))
            .collect();
        let last = u32::try_from(LINKS_MAX).unwrap();
        let expected = [last - 1, last, last + 1, last + 1, last + 1];
        assert_eq!(numbers[LINKS_MAX - 2..], expected);
        assert_eq!(links.assign(&text(0), &text(0)), 1);
        assert_eq!(&*links.all()[LINKS_MAX].0, OVERFLOW);

        let reserved = |links: &mut Links, n| links.add((text(n), text(1)), || true);
        assert_eq!(links.add((text(0), text(1)), || false), None);
        assert_eq!(reserved(&mut links, 0), Some(last + 2));
        assert_eq!(links.assign(&text(0), &text(1)), last + 2);
        let more = (1..LINKS_MAX + 3).filter(|n| reserved(&mut links, *n).is_some());
        assert_eq!(more.count(), LINKS_MAX - 2, "twice the limit in all");

        let rows = links.rows_from(2);
        let mut restored = Links::default();
        restored.restore(rows, LINKS_MAX + 1);
        assert_eq!(&*restored.all()[0].0, "[damaged]");
        assert_eq!(restored.assign(&text(2), &text(0)), 3);
        assert_eq!(restored.assign(&text(1), &text(0)), last + 1);
    }

    fn text(n: usize) -> Arc<str> {
        n.to_string().into()
    }
}
