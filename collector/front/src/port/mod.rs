//! The collector's port: accepts connections, limits how many there are and how long they last, and
//! hands their requests to the routes.
//!
//! A connection is closed if its first request or the head of a later one takes too long, if it has
//! no request for a while, or if its peer does not take what is sent. One sweep checks all of them,
//! by what their [`Activity`] notes. When the process may open no further connection, those without a
//! request in flight make room: the sockets of a stranger who only connects keep nobody out.

mod activity;
mod body;
mod connections;
mod crowd;
mod limits;
mod listener;
mod tls;
mod transport;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};
use tower::Service as _;

use self::activity::{Activity, Closing};
use self::connections::{Connections, Registration, Source};
use self::crowd::Crowd;
pub use self::limits::ConnectionLimits;
pub use self::limits::{keep_files_private, raise_descriptor_limit};
use self::listener::Accepted;
pub use self::listener::Listener;
pub use self::listener::{Listen, ListenError};
pub use self::tls::Certificate;
pub use self::tls::TlsOptions;
use self::transport::{Duplex, Watched};
use super::origin::GRPC_PATH;
use base::limits::{
    HEAD_BYTES_MAX, PING_EVERY, RECEIVE_WINDOW_BYTES, SEND_BUFFER_BYTES, STREAMS_MAX,
};
use shares::identity::Peer;

/// Delay after the system refuses a connection because the process or the machine has too many
/// descriptors.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(200);

/// Users and processes for which a Unix socket is, besides the collector's own user and root.
#[derive(Clone, Debug, Default)]
pub struct SocketPeers {
    /// Users of this machine.
    pub users: Vec<u32>,
    /// Whether a process may use it although its user may not, by its id. Called once for each connection.
    pub allows_process: Option<fn(u32) -> bool>,
}

impl SocketPeers {
    /// Whether processes of other users may use the socket.
    #[must_use]
    pub fn has_others(&self) -> bool {
        !self.users.is_empty() || self.allows_process.is_some()
    }

    fn allow(&self, peer: SocketPeer, own: u32) -> bool {
        let is_listed = || self.users.contains(&peer.user);
        let is_allowed_process = || {
            let process = self.allows_process.zip(peer.process);
            process.is_some_and(|(allows, process)| allows(process))
        };
        peer.user == 0 || peer.user == own || is_listed() || is_allowed_process()
    }
}

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug)]
struct SocketPeer {
    user: u32,
    /// `None` if it is in a namespace of processes that is not visible here.
    process: Option<u32>,
}

/// A port or a Unix socket, and the routes behind it.
pub struct Front {
    pub listener: Listener,
    /// With it, the port speaks TLS only.
    pub certificate: Option<Arc<Certificate>>,
    pub socket_peers: SocketPeers,
    pub routes: Router,
    pub limits: ConnectionLimits,
}

/// A front that accepts connections.
struct Accepting {
    certificate: Option<Arc<Certificate>>,
    socket_peers: SocketPeers,
    routes: Router,
    protocols: Builder<TokioExecutor>,
    connections: Arc<Connections>,
    crowd: Crowd,
    upload_timeout: Duration,
}

impl Front {
    /// Serves until `shutdown` resolves. Then accepts nothing, lets requests in flight finish, and ends
    /// when the last connection has. If this is dropped, all connections end at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Front {
            listener,
            certificate,
            socket_peers,
            routes,
            limits,
        } = self;
        let connections = Connections::new(limits);
        let all = CloseOnDrop(connections.clone());
        let watched = certificate.clone();
        let accepting = Accepting {
            certificate,
            socket_peers,
            routes,
            protocols: protocols(),
            connections,
            crowd: Crowd::default(),
            upload_timeout: limits.upload_timeout,
        };
        tokio::select! {
            () = shutdown => {}
            () = watch(watched) => {}
            never = all.0.sweep() => match never {},
            never = accepting.accept(&listener) => match never {},
        }
        drop(listener);
        all.0.close_all(Closing::Gracefully);
        all.0.all_ended().await;
    }
}

/// Reloads the certificate when its files change, forever.
async fn watch(certificate: Option<Arc<Certificate>>) {
    match certificate {
        Some(certificate) => certificate.watch().await,
        None => pending().await,
    }
}

