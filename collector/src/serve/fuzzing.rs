//! The door of `cargo xtask fuzz`: a collector whose requests and files come from memory.
//!
//! Requests pass every layer that a connection's requests pass, from the checks of their origin on.
//! Compiled with `--cfg emberline_fuzzing` and for unit tests only, so it is part of no ordinary build.

mod every_route;
mod stranger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, Version, header};
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tonic::codegen::Service as _;

use super::*;
use state::sealing::SealError;
#[cfg(emberline_fuzzing)]
use store::is_decoding;
use store::wal::sim::SimDisk;
use store::{Objects, StoreGuard};

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Files by name.
pub type Files = BTreeMap<String, Bytes>;

/// A collector, and the routes of its port.
#[derive(Debug)]
pub struct Subject {
    collector: Arc<Collector>,
    routes: Router,
    /// Runtime of the requests. Its tasks end when it is dropped.
    runtime: Runtime,
    /// Streams end when it is dropped.
    _stop: watch::Sender<bool>,
}

/// Whether the thread decodes a Parquet file: then a panic is damage of that file.
#[cfg(emberline_fuzzing)]
#[must_use]
pub fn is_panic_expected() -> bool {
    is_decoding()
}

impl Subject {
    /// A collector without data, whose clock stands still.
    #[must_use]
    pub fn empty(now: profiler_core::Timestamp) -> Subject {
        Subject::of(Collector::new(settings(now)))
    }

    /// A collector with the data of a store in `tables` and `manifest`, and of the log's files, with
    /// valid checksums or not.
    ///
    /// # Errors
    /// Why the store is rejected.
    pub fn open(
        now: profiler_core::Timestamp,
        store: &Files,
        log: Files,
    ) -> Result<Subject, String> {
        let objects = Objects::memory();
        for (path, content) in store {
            let stored = objects.put_new(path, content.clone());
            stored.map_err(|error| error.to_string())?;
        }
        let log = log
            .into_iter()
            .map(|(name, content)| (name, content.to_vec()))
            .collect();
        let opened = Collector::open(
            settings(now),
            objects,
            Box::new(SimDisk::of(log)),
            StoreGuard::default(),
        );
        opened.map(Subject::of).map_err(|error| error.to_string())
    }

    fn of(collector: Collector) -> Subject {
        let collector = Arc::new(collector);
        let (stop, stopping) = watch::channel(false);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .expect("the system has threads");
        let entered = runtime.enter();
        let reader = Reader::new(collector.clone());
        let tokens = Tokens::open(TokenSource::None).expect("there is no file");
        let gate = Gate::new(Arc::new(tokens), collector.state.clock.clone());
        let routes = router(
            reader,
            PublicNames::default(),
            gate,
            TASK_LABEL_DEFAULT,
            &stopping,
        );
        drop(entered);
        Subject {
            collector,
            routes,
            runtime,
            _stop: stop,
        }
    }

    /// Opens an agent's stream with these bytes, length-prefixed messages, and reads its answers to
    /// the end of the stream.
    pub fn attach(&mut self, stream: Vec<u8>) -> Vec<u8> {
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri("http://127.0.0.1:4747/emberline.v1.Ingest/Attach")
            .header(header::CONTENT_TYPE, "application/grpc")
            .body(Body::from(stream));
        let response = self.call(request.expect("the request is valid"));
        self.body_of(response)
    }

    /// A reader's request. Returns the status and, unless it is an endless stream, the body; `None` if
    /// the address cannot be written in a request.
    pub fn get(&mut self, path_and_query: &[u8]) -> Option<(u16, Vec<u8>)> {
        let request = Request::builder()
            .uri(path_and_query)
            .header(header::HOST, "127.0.0.1:4747")
            .body(Body::empty())
            .ok()?;
        let response = self.call(request);
        let status = response.status();
        let is_endless = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "text/event-stream");
        let body = if is_endless {
            Vec::new()
        } else {
            self.body_of(response)
        };
        Some((status.as_u16(), body))
    }

    fn now(&self) -> profiler_core::Timestamp {
        self.collector.state.clock.now()
    }

    fn call(&mut self, request: Request<Body>) -> Response<Body> {
        let routes = &mut self.routes;
        let mut context = Context::from_waker(Waker::noop());
        let ready =
            <Router as tonic::codegen::Service<Request<Body>>>::poll_ready(routes, &mut context);
        assert!(
            matches!(ready, Poll::Ready(Ok(()))),
            "routes are always ready"
        );
        let response = self.runtime.block_on(routes.call(request));
        response.unwrap_or_else(|never| match never {})
    }

    fn body_of(&self, response: Response<Body>) -> Vec<u8> {
        let body = self
            .runtime
            .block_on(to_bytes(response.into_body(), ANSWER_BYTES_MAX));
        // Without a body: the end of a stream with an error.
        body.map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// Turns what is in memory into tables.
    ///
    /// # Errors
    /// Why the store cannot be written.
    pub fn seal(&self) -> Result<(), String> {
        self.collector
            .sealer
            .seal()
            .map(|_| ())
            .map_err(|error: SealError| error.to_string())
    }
}

/// Length-prefixed messages.
pub fn framed<M: AsRef<[u8]>>(messages: &[M]) -> Vec<u8> {
    let mut stream = Vec::new();
    for message in messages.iter().map(AsRef::as_ref) {
        stream.push(0);
        stream.extend(
            u32::try_from(message.len())
                .unwrap_or(u32::MAX)
                .to_be_bytes(),
        );
        stream.extend(message);
    }
    stream
}

fn settings(now: profiler_core::Timestamp) -> Settings {
    Settings {
        clock: Clock::from_fn(move || now),
        ..Settings::default()
    }
}
