//! Names that a query selects.

use std::ops::Deref;

/// Selects rows by name: a row needs one of these names. An empty set selects every row.
///
/// A label selects thousands of workers, and each row is tested, so the names are sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Whether a row with this name is kept.
    pub fn keeps(&self, name: &str) -> bool {
        let Names(sorted) = self;
        sorted.is_empty()
            || sorted
                .binary_search_by(|asked| asked.as_str().cmp(name))
                .is_ok()
    }

    /// Whether a row is kept that may have no name.
    pub fn keeps_some(&self, name: Option<&str>) -> bool {
        self.is_empty() || name.is_some_and(|name| self.keeps(name))
    }
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        let Names(sorted) = self;
        sorted
    }
}

impl From<Vec<String>> for Names {
    fn from(mut names: Vec<String>) -> Names {
        names.sort_unstable();
        names.dedup();
        Names(names)
    }
}

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Names {
        Names::from(Vec::from_iter(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_if_it_is_asked_for_or_nothing_is() {
        let names: Names = ["b", "a", "c", "a"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        assert_eq!(*names, ["a", "b", "c"]);
        assert!(["a", "b", "c"].iter().all(|name| names.keeps(name)));
        assert!(!names.keeps("") && !names.keeps("ab"));
        assert!(names.keeps_some(Some("b")) && !names.keeps_some(None));
        assert!(Names::default().keeps("z") && Names::default().keeps_some(None));
    }
}
