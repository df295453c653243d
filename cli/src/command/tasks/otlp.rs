//! `emberline tasks --format otlp`: spans into a file, or to a receiver.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use prost::Message as _;

use super::trace::{notes, read_tasks};
use crate::args::TasksArgs;
use crate::client::Client;
use crate::client::external::{Received, Receiver, split_query};
use crate::exit::BadInput;
use crate::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse, Spans};
use crate::output::{say, say_wrapped, write_to};
use crate::view::grouped;

/// Headers for the receiver, such as a token: a standard variable of OpenTelemetry.
pub(crate) const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// How often a message is sent while the receiver is busy.
const ATTEMPTS_MAX: u32 = 6;

/// The pause after the first attempt; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// The longest pause that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Most characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 300;

pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let mut spans = Spans::new(&args.service);
    let (about, target) = match &args.send_to {
        Some(url) => {
            let url = traces_url(url);
            let variable = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
            let headers = headers_of(HEADERS_VARIABLE, &variable)?;
            let receiver = Receiver::new(url.clone(), "application/x-protobuf", headers)?;
            let about = read_tasks(args, client, &mut |tasks| {
                let messages = spans.messages(tasks);
                messages
                    .iter()
                    .try_for_each(|message| send(&receiver, &url, message))
            })?;
            (about, Some(format!("sent to {url}")))
        }
        None => {
            let about = write_to(file, |out| {
                read_tasks(args, client, &mut |tasks| {
                    for message in spans.messages(tasks) {
                        serde_json::to_writer(&mut *out, &message)?;
                        out.write_all(b"\n")?;
                    }
                    Ok(())
                })
            })?;
            (about, file.map(|file| format!("wrote {}", file.display())))
        }
    };
    notes(&about).iter().for_each(|note| say_wrapped(note));
    if spans.running > 0 {
        say(&format!(
            "{} tasks still run: a span needs an end",
            grouped(spans.running)
        ));
    }
    if let Some(target) = target {
        say(&format!("{target}: {} tasks", grouped(spans.tasks)));
    }
    Ok(())
}

/// The address of a receiver as OpenTelemetry writes it: the path is added to that of a base.
pub(crate) fn traces_url(url: &str) -> String {
    let (base, query) = split_query(url);
    let trimmed = base.trim_end_matches('/');
    let collector = trimmed.strip_suffix("/v1/traces").unwrap_or(trimmed);
    format!("{collector}/v1/traces{query}")
}

/// Headers in the form `name=value,name=value`, which a variable has.
pub(crate) fn headers_of(variable: &str, text: &str) -> Result<Vec<(String, String)>, BadInput> {
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    let headers = entries.map(|entry| match entry.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        // Its value may be a secret.
        None => Err(BadInput(format!("{variable} has an entry without `=`"))),
    });
    headers.collect()
}

/// Sends a message, again while the receiver is busy.
fn send(receiver: &Receiver, url: &str, message: &ExportTraceServiceRequest) -> anyhow::Result<()> {
    let body = message.encode_to_vec();
    let mut pause = PAUSE_MIN;
    for attempt in 1.. {
        let answer = receiver
            .post(&body)
            .with_context(|| format!("{url} did not take the spans"))?;
        match answer.status {
            200..=299 => return report_rejected(&answer),
            429 | 502 | 503 | 504 if attempt < ATTEMPTS_MAX => {
                std::thread::sleep(answer.retry_after.unwrap_or(pause).min(PAUSE_MAX));
                pause *= 2;
            }
            status => {
                let text: String = String::from_utf8_lossy(&answer.body)
                    .chars()
                    .take(REFUSAL_CHARS_MAX)
                    .collect();
                bail!(
                    "{url} refused spans with HTTP status {status}\n{}",
                    text.trim()
                );
            }
        }
    }
    unreachable!("the last attempt returns")
}

/// Says which spans the receiver rejected although it took the message.
fn report_rejected(answer: &Received) -> anyhow::Result<()> {
    let response = ExportTraceServiceResponse::decode(&*answer.body);
    let partial = response.ok().and_then(|response| response.partial_success);
    if let Some(partial) = partial.filter(|partial| partial.rejected_spans > 0) {
        bail!(
            "the receiver rejected {} spans: {}",
            partial.rejected_spans,
            partial.error_message
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_gets_the_path_of_traces() {
        for url in ["http://h:4318", "http://h:4318/", "http://h:4318/v1/traces"] {
            assert_eq!(traces_url(url), "http://h:4318/v1/traces");
        }
        assert_eq!(traces_url("https://h/otlp"), "https://h/otlp/v1/traces");
    }

    #[test]
    fn headers_are_read_and_a_bad_one_is_not_shown() {
        let headers = headers_of(HEADERS_VARIABLE, "authorization=Basic x==, tenant = a,").unwrap();
        let expected = [("authorization", "Basic x=="), ("tenant", "a")];
        assert_eq!(
            headers,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        let error = headers_of(HEADERS_VARIABLE, "secret")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "OTEL_EXPORTER_OTLP_HEADERS has an entry without `=`");
    }
}
