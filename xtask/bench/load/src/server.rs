//! A load like a server's: many threads, most of them waiting; each request wakes one of them for a
//! fifth of a millisecond of work. A closed loop: a client pauses, asks, and waits for the answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::figure::print_figure;
use crate::own::{Watch, watch_work};
use crate::profiler::{self, Peer};
use crate::settings::Settings;
use crate::work;

/// Units of work in a request.
const UNITS: u64 = 16;
/// Pause of a client between an answer and its next request.
const THINK: Duration = Duration::from_millis(20);

/// One end of a connection. Dropping it ends the server at the other end.
trait Line: Send {
    /// Sends one number.
    fn send(&mut self, number: u64) -> Result<()>;
    /// Waits for one; `None` if the other end is gone.
    fn receive(&mut self) -> Option<u64>;
}

impl Line for UnixStream {
    fn send(&mut self, number: u64) -> Result<()> {
        self.write_all(&number.to_ne_bytes())
            .context("sending over a socket")
    }

    fn receive(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        // The signals of a peer interrupt this read; the standard library then reads again.
        self.read_exact(&mut bytes)
            .ok()
            .map(|()| u64::from_ne_bytes(bytes))
    }
}

/// One end of a pair of channels.
struct Channels(Sender<u64>, Receiver<u64>);

impl Line for Channels {
    fn send(&mut self, number: u64) -> Result<()> {
        self.0.send(number).ok().context("sending over a channel")
    }

    fn receive(&mut self) -> Option<u64> {
        self.1.recv().ok()
    }
}

/// A client's end and a server's; sockets and channels alternate.
fn line(index: usize) -> Result<(Box<dyn Line>, Box<dyn Line>)> {
    if index.is_multiple_of(2) {
        let (client, server) = UnixStream::pair()?;
        return Ok((Box::new(client), Box::new(server)));
    }
    let (request_sender, requests) = channel();
    let (response_sender, responses) = channel();
    let client = Channels(request_sender, responses);
    let server = Channels(response_sender, requests);
    Ok((Box::new(client), Box::new(server)))
}

/// Runs and prints: half of the threads are clients, half are servers.
pub(crate) fn run(settings: &Settings, peers: &[Peer]) -> Result<()> {
    let profiler = profiler::start(&settings.profiler, settings.hertz, peers)?;
    let watch = Watch::new()?;
    let clients = settings.threads / 2;
    let lines = (0..clients).map(line).collect::<Result<Vec<_>>>()?;
    let warmed = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    let barrier = Barrier::new(clients + 1);
    let warm_until = Instant::now() + settings.settle;
    let client = |index: usize, mut line: Box<dyn Line>| -> Result<()> {
        // Clients ask one after another and not all at once.
        thread::sleep(THINK * u32::try_from(index)? / u32::try_from(clients)?);
        while Instant::now() < warm_until {
            ask(line.as_mut(), 1)?;
            warmed.fetch_add(1, Ordering::Relaxed);
        }
        barrier.wait();
        barrier.wait();
        thread::sleep(THINK * u32::try_from(index)? / u32::try_from(clients)?);
        loop {
            let request = taken.fetch_add(1, Ordering::Relaxed);
            if request >= settings.units {
                break;
            }
            ask(line.as_mut(), request)?;
        }
        barrier.wait();
        barrier.wait();
        Ok(())
    };
    thread::scope(|scope| {
        for (index, (near, far)) in lines.into_iter().enumerate() {
            scope.spawn(move || serve(far));
            let client = &client;
            // A failed client would leave the others at the barrier forever.
            scope.spawn(move || client(index, near).expect("both ends of a line are ours"));
        }
        watch_work(&watch, &barrier, &*profiler)
    })?;
    print_figure(
        "units_done",
        warmed.load(Ordering::Relaxed) + settings.units,
    );
    profiler::finish(profiler)
}

fn ask(line: &mut dyn Line, request: u64) -> Result<()> {
    line.send(request)?;
    line.receive().context("the server is gone")?;
    thread::sleep(THINK);
    Ok(())
}

fn serve(mut line: Box<dyn Line>) {
    while let Some(request) = line.receive() {
        let sum = (0..UNITS).fold(request, |sum, unit| sum ^ work::unit(request ^ unit << 32));
        if line.send(sum).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_line_answer_and_end() {
        for index in 0..2 {
            let (mut near, far) = line(index).unwrap();
            thread::scope(|scope| {
                let server = scope.spawn(|| serve(far));
                near.send(5).unwrap();
                let sum = (0..UNITS).fold(5, |sum, unit| sum ^ work::unit(5 ^ unit << 32));
                assert_eq!(near.receive(), Some(sum));
                drop(near);
                server.join().unwrap();
            });
        }
    }
}
