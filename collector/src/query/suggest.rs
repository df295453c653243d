//! Suggestions for unknown names.

/// Most names that are suggested.
const NEAREST_MAX: usize = 5;

/// Names below this similarity (0: nothing in common, 1: equal) are not suggested.
const SIMILARITY_MIN: f64 = 0.5;

/// Longer names are only compared as substrings: similarity costs the product of both lengths.
const COMPARED_BYTES_MAX: usize = 256;

/// Shorter names are substrings of too many others.
const PART_BYTES_MIN: usize = 3;

/// The names of `known` that are nearest to `name`, the nearest first: equal except for case, then
/// substrings, then similar ones.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let name = name.to_lowercase();
    let mut ranked: Vec<(f64, &str)> =
        known.map(|known| (closeness(&name, known), known)).collect();
    ranked.retain(|(closeness, _)| *closeness >= SIMILARITY_MIN);
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    ranked.truncate(NEAREST_MAX);
    ranked.into_iter().map(|(_, name)| name.to_owned()).collect()
}

/// From 0 to 3: above 2 if equal except for case, above 1 for a substring.
fn closeness(name: &str, known: &str) -> f64 {
    let known = known.to_lowercase();
    let shorter = name.len().min(known.len());
    let is_part = known.contains(name) || name.contains(&known);
    let is_long = shorter >= PART_BYTES_MIN;
    let rank = f64::from(u8::from(is_part && is_long)) + f64::from(u8::from(known == name));
    if name.len().max(known.len()) > COMPARED_BYTES_MAX {
        return rank;
    }
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
        check("LOAD", &["unload", "load", "loads"], &["load", "loads", "unload"]);
        check("fact", &["qr::factorize", "store"], &["qr::factorize"]);
        check("load", &["a", "b"], &[]);
        check("load", &[], &[]);
        check("", &["load"], &[]);
        let many = ["load1", "load2", "load3", "load4", "load5", "load6"];
        check("load", &many, &many[..5]);
        check(&"xyz".repeat(1_000), &["xyz", "load"], &["xyz"]);
    }
}
