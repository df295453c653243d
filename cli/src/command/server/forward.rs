//! `emberline serve --forward` and `--forward-traces`: sends what the collector encodes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use collector::limits::FORWARD_TARGETS_MAX;
use collector::{EncodedTasks, ForwardContent, ForwardError, ForwardTarget};
use prost::Message as _;

use crate::client::external::{ExternalError, Received, Receiver, split_query, without_secrets};
use crate::command::tasks::otlp::{HEADERS_VARIABLE, headers_of, traces_url};
use crate::exit::BadInput;
use crate::otlp::{ExportTraceServiceResponse, Spans};

/// The path of OTLP profiles, which tells their receivers from Pyroscope's.
const OTLP_PATH: &str = "/v1development/profiles";

/// The path of Pyroscope's method.
const PUSH_PATH: &str = "/push.v1.PusherService/Push";

/// Headers for a Pyroscope server, such as a tenant, as `name=value,name=value`.
const PUSH_HEADERS_VARIABLE: &str = "EMBERLINE_FORWARD_HEADERS";

/// Most characters of a refusal that are kept.
const REFUSAL_CHARS_MAX: usize = 300;

/// The receivers that the options name.
pub(super) fn targets(
    profiles: &[String],
    traces: &[String],
    service: &str,
) -> anyhow::Result<Vec<ForwardTarget>> {
    if profiles.len() + traces.len() > FORWARD_TARGETS_MAX {
        let text = format!("at most {FORWARD_TARGETS_MAX} servers can be forwarded to");
        return Err(BadInput(text).into());
    }
    let mut targets = Vec::new();
    for url in profiles {
        targets.push(profile_target(url)?);
    }
    for url in traces {
        targets.push(trace_target(url, service)?);
    }
    let mut urls = HashSet::new();
    if let Some(twice) = targets
        .iter()
        .find(|target| !urls.insert(target.url.clone()))
    {
        return Err(BadInput(format!("{} is forwarded to twice", twice.url)).into());
    }
    Ok(targets)
}

fn profile_target(url: &str) -> anyhow::Result<ForwardTarget> {
    let (base, query) = split_query(url);
    let base = base.trim_end_matches('/');
    let url = format!("{base}{query}");
    if base.ends_with(OTLP_PATH) {
        let receiver = otlp_receiver(&url, true)?;
        return Ok(ForwardTarget {
            url: without_secrets(&url),
            content: ForwardContent::Otlp,
            send: Arc::new(move |body| send(&receiver, body, rejected_part)),
        });
    }
    let server = base.strip_suffix(PUSH_PATH).unwrap_or(base);
    let method = format!("{server}{PUSH_PATH}{query}");
    let headers = headers(PUSH_HEADERS_VARIABLE)?;
    let receiver = Receiver::new(method, "application/proto", headers)?;
    Ok(ForwardTarget {
        url: without_secrets(&url),
        content: ForwardContent::Pyroscope,
        send: Arc::new(move |body| send(&receiver, body, |_| None)),
    })
}

fn trace_target(url: &str, service: &str) -> anyhow::Result<ForwardTarget> {
    let url = traces_url(url);
    let receiver = otlp_receiver(&url, false)?;
    let spans = Mutex::new(Spans::new(service));
    let encode = move |tasks| {
        // A panic while it was locked left at worst a trace without its root.
        let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = spans
            .messages(tasks)
            .into_iter()
            .map(|message| EncodedTasks {
                tasks: message.tasks(),
                bytes: message.encode_to_vec(),
            });
        messages.collect()
    };
    Ok(ForwardTarget {
        url: without_secrets(&url),
        content: ForwardContent::Tasks(Arc::new(encode)),
        send: Arc::new(move |body| send(&receiver, body, rejected_part)),
    })
}

fn otlp_receiver(url: &str, is_gzip: bool) -> anyhow::Result<Receiver> {
    let mut headers = headers(HEADERS_VARIABLE)?;
    if is_gzip {
        headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
    }
    Ok(Receiver::new(
        url.to_owned(),
        "application/x-protobuf",
        headers,
    )?)
}

