//! Answers that end when their reader may no longer read.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use base::limits::ANSWER_PIECE_BYTES;

type Revoked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Ends an answer when `revoked` resolves: a stream of events cleanly, so that the browser asks again,
/// any other by breaking off, so that nobody takes a part of it for the whole. An answer of one piece
/// is sent at once, and stays as it is.
pub fn until(response: Response, revoked: impl Future<Output = ()> + Send + 'static) -> Response {
    let length = response.body().size_hint().exact();
    if length.is_some_and(|length| length <= ANSWER_PIECE_BYTES as u64) {
        return response;
    }
    let event_stream = HeaderValue::from_static("text/event-stream");
    let is_events = response.headers().get(header::CONTENT_TYPE) == Some(&event_stream);
    response.map(|body| {
        Body::new(RevocableBody {
            body,
            revoked: Some(Box::pin(revoked)),
            is_events,
        })
    })
}

struct RevocableBody {
    body: Body,
    /// `None` once it has resolved.
    revoked: Option<Revoked>,
    is_events: bool,
}

/// The token was revoked or has expired, or the session has ended.
#[derive(Debug, thiserror::Error)]
#[error("the reader's token or session is no longer valid")]
struct AccessEnded;

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let is_revoked = match &mut self.revoked {
            Some(revoked) => revoked.as_mut().poll(context).is_ready(),
            None => return Poll::Ready(None),
        };
        if is_revoked {
            self.revoked = None;
            self.body = Body::empty();
            let error = (!self.is_events).then(|| Err(axum::Error::new(AccessEnded)));
            return Poll::Ready(error);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use tokio::sync::oneshot;

    use super::*;

    const LARGE_BYTES: usize = ANSWER_PIECE_BYTES + 1;

    #[tokio::test]
    async fn a_large_answer_breaks_off_and_a_small_one_is_complete() {
        let (revoke, revoked) = oneshot::channel::<()>();
        let revoked = async { drop(revoked.await) };
        let response = until(vec![b'x'; LARGE_BYTES].into_response(), revoked);
        assert_eq!(
            response.body().size_hint().exact(),
            Some(LARGE_BYTES as u64)
        );
        drop(revoke);
        let error = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the reader's token or session is no longer valid"
        );

        let response = until(
            vec![b'x'; ANSWER_PIECE_BYTES].into_response(),
            std::future::ready(()),
        );
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        assert_eq!(bytes.len(), ANSWER_PIECE_BYTES);
    }

    #[tokio::test]
    async fn an_answer_of_a_valid_reader_is_whole() {
        let response = until(
            vec![b'x'; LARGE_BYTES].into_response(),
            std::future::pending::<()>(),
        );
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        assert_eq!(bytes.len(), LARGE_BYTES);
    }
}
