//! `/api/v1/profile` in each of its formats.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flamegraph::{Hidden, ProfileColumns, ProfileJson};
use profiler_core::{State as ThreadState, TimeRange, valid_build_id};

use super::reader::{Pairs, Reader};
use super::{answer, tables};
use front::error::ErrorAnswer;
use query::Queries;
use query::{Format, ProfileAnswer, ProfileQuery, Provenance, format_time};
use state::Collector;

/// Allows a flame graph's own script, in an origin of its own: it can neither load, send nor embed.
const SVG_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
     sandbox allow-scripts; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) async fn answer_profile(reader: &Reader, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(ProfileQuery::parse)?;
        let begin = Instant::now();
        let answer = asking.queries().profile(&query, asking.cancel)?;
        let computed = begin.elapsed();
        let mut response = profile_response(asking.collector, &query, &answer)?;
        add_sampling_headers(response.headers_mut(), &answer);
        add_timing_header(response.headers_mut(), computed, begin.elapsed() - computed);
        Ok(response)
    });
    answer.await
}

/// The profile in the requested format.
fn profile_response(
    collector: &Collector,
    query: &ProfileQuery,
    answer: &ProfileAnswer,
) -> Result<Response, ErrorAnswer> {
    let hosts = || Queries(&collector.state).hosts(&answer.facts.workers);
    match query.format {
        Format::Json => answer::with_profile(&answer::profile(query, answer), |text| {
            ProfileJson(&answer.profile).write_to(text);
            Ok(())
        }),
        Format::Columns => answer::with_profile(&answer::profile(query, answer), |text| {
            serde_json::to_writer(text, &ProfileColumns::new(&answer.profile))
        }),
        Format::Collapsed => {
            let text_plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            Ok((text_plain, flamegraph::collapsed(&answer.profile)).into_response())
        }
        Format::Svg => {
            let options = answer::svg_options(query, answer, &hosts());
            let svg = flamegraph::svg(&answer.profile, &options)
                .map_err(|error| ErrorAnswer::internal(&error))?;
            let image_svg = (
                header::CONTENT_TYPE,
                HeaderValue::from_static("image/svg+xml"),
            );
            let policy = (header::CONTENT_SECURITY_POLICY, SVG_POLICY);
            Ok(([image_svg, policy], svg).into_response())
        }
        Format::Pprof => {
            let octets = (header::CONTENT_TYPE, "application/octet-stream");
            let name = (
                header::CONTENT_DISPOSITION,
                "attachment; filename=\"profile.pb.gz\"",
            );
            let options = answer::export_options(query, answer, &hosts());
            Ok(([octets, name], flamegraph::pprof(&answer.profile, &options)).into_response())
        }
        Format::Speedscope => {
            let options = answer::export_options(query, answer, &hosts());
            Ok(answer::json_text(
                flamegraph::speedscope(&answer.profile, &options).into_bytes(),
            ))
        }
        Format::Firefox => {
            let options = answer::export_options(query, answer, &hosts());
            Ok(answer::json_text(
                flamegraph::firefox(&answer.profile, &options).into_bytes(),
            ))
        }
        Format::Nested => Ok(answer::json_text(
            flamegraph::nested_json(&answer.profile).into_bytes(),
        )),
        Format::File(format) => Ok(tables::functions(&answer.profile).response(format)),
    }
}