/// Ends all connections when it is dropped.
struct CloseOnDrop(Arc<Connections>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close_all(Closing::Now);
    }
}

/// HTTP/1 and HTTP/2 with their limits. Those on time are [`Connections::sweep`]'s, because hyper's
/// own begin only after the first bytes, and count the time between two requests as part of a head.
fn protocols() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    builder
}

impl Accepting {
    async fn accept(&self, listener: &Listener) -> Infallible {
        loop {
            match listener.accept().await {
                Ok(Accepted::Network(stream, address)) => {
                    let source = Source::of(address.ip());
                    if let Some(registration) = self.connections.admit(source).await {
                        // Agents wait for acks, which are small.
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "a connection without TCP_NODELAY");
                        }
                        let certificate = self.certificate.clone();
                        let socket = Socket::Network {
                            stream,
                            address,
                            certificate,
                        };
                        self.open(socket, registration);
                    }
                }
                Ok(Accepted::Unix(stream, peer)) => {
                    if let Some(registration) = self.connections.admit(Source::Socket).await {
                        let own = rustix::process::geteuid().as_raw();
                        let is_allowed = self.socket_peers.allow(peer, own);
                        let user = peer.user;
                        self.open(
                            Socket::Unix {
                                stream,
                                user,
                                is_allowed,
                            },
                            registration,
                        );
                    }
                }
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_AFTER).await;
                }
            }
        }
    }

    fn open(&self, socket: Socket, registration: Registration) {
        let connection = Connection {
            registration,
            protocols: self.protocols.clone(),
            routes: self.routes.clone(),
            upload_timeout: self.upload_timeout,
        };
        if connection.registration.is_of_crowd {
            let crowd = self.crowd.handle();
            // The socket's events come from the runtime in which it is registered.
            let _entered = crowd.enter();
            match socket.registered_here() {
                Ok(socket) => drop(crowd.spawn(connection.serve(socket))),
                Err(error) => tracing::debug!(%error, "a connection was not opened"),
            }
        } else {
            tokio::spawn(connection.serve(socket));
        }
    }
}

/// Whether the error is that of one connection, which was gone before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// A new connection's socket.
enum Socket {
    Network {
        stream: TcpStream,
        address: SocketAddr,
        certificate: Option<Arc<Certificate>>,
    },
    Unix {
        stream: UnixStream,
        user: u32,
        is_allowed: bool,
    },
}

impl Socket {
    /// Registers the socket with the current runtime instead of the one that accepted it.
    fn registered_here(self) -> io::Result<Socket> {
        match self {
            Socket::Network {
                stream,
                address,
                certificate,
            } => {
                let stream = TcpStream::from_std(stream.into_std()?)?;
                Ok(Socket::Network {
                    stream,
                    address,
                    certificate,
                })
            }
            socket @ Socket::Unix { .. } => Ok(socket),
        }
    }

    /// Returns the bytes for the protocols, and who is at the other end.
    ///
    /// # Errors
    /// Why the connection cannot be used.
    async fn open(self) -> io::Result<Opened> {
        match self {
            Socket::Network {
                stream,
                address,
                certificate: None,
            } => Ok(Opened {
                stream: Box::new(stream),
                peer: Peer::Network {
                    address,
                    certificate: None,
                },
                client: None,
            }),
            Socket::Network {
                stream,
                address,
                certificate: Some(certificate),
            } => {
                let (stream, chain) = certificate.accept(stream).await?;
                Ok(Opened {
                    stream: Box::new(stream),
                    peer: Peer::Network {
                        address,
                        certificate: chain.first().map(tls::names),
                    },
                    client: (!chain.is_empty()).then_some(Client { certificate, chain }),
                })
            }
            Socket::Unix {
                stream,
                user,
                is_allowed: true,
            } => Ok(Opened {
                stream: Box::new(stream),
                peer: Peer::Unix { user },
                client: None,
            }),
            Socket::Unix {
                mut stream,
                user,
                is_allowed: false,
            } => {
                stream.write_all(rejection(user).as_bytes()).await?;
                Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!("user {user}"),
                ))
            }
        }
    }
}

