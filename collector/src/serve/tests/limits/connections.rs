//! Connections that do not behave: slow, silent, idle, unread or too many.

use axum::body::Bytes;
use axum::http::Request;
use base::limits::CROWD_CONNECTIONS_MIN;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::serve::tests::*;

/// Short enough for a test; the other limits stay as they are.
const SHORT: Duration = Duration::from_millis(200);

fn process_limits() -> ConnectionLimits {
    ConnectionLimits::of_process()
}

async fn connect(running: &Running, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// Reads until the collector closes the connection.
async fn received(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The connection may be reset, because unread bytes are lost.
    let _ = in_time(stream.read_to_end(&mut bytes)).await;
    bytes
}

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let limits = ConnectionLimits {
        head_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    for first in [
        &b""[..],
        b"G",
        b"GET /livez HTTP/1.1\r\nhost:",
        b"PRI * HTTP/2.0\r\n\r\nSM",
    ] {
        let stream = connect(&running, first).await;
        let answer = received(stream).await;
        assert!(answer.is_empty(), "{first:?} {answer:?}");
    }
    // With the preface, HTTP/2 is open: settings and perhaps a farewell come, but no answer.
    let stream = connect(&running, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    received(stream).await;
    // A head that goes on for ever.
    let mut stream = connect(&running, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n").await;
    let start = Instant::now();
    while stream.write_all(b"a: b\r\n").await.is_ok() {
        assert!(start.elapsed() < PATIENCE, "a slow head is read for ever");
        tokio::time::sleep(SHORT / 10).await;
    }
    assert_eq!(get(running.address, "/livez").await.status, 200);
}

#[tokio::test]
async fn the_many_connections_of_an_address_are_all_served() {
    let running = serve_limited(ServeOptions::default(), process_limits()).await;
    let mut first = Vec::new();
    for _ in 0..CROWD_CONNECTIONS_MIN {
        let mut stream = connect(&running, LIVEZ).await;
        let mut line = vec![0; 15];
        in_time(stream.read_exact(&mut line)).await.unwrap();
        assert_eq!(line, b"HTTP/1.1 200 OK");
        first.push(stream);
    }
    // These are served by other threads.
    let (_, mut client) = attached(&running, "w").await;
    let workers = get(running.address, "/api/v1/workers").await;
    assert_eq!(workers.status, 200);
    assert!(workers.body.contains("\"w\""), "{}", workers.body);
    client
        .send(agent_message::Kind::Goodbye(v1::Goodbye::default()))
        .await;
    assert!(client.receive().await.is_none());
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let limits = ConnectionLimits {
        idle_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let (_, mut client) = attached(&running, "w").await;
    let answer = received(connect(&running, LIVEZ).await).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    // The agent's stream is a request in flight, although it was quiet for longer.
    client
        .send(agent_message::Kind::Goodbye(v1::Goodbye::default()))
        .await;
    assert!(client.receive().await.is_none());
}

#[tokio::test]
async fn a_later_head_has_the_time_limit_of_the_first() {
    let limits = ConnectionLimits {
        head_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let mut stream = connect(&running, LIVEZ).await;
    let mut first = vec![0; 15];
    in_time(stream.read_exact(&mut first)).await.unwrap();
    assert_eq!(first, b"HTTP/1.1 200 OK");
    stream.write_all(b"GET /liv").await.unwrap();
    let rest = String::from_utf8(received(stream).await).unwrap();
    assert!(!rest.contains("HTTP/1.1"), "{rest}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_an_error() {
    let limits = ConnectionLimits {
        upload_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let head = "PUT /api/v1/workers/settings HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\
                content-type: application/json\r\n\r\n{";
    let answer = received(connect(&running, head.as_bytes()).await).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_closed_and_others_are_answered() {
    let limits = ConnectionLimits {
        stall_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let (_, _client) = attached(&running, "w").await;
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut stream = connect(&running, b"").await;
    // Requests without a pause, until the collector closes the connection and writing fails.
    let writing =
        tokio::spawn(async move { while stream.write_all(request.as_bytes()).await.is_ok() {} });
    let start = Instant::now();
    while !writing.is_finished() {
        assert_eq!(get(running.address, "/livez").await.status, 200);
        assert!(start.elapsed() < PATIENCE, "the connection stays open");
    }
    running
        .until(
            "/api/v1/workers",
            "/workers/0/epochs/0/state",
            json!("connected"),
        )
        .await;
}

#[tokio::test]
async fn a_peer_of_http2_that_gives_no_room_is_closed() {
    let limits = ConnectionLimits {
        stall_timeout: SHORT,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    for path in ["/livez", "/"] {
        let stream = connect(&running, b"").await;
        let mut builder = h2::client::Builder::new();
        let (client, connection) = builder
            .initial_window_size(0)
            .handshake::<_, Bytes>(stream)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = Request::get(format!("http://{}{path}", running.address))
            .body(())
            .unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let unread = in_time(response).await.unwrap();
        assert_eq!(unread.status(), 200);
        // Ends, with or without an error, when the collector closes the connection.
        let _ = in_time(connection).await.unwrap();
    }
}

#[tokio::test]
async fn idle_connections_make_room_for_readers_and_agents() {
    let limits = ConnectionLimits {
        open_max: 8,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(connect(&running, b"").await);
    }
    assert_eq!(get(running.address, "/livez").await.status, 200);
    let (_, _second) = attached(&running, "second").await;
    worker.count("load;main;parse:3", State::Cpu, 5);
    let flush = worker.flush(31, vec![]);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    let mut open = 0;
    for mut stream in idle {
        let mut byte = [0];
        let read = tokio::time::timeout(SHORT, stream.read(&mut byte)).await;
        open += usize::from(read.is_err());
    }
    assert!(open <= 6, "{open} idle connections are still open");
}

#[tokio::test]
async fn connections_with_requests_keep_their_place() {
    let limits = ConnectionLimits {
        open_max: 2,
        ..process_limits()
    };
    let running = serve_limited(ServeOptions::default(), limits).await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let (_, _second) = attached(&running, "second").await;
    let refused = received(connect(&running, LIVEZ).await).await;
    assert!(
        refused.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&refused)
    );
    worker.count("load;main;parse:3", State::Cpu, 5);
    let flush = worker.flush(31, vec![]);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
}

/// The client learns the limit with the first answer, and holds the 65th stream back.
#[tokio::test]
async fn a_connection_has_at_most_64_streams() {
    let running = serve().await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/livez", running.address);
    let request = Request::get(uri).body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(in_time(answer).await.unwrap().status(), 200);
    assert_eq!(client.current_max_send_streams(), 64);
}
