//! OTLP profiles over HTTP and gRPC.

use prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::pprof::gzip;
use super::{Guarded, NewToken, Role, Running, ServeOptions, serve, serve_with};
use base::limits::OTLP_CONTENT_BYTES_MAX;
use shares::{Quota, QuotaSettings};
use state::testing::at;

pub(super) const HTTP: &str = "/v1development/profiles";
const GRPC: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

/// Two samples of 100 Hz over 10 s: 5 of `main;work` in the task `load`, and 3 of `main`.
fn request() -> Value {
    json!({
        "resourceProfiles": [{
            "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "shop"}},
                {"key": "host.name", "value": {"stringValue": "h1"}},
                {"key": "process.pid", "value": {"intValue": "7"}}
            ]},
            "scopeProfiles": [{"scope": {"name": "ebpf"}, "profiles": [{
                "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
                "samples": [
                    {"stackIndex": 2, "attributeIndices": [1], "values": ["5"]},
                    {"stackIndex": 1, "timestampsUnixNano": ["1", "2", "3"]}
                ],
                "timeUnixNano": "1000040000000000",
                "durationNano": "10000000000",
                "periodType": {"typeStrindex": 3, "unitStrindex": 4},
                "period": "10000000"
            }]}]
        }],
        "dictionary": {
            "mappingTable": [{}],
            "locationTable": [{}, {"lines": [{"functionIndex": 1}]},
                              {"lines": [{"functionIndex": 2}]}],
            "functionTable": [{}, {"nameStrindex": 5}, {"nameStrindex": 6}],
            "stringTable": ["", "samples", "count", "cpu", "nanoseconds", "main", "work", "task"],
            "attributeTable": [{}, {"keyStrindex": 7, "value": {"stringValue": "load"}}],
            "stackTable": [{}, {"locationIndices": [1]}, {"locationIndices": [2, 1]}]
        }
    })
}

/// A request with a profile for each of these times, in seconds after that of others.
pub(super) fn requests(seconds: &[i64]) -> Vec<u8> {
    let mut body = request();
    let profiles = "/resourceProfiles/0/scopeProfiles/0/profiles";
    let profiles = body.pointer_mut(profiles).unwrap().as_array_mut().unwrap();
    let profile = profiles.remove(0);
    for seconds in seconds {
        let mut shifted = profile.clone();
        shifted["timeUnixNano"] = at(40 + seconds).unix_ns().to_string().into();
        profiles.push(shifted);
    }
    body.to_string().into_bytes()
}

