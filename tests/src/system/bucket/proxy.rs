//! A way to a server on which answers are lost, requests do not arrive, and the server is overloaded.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulation::random::Random;

/// A proxy in front of a server; its threads end with the process.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    pub(crate) faults: Arc<Faults>,
}

/// How often each fault happened.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) lost_answers: AtomicU64,
    pub(crate) lost_requests: AtomicU64,
    pub(crate) overloads: AtomicU64,
}

/// The end of a connection.
#[derive(Clone, Copy)]
enum Fate {
    /// After so many answers the next one is lost: the server has done what was requested.
    LosesAnswer(u64),
    LosesRequest,
    Overload,
    Passes,
    /// The server is not told to create nothing that exists.
    Unconditional,
}

/// A header of requests, and another one as long.
const CONDITION: &[u8] = b"if-none-match: *";
const NO_CONDITION: &[u8] = b"unconditional: *";
const _: () = assert!(CONDITION.len() == NO_CONDITION.len());

const OVERLOADED: &[u8] =
    b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

impl Proxy {
    pub(crate) fn start(server: u16, seed: u64) -> Proxy {
        let mut random = Random(seed);
        Proxy::with_fates(server, move || draw(&mut random))
    }

    /// Makes the server one without conditional writes.
    pub(crate) fn unconditional(server: u16) -> Proxy {
        Proxy::with_fates(server, || Fate::Unconditional)
    }

    fn with_fates(server: u16, mut next_fate: impl FnMut() -> Fate + Send + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::<Faults>::default();
        let counted = faults.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let fate = next_fate();
                let faults = counted.clone();
                // A connection that breaks is what this is for.
                thread::spawn(move || drop(serve(client, server, fate, &faults)));
            }
        });
        Proxy { port, faults }
    }
}

fn draw(random: &mut Random) -> Fate {
    match random.below(20) {
        0..=3 => Fate::LosesAnswer(random.below(3) as u64),
        4 => Fate::LosesRequest,
        5 => Fate::Overload,
        _ => Fate::Passes,
    }
}

fn serve(mut client: TcpStream, server: u16, fate: Fate, faults: &Faults) -> io::Result<()> {
    match fate {
        Fate::LosesRequest => {
            faults.lost_requests.fetch_add(1, Ordering::Relaxed);
            if client.read(&mut [0; 1 << 10])? == 0 {
                return Ok(());
            }
            return client.shutdown(Shutdown::Both);
        }
        Fate::Overload => {
            faults.overloads.fetch_add(1, Ordering::Relaxed);
            if client.read(&mut [0; 64 << 10])? == 0 {
                return Ok(());
            }
            return client.write_all(OVERLOADED);
        }
        Fate::LosesAnswer(_) | Fate::Passes | Fate::Unconditional => {}
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", server))?;
    let mut requests = client.try_clone()?;
    let mut to_server = upstream.try_clone()?;
    thread::spawn(move || {
        // Ends with the connection.
        let _ = match fate {
            Fate::Unconditional => pass_unconditional(&mut requests, &mut to_server),
            _ => io::copy(&mut requests, &mut to_server).map(drop),
        };
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut left = if let Fate::LosesAnswer(after) = fate { Some(after) } else { None };
    let mut answer = vec![0; 64 << 10];
    loop {
        let length = upstream.read(&mut answer)?;
        if length == 0 {
            return client.shutdown(Shutdown::Both);
        }
        if let Some(left) = &mut left {
            if *left == 0 {
                faults.lost_answers.fetch_add(1, Ordering::Relaxed);
                upstream.shutdown(Shutdown::Both)?;
                return client.shutdown(Shutdown::Both);
            }
            *left -= 1;
        }
        client.write_all(&answer[..length])?;
    }
}

/// Passes requests, whose heads arrive whole, without their condition.
fn pass_unconditional(requests: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let mut request = vec![0; 64 << 10];
    loop {
        let length = requests.read(&mut request)?;
        if length == 0 {
            return Ok(());
        }
        let mut windows = request[..length].windows(CONDITION.len());
        if let Some(at) = windows.position(|window| window == CONDITION) {
            request[at..][..NO_CONDITION.len()].copy_from_slice(NO_CONDITION);
        }
        server.write_all(&request[..length])?;
    }
}