/// A connection that can be used.
struct Opened {
    stream: Box<dyn Duplex>,
    peer: Peer,
    /// The client, if it has a certificate.
    client: Option<Client>,
}

/// A client with a certificate.
struct Client {
    /// The collector's, with the authorities of clients.
    certificate: Arc<Certificate>,
    chain: Vec<CertificateDer<'static>>,
}

impl Client {
    /// Resolves when its certificate would be rejected; never for a client without one.
    async fn rejected(client: Option<Client>) {
        match client {
            Some(Client { certificate, chain }) => certificate.rejected(&chain).await,
            None => pending().await,
        }
    }
}

/// The answer to a user who may not use the Unix socket.
fn rejection(user: u32) -> String {
    let text = format!(
        "user {user} may not use this socket; the collector's operator can allow it with \
         `--socket-user {user}`\n"
    );
    let length = text.len();
    let head = "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\nconnection: close";
    format!("{head}\r\ncontent-length: {length}\r\n\r\n{text}")
}

/// A connection that is being served.
struct Connection {
    registration: Registration,
    protocols: Builder<TokioExecutor>,
    routes: Router,
    upload_timeout: Duration,
}

impl Connection {
    /// Serves until the connection ends or is closed.
    async fn serve(self, socket: Socket) {
        let activity = &self.registration.activity;
        let opened = tokio::select! {
            opened = socket.open() => opened,
            // Before its first request, nothing can end gracefully.
            _ = activity.closing(None) => return,
        };
        let Opened {
            stream,
            peer,
            client,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::debug!(%error, "a connection was not opened");
                return;
            }
        };
        let routes = Routes {
            routes: self.routes,
            peer,
            activity: activity.clone(),
            upload_timeout: self.upload_timeout,
        };
        let stream = TokioIo::new(Watched {
            stream,
            activity: activity.clone(),
        });
        let mut serving = pin!(self.protocols.serve_connection(stream, routes));
        let mut rejected = pin!(Client::rejected(client));
        let mut closing = None;
        loop {
            tokio::select! {
                ended = serving.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(error, "a connection ended with an error");
                    }
                    return;
                }
                // Its streams too: they last as long as what it showed when it connected.
                () = rejected.as_mut() => return,
                how = activity.closing(closing) => {
                    if how == Closing::Now {
                        return;
                    }
                    closing = Some(how);
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// The routes, for the requests of one connection.
struct Routes {
    routes: Router,
    peer: Peer,
    activity: Arc<Activity>,
    upload_timeout: Duration,
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let in_flight = self
            .activity
            .begin_request(request.version() == Version::HTTP_2);
        // Agents' streams have limits of their own.
        let is_whole = request.body().is_end_stream();
        let is_stream = request.uri().path().starts_with(GRPC_PATH);
        let mut request = request.map(|body| {
            if is_whole || is_stream {
                Body::new(body)
            } else {
                let upload = self.activity.begin_upload();
                Body::new(body::Request::new(body, self.upload_timeout, upload))
            }
        });
        request.extensions_mut().insert(self.peer.clone());
        let answering = self.routes.clone().call(request);
        Box::pin(async move {
            let response = answering.await?;
            // By HTTP/2, the peer may leave no room for even the first piece.
            in_flight.piece_taken();
            Ok(response.map(|body| Body::new(body::Response::new(body, in_flight))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_its_user_root_and_those_listed() {
        let of = |user, process| SocketPeer { user, process };
        let listed = SocketPeers {
            users: vec![1_002, 1_003],
            allows_process: None,
        };
        let allowed = |user| listed.allow(of(user, Some(7)), 1_000);
        assert_eq!([0, 1_000, 1_002, 1_003].map(allowed), [true; 4]);
        assert_eq!([1, 1_001, 1_004, u32::MAX].map(allowed), [false; 4]);
        let nobody_else = SocketPeers::default();
        assert!(
            !nobody_else.allow(of(1_000, Some(7)), 0),
            "a collector of root is not for everybody"
        );
        let by_process = SocketPeers {
            users: Vec::new(),
            allows_process: Some(|process| process == 7),
        };
        let allowed = |process| by_process.allow(of(1_000, process), 0);
        assert_eq!([Some(7), Some(8), None].map(allowed), [true, false, false]);
    }
}
