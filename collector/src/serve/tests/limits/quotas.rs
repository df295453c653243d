//! Quotas: one identity that takes too much, next to an honest one.

use profiler_core::Token;
use profiler_core::wire::v1::agent_message::Kind;

use crate::serve::tests::client::{Answer, send_with};
use crate::serve::tests::*;
use front::auth::{NewToken, Role, TokenRecord, TokenSource};

/// A collector with a token for each list of quotas, and one of a reader.
pub(crate) struct Shared {
    pub(crate) running: Running,
    agents: Vec<Token>,
    reader: Token,
}

impl Shared {
    pub(crate) async fn serve(quotas: &[&[(Quota, u64)]], limits: Limits) -> Shared {
        let mut records: Vec<TokenRecord> = Vec::new();
        let agents = quotas
            .iter()
            .map(|quotas| create(&mut records, Role::Agent, quotas))
            .collect();
        let reader = create(&mut records, Role::Reader, &[(Quota::Queries, 1)]);
        let tokens = TokenSource::Fixed(records);
        let running = serve_with(ServeOptions {
            tokens,
            limits,
            ..ServeOptions::default()
        })
        .await;
        Shared {
            running,
            agents,
            reader,
        }
    }

    pub(crate) async fn attach(&self, agent: usize, worker: &str) -> Result<Client, tonic::Status> {
        let hello = TestWorker::new(worker, 1).hello();
        Client::attach_with(self.running.address, hello, Some(&self.agents[agent])).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let host = self.running.address.to_string();
        let bearer = self.reader.bearer();
        let headers = [("host", &*host), ("authorization", &*bearer)];
        send_with(self.running.address, &format!("GET {path}"), &headers, "").await
    }

    /// The quotas that were met: identity, quota, value and refusals.
    async fn quotas(&self) -> Vec<(String, String, Option<u64>, u64)> {
        let answer = self.get("/api/v1/workers").await;
        let answer: api::WorkersAnswer = serde_json::from_str(&answer.body).unwrap();
        let rows = answer.quotas.into_iter();
        rows.map(|met| (met.identity, met.quota.to_string(), met.value, met.refused))
            .collect()
    }

    fn name(&self, agent: usize) -> String {
        format!("token {}", self.agents[agent].id())
    }
}

fn create(records: &mut Vec<TokenRecord>, role: Role, quotas: &[(Quota, u64)]) -> Token {
    let mut new = NewToken::new(role);
    for (quota, value) in quotas {
        new.quotas.set(*quota, *value).unwrap();
    }
    let (token, record) = new.create(records, jiff::Timestamp::UNIX_EPOCH).unwrap();
    records.push(record);
    token
}

