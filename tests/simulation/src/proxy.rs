//! A network in front of a server. It can be cut, and answers of the server can get lost.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::agent::lock;
use crate::random::Random;

/// A proxy in front of one server at a time. Its connections break when it is dropped.
pub struct Proxy {
    /// Its port, which stays the same.
    pub port: u16,
    /// How often each fault happened.
    pub faults: Arc<Faults>,
    network: Arc<Network>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// Counts of faults.
#[derive(Default, Debug)]
pub struct Faults {
    /// Answers that the server gave and the client did not receive.
    pub lost_answers: AtomicU64,
    /// Requests that the server did not receive.
    pub lost_requests: AtomicU64,
    /// Answers of an overloaded server.
    pub overloads: AtomicU64,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// After this many answers the next one is lost: the server has done what was requested.
    LosesAnswer(u64),
    /// The request does not arrive.
    LosesRequest,
    /// The server answers that it is overloaded.
    Overload,
    /// No fault.
    Passes,
    /// The condition of requests is removed, so the server overwrites what exists.
    Unconditional,
}

type NextFate = Box<dyn FnMut() -> Fate + Send>;

struct Network {
    faults: Arc<Faults>,
    state: Mutex<State>,
    /// `state.is_held` has become false, or connections were broken.
    changed: Condvar,
}

struct State {
    /// Port of the server; `None`: connections are refused.
    server: Option<u16>,
    /// No byte passes.
    is_held: bool,
    next_fate: NextFate,
    /// Both ends of each open connection, by its number.
    connections: BTreeMap<u64, Vec<TcpStream>>,
    next_connection: u64,
}

/// Longest interruption; then a connection breaks.
const HELD_MAX: Duration = Duration::from_secs(120);
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Ports below those that Linux gives to clients, or another process could use ours while it is closed.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

/// A header of requests, and another one as long.
const CONDITION: &[u8] = b"if-none-match: *";
const NO_CONDITION: &[u8] = b"unconditional: *";
const _: () = assert!(CONDITION.len() == NO_CONDITION.len());

const OVERLOADED: &[u8] =
    b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

impl Proxy {
    /// A proxy that refuses connections until it has a server.
    ///
    /// # Errors
    /// If no port is free.
    pub fn new() -> Result<Proxy> {
        let faults = Arc::<Faults>::default();
        let state = State {
            server: None,
            is_held: false,
            next_fate: Box::new(|| Fate::Passes),
            connections: BTreeMap::new(),
            next_connection: 0,
        };
        let network = Network {
            faults: faults.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let port = free_port()?;
        Ok(Proxy {
            port,
            faults,
            network: Arc::new(network),
            listening: Mutex::new(None),
        })
    }

    /// A proxy that passes everything to a server.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(server: u16) -> Result<Proxy> {
        let proxy = Proxy::new()?;
        proxy.listen(server)?;
        Ok(proxy)
    }

    /// Draws the fate of each new connection.
    pub fn set_fates(&self, next_fate: impl FnMut() -> Fate + Send + 'static) {
        lock(&self.network.state).next_fate = Box::new(next_fate);
    }

    /// Loses one of five answers, some requests, and answers some that the server is overloaded.
    pub fn lose_some(&self, seed: u64) {
        let mut random = Random(seed);
        self.set_fates(move || draw(&mut random));
    }

    /// Accepts connections for a server at this port. Open ones stay at the former server.
    ///
    /// # Errors
    /// If its port is in use.
    pub fn listen(&self, server: u16) -> Result<()> {
        let mut listening = lock(&self.listening);
        lock(&self.network.state).server = Some(server);
        if listening.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
                .with_context(|| format!("listening on port {}", self.port))?;
            let network = self.network.clone();
            *listening = Some(thread::spawn(move || network.accept(&listener)));
        }
        Ok(())
    }

    /// Breaks all connections and refuses new ones, as if nobody listened.
    pub fn refuse(&self) {
        let mut listening = lock(&self.listening);
        lock(&self.network.state).server = None;
        if let Some(thread) = listening.take() {
            // Wakes the thread up. If it fails, another connection has.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
            // It does not panic.
            let _ = thread.join();
        }
        self.break_connections();
    }

    /// Lets no byte pass until [`Proxy::release`]. Connections stay open, and new ones are accepted.
    pub fn hold(&self) {
        lock(&self.network.state).is_held = true;
    }

    /// Delivers what was held, and all that follows.
    pub fn release(&self) {
        lock(&self.network.state).is_held = false;
        self.network.changed.notify_all();
    }

