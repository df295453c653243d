//! One worker process: joins its group, plays its roles until its stdin ends, prints its record.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::context::Context;
use super::link::{Link, join};
use super::pace::Pace;
use super::record::{LOG_VARIABLE, Recorder};
use crate::{pipeline, qr, service};

/// Smallest number of workers that gives two to each group.
pub(super) const WORKERS_MIN: usize = 4;
/// Largest number of workers. Data workers are fully connected: 32 · 31 / 2 connections at this
/// size.
pub(super) const WORKERS_MAX: usize = 64;
/// Addresses of all workers as JSON, about 70 bytes each.
const ROSTER_BYTES_MAX: u64 = 64 << 10;
const CLIENTS: usize = 2;

/// Addresses of a worker: the line it prints when it is ready.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Addresses {
    /// For the other workers of its group.
    pub(super) group: SocketAddr,
    /// For the clients, if the worker runs the service.
    pub(super) service: Option<SocketAddr>,
}

/// Addresses of all workers: one line on each worker's stdin once all are ready.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Roster {
    pub(super) seed: u64,
    pub(super) workers: Vec<Addresses>,
}

/// Runs worker `index` of `workers` until stdin ends. The process started by
/// [`Fleet::spawn`](super::Fleet::spawn) must call this, on a thread that it can give away.
///
/// Stdin and stdout belong to the fleet meanwhile; the last line on stdout is a
/// [`WorkerRecord`](super::WorkerRecord). The agent reports as `worker-<index>`.
///
/// # Errors
/// If the numbers are out of range, the worker could not start, or a result was wrong. A lost peer
/// or an unreachable collector is not an error.
pub fn worker_main(index: usize, workers: usize, collector_url: &str) -> anyhow::Result<()> {
    if !(WORKERS_MIN..=WORKERS_MAX).contains(&workers) || index >= workers {
        bail!("worker {index} of {workers}: a fleet has {WORKERS_MIN} to {WORKERS_MAX} workers");
    }
    let group = Group::of(index, workers);
    let ready = Ready {
        group_listener: bind()?,
        service_listener: (index == workers - 1).then(bind).transpose()?,
        share: group
            .handles_data()
            .then(|| pipeline::Share::find(group.place(index))),
    };
    say(&Addresses {
        group: ready.group_listener.local_addr()?,
        service: ready
            .service_listener
            .as_ref()
            .map(TcpListener::local_addr)
            .transpose()?,
    })?;
    let mut stdin = BufReader::new(io::stdin());
    let Some(roster) = read_roster(&mut stdin)? else {
        return Ok(());
    };

    let agent = emberline_agent::Agent::builder()
        .collector(collector_url)
        .worker(format!("worker-{index}"))
        .label("role", group.role)
        .start()?;
    let worker = format!("worker-{index}");
    let recorder = match std::env::var_os(LOG_VARIABLE) {
        Some(folder) => Recorder::with_log(worker, folder.as_ref())
            .with_context(|| format!("could not write a log to {LOG_VARIABLE}"))?,
        None => Recorder::new(worker),
    };
    let mut context = Context::with_recorder(index, roster.seed, recorder);
    context.pace = Some(Arc::new(Pace::of_machine(workers)));
    let stop = context.stop.clone();
    // Not joined: it ends with the process if the roles fail before stdin ends.
    Builder::new().name("stdin".into()).spawn(move || {
        let _ = io::copy(&mut stdin, &mut io::sink());
        stop.set();
    })?;
    let roles = start_roles(&context, &group, &roster, ready)?;
    let ended = wait_for(&context, roles);
    // Prints the record first: a collector that is slow to take the last flush cannot lose it.
    let said = say(&context.recorder.snapshot());
    let logged = context
        .recorder
        .finish_log()
        .context("could not write the log");
    drop(agent);
    ended.and(said).and(logged)
}

/// The workers of one role.
struct Group {
    role: &'static str,
    workers: Range<usize>,
}

