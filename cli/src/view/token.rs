//! Tokens of a collector.

use std::path::Path;

use collector::QuotaSettings;
use collector::auth::TokenRecord;
use flamegraph::text::printable;
use jiff::Timestamp;
use serde::Serialize;

use crate::grid::Align::{Left, Time};
use crate::grid::Grid;

/// A token in JSON output.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    id: String,
    role: &'a str,
    workers: Vec<String>,
    created: Timestamp,
    expires: Option<Timestamp>,
    expired: bool,
    note: &'a str,
    quotas: &'a QuotaSettings,
    /// Only of a new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

pub(crate) fn row(record: &TokenRecord, now: Timestamp) -> Row<'_> {
    Row {
        id: record.id.to_string(),
        role: record.role.name(),
        workers: record.workers.iter().map(ToString::to_string).collect(),
        created: record.created,
        expires: record.expires,
        expired: record.is_expired(now),
        note: &record.note,
        quotas: &record.quotas,
        token: None,
    }
}

pub(crate) fn rows(records: &[TokenRecord], now: Timestamp) -> Vec<Row<'_>> {
    records.iter().map(|record| row(record, now)).collect()
}

pub(crate) fn created<'a>(record: &'a TokenRecord, token: Option<&'a str>) -> Row<'a> {
    Row {
        token,
        ..row(record, record.created)
    }
}

fn workers(record: &TokenRecord) -> String {
    let patterns: Vec<_> = record
        .workers
        .iter()
        .map(|pattern| pattern.to_string())
        .collect();
    patterns.join(", ")
}

fn quotas(record: &TokenRecord) -> String {
    let quotas: Vec<_> = record
        .quotas
        .iter()
        .map(|(quota, value)| format!("{quota}={value}"))
        .collect();
    quotas.join(", ")
}

fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

pub(crate) fn table(records: &[TokenRecord], now: Timestamp) -> String {
    let mut grid = Grid::new(&[
        ("ID", Left),
        ("ROLE", Left),
        ("WORKERS", Left),
        ("NOTE", Left),
        ("EXPIRES (UTC)", Time),
        ("QUOTAS", Left),
        ("CREATED (UTC)", Time),
    ]);
    for record in records {
        let expires = match record.expires {
            None => "never".to_owned(),
            Some(expires) if record.is_expired(now) => format!("{}, past", time(expires)),
            Some(expires) => time(expires),
        };
        grid.push([
            record.id.to_string(),
            record.role.name().to_owned(),
            workers(record),
            record.note.clone(),
            expires,
            quotas(record),
            time(record.created),
        ]);
    }
    grid.text()
}

pub(crate) fn created_line(record: &TokenRecord, file: &Path) -> String {
    let id = record.id;
    let role = record.role;
    let mut line = format!("token {id} of role {role} created");
    if !record.workers.is_empty() {
        line.push_str(&format!(" for workers {}", printable(&workers(record))));
    }
    if let Some(expires) = record.expires {
        line.push_str(&format!(", expires {} UTC", time(expires)));
    }
    line.push_str(&format!("; its hash is in {}", file.display()));
    line
}

pub(crate) fn file_hint(path: &Path) -> String {
    let path = path.display();
    format!("the token is in {path}; use it with: export EMBERLINE_TOKEN_FILE={path}")
}

pub(crate) fn revoked_line(record: &TokenRecord) -> String {
    format!("token {} of role {} revoked", record.id, record.role)
}

#[cfg(test)]
mod tests {
    use collector::Quota;
    use collector::auth::{NewToken, Role, TokenFile, WorkerPattern};
    use expect_test::expect;

    use super::*;

    #[test]
    fn tokens_are_listed_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::in_folder(folder.path());
        let created = Timestamp::from_second(1_770_000_000).unwrap();
        let workers = vec![WorkerPattern::parse("etl-*").unwrap()];
        let expires = Some(Timestamp::from_second(1_770_100_000).unwrap());
        let note = "Ada\u{202e}".to_owned();
        let mut quotas = QuotaSettings::default();
        quotas.set(Quota::Sessions, 9).unwrap();
        let agent = NewToken {
            workers,
            expires,
            note,
            quotas,
            ..NewToken::new(Role::Agent)
        };
        file.create(agent, created).unwrap();
        file.create(NewToken::new(Role::Operator), created).unwrap();
        let records = file.read().unwrap().unwrap();
        let [first, second] = [&records[0], &records[1]].map(|record| record.id.to_string());
        let text = table(&records, Timestamp::from_second(1_770_100_000).unwrap())
            .replace(&first, "11111111")
            .replace(&second, "22222222");
        expect![[r#"
            ID        ROLE      WORKERS  NOTE         EXPIRES (UTC)           QUOTAS  …
            11111111  agent     etl-*    Ada\u{202e}  2026-02-03 06:26, past  sessions=9
            22222222  operator                        never
        "#]]
        .assert_eq(&text);
    }
}
