//! Fair shares of readers: how many requests of a peer run, and how much memory its answers take.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Extensions, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::error::ErrorAnswer;
use super::gate::Caller;
use super::gzip;
use base::limits::{
    ANSWER_BYTES_MAX, ANSWER_PIECE_BYTES, ANSWER_RETRY_EVERY, ANSWER_UNCOUNTED_BYTES,
    QUERY_WAIT_MAX,
};
use base::sync::{Mutex, lock, rank};
use shares::identity::Identity;
use shares::{Account, Accounts, MemoryPool, NoSlot, Quota, Reservation, Slot, SlotPool, Turn};

/// A pool of slots for some routes.
#[derive(Clone)]
pub struct Admission {
    accounts: Arc<Accounts>,
    slots: Arc<SlotPool>,
    answers: Arc<MemoryPool>,
}

/// Computing goes on only when the answer before has room, so that finished answers cannot pile up.
#[derive(Clone)]
pub struct ComputePermit {
    turn: Arc<Mutex<Turn, rank::QueryTurn>>,
    _long_list_turn: Option<Arc<Turn>>,
}

impl ComputePermit {
    pub fn new(turn: Turn, long_list_turn: Option<Turn>) -> ComputePermit {
        let turn = Arc::new(Mutex::new(turn));
        ComputePermit {
            turn,
            _long_list_turn: long_list_turn.map(Arc::new),
        }
    }

    /// Returns the turn, and holds another one instead.
    pub fn exchange(&self, turn: Turn) {
        *lock(&self.turn) = turn;
    }
}

impl Admission {
    pub fn new(accounts: Arc<Accounts>, quota: Quota, slots_max: usize) -> Admission {
        let answers = MemoryPool::new(Quota::AnswerBytes, ANSWER_BYTES_MAX);
        Admission {
            accounts,
            slots: SlotPool::new(quota, slots_max),
            answers,
        }
    }

    /// The same memory of answers, for other slots.
    pub fn with_slots(&self, quota: Quota, slots_max: usize) -> Admission {
        Admission {
            slots: SlotPool::new(quota, slots_max),
            ..self.clone()
        }
    }

    fn account(&self, extensions: &Extensions) -> Arc<Account> {
        // Only tests call the routes without the middleware that adds it.
        let identity = extensions
            .get()
            .cloned()
            .unwrap_or_else(|| Identity::Address(Ipv4Addr::LOCALHOST.into()));
        let quotas = extensions.get::<Caller>().and_then(Caller::quotas);
        self.accounts.of(&identity, quotas)
    }
}

/// Answers a request if its peer has a share of the slots left. The slot is returned when the answer
/// is computed; its memory when it is written.
pub async fn admit(
    State(admission): State<Admission>,
    mut request: Request,
    next: Next,
) -> Response {
    let account = admission.account(request.extensions());
    let accepts_gzip = gzip::accepts_gzip(request.headers());
    request.extensions_mut().insert(account.clone());
    // A query that ends changes nothing.
    let response = if request.method() == Method::GET {
        match admission.slots.take_revocable(&account) {
            Ok(mut slot) => tokio::select! {
                response = next.run(request) => Ok(response),
                () = slot.revoked() => Err(NoSlot::AllUsed),
            },
            Err(reason) => Err(reason),
        }
    } else {
        match admission.slots.take(&account) {
            Ok(_slot) => Ok(next.run(request).await),
            Err(reason) => Err(reason),
        }
    };
    let response = match response {
        Ok(response) => response,
        Err(reason) => return ErrorAnswer::without_slot(reason).into_response(),
    };
    let response = match compress(response, accepts_gzip).await {
        Ok(response) => response,
        Err(error) => return error.into_response(),
    };
    hold_answer(&admission.answers, &account, response).await
}

/// Compresses a finished answer on a thread that may block, before its memory is counted: less of it is
/// held, and threads that serve agents do not wait.
async fn compress(mut response: Response, accepts_gzip: bool) -> Result<Response, ErrorAnswer> {
    if !gzip::is_compressible(&response) {
        return Ok(response);
    }
    gzip::add_vary(response.headers_mut());
    let length = response.body().size_hint().exact().unwrap_or(0);
    if !accepts_gzip || length < gzip::COMPRESSED_BYTES_MIN as u64 {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let plain = axum::body::to_bytes(body, usize::MAX)
        .await
        .map_err(|error| ErrorAnswer::internal(&error))?;
    let compressed = spawn_blocking(move || gzip::gzip_answer(&plain))
        .await
        .map_err(|error| ErrorAnswer::internal(&error))?;
    gzip::add_encoding(&mut parts.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(compressed)))
}