async fn send(running: &Running, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
    let answer = running.push_with(HTTP, headers, body).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn profiles_over_http_are_stored_as_those_of_a_service() {
    let running = serve().await;
    let body = request().to_string();
    assert_eq!(
        send(&running, &[JSON], body.as_bytes()).await,
        (200, "{}".to_owned())
    );
    let stacks = ["load;main;work 50000000", "shop;main 30000000"];
    assert_eq!(running.stacks("").await, stacks);
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(workers["workers"][0]["worker"], "otlp:shop{host.name=h1}");
    let labels = &workers["workers"][0]["epochs"][0]["labels"];
    let expected = json!({
        "service_name": "shop", "host.name": "h1", "process.pid": "7", "source": "otlp",
    });
    assert_eq!(labels, &expected);
    // Equal requests both count, compressed or not.
    let headers = [JSON, ("content-encoding", "gzip")];
    assert_eq!(
        send(&running, &headers, &gzip(body.as_bytes())).await.0,
        200
    );
    assert_eq!(running.stacks("").await[0], "load;main;work 100000000");
    let counts = running.counts().await;
    assert_eq!(counts["source"], "otlp");
    assert_eq!(counts["stored"], 2);
}

#[tokio::test]
async fn profiles_that_measure_no_time_are_a_partial_success() {
    let running = serve().await;
    let mut body = request();
    body["dictionary"]["stringTable"][1] = "alloc_space".into();
    body["dictionary"]["stringTable"][2] = "bytes".into();
    body["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0]["periodType"] = json!({});
    let (status, answer) = send(&running, &[JSON], body.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200);
    assert_eq!(answer["partialSuccess"]["rejectedProfiles"], 1, "{answer}");
    let text = answer["partialSuccess"]["errorMessage"].as_str().unwrap();
    assert!(
        text.starts_with("nothing is stored: ") && text.contains("alloc_space/bytes"),
        "{text}"
    );
    let (status, answer) = send(&running, &[JSON], b"{}").await;
    let expected = json!({ "partialSuccess": {
        "rejectedProfiles": 0,
        "errorMessage": "nothing is stored: the request has no samples",
    } });
    assert_eq!(
        (status, serde_json::from_str::<Value>(&answer).unwrap()),
        (200, expected)
    );
}

#[tokio::test]
async fn bad_requests_are_answered_with_a_status_in_their_own_encoding() {
    let running = serve().await;
    let mut outside = request();
    outside["dictionary"]["stackTable"][2]["locationIndices"] = json!([99]);
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(OTLP_CONTENT_BYTES_MAX));
    for (body, status, code, hint) in [
        (&b"{"[..], 400, 3, "invalid OTLP profiles in JSON"),
        (
            outside.to_string().as_bytes(),
            400,
            3,
            "location 99 is outside of a table of 3",
        ),
        (br#"{"resourceProfiles": 7}"#, 400, 3, "1.9 or earlier"),
        (large.as_bytes(), 413, 3, "more than 4194304 bytes"),
    ] {
        let (got, answer) = send(&running, &[JSON], body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((got, &answer["code"]), (status, &json!(code)), "{answer}");
        let text = answer["message"].as_str().unwrap();
        assert!(text.contains(hint), "{text}");
    }
    let answer = running.push_with(HTTP, &[PROTOBUF], b"\x0a\xff").await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.header("content-type"),
        Some("application/x-protobuf")
    );
    let is_status = answer.body.starts_with("\u{8}\u{3}") && answer.body.contains("invalid varint");
    assert!(is_status, "code 3 and a message: {:?}", answer.body);
    let (status, text) = send(&running, &[("content-type", "text/plain")], b"").await;
    assert_eq!(status, 415);
    assert!(
        text.contains("application/x-protobuf, application/json"),
        "{text}"
    );
    assert_eq!(running.counts().await["rejected"], 6);
}

/// A request whose value at `pointer` is `value`.
fn changed(pointer: &str, value: Value) -> Vec<u8> {
    let mut body = request();
    *body.pointer_mut(pointer).unwrap() = value;
    body.to_string().into_bytes()
}

type Header = (&'static str, &'static str);

/// A request, and the answer that it must have.
struct Rejected {
    headers: Vec<Header>,
    body: Vec<u8>,
    status: u16,
    /// A part of the error.
    hint: &'static str,
}

#[tokio::test]
async fn hostile_requests_are_rejected_and_store_nothing() {
    let running = serve().await;
    let gzipped = ("content-encoding", "gzip");
    let bomb = gzip(&vec![b' '; OTLP_CONTENT_BYTES_MAX * 5]);
    let deep = (0..200).fold(
        json!({"stringValue": "x"}),
        |inner, _| json!({"arrayValue": {"values": [inner]}}),
    );
    let profile = "/resourceProfiles/0/scopeProfiles/0/profiles/0";
    let at = |field: &str| format!("{profile}/{field}");
    let name = "/resourceProfiles/0/resource/attributes/0/value/stringValue";
    let deep = changed("/resourceProfiles/0/resource/attributes/0/value", deep);
    let late = changed(&at("timeUnixNano"), json!("8000000000000000000"));
    let long = changed(&at("durationNano"), json!(u64::MAX.to_string()));
    let control = changed(name, json!("a\u{0}b"));
    let long_name = changed(name, json!("x".repeat(5_000)));
    let zstd = ("content-encoding", "zstd");
    let cases = [
        rejected(&[JSON, gzipped], bomb.clone(), 413, "at most 16777216"),
        rejected(&[PROTOBUF, gzipped], bomb.clone(), 413, "at most 16777216"),
        rejected(&[JSON, gzipped], bomb[..30].to_vec(), 400, "invalid gzip"),
        rejected(
            &[JSON, zstd],
            b"{}".to_vec(),
            415,
            "allowed: gzip, identity",
        ),
        rejected(&[JSON], deep, 400, "recursion limit"),
        rejected(&[JSON], late, 400, "collector's now"),
        rejected(&[JSON], long, 400, "at most 604800 s are allowed"),
        rejected(&[JSON], control, 400, "control characters"),
        rejected(&[JSON], long_name, 400, "5000 bytes"),
    ];
    let count = cases.len();
    for Rejected {
        headers,
        body,
        status,
        hint,
    } in cases
    {
        let (got, answer) = send(&running, &headers, &body).await;
        assert_eq!(got, status, "{hint}: {answer}");
        assert!(answer.contains(hint), "{hint}: {answer}");
    }
    assert_eq!(running.stacks("").await, [""; 0]);
    let counts = running.counts().await;
    assert_eq!(
        (&counts["rejected"], &counts["stored"]),
        (&json!(count), &json!(0))
    );
    assert_eq!(
        send(&running, &[JSON], request().to_string().as_bytes())
            .await
            .0,
        200
    );
}

fn rejected(headers: &[Header], body: Vec<u8>, status: u16, hint: &'static str) -> Rejected {
    Rejected {
        headers: headers.to_vec(),
        body,
        status,
        hint,
    }
}

/// The part of a protobuf request that this test needs.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(bytes = "vec", repeated, tag = "1")]
    resource_profiles: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {}

async fn export(running: &Running, request: Request) -> Result<Answer, tonic::Status> {
    let endpoint = Channel::from_shared(format!("http://{}", running.address)).unwrap();
    let mut client = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    let codec = ProstCodec::<Request, Answer>::default();
    let path = PathAndQuery::from_static(GRPC);
    client
        .unary(tonic::Request::new(request), path, codec)
        .await
        .map(tonic::Response::into_inner)
}

#[tokio::test]
async fn the_method_of_grpc_answers_and_rejects() {
    let running = serve().await;
    export(&running, Request::default()).await.unwrap();
    let broken = Request {
        resource_profiles: vec![b"\x12\xff".to_vec()],
    };
    let status = export(&running, broken).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("invalid OTLP profiles"),
        "{status}"
    );
    let counts = running.counts().await;
    assert_eq!(
        (&counts["empty"], &counts["rejected"]),
        (&json!(1), &json!(1))
    );
}

/// Senders drop what is answered with a status that they do not try again.
#[tokio::test]
async fn what_may_succeed_later_is_answered_so_by_each_transport() {
    let mut quotas = QuotaSettings::default();
    quotas.set(Quota::BytesPerSecond, 1 << 10).unwrap();
    let running = serve_with(ServeOptions {
        quotas,
        ..ServeOptions::default()
    })
    .await;
    let body = request().to_string() + &" ".repeat(1 << 16);
    for content_type in [JSON, PROTOBUF] {
        let answer = running
            .push_with(HTTP, &[content_type], body.as_bytes())
            .await;
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert!(answer.header("retry-after").is_some());
        assert_eq!(answer.header("content-type"), Some(content_type.1));
        assert!(answer.body.contains("bytes_per_second"), "{}", answer.body);
    }
    let large = Request {
        resource_profiles: vec![vec![0; 1 << 16]],
    };
    let status = export(&running, large).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let details = String::from_utf8_lossy(status.details());
    let has_delay = details.contains("type.googleapis.com/google.rpc.RetryInfo");
    assert!(has_delay, "{status:?}");
    let invalid = Request {
        resource_profiles: vec![b"\x12\xff".to_vec()],
    };
    let status = export(&serve().await, invalid).await.unwrap_err();
    assert_eq!(status.details(), b"", "it never succeeds");
}

#[tokio::test]
async fn a_missing_token_is_answered_as_otlp_has_it() {
    let guarded = Guarded::serve().await;
    let token = guarded.token(NewToken::new(Role::Reader));
    guarded.until_valid(&token).await;
    for content_type in [JSON, PROTOBUF] {
        let answer = guarded
            .running
            .push_with(HTTP, &[content_type], b"{}")
            .await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("content-type"), Some(content_type.1));
        let has_code =
            answer.body.contains("\"code\":16") || answer.body.starts_with("\u{8}\u{10}");
        assert!(has_code, "{:?}", answer.body);
        assert!(answer.body.contains("bearer token"), "{}", answer.body);
    }
    let exported = export(&guarded.running, Request::default()).await;
    let status = exported.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("bearer token"), "{status}");
}

