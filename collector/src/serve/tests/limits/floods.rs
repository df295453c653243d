//! Peers that take memory and do not go on.

use prost::Message as _;

use crate::serve::tests::*;

/// How a stream over HTTP/2 by hand ended.
async fn status_of(response: h2::client::ResponseFuture) -> (String, Option<String>) {
    let response = response.await.unwrap();
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let _ = body.flow_control().release_capacity(data.unwrap().len());
    }
    let trailers = body.trailers().await.unwrap().unwrap();
    let text = |name| {
        trailers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    (text("grpc-status").unwrap(), text("grpc-retry-pushback-ms"))
}

fn attach_request(address: SocketAddr) -> axum::http::Request<()> {
    let uri = format!("http://{address}/emberline.v1.Ingest/Attach");
    axum::http::Request::post(uri)
        .header("content-type", "application/grpc")
        .body(())
        .unwrap()
}

/// Begins a message of the largest size on a stream of its own, and never ends it.
async fn send_half(address: SocketAddr) -> h2::client::ResponseFuture {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (response, mut body) = client.send_request(attach_request(address), false).unwrap();
    let length = u32::try_from(profiler_core::limits::MESSAGE_BYTES_MAX).unwrap();
    let header = [&[0][..], &length.to_be_bytes()].concat();
    body.send_data(header.into(), false).unwrap();
    // h2 buffers it and sends it as the windows allow.
    body.send_data(vec![0; length as usize - 1].into(), false)
        .unwrap();
    tokio::spawn(async move {
        let _kept_open = body;
        std::future::pending::<()>().await;
    });
    response
}

#[tokio::test]
async fn half_messages_give_way_to_others() {
    let running = serve().await;
    let (mut worker, mut honest) = attached(&running, "w").await;
    // Half as much again as half messages may take.
    let count = base::limits::BEGUN_BYTES_MAX * 3 / 2 / profiler_core::limits::MESSAGE_BYTES_MAX;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..count {
        streams.spawn(status_of(send_half(running.address).await));
    }
    let gave_way = ("8".to_owned(), Some("5000".to_owned()));
    for _ in 0..count / 3 {
        assert_eq!(
            in_time(streams.join_next()).await.unwrap().unwrap(),
            gave_way
        );
        worker.count("load;main", State::Cpu, 5);
        let flush = worker.flush(31, vec![]);
        let expected = format!("ack {}", flush.seq);
        assert_eq!(
            honest.ask(agent_message::Kind::Flush(flush)).await,
            expected
        );
    }
}

/// Sends these messages on a stream of its own, without room for a single answer.
async fn send_without_room(
    address: SocketAddr,
    messages: impl IntoIterator<Item = agent_message::Kind>,
) -> h2::client::SendRequest<axum::body::Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (client, connection) = builder
        .initial_window_size(0)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (response, mut body) = client.send_request(attach_request(address), false).unwrap();
    for kind in messages {
        let message = v1::AgentMessage { kind: Some(kind) }.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap();
        let header = [&[0][..], &length.to_be_bytes()].concat();
        body.send_data([header, message].concat().into(), false)
            .unwrap();
    }
    tokio::spawn(async move {
        let _kept_open = (response.await, body);
        std::future::pending::<()>().await;
    });
    client
}

#[tokio::test]
async fn unread_answers_hold_no_decoded_messages() {
    let running = serve().await;
    let (worker, mut honest) = attached(&running, "honest").await;
    // A small message no longer, but small on the wire.
    let large = repeated(base::limits::SMALL_MESSAGE_BYTES / 384 + 1);
    let mut unread = Vec::new();
    for number in 0..3 {
        let mut greedy = TestWorker::new(&format!("greedy-{number}"), 1);
        let hello = agent_message::Kind::Hello(greedy.hello());
        let first = agent_message::Kind::Flush(greedy.flush(30, vec![]));
        // Each has another place in its batches when no answer has room any more.
        let messages = [hello, first]
            .into_iter()
            .chain(vec![repeated(0); number])
            .chain(vec![large.clone(); 200]);
        unread.push(send_without_room(running.address, messages).await);
    }
    // Needs all the room of the identity, which is the same for all.
    let largest = repeated(profiler_core::limits::MESSAGE_ENTRIES_MAX - 1);
    for _ in 0..10 {
        assert_eq!(honest.ask(largest.clone()).await, "ack 1");
    }
    drop((unread, worker));
}

/// The first flush again, with that many tasks: it is acknowledged again, whatever else it has.
fn repeated(rows: usize) -> agent_message::Kind {
    let tasks = vec![v1::Task::default(); rows];
    agent_message::Kind::Flush(v1::Flush {
        seq: 1,
        tasks,
        ..v1::Flush::default()
    })
}
