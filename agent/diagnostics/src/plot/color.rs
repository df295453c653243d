//! The color of each name.

use std::collections::BTreeSet;

use super::source::Source;

/// Colors that are distinguishable on white and on black, also by most color-blind people.
const PALETTE: [&str; 12] = [
    "#4477aa", "#ee8866", "#44bb99", "#aa4499", "#ddaa33", "#66ccee", "#cc6677", "#228833",
    "#8877cc", "#999933", "#ee77aa", "#997755",
];

/// The color of elements of several names.
pub(super) const MIXED: &str = "#8a8f98";

/// The colors of all names of a picture. Equal sets of names have equal colors.
#[derive(Debug)]
pub(super) struct Colors {
    names: Vec<String>,
}

impl Colors {
    pub(super) fn of(sources: &[Source]) -> Colors {
        let mut names = BTreeSet::new();
        for source in sources {
            match source {
                Source::Tasks { results, .. } => {
                    names.extend(results.iter().map(|task| task.name.clone()));
                }
                Source::Caches { results, .. } => {
                    names.extend(
                        results
                            .iter()
                            .map(|value| super::caches::owner(value).clone()),
                    );
                }
                Source::Resources { .. } => {}
            }
        }
        Colors {
            names: names.into_iter().map(|name| name.to_string()).collect(),
        }
    }

    /// The index of a name in the picture.
    pub(super) fn index(&self, name: &str) -> usize {
        self.names
            .binary_search_by(|each| (**each).cmp(name))
            .unwrap_or(self.names.len())
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns a color of the palette, or past it one of evenly spread hues in four shades.
    pub(super) fn color(&self, index: usize) -> String {
        let Some(further) = index.checked_sub(PALETTE.len()) else {
            return PALETTE[index].into();
        };
        if index >= self.names.len() {
            return MIXED.into();
        }
        // Steps of the golden angle keep consecutive hues far apart.
        let hue = (further as f64 * 137.507_764).rem_euclid(360.0);
        let (saturation, lightness) = [(60, 52), (45, 64), (70, 42), (35, 55)][further / 8 % 4];
        format!("hsl({hue:.2},{saturation}%,{lightness}%)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_names_have_ten_thousand_colours() {
        let names: Vec<String> = (0..10_000).map(|index| format!("{index:05}")).collect();
        let colors = Colors { names };
        let distinct: BTreeSet<String> = (0..10_000).map(|index| colors.color(index)).collect();
        assert_eq!(distinct.len(), 10_000);
        assert_eq!(colors.color(colors.index("unknown")), MIXED);
    }
}
