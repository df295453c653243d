//! Only the next flush of an epoch counts, and only its owner may send it.

use front::auth::{NewToken, Role};
use profiler_core::SessionKey;

use super::access::Guarded;
use super::*;

fn flush_of(worker: &mut TestWorker, seq: u64) -> v1::Flush {
    worker.count("load;main", State::Cpu, 4);
    worker.seq = seq - 1;
    worker.flush(31, vec![])
}

fn acked_seq(workers: &Value) -> &Value {
    &workers["workers"][0]["epochs"][0]["acked_seq"]
}

/// A jump, valid or not, would make the collector acknowledge the flushes in between, which it never
/// stored.
#[tokio::test]
async fn a_flush_that_is_not_the_next_ends_its_stream_and_changes_nothing() {
    let running = serve().await;
    let (mut worker, client) = attached(&running, "w").await;
    drop(client);
    for seq in [3, 17, u64::MAX] {
        for is_valid in [false, true] {
            let mut other = Client::attach(running.address, worker.hello()).await;
            let mut flush = flush_of(&mut worker, seq);
            flush.clock = flush.clock.filter(|_| is_valid);
            other.send(agent_message::Kind::Flush(flush)).await;
            let status = other.status().await;
            assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
            let expected = format!("flush {seq} is out of order; the next one is 2");
            assert_eq!(status.message(), expected);
        }
    }
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(acked_seq(&workers), &json!(1));
    assert_eq!(workers["workers"][0]["epochs"][0]["rejected"], 0);

    let mut client = Client::attach(running.address, worker.hello()).await;
    assert_eq!(client.welcome.acked_seq, 1);
    let before = running.json(&format!("/api/v1/profile?{ALL}")).await;
    let flush = flush_of(&mut worker, 2);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    let after = running.json(&format!("/api/v1/profile?{ALL}")).await;
    assert!(total_ns(&after) > total_ns(&before));
}

fn total_ns(profile: &Value) -> u64 {
    profile["totals"]["total_ns"].as_u64().unwrap()
}

/// Its agent cannot know which of its flushes arrived before a stream broke, and sends them again.
#[tokio::test]
async fn flushes_in_flight_and_repeated_ones_are_stored_once() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let flushes: Vec<_> = (2..=9).map(|seq| flush_of(&mut worker, seq)).collect();
    for flush in &flushes {
        client.send(agent_message::Kind::Flush(flush.clone())).await;
    }
    for seq in 2..=5 {
        let ack = client.receive().await;
        assert!(matches!(&ack, Some(collector_message::Kind::Ack(ack)) if ack.seq == seq));
    }
    drop(client);
    let mut client = Client::attach(running.address, worker.hello()).await;
    assert!((5..=9).contains(&client.welcome.acked_seq));
    for flush in &flushes {
        client.send(agent_message::Kind::Flush(flush.clone())).await;
    }
    for seq in 2..=9 {
        let ack = client.receive().await;
        assert!(matches!(&ack, Some(collector_message::Kind::Ack(ack)) if ack.seq == seq));
    }
    let profile = running.json(&format!("/api/v1/profile?{ALL}")).await;
    assert_eq!(profile["totals"]["total_ns"], 7 + 8 * 4);
}

/// A collector without the data of its predecessor takes the agent's word: it goes on where it was.
#[tokio::test]
async fn an_agent_goes_on_at_a_collector_that_lost_its_data() {
    let running = serve().await;
    let mut worker = TestWorker::new("w", 1);
    worker.answered_seq = 100;
    let mut client = Client::attach(running.address, worker.hello()).await;
    assert_eq!(client.welcome.acked_seq, 0);
    worker.count("load;main", State::Cpu, 4);
    let flush = flush_of(&mut worker, 101);
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    // Refused flushes are answered, but not stored: only the agent knows of this one.
    let refused = v1::Flush {
        clock: None,
        ..flush
    };
    let answer = client.ask(agent_message::Kind::Flush(refused)).await;
    assert_eq!(answer, "refused 101: the flush's clock is missing");
    assert_eq!(acked_seq(&running.json("/api/v1/workers").await), &json!(0));
    let flush = flush_of(&mut worker, 102);
    assert_eq!(
        client.ask(agent_message::Kind::Flush(flush)).await,
        "ack 102"
    );

    worker.answered_seq = 102;
    let mut client = Client::attach(running.address, worker.hello()).await;
    assert_eq!(client.welcome.acked_seq, 102);
    let flush = flush_of(&mut worker, 103);
    assert_eq!(
        client.ask(agent_message::Kind::Flush(flush)).await,
        "ack 103"
    );
}

