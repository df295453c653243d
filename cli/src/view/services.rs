//! Services whose profiles are pushed or scraped.

use api::Service;
use flamegraph::text::printable;

use super::grouped;
use super::workers::elapsed;

/// Most notes about services.
const SERVICES_NOTED_MAX: usize = 20;

/// A note for each of the first services, those with most series first.
pub(super) fn service_notes<'a>(
    services: &'a [Service],
    now: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let noted = services.iter().take(SERVICES_NOTED_MAX);
    noted.map(move |service| service_note(service, now))
}

/// The series of a service that other profilers push.
fn service_note(service: &Service, now: &str) -> String {
    let name = if service.name.is_empty() {
        "series without a service".to_owned()
    } else {
        printable(&service.name).into_owned()
    };
    format!(
        "{name}: {} series are pushed, {} of them lately, the newest {} ago",
        grouped(service.series),
        grouped(service.connected),
        elapsed(&service.last_seen, now)
    )
}