/// Adds headers for formats that have no room for it in the body: the range, the time in it, how well
/// it was sampled, and the span of all data.
fn add_sampling_headers(headers: &mut HeaderMap, answer: &ProfileAnswer) {
    let Provenance { sampling, .. } = &answer.facts;
    add_header(
        headers,
        "x-emberline-empty",
        answer.profile.is_empty().to_string(),
    );
    add_header(
        headers,
        "x-emberline-workers",
        answer.facts.workers.len().to_string(),
    );
    add_header(
        headers,
        "x-emberline-sampled-ns",
        sampling.sampled_ns.to_string(),
    );
    add_header(
        headers,
        "x-emberline-ticks",
        sampling.ticks.made.to_string(),
    );
    add_header(
        headers,
        "x-emberline-ticks-expected",
        sampling.ticks.expected.to_string(),
    );
    add_header(
        headers,
        "x-emberline-ticks-throttled",
        sampling.ticks.throttled.to_string(),
    );
    add_header(
        headers,
        "x-emberline-ticks-missed",
        sampling.ticks.missed().to_string(),
    );
    if let Some(rate_hz) = sampling.rate_hz() {
        add_header(headers, "x-emberline-rate-hz", format!("{rate_hz:.3}"));
    }
    add_header(
        headers,
        "x-emberline-range",
        start_and_stop(answer.facts.range),
    );
    add_header(
        headers,
        "x-emberline-total-ns",
        answer.profile.total().total_ns().to_string(),
    );
    let Hidden {
        outside,
        states,
        functions,
        zoom,
    } = &answer.hidden;
    for (name, hidden_ns) in [
        ("x-emberline-hidden-outside-ns", outside.total_ns()),
        ("x-emberline-hidden-cpu-ns", states.get(ThreadState::Cpu)),
        (
            "x-emberline-hidden-runnable-ns",
            states.get(ThreadState::Runnable),
        ),
        ("x-emberline-hidden-wait-ns", states.wait_ns()),
        ("x-emberline-hidden-functions-ns", functions.total_ns()),
        ("x-emberline-hidden-zoom-ns", zoom.total_ns()),
    ] {
        add_header(headers, name, hidden_ns.to_string());
    }
    if !answer.unmatched.is_empty() {
        let mut form = form_urlencoded::Serializer::new(String::new());
        for unmatched in &answer.unmatched {
            form.append_pair(unmatched.purpose, unmatched.selector.text());
        }
        add_header(headers, "x-emberline-unmatched", form.finish());
    }
    add_header(
        headers,
        "x-emberline-unnamed-ns",
        answer.unnamed.total_ns.to_string(),
    );
    // Stores of earlier versions have any text there.
    let most = answer
        .unnamed
        .modules
        .first()
        .map(|module| valid_build_id(&module.build_id));
    add_header(
        headers,
        "x-emberline-unnamed-build-id",
        most.unwrap_or_default().to_owned(),
    );
    add_header(
        headers,
        "x-emberline-unnamed-pending",
        answer.unnamed.is_pending().to_string(),
    );
    add_header(headers, "x-emberline-folded", answer.folded.to_string());
    add_header(headers, "x-emberline-others", answer.others.to_string());
    add_header(
        headers,
        "x-emberline-corrupt-files",
        answer.facts.damaged.len().to_string(),
    );
    add_header(
        headers,
        "x-emberline-data",
        answer.facts.data.map(start_and_stop).unwrap_or_default(),
    );
}

fn add_header(headers: &mut HeaderMap, name: &'static str, value: String) {
    let value =
        HeaderValue::try_from(value).expect("numbers, times and valid build ids are plain ASCII");
    headers.insert(HeaderName::from_static(name), value);
}

fn start_and_stop(range: TimeRange) -> String {
    format!(
        "{}/{}",
        format_time(range.start()),
        format_time(range.stop())
    )
}

/// Adds how long it took to compute the profile, and to write it in its format.
fn add_timing_header(headers: &mut HeaderMap, answer: Duration, write: Duration) {
    let text = format!(
        "answer;dur={:.3}, write;dur={:.3}",
        milliseconds(answer),
        milliseconds(write)
    );
    let value = HeaderValue::try_from(text).expect("numbers are plain ASCII");
    headers.insert(HeaderName::from_static("server-timing"), value);
}

fn milliseconds(part: Duration) -> f64 {
    part.as_secs_f64() * 1e3
}
