//! OTLP profiles: `POST /v1development/profiles`, and the gRPC method `ProfilesService/Export`.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use import::{
    ImportError, ImportFormat, ImportOptions, Labels, OtlpEncoding, OtlpError, OtlpProfile,
    decompressed, otlp_profiles,
};
use prost::Message;
use serde::Serialize;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::connect::UNNAMED;
use super::failure::{Failure, Kind};
use super::profile::{Profile, Span};
use super::series::{Series, Source};
use base::limits::{OTLP_CONTENT_BYTES_MAX, PUSH_PROFILES_MAX};

pub const HTTP_PATH: &str = "/v1development/profiles";
pub const GRPC_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The attribute with the name of a series.
const NAME_ATTRIBUTE: &str = "service.name";

/// The attribute with the name of the sender's library.
const CLIENT_ATTRIBUTE: &str = "telemetry.sdk.name";

const PROTOBUF: &str = "application/x-protobuf";

/// Bytes before a message of gRPC: whether it is compressed, and its length.
const FRAME_HEAD_BYTES: usize = 5;

/// The answer to a request whose profiles are stored.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExportProfilesServiceResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`, which is the answer to a failed request over HTTP.
#[derive(Clone, PartialEq, Message, Serialize)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    /// Only over gRPC.
    #[prost(message, repeated, tag = "3")]
    #[serde(skip)]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl ExportProfilesServiceResponse {
    /// The answer if so many profiles were dropped. A warning without any is one too.
    pub(super) fn new(dropped: usize, warning: String) -> ExportProfilesServiceResponse {
        let partial_success = (!warning.is_empty()).then(|| PartialSuccess {
            rejected_profiles: i64::try_from(dropped).unwrap_or(i64::MAX),
            error_message: warning,
        });
        ExportProfilesServiceResponse { partial_success }
    }
}

/// How a request came, and so how it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Http(OtlpEncoding),
    Grpc,
}

impl Transport {
    /// That of a request over HTTP.
    pub(super) fn of_http(headers: &HeaderMap) -> Result<Transport, Failure> {
        let value = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = value
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        match media_type.trim() {
            PROTOBUF => Ok(Transport::Http(OtlpEncoding::Protobuf)),
            "application/json" => Ok(Transport::Http(OtlpEncoding::Json)),
            other => {
                let other: String = other.chars().take(80).collect();
                let text = format!(
                    "content-type {other:?} is not read; allowed: {PROTOBUF}, application/json"
                );
                Err(Failure::new(Kind::Unsupported, text))
            }
        }
    }

    pub(super) fn stored(self, response: ExportProfilesServiceResponse) -> Response {
        match self {
            Transport::Http(encoding) => encoded(encoding, &response),
            Transport::Grpc => {
                let mut codec = ProstCodec::<ExportProfilesServiceResponse, ()>::default();
                let message = tokio_stream::once(Ok(response));
                let uncompressed = SingleMessageCompressionOverride::Disable;
                let body =
                    EncodeBody::new_server(codec.encoder(), message, None, uncompressed, None);
                let grpc = HeaderValue::from_static("application/grpc");
                ([(header::CONTENT_TYPE, grpc)], Body::new(body)).into_response()
            }
        }
    }

    /// The transport of a request to one of the two paths; `None` if its answer has no encoding of OTLP.
    pub fn of(path: &str, headers: &HeaderMap) -> Option<Transport> {
        match path {
            GRPC_PATH => Some(Transport::Grpc),
            HTTP_PATH => Transport::of_http(headers).ok(),
            _ => None,
        }
    }

    pub fn failed(self, failure: Failure) -> Response {
        let mut status = RpcStatus {
            code: code(failure.kind) as i32,
            message: failure.text.clone(),
            details: Vec::new(),
        };
        match self {
            Transport::Http(encoding) => {
                let failure = if failure.kind == Kind::TooSlow {
                    // Senders try 408 never again.
                    Failure::new(Kind::Unavailable, failure.text)
                } else {
                    failure
                };
                failure.response(|_| encoded(encoding, &status))
            }
            Transport::Grpc => {
                let code = code(failure.kind);
                // Senders try `RESOURCE_EXHAUSTED` again only with this.
                if let Some(retry_after) = failure.retry_after {
                    let seconds = i64::try_from(retry_after.as_secs().max(1)).unwrap_or(i64::MAX);
                    let delay = Some(Delay { seconds });
                    status.details.push(Detail {
                        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
                        value: RetryInfo { delay }.encode_to_vec(),
                    });
                    let details = status.encode_to_vec().into();
                    return Status::with_details(code, failure.text, details).into_http();
                }
                Status::new(code, failure.text).into_http()
            }
        }
    }
}

