//! The settings that the benchmark passes to a load.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The settings of one run; their meaning depends on the load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) profiler: String,
    pub(crate) hertz: u32,
    pub(crate) threads: usize,
    pub(crate) units: u64,
    /// Time between the profiler's start and the first measurement.
    pub(crate) settle: Duration,
    pub(crate) window: Duration,
}

impl Settings {
    /// Reads pairs of `--name value`.
    ///
    /// # Errors
    /// If a name is unknown or a value is not a number.
    pub(crate) fn parse(arguments: &[String]) -> Result<Settings> {
        let mut settings = Settings {
            profiler: "none".into(),
            hertz: 100,
            threads: 0,
            units: 0,
            settle: Duration::ZERO,
            window: Duration::from_secs(1),
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else {
                bail!("`{}` has no value", pair[0]);
            };
            let number = || -> Result<u64> {
                value
                    .parse()
                    .with_context(|| format!("{name} is a number, not `{value}`"))
            };
            match name.as_str() {
                "--profiler" => settings.profiler.clone_from(value),
                "--hertz" => settings.hertz = u32::try_from(number()?)?,
                "--threads" => settings.threads = usize::try_from(number()?)?,
                "--units" => settings.units = number()?,
                "--settle-ms" => settings.settle = Duration::from_millis(number()?),
                "--window-ms" => settings.window = Duration::from_millis(number()?),
                _ => bail!("there is no setting `{name}`"),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Settings::parse(&arguments)
    }

    #[test]
    fn settings_are_pairs_in_any_order() {
        let settings = parse("--hertz 1000 --window-ms 250 --profiler emberline").unwrap();
        assert_eq!(settings.hertz, 1_000);
        assert_eq!(settings.window, Duration::from_millis(250));
        assert_eq!(settings.profiler, "emberline");
        assert_eq!(parse("").unwrap().profiler, "none");
    }

    #[test]
    fn errors_name_the_wrong_setting() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(error("--units"), "`--units` has no value");
        assert_eq!(error("--units many"), "--units is a number, not `many`");
        assert_eq!(error("--unit 1"), "there is no setting `--unit`");
    }
}
