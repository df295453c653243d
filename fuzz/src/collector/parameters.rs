//! Addresses of the HTTP API, answered from the golden store.

use std::cell::RefCell;

use collector::serve::fuzzing::{Files, Subject};
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;

use crate::now;
use crate::store::golden;

/// A byte that chooses the path, then the parameters.
pub(crate) const PARAMETERS: Target = Target {
    name: "parameters",
    shape: Shape::Bytes,
    run,
    seeds,
};

const PATHS: [&str; 14] = [
    "profile",
    "timeline",
    "tasks",
    "thread-time",
    "workers",
    "workers/settings",
    "thread-dump",
    "updates",
    "transfers",
    "resources",
    "progress",
    "runs",
    "events",
    "events/recent",
];

thread_local! {
    static SUBJECT: RefCell<Subject> = RefCell::new(
        Subject::open(now(), &golden(), Files::default()).expect("the golden store opens")
    );
}

fn run(input: &[u8]) {
    let (path, parameters) = parts::flags(input);
    let path = PATHS[usize::from(path) % PATHS.len()];
    let mut address = format!("/api/v1/{path}?").into_bytes();
    for byte in parameters {
        // Other bytes are no part of an address; clients encode them.
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~%+&=:/@,*".contains(byte);
        if is_plain {
            address.push(*byte);
        } else {
            address.extend(format!("%{byte:02X}").into_bytes());
        }
    }
    SUBJECT.with_borrow_mut(|subject| {
        let answer = subject.get(&address);
        if let Some((status, body)) = answer {
            let known = [200, 400, 404, 405, 429, 503].contains(&status);
            assert!(known, "{status}: {}", String::from_utf8_lossy(&body));
        }
    });
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let range = "from=2023-11-14T22:13:20Z&to=2023-11-14T22:16:00Z";
    let queries = [
        (
            0,
            "format=json&group=worker&task=load&state=cpu&threads=all",
        ),
        (0, "format=svg&phase=execute&label=zone=*&baseline=-10m"),
        (0, "format=collapsed&run=nightly@3"),
        (0, "format=columns&worker=worker-1&worker=worker-2"),
        (1, "step=1s&by=task&group=state"),
        (
            2,
            "limit=10&sort=-duration&state=running&key=load-1&outcome=failed",
        ),
        (2, "summary=true"),
        (2, "format=columns&name=load"),
        (3, "by=thread&worker=worker-1"),
        (4, "worker=worker-1"),
        (5, "worker=worker-1"),
        (6, "worker=worker-1&stacks=true"),
        (
            8,
            "by=peer&peer=worker-2&direction=incoming&limit=5&order=bytes",
        ),
        (9, "measure=process_cpu&step=10s"),
        (10, "task=load"),
        (11, "name=nightly"),
        (13, "limit=10"),
        (
            0,
            "outside=hidden&stacks=simple&state=cpu&focus=main&hide=f&merge=g&recursion=true",
        ),
        (0, "stacks=own&state=all&zoom=1zx94b"),
        (0, "format=collapsed&thread=pool-1&thread_id=0&phases=true"),
    ];
    queries
        .iter()
        .enumerate()
        .map(|(number, (path, query)): (usize, &(u8, &str))| {
            let text = format!("{range}&{query}");
            (
                format!("query-{number}"),
                [&[*path], text.as_bytes()].concat(),
            )
        })
        .collect()
}