fn encoded<T: Message + Serialize>(encoding: OtlpEncoding, message: &T) -> Response {
    match encoding {
        OtlpEncoding::Protobuf => {
            ([(header::CONTENT_TYPE, PROTOBUF)], message.encode_to_vec()).into_response()
        }
        OtlpEncoding::Json => axum::Json(message).into_response(),
    }
}

/// The code of gRPC. Senders try `UNAVAILABLE` and `DEADLINE_EXCEEDED` again.
fn code(kind: Kind) -> Code {
    match kind {
        Kind::Invalid | Kind::TooLarge => Code::InvalidArgument,
        Kind::Unsupported => Code::Unimplemented,
        Kind::TooSlow => Code::DeadlineExceeded,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::Denied => Code::PermissionDenied,
        Kind::Exhausted => Code::ResourceExhausted,
        Kind::Unavailable => Code::Unavailable,
        Kind::Internal => Code::Internal,
    }
}

/// The profiles of a body.
pub(super) fn profiles(
    transport: Transport,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Vec<Profile>, Failure> {
    let message;
    let (content, encoding) = match transport {
        Transport::Http(encoding) => (body, encoding),
        Transport::Grpc => {
            message = unframed(headers, body)?;
            (&message, OtlpEncoding::Protobuf)
        }
    };
    if content.len() > OTLP_CONTENT_BYTES_MAX {
        let text = format!(
            "the request has more than {OTLP_CONTENT_BYTES_MAX} bytes; send shorter times or fewer resources"
        );
        return Err(Failure::new(Kind::TooLarge, text));
    }
    let profiles = otlp_profiles(content, encoding)?;
    if profiles.len() > PUSH_PROFILES_MAX {
        let text =
            format!("the request has more than {PUSH_PROFILES_MAX} profiles; send it in parts");
        return Err(Failure::new(Kind::TooLarge, text));
    }
    profiles
        .into_iter()
        .filter(|profile| !profile.pprof.is_empty())
        .map(profile)
        .collect()
}

/// The message of a body of gRPC, which has only one.
fn unframed(headers: &HeaderMap, body: &Bytes) -> Result<Bytes, Failure> {
    let invalid = || Failure::invalid("the body is not one message of gRPC");
    let (head, message) = body
        .split_at_checked(FRAME_HEAD_BYTES)
        .ok_or_else(invalid)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if usize::try_from(length).ok() != Some(message.len()) {
        return Err(invalid());
    }
    let encoding = headers
        .get("grpc-encoding")
        .map_or(b"identity".as_slice(), |it| it.as_bytes());
    match (head[0], encoding) {
        (0, _) => Ok(body.slice(FRAME_HEAD_BYTES..)),
        (1, b"gzip") => Ok(decompressed(message, OTLP_CONTENT_BYTES_MAX)?
            .into_owned()
            .into()),
        _ => {
            let text = "messages are read without compression or with grpc-encoding: gzip";
            Err(Failure::new(Kind::Unsupported, text))
        }
    }
}

/// The text of an import error, in the terms of OTLP.
pub(super) fn import_text(error: &ImportError) -> String {
    match error {
        ImportError::Invalid { reason, .. } => format!("invalid OTLP profiles: {reason}"),
        ImportError::NoTime { found, .. } => format!(
            "no type of sample is time; the OTLP profile has {}",
            found.replace(
                "--interval sets",
                "`period` and `period_type`, such as `cpu` in `nanoseconds`, set"
            )
        ),
        ImportError::Empty { .. } => "the OTLP profile has no samples with time".to_owned(),
        other => other.to_string(),
    }
}

fn profile(profile: OtlpProfile) -> Result<Profile, Failure> {
    let OtlpProfile {
        attributes,
        scope,
        pprof,
    } = profile;
    let mut labels: Labels = attributes;
    let name = labels
        .remove(NAME_ATTRIBUTE)
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| UNNAMED.to_owned());
    let client = labels
        .get(CLIENT_ATTRIBUTE)
        .cloned()
        .unwrap_or_else(|| "unknown".to_owned());
    Ok(Profile {
        series: Series::with_fitting(Source::Otlp, &name, &labels)?,
        span: Span::OfProfile,
        content: pprof.into(),
        earlier: None,
        // Attributes of samples, such as the processor, would make too many series.
        options: ImportOptions {
            format: Some(ImportFormat::Pprof),
            keep_labels: false,
            has_own_names: true,
            ..ImportOptions::default()
        },
        client: format!("OTLP {client}"),
        mode: if scope.is_empty() {
            "pushed".to_owned()
        } else {
            format!("pushed by {scope}")
        },
        interval_ns: 0,
        without_time: None,
        is_lines: false,
        is_expanded: false,
    })
}

impl From<OtlpError> for Failure {
    fn from(error: OtlpError) -> Failure {
        let kind = match error {
            OtlpError::TooMany => Kind::TooLarge,
            _ => Kind::Invalid,
        };
        Failure::new(kind, error.to_string())
    }
}
