//! Quotas of identities.

use collector::{Quota, QuotaError, QuotaSettings};

use super::retention::split_unit;

/// A quota as it is typed: `NAME=VALUE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaArg {
    quota: Quota,
    value: u64,
}

/// A quota such as `sessions=100` or `bytes_per_second=4MiB`.
pub(super) fn quota(text: &str) -> Result<QuotaArg, String> {
    const UNITS: [(&str, u64); 7] = [
        ("", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    let (name, value) = text.split_once('=').ok_or_else(|| {
        let names = Quota::SETTABLE.map(Quota::name).join(", ");
        format!("a quota is NAME=VALUE, such as sessions=100; names: {names}")
    })?;
    let quota: Quota = name
        .parse()
        .map_err(|error: QuotaError| error.to_string())?;
    let value = split_unit(value, &UNITS)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| {
        "a value is a whole number, perhaps with a unit (kB, MB, GB, KiB, MiB, GiB), such as 4MiB"
            .to_owned()
    })?;
    let arg = QuotaArg { quota, value };
    settings(&[arg]).map_err(|error| error.to_string())?;
    Ok(arg)
}

/// The quotas together; of several with one name, the last one counts.
pub(crate) fn settings(args: &[QuotaArg]) -> Result<QuotaSettings, QuotaError> {
    let mut settings = QuotaSettings::default();
    for QuotaArg { quota, value } in args {
        settings.set(*quota, *value)?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_known_names_and_values_with_units() {
        let parsed = |text| quota(text).map(|arg| (arg.quota, arg.value));
        assert_eq!(parsed("sessions=100"), Ok((Quota::Sessions, 100)));
        assert_eq!(
            parsed("bytes_per_second=4MiB"),
            Ok((Quota::BytesPerSecond, 4 << 20))
        );
        for (text, error) in [
            ("sessions", "a quota is NAME=VALUE"),
            (
                "session=1",
                "no quota is called \"session\"; allowed: sessions, bytes_per_second",
            ),
            (
                "event_streams=1",
                "no quota is called \"event_streams\"; allowed: ",
            ),
            ("sessions=0", "sessions is 0; at least 1 is needed"),
            ("nodes=many", "a value is a whole number"),
            ("nodes=99999999999GiB", "a value is a whole number"),
            (
                "decoded_bytes=1MiB",
                "decoded_bytes is 1048576; at least 4194304 is needed",
            ),
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }
}
