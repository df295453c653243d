//! Files of the golden store with hostile content and valid checksums: the manifest, and the tables.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use collector::serve::fuzzing::{Files, Subject};
use fuzz::Target;
use fuzz::mutation::Shape;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::now;

/// The body of the newest version.
pub(crate) const MANIFEST: Target = Target {
    name: "manifest",
    shape: Shape::Bytes,
    run: |input| {
        let Ok(body) = str::from_utf8(input) else {
            return;
        };
        if serde_json::from_str::<&RawValue>(body).is_err() {
            return;
        }
        let mut files = golden();
        files.insert(newest(), envelope(body));
        check(&files, "profile");
    },
    seeds: || {
        let whole = body();
        let mut small = whole.clone();
        if let Some(files) = small["files"].as_array_mut() {
            files.truncate(12);
        }
        let damaged = with_damage(&small);
        let seed = |name: &str, body: &Value| (name.to_owned(), body.to_string().into_bytes());
        vec![
            seed("golden", &whole),
            seed("small", &small),
            seed("damaged", &damaged),
        ]
    },
};

/// Two bytes that choose a file of the newest version, and its content.
pub(crate) const TABLES: Target = Target {
    name: "tables",
    shape: Shape::Bytes,
    run: |input| {
        let Some((number, content)) = input.split_first_chunk() else {
            return;
        };
        let mut body = body();
        let entries = body["files"]
            .as_array_mut()
            .expect("the golden store has files");
        let number = usize::from(u16::from_le_bytes(*number)) % entries.len();
        let entry = &mut entries[number];
        entry["bytes"] = json!(content.len());
        entry["crc32"] = json!(crc32fast::hash(content));
        let path = path_of(entry);
        let table = entry["table"].as_str().unwrap_or_default().to_owned();
        let mut files = golden();
        files.insert(path, content.to_vec().into());
        files.insert(newest(), envelope(&body.to_string()));
        check(&files, query_about(&table));
    },
    seeds: || {
        let golden = golden();
        let body = body();
        let entries = body["files"]
            .as_array()
            .expect("the golden store has files");
        entries
            .iter()
            .enumerate()
            .map(|(number, entry): (usize, &Value)| {
                let table = entry["table"].as_str().unwrap_or_default();
                let head = (number as u16).to_le_bytes();
                (
                    format!("{number:03}-{table}"),
                    [&head, &golden[&path_of(entry)][..]].concat(),
                )
            })
            .collect()
    },
};

/// Opens the store, and asks.
fn check(files: &Files, query: &str) {
    // A store that cannot be used is rejected with a reason.
    let Ok(mut subject) = Subject::open(now(), files, Files::new()) else {
        return;
    };
    let range = "from=2023-11-14T22:13:20Z&to=2023-11-14T22:16:00Z";
    let separator = if query.contains('?') { '&' } else { '?' };
    let address = format!("/api/v1/{query}{separator}{range}");
    let _ = subject.get(address.as_bytes());
}

/// A query that reads a table.
fn query_about(table: &str) -> &'static str {
    match table {
        _ if table.starts_with("samples") || table.starts_with("cycles") => "profile",
        _ if table.starts_with("totals") => "timeline?step=1s",
        _ if table.starts_with("threads") => "thread-time",
        _ if table.starts_with("transfer") => "transfers",
        _ if table.starts_with("duration") || table.starts_with("phase") => "tasks?summary=true",
        "tasks" | "running" | "lost_tasks" => "tasks",
        "resources" => "resources",
        "runs" => "runs",
        "expected" => "progress",
        _ => "profile?group=worker",
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/store/golden/store-1")
}

/// The manifest and the tables of the golden store.
pub(crate) fn golden() -> Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES
        .get_or_init(|| {
            let mut files = Files::new();
            for part in ["manifest", "tables"] {
                collect(&folder(), part, &mut files);
            }
            files
        })
        .clone()
}

fn collect(root: &Path, path: &str, files: &mut Files) {
    for entry in std::fs::read_dir(root.join(path)).expect("the golden store is in the repository")
    {
        let entry = entry.expect("the folder can be read");
        let path = format!("{path}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            let content = std::fs::read(entry.path()).expect("the file can be read");
            files.insert(path, content.into());
        }
    }
}

/// The path of the newest manifest.
fn newest() -> String {
    let files = golden();
    let manifests = files.keys().filter(|path| path.starts_with("manifest/"));
    manifests
        .max()
        .expect("the golden store has a manifest")
        .clone()
}

/// The body of the newest manifest.
fn body() -> Value {
    static BODY: OnceLock<Value> = OnceLock::new();
    BODY.get_or_init(|| {
        let mut manifest: Value =
            serde_json::from_slice(&golden()[&newest()]).expect("the golden manifest is JSON");
        manifest["body"].take()
    })
    .clone()
}

/// A manifest with this body and its checksum.
fn envelope(body: &str) -> Bytes {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(b"1\n");
    checksum.update(body.as_bytes());
    format!(
        "{{\"format\":1,\"crc32\":{},\"body\":{body}}}",
        checksum.finalize()
    )
    .into()
}

fn path_of(entry: &Value) -> String {
    let table = entry["table"].as_str().unwrap_or_default();
    format!(
        "tables/{table}/{:016x}.parquet",
        entry["id"].as_u64().unwrap_or_default()
    )
}

/// The manifest after damage of a table and of the log was found.
fn with_damage(body: &Value) -> Value {
    let mut damaged = body.clone();
    let lost = damaged["files"]
        .as_array_mut()
        .and_then(|files| files.pop());
    damaged["lost"] = json!([{ "file": lost, "reason": "its checksum is wrong" }]);
    let log = json!({ "path": "wal/1.wal", "reason": "a hole", "from": 5, "to": 9 });
    damaged["lost_log"] = json!([log]);
    damaged["cut"] = json!({ "samples_1s": 1_700_000_000u32 });
    damaged
}