fn pushback_ms(status: &tonic::Status) -> u64 {
    status
        .metadata()
        .get("grpc-retry-pushback-ms")
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// One identity with all sessions refused everybody else's agents.
#[tokio::test]
async fn all_sessions_of_one_token_leave_room_for_another_one() {
    let limits = Limits {
        sessions_max: 16,
        ..Limits::default()
    };
    let shared = Shared::serve(&[&[], &[]], limits).await;
    let mut greedy = Vec::new();
    for index in 0..16 {
        greedy.push(
            shared
                .attach(0, &format!("greedy-{index:02}"))
                .await
                .unwrap(),
        );
    }
    let status = shared.attach(0, "greedy-16").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let [_first, _second] = [
        shared.attach(1, "honest-1").await.unwrap(),
        shared.attach(1, "honest-2").await.unwrap(),
    ];
    // They take the places of those that were silent longest.
    for client in &mut greedy[..2] {
        let status = client.status().await;
        assert_eq!(
            (status.code(), pushback_ms(&status)),
            (Code::ResourceExhausted, 5_000)
        );
        assert!(
            status
                .message()
                .contains("made room for an agent of another"),
            "{status:?}"
        );
    }
    let status = shared.attach(1, "honest-3").await.unwrap_err();
    assert_eq!(
        status.code(),
        Code::ResourceExhausted,
        "an eighth is its share"
    );
    let expected = [(0, 3), (1, 1)].map(|(agent, refused)| {
        (
            shared.name(agent),
            "sessions".to_owned(),
            Some(20_000),
            refused,
        )
    });
    assert_eq!(shared.quotas().await, expected);
}

#[tokio::test]
async fn a_token_has_as_many_sessions_as_its_quota_and_others_are_unaffected() {
    let shared = Shared::serve(&[&[(Quota::Sessions, 2)], &[]], Limits::default()).await;
    let mut first = shared.attach(0, "w-1").await.unwrap();
    let _second = shared.attach(0, "w-2").await.unwrap();
    let status = shared.attach(0, "w-3").await.unwrap_err();
    assert_eq!(
        (status.code(), pushback_ms(&status)),
        (Code::ResourceExhausted, 5_000)
    );
    let expected = format!("{} has reached its quota sessions=2; ", shared.name(0));
    assert!(status.message().starts_with(&expected), "{status:?}");
    shared.attach(1, "other").await.unwrap();
    // An agent that reconnects takes its own session over.
    let mut again = shared.attach(0, "w-1").await.unwrap();
    assert_eq!(first.status().await.code(), Code::Aborted);
    again.send(Kind::Goodbye(v1::Goodbye::default())).await;
    assert_eq!(again.receive().await, None);
    shared.attach(0, "w-3").await.unwrap();
    let expected = (shared.name(0), "sessions".to_owned(), Some(2), 1);
    assert_eq!(shared.quotas().await, [expected]);
}

#[tokio::test]
async fn a_token_that_sends_too_fast_is_refused_until_its_debt_is_paid() {
    let quotas: &[(Quota, u64)] = &[(Quota::BytesPerSecond, 1 << 10)];
    let shared = Shared::serve(&[quotas, &[]], Limits::default()).await;
    let mut fast = shared.attach(0, "fast").await.unwrap();
    let mut honest = shared.attach(1, "honest").await.unwrap();
    // A minute's worth: any message passes, and those behind it wait.
    let strings = (0..60).map(|index| format!("{index:01024}")).collect();
    let dictionary = v1::Dictionary {
        strings,
        string_base: 1,
        ..v1::Dictionary::default()
    };
    fast.send(Kind::Dictionary(dictionary)).await;
    fast.send(Kind::Flush(TestWorker::new("fast", 1).flush(30, vec![])))
        .await;
    let status = fast.status().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    // Without the burst of ten seconds.
    let delay_ms = pushback_ms(&status);
    assert!((30_000..=60_000).contains(&delay_ms), "{delay_ms}");
    let status = shared.attach(0, "fast").await.unwrap_err();
    assert_eq!(
        status.code(),
        Code::ResourceExhausted,
        "a new connection changes nothing"
    );
    let flush = TestWorker::new("honest", 1).flush(30, vec![]);
    assert_eq!(honest.ask(Kind::Flush(flush)).await, "ack 1");
    let expected = (
        shared.name(0),
        "bytes_per_second".to_owned(),
        Some(1_024),
        2,
    );
    assert_eq!(shared.quotas().await, [expected]);
}

#[tokio::test]
async fn queries_past_a_quota_are_answered_with_429() {
    let shared = Shared::serve(&[], Limits::default()).await;
    let mut streams = Vec::new();
    // Waits for the next events.
    let events = async |path| {
        let mut stream = tokio::net::TcpStream::connect(shared.running.address)
            .await
            .unwrap();
        let token = shared.reader.bearer();
        let bearer = &*token;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {bearer}\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
            .await
            .unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
        stream
    };
    for _ in 0..base::limits::EVENT_SUBSCRIBERS_MAX {
        streams.push(events("/api/v1/events").await);
    }
    let refused = shared.get("/api/v1/events").await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("5"))
    );
    let expected = "too many requests of this token or address at once; try again later";
    assert!(refused.body.contains(expected), "{}", refused.body);
    let name = format!("token {}", shared.reader.id());
    assert_eq!(
        shared.quotas().await,
        [(name, "event_streams".to_owned(), None, 1)]
    );
}
