//! Selects functions by their names.

#![cfg_attr(
    not(feature = "outside"),
    allow(unreachable_pub, reason = "only `crate::outside` shows it")
)]

use std::fmt;
use std::sync::Arc;

/// Selects functions by their names.
#[derive(Clone)]
pub struct SymbolPattern(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl SymbolPattern {
    /// Selects those for which `matches` is true.
    pub fn new(matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> SymbolPattern {
        SymbolPattern(Arc::new(matches))
    }

    /// Whether it selects the function of this name.
    pub(crate) fn selects(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for SymbolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SymbolPattern")
    }
}
