//! Settings of names: whether the agent or the collector names functions, and whether the agent sends
//! symbols.

#[cfg(sampler)]
use symbolize::LeftToCollector;
#[cfg(feature = "ship")]
use system::environment;

/// Names the setting if the builder does not.
pub(crate) const SYMBOLS_VARIABLE: &str = "EMBERLINE_SYMBOLS";
/// Says whether a collector may ask for symbols, if the builder does not.
pub(crate) const SYMBOL_UPLOAD_VARIABLE: &str = "EMBERLINE_SYMBOL_UPLOAD";

/// Whether the agent or the collector names the functions of a profile.
///
/// The collector can name them from symbol files that are uploaded to it (`emberline symbols upload`),
/// also for the past, and once for all workers that run the same program. Modules without a build id
/// are always named by the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Symbols {
    /// The agent, from the files of its process. Addresses without a name there are left to the collector.
    #[default]
    Agent,
    /// The collector. The agent ships build ids and offsets, and reads no symbols.
    Collector,
    /// The collector for modules that are stripped: with neither debug information nor a full table
    /// of symbols. The agent for all others.
    Auto,
}

impl Symbols {
    #[cfg(sampler)]
    pub(crate) const fn left_to_collector(self) -> LeftToCollector {
        match self {
            Symbols::Agent => LeftToCollector::None,
            Symbols::Auto => LeftToCollector::Stripped,
            Symbols::Collector => LeftToCollector::All,
        }
    }

    #[cfg(any(feature = "ship", test))]
    const ALL: [(&str, Symbols); 3] = [
        ("agent", Symbols::Agent),
        ("collector", Symbols::Collector),
        ("auto", Symbols::Auto),
    ];

    /// The setting in the environment; the default if there is none. The error is the text that
    /// is no setting.
    #[cfg(feature = "ship")]
    pub(crate) fn from_environment() -> Result<Symbols, String> {
        match environment::variable(SYMBOLS_VARIABLE) {
            Some(value) => Symbols::parse(&value.to_string_lossy()),
            None => Ok(Symbols::default()),
        }
    }

    #[cfg(any(feature = "ship", test))]
    fn parse(text: &str) -> Result<Symbols, String> {
        let found = Symbols::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, symbols)| *symbols)
            .ok_or_else(|| text.to_owned())
    }
}

/// Whether the environment allows to send symbols: `on`, which is the default, or `off`. The error is
/// the text that is neither.
#[cfg(feature = "ship")]
pub(crate) fn symbol_upload_from_environment() -> Result<bool, String> {
    match environment::variable(SYMBOL_UPLOAD_VARIABLE) {
        Some(value) => parse_symbol_upload(&value.to_string_lossy()),
        None => Ok(true),
    }
}

#[cfg(any(feature = "ship", test))]
fn parse_symbol_upload(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_in_the_environment_is_rejected_with_those_that_are_allowed() {
        assert_eq!(Symbols::parse("collector").unwrap(), Symbols::Collector);
        let value = Symbols::parse("colector").unwrap_err();
        let error = crate::StartError::Symbols { value }.to_string();
        assert_eq!(
            error,
            "invalid EMBERLINE_SYMBOLS \"colector\"; expected agent, collector or auto"
        );
        assert_eq!(parse_symbol_upload("off"), Ok(false));
        let value = parse_symbol_upload("no").unwrap_err();
        let error = crate::StartError::SymbolUpload { value }.to_string();
        assert_eq!(
            error,
            "invalid EMBERLINE_SYMBOL_UPLOAD \"no\"; expected on or off"
        );
    }
}
