//! The body of a push, read within the memory of all pushes.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use import::decompressed;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_stream::StreamExt as _;

use super::failure::{Failure, Kind};
use base::limits::{BEGUN_WINDOW, PUSH_BODY_BYTES_MAX};
use shares::{Account, Full, MemoryPool, Reservation, TooFast};

/// A whole body, whose memory is held until it is dropped.
pub(super) struct HeldBody {
    pub(super) bytes: Bytes,
    _held: Reservation,
    revoked: Arc<Notify>,
}

impl HeldBody {
    /// Awaits `turn`, unless others need the memory meanwhile.
    pub(super) async fn waiting<T>(&self, turn: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            turn = turn => Ok(turn),
            () = self.revoked.notified() => Err(gave_way(Full)),
        }
    }
}

/// Reads a body at the pace that the identity's quota allows.
pub(super) async fn read(
    body: Body,
    pool: &Arc<MemoryPool>,
    account: &Arc<Account>,
) -> Result<HeldBody, Failure> {
    let revoked = Arc::new(Notify::new());
    let on_revoke = revoked.clone();
    let held = pool.hold_none(account, move || on_revoke.notify_one());
    let mut body = body.into_data_stream();
    let mut bytes = Vec::new();
    loop {
        let next = tokio::select! {
            next = body.next() => next,
            () = revoked.notified() => return Err(gave_way(Full)),
        };
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| broken(&error))?;
        if bytes.len() + chunk.len() > PUSH_BODY_BYTES_MAX {
            let text = format!(
                "the body has more than {PUSH_BODY_BYTES_MAX} bytes; push shorter times or compress it"
            );
            return Err(Failure::new(Kind::TooLarge, text));
        }
        held.grow(chunk.len(), BEGUN_WINDOW)
            .await
            .map_err(gave_way)?;
        bytes.extend_from_slice(&chunk);
    }
    let wait = account.charge_bytes(bytes.len()).map_err(too_fast)?;
    sleep(wait).await;
    Ok(HeldBody {
        bytes: bytes.into(),
        _held: held,
        revoked,
    })
}

/// The content of a body with the encoding that its headers say.
pub(crate) fn decoded(
    headers: &HeaderMap,
    bytes: Bytes,
    bytes_max: usize,
) -> Result<Bytes, Failure> {
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .map_or(b"".as_slice(), |value| value.as_bytes().trim_ascii());
    match encoding {
        b"" | b"identity" => Ok(bytes),
        b"gzip" => {
            if !bytes.starts_with(&[0x1f, 0x8b]) {
                return Err(Failure::invalid(
                    "the body is not gzip, as its content-encoding says",
                ));
            }
            Ok(decompressed(&bytes, bytes_max)?.into_owned().into())
        }
        other => {
            let other = String::from_utf8_lossy(&other[..other.len().min(40)]).into_owned();
            let text = format!("content-encoding {other:?} is not read; allowed: gzip, identity");
            Err(Failure::new(Kind::Unsupported, text))
        }
    }
}

fn broken(error: &axum::Error) -> Failure {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::TimedOut
        {
            return Failure::new(Kind::TooSlow, error.to_string());
        }
        source = error.source();
    }
    Failure::invalid(format!("the body broke off: {error}"))
}

fn gave_way(_: Full) -> Failure {
    Failure::new(
        Kind::Exhausted,
        "too many pushes arrive at once; push again later",
    )
}

pub(super) fn too_fast(TooFast { retry_after }: TooFast) -> Failure {
    let text = format!(
        "the quota bytes_per_second of this token or address is used up for {} s",
        retry_after.as_secs()
    );
    Failure::new(Kind::Exhausted, text).after(retry_after)
}
