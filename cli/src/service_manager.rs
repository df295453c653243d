//! Notifications to systemd: readiness, reloads, signs of life, and the stop. Without `NOTIFY_SOCKET`
//! nothing happens.

use std::future::pending;

use sd_notify::NotifyState;

/// Sends a message; a manager that cannot be reached is not a reason to stop.
fn notify(message: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(message) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

/// The collector answers: its store is read.
pub(crate) fn ready(url: &str) {
    notify(&[
        NotifyState::Ready,
        NotifyState::Status(&format!("collector on {url}")),
    ]);
}

/// Files are read again; [`reloaded`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "no monotonic clock"),
    }
}

pub(crate) fn reloaded() {
    notify(&[NotifyState::Ready]);
}

pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends signs of life twice in each period of the manager's watchdog, if it has one. Each sign has passed
/// through the runtime and through the threads that answer queries: a collector in which either hangs is
/// restarted.
pub(crate) async fn keep_watchdog_quiet() {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return pending().await;
    };
    let mut ticks = tokio::time::interval(period / 2);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Fails only if the notification panics.
        let _ = tokio::task::spawn_blocking(|| notify(&[NotifyState::Watchdog])).await;
    }
}