fn headers(variable: &str) -> Result<Vec<(String, String)>, BadInput> {
    headers_of(variable, &std::env::var(variable).unwrap_or_default())
}

/// Sends a message. `rejected_part` reads why the receiver rejected a part of it.
fn send(
    receiver: &Receiver,
    body: &[u8],
    rejected_part: impl Fn(&Received) -> Option<String>,
) -> Result<Option<String>, ForwardError> {
    let answer = receiver.post(body).map_err(|error: ExternalError| {
        let reason = format!("{:#}", anyhow::Error::from(error));
        ForwardError::Retry {
            reason,
            after: None,
        }
    })?;
    if let 200..=299 = answer.status {
        return Ok(rejected_part(&answer));
    }
    let text: String = String::from_utf8_lossy(&answer.body)
        .trim()
        .chars()
        .take(REFUSAL_CHARS_MAX)
        .collect();
    let reason = match text.as_str() {
        "" => format!("HTTP status {}", answer.status),
        text => format!("HTTP status {}: {text}", answer.status),
    };
    Err(match answer.status {
        // Statuses that blame the message, which never changes.
        400 | 411 | 413 | 415 | 422 => ForwardError::Rejected { reason },
        _ => ForwardError::Retry {
            reason,
            after: answer.retry_after,
        },
    })
}

/// The answers of OTLP's services have the same form for profiles and traces.
fn rejected_part(answer: &Received) -> Option<String> {
    let response = ExportTraceServiceResponse::decode(&*answer.body).ok()?;
    let partial = response
        .partial_success
        .filter(|partial| partial.rejected_spans > 0)?;
    let count = partial.rejected_spans;
    let reason: String = partial
        .error_message
        .chars()
        .take(REFUSAL_CHARS_MAX)
        .collect();
    Some(format!("it rejected {count} parts of a message: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(profiles: &[&str], traces: &[&str]) -> Result<Vec<String>, String> {
        let [profiles, traces] =
            [profiles, traces].map(|urls| urls.iter().map(|url| (*url).to_owned()).collect());
        let profiles: Vec<String> = profiles;
        let traces: Vec<String> = traces;
        let targets = targets(&profiles, &traces, "fleet").map_err(|error| error.to_string())?;
        Ok(targets
            .iter()
            .map(|target| format!("{} {}", kind(target), target.url))
            .collect())
    }

    fn kind(target: &ForwardTarget) -> &'static str {
        match target.content {
            ForwardContent::Pyroscope => "pyroscope",
            ForwardContent::Otlp => "otlp",
            ForwardContent::Tasks(_) => "traces",
        }
    }

    #[test]
    fn the_path_selects_the_protocol_and_secrets_are_hidden() {
        let targets = addresses(
            &[
                "http://u:secret@h:4040/",
                "http://h:4318/v1development/profiles/?key=secret",
            ],
            &["http://h:4318/?key=secret"],
        );
        let expected = [
            "pyroscope http://[hidden]@h:4040",
            "otlp http://h:4318/v1development/profiles?key=[hidden]",
            "traces http://h:4318/v1/traces?key=[hidden]",
        ];
        assert_eq!(targets.unwrap(), expected);
    }

    #[test]
    fn a_server_is_forwarded_to_once_and_few_are() {
        let error = addresses(&["http://h:1", "http://h:1/"], &[]).unwrap_err();
        assert_eq!(error, "http://h:1 is forwarded to twice");
        let error = addresses(&[], &["http://u:p@h:99999"]).unwrap_err();
        assert!(error.contains("a number from 1 to 65535"), "{error}");
        let many = [
            "http://h:1",
            "http://h:2",
            "http://h:3",
            "http://h:4",
            "http://h:5",
        ];
        let error = addresses(&many, &[]).unwrap_err();
        assert_eq!(error, "at most 4 servers can be forwarded to");
    }
}
