//! Pushes of Pyroscope clients and OTLP senders. `docs/INTEGRATIONS.md` says how to configure them.

mod body;
mod connect;
mod failure;
mod ingest;
mod otlp;
mod profile;
mod scrape;
mod series;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query as Parameters, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use import::KnownTables;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use self::body::HeldBody;
use self::ingest::Query;
use self::otlp::{ExportProfilesServiceResponse, Transport};
use self::profile::{Parsed, Parser, Profile};
use self::series::Source;
use base::limits::{
    LARGE_PUSH_BYTES, PUSH_BODIES_BYTES_MAX, PUSH_CONTENT_BYTES_MAX, PUSHED_LABEL_SETS_MAX,
};
use base::log_limit::{Admitted, LineLimit};
use front::gate::Caller;
use shares::identity::Identity;
use shares::{Account, MemoryPool, Quota};
use state::Collector;
use state::pushed::{PushedSeries, StoredPush};
use state::tree::KnownTree;

pub(crate) use self::body::decoded;
pub(crate) use self::connect::Encoding;
pub use self::failure::{Failure, Kind};
pub use self::otlp::{
    GRPC_PATH as OTLP_GRPC_PATH, HTTP_PATH as OTLP_HTTP_PATH, Transport as OtlpTransport,
};
pub use self::scrape::ScrapeTarget;

/// The paths of the inlet.
pub const INGEST_PATH: &str = "/ingest";
pub const PUSH_PATH: &str = "/push.v1.PusherService/Push";

/// Says what of a push by Connect is not stored, because its answer has no fields.
const WARNING_HEADER: &str = "x-emberline-warning";

/// Most reasons that an answer repeats.
const REASONS_MAX: usize = 8;

/// Any client can cause these lines.
static REJECTED: LineLimit = LineLimit::new();

/// State that the routes share.
#[derive(Clone)]
struct Inlet {
    collector: Arc<Collector>,
    bodies: Arc<MemoryPool>,
    task_label: Arc<str>,
    /// Held while a request of OTLP is decoded, which can take a large multiple of its bytes.
    otlp_decoding: Arc<tokio::sync::Mutex<()>>,
}

impl Inlet {
    fn new(collector: Arc<Collector>, task_label: &str) -> Inlet {
        let bodies = MemoryPool::new(Quota::BegunBytes, PUSH_BODIES_BYTES_MAX);
        let task_label = task_label.into();
        Inlet {
            collector,
            bodies,
            task_label,
            otlp_decoding: Arc::default(),
        }
    }
}

/// The routes of the inlet. Samples with the label `task_label` belong to the task that it names.
pub fn routes(collector: Arc<Collector>, task_label: &str) -> Router {
    let inlet = Inlet::new(collector, task_label);
    Router::new()
        .route(INGEST_PATH, post(ingest))
        .route(PUSH_PATH, post(push))
        .route(OTLP_HTTP_PATH, post(export_by_http))
        .route(OTLP_GRPC_PATH, post(export_by_grpc))
        .with_state(inlet)
}

/// Asks a service for profiles until the collector stops.
pub async fn scrape(
    collector: Arc<Collector>,
    task_label: String,
    target: ScrapeTarget,
    stopping: watch::Receiver<bool>,
) {
    let sender = Sender::of_collector(Inlet::new(collector, &task_label));
    scrape::scrape(sender, target, stopping).await;
}

/// The outcome of a request.
#[derive(Debug, Default)]
struct Outcome {
    stored_ns: u64,
    /// The workers in which something is stored.
    series: BTreeSet<String>,
    /// Number of sets of labels of samples that count without them.
    merged: usize,
    /// Why profiles were dropped: they have samples, but these measure no time.
    dropped: Vec<String>,
    /// Why series were dropped next to others that are stored.
    refused: Vec<String>,
    /// Why profiles have nothing to store.
    empty: Vec<String>,
    /// Assumptions about stored profiles, and data of theirs that is not used.
    notes: Vec<String>,
}

