//! Creating an object, at most once and whole.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode};

use super::explain;
use base::limits::{BUCKET_ATTEMPTS_TIME, BUCKET_PAUSE_MAX};
use base::log_limit::{Admitted, LineLimit};

static REPEATED: LineLimit = LineLimit::new();

/// How often a request is tried, on top of the client's own retries. The client repeats neither a creation
/// whose answer was lost nor a read or a list whose answer breaks off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    attempts_max: u32,
    /// After the first attempt; zero without pauses.
    pause: Duration,
}

impl Patience {
    pub const DEFAULT: Patience = Patience {
        attempts_max: base::limits::BUCKET_ATTEMPTS_MAX,
        pause: base::limits::BUCKET_PAUSE,
    };

    /// Few attempts without pauses, for simulations.
    #[cfg(any(test, feature = "testing"))]
    pub const NONE: Patience = Patience {
        attempts_max: 3,
        pause: Duration::ZERO,
    };

    /// Repeats a request that may be repeated, until it succeeds or its failure is final.
    pub fn repeat<T>(self, mut request: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut attempts = self.attempts();
        loop {
            let error = match request() {
                Err(error) if !is_final(&error) && !matches!(error, Error::NotFound { .. }) => {
                    error
                }
                done => return done,
            };
            match attempts.next_pause(&error) {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            }
        }
    }

    fn attempts(self) -> Attempts {
        Attempts {
            patience: self,
            begin: Instant::now(),
            failed: 0,
        }
    }
}

/// The attempts of one request.
struct Attempts {
    patience: Patience,
    begin: Instant,
    failed: u32,
}

impl Attempts {
    /// The pause before another attempt; `None` if the last one has failed. Logs the first failure, because an
    /// operator would wait for all of them without a word.
    fn next_pause(&mut self, error: &Error) -> Option<Duration> {
        let Patience {
            attempts_max,
            pause,
        } = self.patience;
        self.failed += 1;
        if self.failed >= attempts_max {
            return None;
        }
        if pause.is_zero() {
            return Some(pause);
        }
        if self.failed == 1
            && let Some(Admitted { suppressed }) = REPEATED.admit()
        {
            let reason = explain(error).reason;
            tracing::warn!(
                reason,
                suppressed,
                "a request to the bucket failed; it is repeated for {BUCKET_ATTEMPTS_TIME:?}"
            );
        }
        let doubled = pause.saturating_mul(2_u32.saturating_pow(self.failed - 1));
        let is_in_time = self.begin.elapsed() < BUCKET_ATTEMPTS_TIME;
        is_in_time.then_some(doubled.min(BUCKET_PAUSE_MAX))
    }
}

/// Creates an object that nobody has created. If this process has created it with the same content before,
/// for example because the answer was lost, that is a success.
///
/// # Errors
/// [`Error::AlreadyExists`] if the object has another content: nothing was changed. Any other error leaves
/// open whether the object exists, now or in a moment: only another try with the same content tells.
pub async fn create(
    store: &dyn ObjectStore,
    patience: Patience,
    path: &str,
    content: &Bytes,
) -> Result<(), Error> {
    let location = Path::from(path);
    let mut attempts = patience.attempts();
    loop {
        let put = store
            .put_opts(&location, content.clone().into(), PutMode::Create.into())
            .await;
        let error = match put {
            Ok(_) => return Ok(()),
            Err(conflict @ Error::AlreadyExists { .. }) => {
                match read_whole(store, &location).await {
                    Ok(found) if found == *content => return Ok(()),
                    Ok(_) => return Err(conflict),
                    // A server may report a conflict with a creation that then fails.
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if is_final(&error) {
            return Err(error);
        }
        match attempts.next_pause(&error) {
            None => return Err(error),
            // No timer, which needs a runtime.
            Some(Duration::ZERO) => {}
            Some(pause) => tokio::time::sleep(pause).await,
        }
    }
}

async fn read_whole(store: &dyn ObjectStore, location: &Path) -> Result<Bytes, Error> {
    store.get(location).await?.bytes().await
}

/// Whether another try would end in the same way.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_off() -> Error {
        Error::Generic {
            store: "S3",
            source: "the answer broke off".into(),
        }
    }

    fn check_repeat(error: fn() -> Error, expected: u32) {
        let mut tried = 0;
        let done = Patience::NONE.repeat(|| -> Result<(), Error> {
            tried += 1;
            Err(error())
        });
        assert!(done.is_err());
        assert_eq!(tried, expected, "{:?}", error());
    }

    #[test]
    fn requests_are_repeated_unless_their_failure_is_final() {
        check_repeat(broken_off, Patience::NONE.attempts_max);
        check_repeat(
            || Error::NotFound {
                path: String::new(),
                source: "404".into(),
            },
            1,
        );
        check_repeat(
            || Error::PermissionDenied {
                path: String::new(),
                source: "403".into(),
            },
            1,
        );
        let mut failures = 2;
        let done = Patience::NONE.repeat(|| {
            failures -= 1;
            if failures == 0 {
                Ok(5)
            } else {
                Err(broken_off())
            }
        });
        assert_eq!(done.unwrap(), 5);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let patience = Patience {
            attempts_max: 7,
            pause: Duration::from_millis(100),
        };
        let mut attempts = patience.attempts();
        let pauses: Vec<u128> = std::iter::from_fn(|| attempts.next_pause(&broken_off()))
            .map(|pause| pause.as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000]);
    }
}
