//! Identity proved by a connection itself: the user of a Unix socket, or the names in a certificate.

use axum::body::Body;
use axum::extract::Request;
use tower::Service as _;

use super::*;
use front::auth::{NewToken, Role, TokenFile, TokenSource, Tokens};
use front::gate::Gate;
use shares::identity::{CertificateNames, Peer};

/// The status of a request without a token, to a collector that has one.
async fn status(peer: Peer, method: &str, path: &str) -> u16 {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::new(folder.path().join("tokens.json"));
    file.create(NewToken::new(Role::Reader), jiff::Timestamp::UNIX_EPOCH)
        .unwrap();
    let tokens = Arc::new(Tokens::open(TokenSource::File(file)).unwrap());
    let gate = Gate::new(tokens, Clock::default());
    let collector = Arc::new(Collector::new(state::Settings::default()));
    let (_stop, stopping) = watch::channel(false);
    let mut routes = router(
        Reader::new(collector),
        PublicNames::default(),
        gate,
        "task",
        &stopping,
    );
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .extension(peer)
        .body(Body::from("{}"))
        .unwrap();
    routes.call(request).await.unwrap().status().as_u16()
}

fn network(names: Option<&str>) -> Peer {
    let certificate = names.map(|name| CertificateNames(Arc::new([name.to_owned()])));
    Peer::Network {
        address: "127.0.0.1:1".parse().unwrap(),
        certificate,
    }
}

#[tokio::test]
async fn a_user_of_the_socket_is_an_operator_and_a_certificate_an_agent() {
    let read = async |peer| status(peer, "GET", "/api/v1/workers").await;
    assert_eq!(read(network(None)).await, 401);
    assert_eq!(read(Peer::Unix { user: 1_000 }).await, 200);
    assert_eq!(read(network(Some("worker-1"))).await, 403);
    let run = async |peer| status(peer, "POST", "/api/v1/runs").await;
    assert_eq!(run(network(None)).await, 401);
    assert_eq!(run(network(Some("worker-1"))).await, 403);
    // Allowed; the body is not a run.
    let answer = run(Peer::Unix { user: 1_000 }).await;
    assert!(![401, 403].contains(&answer), "{answer}");
}
