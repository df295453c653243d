//! `/api/v1/session`: what the sender of a request may do, and as whom.

use api::SessionAnswer;
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use profiler_core::Timestamp;

use super::answer;
use super::reader::Reader;
use front::auth::{Access, Role};
use front::error::ErrorAnswer;
use front::gate::{Caller, Credential};
use query::{format_time, no_parameters};

pub(super) async fn session(
    State(reader): State<Reader>,
    caller: Extension<Caller>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Response, ErrorAnswer> {
    no_parameters(&pairs)?;
    let mut answer = match caller.credential() {
        Credential::Token { record, session } => {
            let of_token = record.expires.map(|expires| {
                let expires = i64::try_from(expires.as_nanosecond()).unwrap_or(i64::MAX);
                Timestamp::from_unix_ns(expires)
            });
            let of_session = session.as_ref().map(|session| session.ends);
            let expires = of_token.into_iter().chain(of_session).min();
            SessionAnswer {
                role: record.role.name().into(),
                token: Some(record.id.to_string()),
                note: record.note.clone(),
                logged_in: session.is_some(),
                sql: false,
                expires: expires.map(format_time),
                expires_ns: expires.map(Timestamp::unix_ns),
            }
        }
        // They may do what an operator may.
        Credential::NotNeeded | Credential::User | Credential::Certificate(_) => SessionAnswer {
            role: Role::Operator.name().into(),
            ..SessionAnswer::default()
        },
    };
    answer.sql = reader.sql.is_available() && caller.credential().allows(Access::Operator);
    answer::json(&answer)
}