    /// Breaks all open connections. Delayed messages are lost.
    pub fn break_connections(&self) {
        let connections = std::mem::take(&mut lock(&self.network.state).connections);
        self.network.changed.notify_all();
        for stream in connections.into_values().flatten() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}

/// A port on which nobody listens, and that no client is given.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % u32::from(PORTS))?;
    for _ in 0..PORTS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (process.wrapping_mul(61) % PORTS + number % PORTS) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port from {FIRST_PORT} on is free")
}

fn draw(random: &mut Random) -> Fate {
    match random.below(20) {
        0..=3 => Fate::LosesAnswer(random.below(3) as u64),
        4 => Fate::LosesRequest,
        5 => Fate::Overload,
        _ => Fate::Passes,
    }
}

impl Network {
    fn accept(self: Arc<Network>, listener: &TcpListener) {
        for client in listener.incoming().map_while(Result::ok) {
            let network = self.clone();
            let mut state = lock(&self.state);
            if state.server.is_none() {
                return;
            }
            let number = state.next_connection;
            state.next_connection += 1;
            let Ok(kept) = client.try_clone() else {
                continue;
            };
            state.connections.insert(number, vec![kept]);
            drop(state);
            thread::spawn(move || {
                // A connection that breaks is what this is for.
                let _ = network.serve(client, number);
                lock(&network.state).connections.remove(&number);
            });
        }
    }

    /// Waits while nothing may pass.
    fn wait(&self, number: u64) -> io::Result<()> {
        let state = lock(&self.state);
        let waited = self
            .changed
            .wait_timeout_while(state, HELD_MAX, |state: &mut State| {
                state.is_held && state.connections.contains_key(&number)
            });
        let (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.is_held || !state.connections.contains_key(&number) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn serve(&self, mut client: TcpStream, number: u64) -> io::Result<()> {
        self.wait(number)?;
        let (fate, server) = {
            let mut state = lock(&self.state);
            let server = state.server.ok_or(io::ErrorKind::ConnectionRefused)?;
            ((state.next_fate)(), server)
        };
        match fate {
            Fate::LosesRequest => {
                self.faults.lost_requests.fetch_add(1, Ordering::Relaxed);
                if client.read(&mut [0; 1 << 10])? == 0 {
                    return Ok(());
                }
                return client.shutdown(Shutdown::Both);
            }
            Fate::Overload => {
                self.faults.overloads.fetch_add(1, Ordering::Relaxed);
                if client.read(&mut [0; 64 << 10])? == 0 {
                    return Ok(());
                }
                return client.write_all(OVERLOADED);
            }
            Fate::LosesAnswer(_) | Fate::Passes | Fate::Unconditional => {}
        }
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server);
        let upstream = TcpStream::connect_timeout(&address.into(), CONNECT_MAX)?;
        let kept = upstream.try_clone()?;
        match lock(&self.state).connections.get_mut(&number) {
            Some(ends) => ends.push(kept),
            None => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        let requests = client.try_clone()?;
        let to_server = upstream.try_clone()?;
        thread::scope(|scope| {
            scope.spawn(|| {
                // Ends with the connection.
                let _ = self.pass_requests(requests, &to_server, fate, number);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            let passed = self.pass_answers(&upstream, &client, fate, number);
            // Ends the other direction.
            let _ = upstream.shutdown(Shutdown::Both);
            let _ = client.shutdown(Shutdown::Both);
            passed
        })
    }

    /// Passes requests; for [`Fate::Unconditional`], whose heads arrive whole, without their condition.
    fn pass_requests(
        &self,
        mut client: TcpStream,
        mut server: &TcpStream,
        fate: Fate,
        number: u64,
    ) -> io::Result<()> {
        let mut request = vec![0; 64 << 10];
        loop {
            let length = client.read(&mut request)?;
            if length == 0 {
                return Ok(());
            }
            if matches!(fate, Fate::Unconditional) {
                let mut windows = request[..length].windows(CONDITION.len());
                if let Some(at) = windows.position(|window| window == CONDITION) {
                    request[at..][..NO_CONDITION.len()].copy_from_slice(NO_CONDITION);
                }
            }
            self.wait(number)?;
            server.write_all(&request[..length])?;
        }
    }

    fn pass_answers(
        &self,
        mut server: &TcpStream,
        mut client: &TcpStream,
        fate: Fate,
        number: u64,
    ) -> io::Result<()> {
        let mut left = if let Fate::LosesAnswer(after) = fate {
            Some(after)
        } else {
            None
        };
        let mut answer = vec![0; 64 << 10];
        loop {
            let length = server.read(&mut answer)?;
            if length == 0 {
                return Ok(());
            }
            if let Some(left) = &mut left {
                if *left == 0 {
                    self.faults.lost_answers.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                *left -= 1;
            }
            self.wait(number)?;
            client.write_all(&answer[..length])?;
        }
    }
}
