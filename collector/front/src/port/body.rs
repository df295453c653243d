//! The bodies of requests and responses, as a connection watches them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::activity::{InFlight, Upload};

/// Most bytes of a response that the protocol takes at once. The memory of answers does not count them.
const PIECE_BYTES_MAX: usize = 8 << 10;

/// A response's body in pieces. The protocols buffer a whole piece and drop a body that has no more of
/// them, so with pieces a body, and what it holds, lives until the peer has taken nearly all.
pub(super) struct Response {
    body: Body,
    /// The unsent part of the body's last piece.
    rest: Bytes,
    in_flight: InFlight,
}

impl Response {
    pub(super) fn new(body: Body, in_flight: InFlight) -> Response {
        Response {
            body,
            rest: Bytes::new(),
            in_flight,
        }
    }

    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }
}

impl HttpBody for Response {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.in_flight.piece_wanted();
        let piece = self.poll_piece(context);
        if matches!(piece, Poll::Ready(Some(Ok(_)))) {
            self.in_flight.piece_taken();
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// A reader's request body, which must come within a time limit.
pub(super) struct Request {
    body: Incoming,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    _upload: Upload,
}

impl Request {
    pub(super) fn new(body: Incoming, limit: Duration, upload: Upload) -> Request {
        Request {
            body,
            limit,
            deadline: Box::pin(sleep(limit)),
            _upload: upload,
        }
    }
}

impl HttpBody for Request {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        ready!(self.deadline.as_mut().poll(context));
        let error = format!("the body did not come within {:?}", self.limit);
        Poll::Ready(Some(Err(
            io::Error::new(io::ErrorKind::TimedOut, error).into()
        )))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