impl Group {
    fn of(index: usize, workers: usize) -> Self {
        let half = workers / 2;
        if index < half {
            Self {
                role: "qr",
                workers: 0..half,
            }
        } else {
            Self {
                role: "pipeline",
                workers: half..workers,
            }
        }
    }

    fn handles_data(&self) -> bool {
        self.role == "pipeline"
    }

    fn place(&self, index: usize) -> pipeline::GroupMember {
        let first_worker = self.workers.start;
        pipeline::GroupMember {
            member: index - first_worker,
            members: self.workers.len(),
            first_worker,
        }
    }
}

/// Prepared before a worker reports that it is ready, so that the fleet's time is work from the
/// start.
struct Ready {
    group_listener: TcpListener,
    service_listener: Option<TcpListener>,
    /// Input of data workers; an error is the role's, and the other roles can go on.
    share: Option<anyhow::Result<pipeline::Share>>,
}

/// Runs a role on a thread of that name.
type Role = (String, JoinHandle<anyhow::Result<()>>);

fn start_roles(
    context: &Context,
    group: &Group,
    roster: &Roster,
    ready: Ready,
) -> anyhow::Result<Vec<Role>> {
    let peers: Vec<(usize, SocketAddr)> = group
        .workers
        .clone()
        .map(|index| (index, roster.workers[index].group))
        .collect();
    let Ready {
        group_listener,
        service_listener,
        share,
    } = ready;
    let index = context.index;
    let member = group.place(index).member;
    let others = index + 1..group.workers.end;
    let mut roles = vec![match (share, member) {
        (None, 0) => role(context, "qr", move |context| {
            qr::lead(context, join(context, &group_listener, &[], others)?)
        })?,
        (None, _) => role(context, "qr", move |context| {
            let links: Vec<Link> = join(context, &group_listener, &peers[..1], [])?;
            qr::follow(context, links.into_iter().next())
        })?,
        (Some(share), _) => role(context, "pipeline", move |context| {
            let links = join(context, &group_listener, &peers[..member], others)?;
            pipeline::run(context, share?, links)
        })?,
    }];
    if let Some(listener) = service_listener {
        roles.push(role(context, "serve", move |context| {
            service::serve(context, listener)
        })?);
    }
    let server = roster.workers.len() - 1;
    if let (0, Some(address)) = (index, roster.workers[server].service) {
        for number in 0..CLIENTS {
            roles.push(role(
                context,
                &format!("client-{number}"),
                move |context| service::client::run(context, number, server, address),
            )?);
        }
    }
    Ok(roles)
}

fn role(
    context: &Context,
    name: &str,
    run: impl FnOnce(&Context) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Role> {
    let context = context.clone();
    let thread = Builder::new().name(name.into()).spawn(move || {
        let ended = run(&context);
        // Reported at once, because the other roles go on and the worker's own end may be far.
        if let Err(error) = &ended {
            context.note(format!("{error:#}"));
        }
        ended
    })?;
    Ok((name.to_owned(), thread))
}

/// Waits for all roles and for the stop; returns the first failure.
fn wait_for(context: &Context, roles: Vec<Role>) -> anyhow::Result<()> {
    context.stop.wait();
    let mut worker = Ok(());
    for (name, thread) in roles {
        let ended = thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("it panicked")));
        worker = worker.and(ended.with_context(|| format!("role {name} failed")));
    }
    worker
}

fn bind() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

/// Prints one line of JSON for the parent; returns an error if it has gone, where `println` would
/// panic.
fn say(message: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Reads the roster; `None` if the fleet was stopped before all workers were ready.
fn read_roster(stdin: &mut impl BufRead) -> anyhow::Result<Option<Roster>> {
    let mut line = String::new();
    stdin.take(ROSTER_BYTES_MAX).read_line(&mut line)?;
    if line.is_empty() {
        Ok(None)
    } else {
        Ok(Some(
            serde_json::from_str(&line).context("the fleet's roster is broken")?,
        ))
    }
}
