//! A small document store on tokio with a line protocol.
//!
//! ```text
//! PUT <key> <json>   ▶ OK <hash of the json>         json: {"id":1,"values":[1,2,3]}
//! GET <key>          ▶ VALUE <json>, or NONE
//! SUM <prefix>       ▶ TOTAL <sum of the values of all documents whose key begins so>
//! anything else      ▶ ERROR <why>
//! ```

pub(crate) mod client;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use emberline_agent::{Direction, transfer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::fleet::context::Context;

/// Longest request or answer; a document is about 5 KB.
const LINE_BYTES_MAX: u64 = 64 << 10;
const DOCUMENTS_MAX: usize = 10_000;
const CONNECTIONS_MAX: usize = 64;
/// Time for requests in progress at the stop; each takes about a millisecond.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// A stored document, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    id: u64,
    values: Vec<u64>,
}

/// The documents' text by key; sorted, so that a prefix is a range.
type Store = Mutex<BTreeMap<String, String>>;

/// Serves until the stop, on threads of its own.
pub(crate) fn serve(context: &Context, listener: TcpListener) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("service")
        .enable_io()
        .build()
        .context("could not start the service's runtime")?;
    listener.set_nonblocking(true)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    runtime.spawn(accept_all(context.clone(), listener));
    context.stop.wait();
    runtime.shutdown_timeout(SHUTDOWN_WAIT);
    Ok(())
}

async fn accept_all(context: Context, listener: tokio::net::TcpListener) {
    let store = Arc::new(Store::default());
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    for connection in 0u64.. {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let context = context.clone();
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    // The end of a connection, however it comes, concerns its client alone.
                    let _ = converse(&context, &store, stream, connection).await;
                    drop(permit);
                });
            }
            Err(error) => {
                context.note(format!("the service accepts no more: {error}"));
                return;
            }
        }
    }
}

async fn converse(
    context: &Context,
    store: &Store,
    stream: TcpStream,
    connection: u64,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    for number in 0u64.. {
        // The time between two requests is the client's.
        stream.fill_buf().await?;
        let mut incoming = transfer(Direction::Incoming, "clients")
            .type_name("request")
            .start();
        let mut line = String::new();
        (&mut stream)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .await?;
        // A line cut short is the end of the stream or over the limit; either way it is the last.
        let Some(request) = line.strip_suffix('\n') else {
            incoming.cancel();
            break;
        };
        context.recorder.received(line.len());
        incoming.add_bytes(line.len() as u64);
        drop(incoming);
        let answer = handle_request(
            context,
            store,
            request,
            format!("request-{connection}-{number}"),
        );
        let mut outgoing = transfer(Direction::Outgoing, "clients")
            .type_name("answer")
            .start();
        stream.write_all(answer.as_bytes()).await?;
        context.recorder.sent(answer.len());
        outgoing.add_bytes(answer.len() as u64);
    }
    Ok(())
}

/// Handles one request. Contains no await: the task's guard belongs to the thread that created it,
/// and the runtime may move a future to another thread at an await.
#[inline(never)]
fn handle_request(context: &Context, store: &Store, request: &str, key: String) -> String {
    let task = context.task("request", key);
    let (verb, arguments) = request.split_once(' ').unwrap_or((request, ""));
    let answer = match verb {
        "PUT" => put_document(store, arguments),
        "GET" => Ok(get_document(store, arguments)),
        "SUM" => sum_documents(store, arguments),
        _ => Err(anyhow!("unknown request; PUT, GET and SUM are known")),
    };
    answer.unwrap_or_else(|error| {
        let answer = format!("ERROR {error:#}\n");
        task.fail(error);
        answer
    })
}

#[inline(never)]
fn put_document(store: &Store, arguments: &str) -> anyhow::Result<String> {
    let (key, json) = arguments
        .split_once(' ')
        .context("PUT takes a key and a document")?;
    parse_document(json)?;
    let mut documents = store.lock().unwrap_or_else(PoisonError::into_inner);
    if documents.len() >= DOCUMENTS_MAX && !documents.contains_key(key) {
        bail!("the store is full: at most {DOCUMENTS_MAX} documents");
    }
    documents.insert(key.to_owned(), json.to_owned());
    Ok(format!("OK {:016x}\n", hash_text(json)))
}

#[inline(never)]
fn get_document(store: &Store, key: &str) -> String {
    match store
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(key)
    {
        Some(json) => format!("VALUE {json}\n"),
        None => "NONE\n".to_owned(),
    }
}

#[inline(never)]
fn sum_documents(store: &Store, prefix: &str) -> anyhow::Result<String> {
    let documents = store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut total = 0u64;
    let with_prefix = documents.range(prefix.to_owned()..);
    for (_, json) in with_prefix.take_while(|(key, _)| key.starts_with(prefix)) {
        total = total.wrapping_add(sum_values(&parse_document(json)?));
    }
    Ok(format!("TOTAL {total}\n"))
}

#[inline(never)]
fn parse_document(json: &str) -> anyhow::Result<Document> {
    serde_json::from_str(json).context("not a document")
}

fn sum_values(document: &Document) -> u64 {
    document
        .values
        .iter()
        .fold(0, |sum, value| sum.wrapping_add(*value))
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request's answer; a bad request is a failed task, and the answer says why.
    #[test]
    fn requests_are_answered() {
        let context = Context::new(0, 0);
        let store = Store::default();
        let check = |request: &str, expected: &str| {
            let answer = handle_request(&context, &store, request, "request-0".into());
            assert!(answer.starts_with(expected), "{request}: {answer}");
            assert_eq!(answer.matches('\n').count(), 1, "{answer}");
        };
        check("GET a1", "NONE");
        check(r#"PUT a1 {"id":1,"values":[1,2]}"#, "OK ");
        check(r#"PUT a2 {"id":2,"values":[40]}"#, "OK ");
        check(r#"PUT b1 {"id":3,"values":[1000]}"#, "OK ");
        check("GET a1", r#"VALUE {"id":1,"values":[1,2]}"#);
        check("SUM a", "TOTAL 43");
        check("SUM ", "TOTAL 1043");
        check("SUM zz", "TOTAL 0");
        check("PUT a1", "ERROR PUT takes a key and a document");
        check(r#"PUT a1 {"id":-1}"#, "ERROR not a document");
        check("DROP a1", "ERROR unknown request");
        let requests = &context.recorder.snapshot().tasks["request"];
        assert_eq!((requests.started, requests.ok, requests.failed), (11, 8, 3));
    }
}
