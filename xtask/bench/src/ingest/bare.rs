//! The floor of what a flush costs: a gRPC service of the same protocol that decodes every message,
//! acknowledges it and stores nothing. It runs as a process in place of the collector.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::agent_message::Kind;
use profiler_core::wire::v1::{
    Ack, AgentMessage, CollectorMessage, Welcome, collector_message::Kind as Answer,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// Where the service listens. The option is named as in `emberline serve`, because both are started
/// the same way.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Address and port.
    #[arg(long)]
    listen: SocketAddr,
}

/// Serves until SIGTERM.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(options.listen).await?;
        eprintln!("collector on http://{}", listener.local_addr()?);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            served = Server::builder().add_service(Bare).serve_with_incoming(incoming) => served?,
            _ = terminated.recv() => {}
        }
        Ok(())
    })
}

#[derive(Clone)]
struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "emberline.v1.Ingest";
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let codec = ProstCodec::default();
        Box::pin(async { Ok(Grpc::new(codec).streaming(Attach, request).await) })
    }
}

struct Attach;

impl StreamingService<AgentMessage> for Attach {
    type Response = CollectorMessage;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<CollectorMessage, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<AgentMessage>>) -> Self::Future {
        let mut said = FlushDeltaCodec::default();
        let answers = request
            .into_inner()
            .filter_map(move |message| answer(message, &mut said));
        ready(Ok(Response::new(Box::pin(answers))))
    }
}

fn answer(
    message: Result<AgentMessage, Status>,
    said: &mut FlushDeltaCodec,
) -> Option<Result<CollectorMessage, Status>> {
    let answer = match message {
        Ok(message) => match message.kind? {
            Kind::Hello(_) => Answer::Welcome(Welcome::default()),
            Kind::Flush(mut flush) => {
                said.decode(&mut flush);
                Answer::Ack(Ack {
                    seq: flush.seq,
                    receipt: None,
                })
            }
            _ => return None,
        },
        Err(status) => return Some(Err(status)),
    };
    Some(Ok(CollectorMessage { kind: Some(answer) }))
}
