//! Suggestions for unknown names.

/// Most names that are suggested.
const NEAREST_MAX: usize = 5;

/// Names below this similarity (0: nothing in common, 1: equal) are not suggested.
const SIMILARITY_MIN: f64 = 0.5;

/// Most work on similarities in all, because one costs the product of both lengths: about 20 ms. Later
/// names are only compared as substrings.
const COMPARED_CELLS_MAX: usize = 4 << 20;

/// Shorter names are substrings of too many others.
const PART_BYTES_MIN: usize = 3;

/// The names of `known` that are nearest to `name`, the nearest first: equal except for case, then
/// substrings, then similar ones.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let name = name.to_lowercase();
    let mut cells = COMPARED_CELLS_MAX;
    let mut ranked: Vec<(f64, &str)> = known
        .map(|known| (closeness(&name, known, &mut cells), known))
        .collect();
    ranked.retain(|(closeness, _)| *closeness >= SIMILARITY_MIN);
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    ranked.truncate(NEAREST_MAX);
    ranked
        .into_iter()
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// From 0 to 3: above 2 if equal except for case, above 1 for a substring. `cells` is the work that may
/// still be done.
fn closeness(name: &str, known: &str, cells: &mut usize) -> f64 {
    let known = known.to_lowercase();
    let shorter = name.len().min(known.len());
    let longer = name.len().max(known.len());
    let is_part = known.contains(name) || name.contains(&known);
    let is_long = shorter >= PART_BYTES_MIN;
    let rank = f64::from(u8::from(is_part && is_long)) + f64::from(u8::from(known == name));
    // Each character by which they differ in length is a difference.
    let may_be_similar = shorter as f64 >= longer as f64 * SIMILARITY_MIN;
    let left = cells
        .checked_sub(shorter * longer)
        .filter(|_| may_be_similar);
    let Some(left) = left else {
        return rank;
    };
    *cells = left;
    rank + strsim::normalized_damerau_levenshtein(name, &known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, known: &[&str], expected: &[&str]) {
        assert_eq!(nearest(name, known.iter().copied()), expected, "{name:?}");
    }

    #[test]
    fn the_nearest_names_come_first() {
        check("laod", &["load", "store", "render"], &["load"]);
        check(
            "LOAD",
            &["unload", "load", "loads"],
            &["load", "loads", "unload"],
        );
        check("fact", &["qr::factorize", "store"], &["qr::factorize"]);
        check("load", &["a", "b"], &[]);
        check("load", &[], &[]);
        check("", &["load"], &[]);
        let many = ["load1", "load2", "load3", "load4", "load5", "load6"];
        check("load", &many, &many[..5]);
        check(&"xyz".repeat(1_000), &["xyz", "load"], &["xyz"]);
    }

    #[test]
    fn the_work_on_similarities_is_bounded_over_all_names() {
        let name = "x".repeat(1_024);
        let similar = format!("y{}", &name[1..]);
        let compared = COMPARED_CELLS_MAX / (name.len() * name.len());
        let mut cells = COMPARED_CELLS_MAX;
        let close = |_| closeness(&name, &similar, &mut cells) >= SIMILARITY_MIN;
        assert_eq!(
            (0..compared + 10).map(close).filter(|close| *close).count(),
            compared
        );
        assert_eq!(
            closeness(&name, &name, &mut cells),
            2.0,
            "still found as a substring"
        );
    }
}
