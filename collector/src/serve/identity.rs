//! The sender of a request. Roles, fair shares and quotas are keyed by it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use profiler_core::TokenId;

/// The other end of a connection, as the connection itself shows it: an extension of every request.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// Connected through the network, perhaps with a certificate that was verified.
    Network { address: SocketAddr, certificate: Option<CertificateNames> },
    /// Connected to the Unix socket, from a process of this user, who may use it.
    Unix { user: u32 },
}

/// The DNS names in a client's certificate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CertificateNames(pub(crate) Arc<[String]>);

/// The sender of a request: an extension of every request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Identity {
    /// Everybody who connects from this address.
    Address(IpAddr),
    /// Everybody with a certificate for these names.
    Certificate(CertificateNames),
    /// A user of this machine.
    User(u32),
    /// The holders of this token.
    Token(TokenId),
    /// The collector itself, for the services that it asks for profiles.
    Collector,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Address(address) => address.fmt(f),
            Identity::Certificate(CertificateNames(names)) => {
                write!(f, "certificate of {}", names.join(", "))
            }
            Identity::User(user) => write!(f, "user {user}"),
            Identity::Token(id) => write!(f, "token {id}"),
            Identity::Collector => f.write_str("the collector"),
        }
    }
}

impl Identity {
    fn of(peer: &Peer) -> Identity {
        match peer {
            Peer::Network { certificate: Some(names), .. } => Identity::Certificate(names.clone()),
            Peer::Network { address, certificate: None } => {
                Identity::Address(address.ip().to_canonical())
            }
            Peer::Unix { user } => Identity::User(*user),
        }
    }
}

/// Adds the [`Identity`] to the request's extensions.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let identity = match request.extensions().get::<Peer>() {
        Some(peer) => Identity::of(peer),
        // Only tests call the routes without a connection.
        None => Identity::Address(Ipv4Addr::LOCALHOST.into()),
    };
    request.extensions_mut().insert(identity);
    next.run(request).await
}