/// Refusals are in no log. After a restart, the agent's word counts as above.
#[tokio::test]
async fn a_refused_flush_is_skipped_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = || ServeOptions {
        data: Some(folder.path().to_owned()),
        ..ServeOptions::default()
    };
    let running = serve_with(options()).await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let mut refused = flush_of(&mut worker, 2);
    refused.cycle.as_mut().unwrap().quantum_ns = u64::MAX;
    let answer = client.ask(agent_message::Kind::Flush(refused)).await;
    assert!(answer.starts_with("refused 2: "), "{answer}");
    assert_eq!(acked_seq(&running.json("/api/v1/workers").await), &json!(1));
    running.stop.send(()).unwrap();
    in_time(running.served).await.unwrap().unwrap();

    let running = serve_with(options()).await;
    worker.answered_seq = 2;
    let mut client = Client::attach(running.address, worker.hello()).await;
    worker.resume(
        client.welcome.strings,
        client.welcome.frames,
        client.welcome.nodes,
    );
    let flush = flush_of(&mut worker, 3);
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 3");
}

/// Its agent never learned of the refusal. It sends the flush again and can count what is lost.
#[tokio::test]
async fn a_flush_whose_refusal_was_lost_is_refused_again() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let mut invalid = flush_of(&mut worker, 2);
    invalid.cycle.as_mut().unwrap().quantum_ns = u64::MAX;
    worker.answered_seq = 1;
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.push(
            client
                .ask(agent_message::Kind::Flush(invalid.clone()))
                .await,
        );
        client = Client::attach(running.address, worker.hello()).await;
        assert_eq!(client.welcome.acked_seq, 1);
    }
    assert!(answers[0].starts_with("refused 2: "), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
    worker.answered_seq = 2;
    let mut client = Client::attach(running.address, worker.hello()).await;
    let flush = flush_of(&mut worker, 3);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 3");
}

/// Readers know workers and epochs, and other tokens may cover the same workers.
#[tokio::test]
async fn an_epoch_without_a_key_is_continued_by_its_own_token_only() {
    let guarded = Guarded::serve().await;
    let [own, other] = [(); 2].map(|()| guarded.agent("etl-*"));
    guarded
        .until_valid(&guarded.token(NewToken::new(Role::Reader)))
        .await;
    let mut worker = TestWorker::new("etl-low", 7);
    let address = guarded.running.address;
    let attached = Client::attach_with(address, worker.hello(), Some(&own)).await;
    let mut client = attached.unwrap();
    let flush = flush_of(&mut worker, 1);
    let dictionary = worker.dictionary().unwrap();
    client
        .send(agent_message::Kind::Dictionary(dictionary))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    let refused = Client::attach_with(address, worker.hello(), Some(&other)).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let flush = flush_of(&mut worker, 2);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    drop(client);
    let attached = Client::attach_with(address, worker.hello(), Some(&own)).await;
    let mut client = attached.unwrap();
    let flush = flush_of(&mut worker, 3);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 3");
}

/// Readers know workers and epochs. That is not enough to speak for a worker, and a restart of the
/// collector changes nothing.
#[tokio::test]
async fn only_the_owner_of_the_session_key_attaches() {
    let folder = tempfile::tempdir().unwrap();
    let key = SessionKey::new([5; SessionKey::BYTES]);
    let worker = TestWorker::new("w", key.epoch().0);
    let owner = || v1::Hello {
        session_key: key.as_bytes().to_vec(),
        ..worker.hello()
    };
    for _ in 0..2 {
        let data = Some(folder.path().to_owned());
        let running = serve_with(ServeOptions {
            data,
            ..ServeOptions::default()
        })
        .await;
        let mut client = Client::attach(running.address, owner()).await;
        for session_key in [vec![], vec![4; 16], vec![5; 15]] {
            let hello = v1::Hello {
                session_key,
                ..worker.hello()
            };
            let kind = Some(agent_message::Kind::Hello(hello));
            let status = Client::refused(running.address, vec![v1::AgentMessage { kind }]).await;
            assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        }
        client
            .send(agent_message::Kind::Goodbye(v1::Goodbye::default()))
            .await;
        assert!(
            client.receive().await.is_none(),
            "the owner's stream is still there"
        );
        running.stop.send(()).unwrap();
        in_time(running.served).await.unwrap().unwrap();
    }
}
