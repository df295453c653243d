//! The time zone of times on the terminal: the system's, or UTC with `--utc`.

use std::sync::OnceLock;

use api::time::{RangeEnd, TIME_ALLOWED, TimeParser, format_time, is_relative};
use flamegraph::text::printable;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::exit::BadInput;

static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Selects the zone, once, before anything is printed.
pub(crate) fn select(utc: bool) {
    let zone = if utc {
        TimeZone::UTC
    } else {
        TimeZone::system()
    };
    // A zone that the system does not name is UTC too, and UTC has one name.
    let is_utc =
        zone.is_unknown() || matches!(zone.iana_name(), Some("Etc/UTC" | "Etc/UCT" | "Zulu"));
    let zone = if is_utc { TimeZone::UTC } else { zone };
    let _ = ZONE.set(zone);
}

/// The selected zone.
fn zone() -> &'static TimeZone {
    ZONE.get_or_init(|| TimeZone::UTC)
}

/// The title of a column of start times, with the zone: `START (UTC)`, `START (Europe/Berlin)`.
pub(crate) fn start_title() -> &'static str {
    static TITLE: OnceLock<String> = OnceLock::new();
    TITLE.get_or_init(|| format!("START ({})", zone().iana_name().unwrap_or("local time")))
}

/// A time to the millisecond, without its zone.
pub(crate) fn without_zone(time: Timestamp) -> String {
    time.to_zoned(zone().clone())
        .strftime("%Y-%m-%d %H:%M:%S.%3f")
        .to_string()
}

/// A time to the millisecond: `2026-01-31 12:00:00.000 UTC`, `2026-01-31 13:00:00.000+01:00`. Options for
/// times accept it.
pub(crate) fn with_zone(time: Timestamp) -> String {
    let format = if *zone() == TimeZone::UTC {
        "%Y-%m-%d %H:%M:%S.%3f UTC"
    } else {
        "%Y-%m-%d %H:%M:%S.%3f%:z"
    };
    time.to_zoned(zone().clone()).strftime(format).to_string()
}

/// A time as the collector reads it. Relative times stay, because they are by the collector's clock; so
/// do invalid ones, because the collector says what is allowed.
pub(crate) fn for_collector(text: &str, end: RangeEnd) -> String {
    if is_relative(text) {
        return text.to_owned();
    }
    let now_ns = Timestamp::now().as_nanosecond();
    let now_ns = i64::try_from(now_ns).expect("the clock is before the year 2262");
    let parser = TimeParser {
        now_ns,
        zone: zone().clone(),
    };
    parser
        .parse(text, end)
        .map_or_else(|_| text.to_owned(), format_time)
}

/// A time by this machine's clock, as the collector's options for times have them.
///
/// # Errors
/// [`BadInput`] with the forms that are allowed.
pub(crate) fn parse(text: &str) -> Result<profiler_core::Timestamp, BadInput> {
    let now_ns = Timestamp::now().as_nanosecond();
    let now_ns = i64::try_from(now_ns).expect("the clock is before the year 2262");
    let parser = TimeParser {
        now_ns,
        zone: zone().clone(),
    };
    let at_ns = parser.parse(text, RangeEnd::From).map_err(|_| {
        let text = printable(text);
        BadInput(format!(
            "invalid time {text:?}; expected {}",
            TIME_ALLOWED.join(", ")
        ))
    })?;
    Ok(profiler_core::Timestamp::from_unix_ns(at_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_and_invalid_times_reach_the_collector_as_typed() {
        for text in ["now", "-5m", "10m ago", "yesterday", "9999-12-31T23:59:59Z"] {
            assert_eq!(for_collector(text, RangeEnd::From), text);
        }
        let date = |end| for_collector("2026-01-31", end);
        assert_eq!(date(RangeEnd::From), "2026-01-31T00:00:00.000000000Z");
        assert_eq!(date(RangeEnd::To), "2026-02-01T00:00:00.000000000Z");
    }
}