impl Outcome {
    /// The answer of `/ingest`, for people.
    fn text(&self) -> String {
        let seconds = self.stored_ns as f64 / 1e9;
        let mut text = format!("stored {seconds:.3} s in {} series\n", self.series.len());
        for reason in self.dropped.iter().chain(&self.refused) {
            text.push_str(&format!("dropped: {reason}\n"));
        }
        for reason in &self.empty {
            text.push_str(&format!("empty: {reason}\n"));
        }
        if self.merged > 0 {
            text.push_str(&format!(
                "note: samples with {} further sets of labels count without these: a name keeps {PUSHED_LABEL_SETS_MAX}\n",
                self.merged
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    /// Why nothing, or not all, is stored; empty if all is.
    fn warning(&self) -> String {
        let reasons: Vec<&str> = self
            .dropped
            .iter()
            .chain(&self.refused)
            .chain(&self.empty)
            .take(REASONS_MAX)
            .map(String::as_str)
            .collect();
        match (self.series.is_empty(), reasons.is_empty()) {
            (true, true) => "nothing is stored: the request has no samples".to_owned(),
            (true, false) => format!("nothing is stored: {}", reasons.join("; ")),
            (false, _) => reasons.join("; "),
        }
    }

    /// [`warning`](Outcome::warning) as a header, where a protocol has no place for it.
    fn header(&self) -> Option<(&'static str, HeaderValue)> {
        let warning: String = self.warning().chars().map(header_text).collect();
        let value = HeaderValue::from_str(&warning)
            .ok()
            .filter(|value| !value.is_empty())?;
        Some((WARNING_HEADER, value))
    }
}

/// A character as it may be in a header.
fn header_text(character: char) -> String {
    match character {
        ' '..='~' => character.to_string(),
        _ => character.escape_default().to_string(),
    }
}

async fn ingest(
    State(inlet): State<Inlet>,
    Extension(identity): Extension<Identity>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let sender = Sender::new(inlet, &identity, caller);
    match sender.counted(Source::Pyroscope, sender.ingest(request).await) {
        Ok(outcome) => outcome.text().into_response(),
        Err(failure) => failure.http(),
    }
}

async fn push(
    State(inlet): State<Inlet>,
    Extension(identity): Extension<Identity>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let sender = Sender::new(inlet, &identity, caller);
    let encoding = Encoding::of(request.headers());
    let is_json = encoding == Ok(Encoding::Json);
    let pushed = match encoding {
        Ok(encoding) => {
            let client = connect::client(request.headers());
            sender
                .store(request, Content::Push { encoding, client })
                .await
        }
        Err(failure) => Err(failure),
    };
    match sender.counted(Source::Pyroscope, pushed) {
        Ok(outcome) => {
            let mut response = if is_json {
                Json(serde_json::json!({})).into_response()
            } else {
                [(header::CONTENT_TYPE, "application/proto")].into_response()
            };
            if let Some((name, warning)) = outcome.header() {
                response.headers_mut().insert(name, warning);
            }
            response
        }
        Err(failure) => failure.connect(),
    }
}

async fn export_by_http(
    State(inlet): State<Inlet>,
    Extension(identity): Extension<Identity>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    match Transport::of_http(request.headers()) {
        Ok(transport) => export(inlet, &identity, caller, request, transport).await,
        Err(failure) => {
            Sender::new(inlet, &identity, caller).count_rejection(Source::Otlp, &failure.text);
            failure.http()
        }
    }
}

async fn export_by_grpc(
    State(inlet): State<Inlet>,
    Extension(identity): Extension<Identity>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    export(inlet, &identity, caller, request, Transport::Grpc).await
}

async fn export(
    inlet: Inlet,
    identity: &Identity,
    caller: Caller,
    request: Request,
    transport: Transport,
) -> Response {
    let sender = Sender::new(inlet, identity, caller);
    let stored = sender.store(request, Content::Otlp(transport)).await;
    match sender.counted(Source::Otlp, stored) {
        Ok(outcome) => transport.stored(ExportProfilesServiceResponse::new(
            outcome.dropped.len() + outcome.refused.len(),
            outcome.warning(),
        )),
        Err(failure) => transport.failed(failure),
    }
}

/// Kind of a body, by the rest of its request.
enum Content {
    Ingest(Box<Query>),
    Push { encoding: Encoding, client: String },
    Otlp(Transport),
}

impl Content {
    /// The profiles of a body whose encoding is undone.
    async fn profiles(
        &self,
        inlet: &Inlet,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Vec<Profile>, Failure> {
        match self {
            Content::Ingest(query) => Ok(vec![query.clone().profile(headers, body).await?]),
            Content::Push { encoding, client } => connect::profiles(*encoding, &body, client),
            Content::Otlp(transport) => {
                let transport = *transport;
                let decoding = inlet.otlp_decoding.clone().lock_owned().await;
                let headers = headers.clone();
                let decode = move || {
                    let _decoding = decoding;
                    otlp::profiles(transport, &headers, &body)
                };
                spawn_blocking(decode)
                    .await
                    .unwrap_or_else(|_| Err(panicked()))
            }
        }
    }
}

/// The sender of a request.
#[derive(Clone)]
struct Sender {
    inlet: Inlet,
    account: Arc<Account>,
    /// `None` for the collector itself, which may report as every worker.
    caller: Option<Caller>,
}

impl Sender {
    fn new(inlet: Inlet, identity: &Identity, caller: Caller) -> Sender {
        let account = inlet.collector.accounts.of(identity, caller.quotas());
        Sender {
            inlet,
            account,
            caller: Some(caller),
        }
    }

    fn of_collector(inlet: Inlet) -> Sender {
        let account = inlet.collector.accounts.of(&Identity::Collector, None);
        Sender {
            inlet,
            account,
            caller: None,
        }
    }

    async fn ingest(&self, request: Request) -> Result<Outcome, Failure> {
        let pairs = Parameters::<Vec<(String, String)>>::try_from_uri(request.uri());
        let Parameters(pairs) = pairs.map_err(|error| Failure::invalid(error.body_text()))?;
        let query = Query::parse(&pairs, self.inlet.collector.state.clock.now())?;
        self.store(request, Content::Ingest(Box::new(query))).await
    }

    /// Stores the profiles of a request. Nothing is stored if one of them cannot be read.
    async fn store(&self, request: Request, content: Content) -> Result<Outcome, Failure> {
        let (parts, body) = request.into_parts();
        let body = body::read(body, &self.inlet.bodies, &self.account).await?;
        let turn = body
            .waiting(self.inlet.collector.pushed.turns.take(&self.account))
            .await?;
        let sender = self.clone();
        // Goes on even if the client goes away: a series must not be left between two messages.
        let stored = tokio::spawn(async move {
            let profiles = sender.profiles(&parts.headers, &body, &content).await?;
            if let Some(parsed) = sender.parse_small(profiles, body.bytes.len()).await? {
                return sender.store_parsed(parsed).await;
            }
            // Decoded again when its turn has come, so that those that wait hold only their bodies.
            drop(turn);
            let large_turns = &sender.inlet.collector.pushed.large_turns;
            let _large_turn = body.waiting(large_turns.take(&sender.account)).await?;
            let profiles = sender.profiles(&parts.headers, &body, &content).await?;
            sender.store_parsed(sender.parse(profiles).await?).await
        });
        stored.await.unwrap_or_else(|_| Err(panicked()))
    }

    /// Stores profiles that are in memory already.
    async fn store_profiles(&self, profiles: Vec<Profile>) -> Result<Outcome, Failure> {
        let pushed = &self.inlet.collector.pushed;
        let expanded = spawn_blocking(move || expanded(profiles)).await;
        let Expanded { profiles, bytes } = expanded.unwrap_or_else(|_| Err(panicked()))?;
        let turns = if bytes <= LARGE_PUSH_BYTES {
            &pushed.turns
        } else {
            &pushed.large_turns
        };
        let turn = turns.take(&self.account).await;
        let sender = self.clone();
        let stored = tokio::spawn(async move {
            let _turn = turn;
            sender.store_parsed(sender.parse(profiles).await?).await
        });
        stored.await.unwrap_or_else(|_| Err(panicked()))
    }

    async fn profiles(
        &self,
        headers: &HeaderMap,
        body: &HeldBody,
        content: &Content,
    ) -> Result<Vec<Profile>, Failure> {
        let bytes = body.bytes.clone();
        let decoded = if headers.contains_key(header::CONTENT_ENCODING) {
            let headers = headers.clone();
            spawn_blocking(move || body::decoded(&headers, bytes, PUSH_CONTENT_BYTES_MAX))
                .await
                .unwrap_or_else(|_| Err(panicked()))?
        } else {
            bytes
        };
        content.profiles(&self.inlet, headers, decoded).await
    }

    /// Decompresses, parses and looks up the profiles of a body of that many bytes, on one thread. `None` if they are
    /// large, which have turns of their own.
    async fn parse_small(
        &self,
        profiles: Vec<Profile>,
        body_bytes: usize,
    ) -> Result<Option<Vec<Parsed>>, Failure> {
        let sender = self.clone();
        let parse = move || {
            let Expanded { profiles, bytes } = expanded(profiles)?;
            // Its next pushes wait until the quota allows what this one expands to.
            sender
                .account
                .charge_bytes(bytes.saturating_sub(body_bytes))
                .map_err(body::too_fast)?;
            if bytes > LARGE_PUSH_BYTES {
                return Ok(None);
            }
            let state = &sender.inlet.collector.state;
            let known = KnownTree(&state.tree);
            let mut parsed = sender.parse_now(profiles, Some(&known))?;
            for parsed in &mut parsed {
                if let Parsed::Samples(samples) = parsed {
                    samples.look_up(state);
                }
            }
            Ok(Some(parsed))
        };
        spawn_blocking(parse)
            .await
            .unwrap_or_else(|_| Err(panicked()))
    }

    async fn parse(&self, profiles: Vec<Profile>) -> Result<Vec<Parsed>, Failure> {
        let sender = self.clone();
        spawn_blocking(move || sender.parse_now(profiles, None))
            .await
            .unwrap_or_else(|_| Err(panicked()))
    }

    fn parse_now(
        &self,
        profiles: Vec<Profile>,
        known: Option<&dyn KnownTables>,
    ) -> Result<Vec<Parsed>, Failure> {
        let now = self.inlet.collector.state.clock.now();
        let mut parser = Parser::new(&self.inlet.task_label, now, known);
        let count = profiles.len();
        profiles
            .into_iter()
            .map(|profile| {
                let worker = profile.series.worker();
                parser
                    .parse(profile)
                    .map_err(|failure| failure.of(&worker, count))
            })
            .collect()
    }

    async fn store_parsed(&self, parsed: Vec<Parsed>) -> Result<Outcome, Failure> {
        let mut outcome = Outcome::default();
        let mut series = Vec::new();
        for parsed in parsed {
            match parsed {
                Parsed::Samples(samples) => {
                    let state = &self.inlet.collector.state;
                    state.note_invalid_build_ids(samples.invalid_build_ids(), &self.account);
                    outcome.notes.extend_from_slice(samples.notes());
                    series.extend(samples.into_series());
                }
                Parsed::Empty(reason) => outcome.empty.push(reason),
                Parsed::WithoutTime(reason) => outcome.dropped.push(reason),
            }
        }
        for PushedSeries {
            description, base, ..
        } in &series
        {
            self.check_worker(&description.worker)?;
            self.check_worker(&base.worker)?;
        }
        let mut first_failed = None;
        let mut series = series.into_iter();
        while let Some(pushed) = series.next() {
            let worker = pushed.description.worker.clone();
            // The collector itself asks a service for its next profile only.
            let is_final = self.caller.is_none() || !outcome.series.is_empty();
            match self.store_series(pushed, is_final).await {
                Ok(stored) => {
                    outcome.stored_ns += stored.weight_ns;
                    outcome.merged += usize::from(stored.is_merged);
                    outcome.series.insert(stored.worker);
                }
                // It may be stored when it comes again, and nothing would be stored twice then.
                Err(failure) if failure.is_retried() && !is_final => {
                    self.note_refused(series.as_slice(), &failure.text).await;
                    return Err(failure);
                }
                Err(failure) => {
                    first_failed.get_or_insert(failure.kind);
                    outcome.refused.push(format!("{worker}: {}", failure.text));
                }
            }
        }
        match first_failed {
            Some(kind) if outcome.series.is_empty() => Err(Failure::new(kind, outcome.warning())),
            _ => Ok(outcome),
        }
    }

    async fn store_series(
        &self,
        pushed: PushedSeries,
        is_final: bool,
    ) -> Result<StoredPush, Failure> {
        let all = &self.inlet.collector.pushed;
        Ok(all.store(&self.account, pushed, is_final).await?)
    }

    /// Notes that these series keep pushing.
    async fn note_refused(&self, series: &[PushedSeries], reason: &str) {
        for pushed in series {
            let all = &self.inlet.collector.pushed;
            all.note_refused(&self.account, pushed, reason).await;
        }
    }

    fn check_worker(&self, worker: &str) -> Result<(), Failure> {
        if self
            .caller
            .as_ref()
            .is_none_or(|caller| caller.covers(worker))
        {
            return Ok(());
        }
        let text = format!(
            "the token may not report as {worker}; run: emberline token new --role agent --worker \
             {}",
            api::shell_quoted(&format!(
                "{}:*",
                worker.split(':').next().unwrap_or_default()
            ))
        );
        Err(Failure::new(Kind::Denied, text))
    }

    /// Counts the outcome of a request.
    fn counted(
        &self,
        source: Source,
        outcome: Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let counters = &self.inlet.collector.pushed.counters;
        match &outcome {
            Ok(outcome) => {
                let Outcome {
                    stored_ns,
                    series,
                    dropped,
                    refused,
                    ..
                } = outcome;
                counters.count(source.name(), |counts| {
                    counts.stored += u64::from(!series.is_empty());
                    counts.stored_ns += stored_ns;
                    counts.without_time += u64::from(!dropped.is_empty());
                    counts.empty += u64::from(series.is_empty() && dropped.is_empty());
                });
                if !refused.is_empty() {
                    self.count_rejection(source, &outcome.warning());
                }
            }
            Err(failure) => self.count_rejection(source, &failure.text),
        }
        outcome
    }

    fn count_rejection(&self, source: Source, reason: &str) {
        let source = source.name();
        self.inlet
            .collector
            .pushed
            .counters
            .count(source, |counts| {
                counts.rejected += 1;
                counts.last_rejection = Some(reason.to_owned());
            });
        if let Some(Admitted { suppressed }) = REJECTED.admit() {
            let sender = self.account.identity.to_string();
            tracing::info!(
                source,
                sender,
                reason,
                suppressed,
                "rejected pushed profiles"
            );
        }
    }
}

/// The profiles of a request, and the bytes that they have without compression.
struct Expanded {
    profiles: Vec<Profile>,
    bytes: usize,
}

/// Decompresses the profiles of a small push, once. Those of a large one, which waits for its turn, are only
/// measured.
fn expanded(mut profiles: Vec<Profile>) -> Result<Expanded, Failure> {
    let mut bytes = 0_usize;
    let count = profiles.len();
    for profile in &mut profiles {
        let expanded = profile.expand(
            LARGE_PUSH_BYTES.saturating_sub(bytes),
            PUSH_CONTENT_BYTES_MAX.saturating_sub(bytes),
        );
        bytes +=
            expanded.map_err(|error| Failure::from(error).of(&profile.series.worker(), count))?;
    }
    Ok(Expanded { profiles, bytes })
}

fn panicked() -> Failure {
    Failure::new(
        Kind::Internal,
        "storing the profile panicked: a bug in Emberline",
    )
}