/// Like [`admit`], for streams of events: the slot is returned when the reader is gone.
pub async fn admit_stream(
    State(admission): State<Admission>,
    request: Request,
    next: Next,
) -> Response {
    let account = admission.account(request.extensions());
    let slot = match admission.slots.take(&account) {
        Ok(slot) => slot,
        Err(reason) => return ErrorAnswer::without_slot(reason).into_response(),
    };
    next.run(request)
        .await
        .map(|body| Body::new(SlottedBody { body, _slot: slot }))
}

/// Counts the memory of a finished answer until it is written.
async fn hold_answer(
    pool: &Arc<MemoryPool>,
    account: &Arc<Account>,
    mut response: Response,
) -> Response {
    let permit = response.extensions_mut().remove::<ComputePermit>();
    let length = response.body().size_hint().exact().unwrap_or(0);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length <= ANSWER_UNCOUNTED_BYTES {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(text) => Arc::new(Mutex::new(Some(text))),
        Err(error) => return ErrorAnswer::internal(&error).into_response(),
    };
    let begin = Instant::now();
    let held = loop {
        let revoked = text.clone();
        match pool.hold(account, length, move || drop(lock(&revoked).take())) {
            Ok(held) => break held,
            Err(_) if begin.elapsed() < QUERY_WAIT_MAX => sleep(ANSWER_RETRY_EVERY).await,
            Err(_) => {
                account.note_refusal(Quota::AnswerBytes);
                return ErrorAnswer::unread().into_response();
            }
        }
    };
    drop(permit);
    let body = PooledBody {
        text,
        sent: 0,
        length,
        noted: 0,
        held,
    };
    Response::from_parts(parts, Body::new(body))
}

/// A stream of events, and the slot that it takes.
struct SlottedBody {
    body: Body,
    _slot: Slot,
}

impl HttpBody for SlottedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}

/// An answer that is written piece by piece. Pieces are copies, so that the answer can be freed while a
/// piece waits for its reader.
struct PooledBody {
    /// `None` if the memory was taken back.
    text: Arc<Mutex<Option<Bytes>, rank::AnswerText>>,
    sent: usize,
    length: usize,
    /// Bytes that were sent when progress was noted last.
    noted: usize,
    held: Reservation,
}

/// An answer whose reader read too slowly while others needed the memory.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time, and others needed its memory")]
struct TakenBack;