/// Senders log the text, and their users know the fields of OTLP only.
#[tokio::test]
async fn a_refusal_names_the_field_of_otlp() {
    let running = serve().await;
    let profile = "/resourceProfiles/0/scopeProfiles/0/profiles/0";
    let at = |field: &str| format!("{profile}/{field}");
    let cases = [
        (
            changed(&at("samples/0/stackIndex"), json!(9)),
            400,
            "stack 9 is outside of a table of 3 (dictionary.stack_table)",
        ),
        (
            changed(&at("sampleType/unitStrindex"), json!(-1)),
            400,
            "text -1 is outside of a table of 8 (dictionary.string_table)",
        ),
        (
            changed(&at("samples/0/values"), json!(["-5"])),
            400,
            "invalid OTLP profiles: sample 1 has value -5; a time of 0 or more is expected",
        ),
        (
            changed(&at("samples/1/timestampsUnixNano"), json!([])),
            400,
            "sample 2 has neither values nor timestamps_unix_nano",
        ),
        (
            changed(
                &at("samples/1"),
                json!({"values": ["1", "2"], "timestampsUnixNano": ["1", "2", "3"]}),
            ),
            400,
            "one value for each is allowed",
        ),
        (
            changed(&at("period"), json!("0")),
            200,
            "the OTLP profile has samples/count; `period` and `period_type`, such as `cpu` in `nanoseconds`, set the \
             time of a sample",
        ),
    ];
    for (body, status, hint) in cases {
        let (got, answer) = send(&running, &[JSON], &body).await;
        assert_eq!(got, status, "{hint}: {answer}");
        assert!(answer.contains(hint), "{hint}: {answer}");
    }
}