impl HttpBody for PooledBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.sent == self.length {
            return Poll::Ready(None);
        }
        let stop = self.length.min(self.sent + ANSWER_PIECE_BYTES);
        let piece = {
            let text = lock(&self.text);
            text.as_ref()
                .map(|text| Bytes::copy_from_slice(&text[self.sent..stop]))
        };
        let Some(piece) = piece else {
            return Poll::Ready(Some(Err(axum::Error::new(TakenBack))));
        };
        self.sent = stop;
        // A reader of a byte a second makes no progress.
        if self.sent - self.noted >= self.length / 32 {
            self.noted = self.sent;
            self.held.note_progress();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.length - self.sent) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tower::Service as _;

    use super::*;

    /// More than the system buffers for a connection.
    const LARGE_BYTES: usize = 16 << 20;

    async fn serve(routes: Router) -> (SocketAddr, JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move { axum::serve(listener, routes).await });
        (address, served)
    }

    async fn ask(address: &SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn read_all(mut stream: TcpStream) -> usize {
        let mut answer = Vec::new();
        // An answer that was taken back breaks off.
        let _ = stream.read_to_end(&mut answer).await;
        let head = answer
            .windows(4)
            .position(|end| end == b"\r\n\r\n")
            .map_or(0, |at| at + 4);
        answer.len() - head
    }

    #[tokio::test]
    async fn unread_answers_give_way_to_those_that_are_read() {
        let mut admission = Admission::new(Arc::default(), Quota::Queries, 64);
        admission.answers = MemoryPool::new(Quota::AnswerBytes, 2 * LARGE_BYTES);
        let answers = admission.answers.clone();
        let routes = Router::new()
            .route("/large", get(async || vec![b'x'; LARGE_BYTES]))
            .route("/small", get(async || "x"))
            .layer(from_fn_with_state(admission, admit));
        let (address, served) = serve(routes).await;
        let mut unread = Vec::new();
        for count in 1..=4 {
            let mut stream = ask(&address, "/large").await;
            // Its first byte: the answer has room.
            stream.read_u8().await.unwrap();
            assert_eq!(answers.bytes(), LARGE_BYTES * count.min(2));
            unread.push(stream);
        }
        assert_eq!(read_all(ask(&address, "/small").await).await, 1);
        assert_eq!(read_all(ask(&address, "/large").await).await, LARGE_BYTES);
        let mut read = Vec::new();
        for stream in unread {
            read.push(read_all(stream).await);
        }
        assert!(
            read[..3].iter().all(|bytes| *bytes < LARGE_BYTES),
            "{read:?}"
        );
        assert_eq!(read[3], LARGE_BYTES, "{read:?}");
        assert_eq!(answers.bytes(), 0);
        served.abort();
    }

    /// One connection of HTTP/2 has many answers at once, each of them small.
    #[tokio::test]
    async fn many_unread_answers_of_one_connection_are_counted() {
        const BYTES: usize = 32 << 10;
        const COUNT: usize = 64;
        let mut admission = Admission::new(Arc::default(), Quota::Queries, 2 * COUNT);
        admission.answers = MemoryPool::new(Quota::AnswerBytes, COUNT / 2 * BYTES);
        let answers = admission.answers.clone();
        let routes = Router::new()
            .route("/", get(async || vec![b'x'; BYTES]))
            .layer(from_fn_with_state(admission, admit));
        let (address, served) = serve(routes).await;
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = h2::client::Builder::new();
        let (client, connection) = client
            .initial_window_size(0)
            .handshake::<_, Bytes>(stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let mut unread = Vec::new();
        for number in 1..=COUNT {
            let request = Request::get(format!("http://{address}/")).body(()).unwrap();
            let (response, _) = client.send_request(request, true).unwrap();
            unread.push(response.await.unwrap());
            assert_eq!(answers.bytes(), number.min(COUNT / 2) * BYTES);
        }
        assert_eq!(read_all(ask(&address, "/").await).await, BYTES);
        drop((unread, client));
        served.abort();
    }

    /// The status of a request of an identity.
    async fn status(mut routes: Router, number: u8, path: &str) -> u16 {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        let identity = Identity::Address([10, 0, 0, number].into());
        request.extensions_mut().insert(identity);
        routes.call(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_query_of_those_with_the_most_ends_for_a_newcomer() {
        let admission = Admission::new(Arc::default(), Quota::Queries, 8);
        let slots = admission.slots.clone();
        let routes = Router::new()
            .route("/endless", get(async || std::future::pending::<()>().await))
            .route("/small", get(async || "x"))
            .layer(from_fn_with_state(admission, admit));
        let mut waiting = tokio::task::JoinSet::new();
        for (count, number) in [1, 1, 2, 2, 2, 3, 3, 4, 4].into_iter().enumerate() {
            waiting.spawn(status(routes.clone(), number, "/endless"));
            while slots.taken() <= count {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(status(routes.clone(), 5, "/small").await, 200);
        let ended = waiting.join_next().await.unwrap().unwrap();
        assert_eq!(
            (ended, slots.taken()),
            (503, 8),
            "one, and the small one is done"
        );
        assert_eq!(status(routes, 6, "/small").await, 200, "there is room");
        assert_eq!(waiting.len(), 8);
    }

    #[tokio::test]
    async fn a_stream_keeps_its_slot_until_its_reader_is_gone() {
        let admission = Admission::new(Arc::default(), Quota::EventStreams, 1);
        let slots = admission.slots.clone();
        let routes = Router::new()
            .route(
                "/endless",
                get(async move || {
                    Body::from_stream(tokio_stream::pending::<Result<Bytes, axum::Error>>())
                }),
            )
            .layer(from_fn_with_state(admission, admit_stream));
        let (address, served) = serve(routes).await;
        let mut first = ask(&address, "/endless").await;
        first.read_u8().await.unwrap();
        let mut refused = String::new();
        ask(&address, "/endless")
            .await
            .read_to_string(&mut refused)
            .await
            .unwrap();
        assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
        assert!(refused.contains("\r\nretry-after: 5\r\n"), "{refused}");
        drop(first);
        let begin = Instant::now();
        while slots.taken() > 0 {
            assert!(begin.elapsed() < std::time::Duration::from_secs(20));
            tokio::task::yield_now().await;
        }
        served.abort();
    }
}
