//! A collector's name: its present life, the networks to it, and what happens to it in a round.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use super::group::Patience;
use super::kind::Kind;
use crate::process::{Running, Serve};
use crate::proxy::{Fate, Proxy};
use crate::random::Random;
use crate::s3;

/// Where data is when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ack {
    Disk,
    Store,
}

/// Settings that the collectors of a group have in common.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) program: PathBuf,
    pub(super) server_port: u16,
    /// URL of the store.
    pub(super) place: String,
    pub(super) ack: Ack,
    pub(super) has_disk: bool,
    pub(super) directory: PathBuf,
}

/// A collector's name.
pub(super) struct Site {
    pub(super) name: String,
    shared: Shared,
    /// The networks from each worker.
    links: Vec<Arc<Proxy>>,
    life: Option<Life>,
    /// Number of machines so far.
    machines: u32,
}

/// A collector's process, and its network to the bucket.
struct Life {
    running: Running,
    bucket: Proxy,
}

/// Longest wait for a collector to notice its successor, and for a start that is refused while the former
/// owner seems to live.
const NOTICE_MAX: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(20);

const TAKEN_OVER: &str = "another collector has taken this store over";
const OWNED: &str = "another `--name`";

impl Site {
    /// A collector that is not started yet.
    pub(super) fn new(name: String, shared: Shared, links: Vec<Arc<Proxy>>) -> Site {
        Site {
            name,
            shared,
            links,
            life: None,
            machines: 0,
        }
    }

    /// Starts it on another machine, with an empty disk.
    pub(super) fn start_elsewhere(&mut self) -> Result<()> {
        self.machines += 1;
        self.start()
    }

    /// Starts it, and leads new connections to it. A former life keeps its connections.
    fn start(&mut self) -> Result<()> {
        let life = self.live()?;
        let port = life.running.address.port();
        self.life = Some(life);
        self.links.iter().try_for_each(|link| link.listen(port))
    }

    fn live(&self) -> Result<Life> {
        let bucket = Proxy::start(self.shared.server_port)?;
        let mut serve = Serve::new(&self.shared.program);
        serve.environment = s3::environment(bucket.port);
        let ack = if self.shared.ack == Ack::Store {
            "store"
        } else {
            "disk"
        };
        let Shared { place, .. } = &self.shared;
        for argument in [
            "--store",
            place,
            "--name",
            &self.name,
            "--ack",
            ack,
            // A successor waits for that long.
            "--owner-watch",
            "1500ms",
            // So that sealing and compaction are among the interrupted operations.
            "--seal-every",
            "3s",
        ] {
            serve.arguments.push(argument.to_owned());
        }
        if self.shared.has_disk {
            let disk = format!("{}-{}", self.name, self.machines);
            let disk = self.shared.directory.join(disk);
            serve.arguments.push("--data".to_owned());
            serve
                .arguments
                .push(disk.to_str().context("the path is not UTF-8")?.to_owned());
        }
        let begin = Instant::now();
        loop {
            match serve.start() {
                Ok(running) => return Ok(Life { running, bucket }),
                Err(error) if begin.elapsed() < NOTICE_MAX && error.to_string().contains(OWNED) => {
                }
                Err(error) => return Err(error.context(format!("{} does not start", self.name))),
            }
        }
    }

    fn life(&mut self) -> Result<&mut Life> {
        self.life.as_mut().context("a collector that has ended")
    }

    pub(super) fn address(&mut self) -> Result<SocketAddr> {
        Ok(self.life()?.running.address)
    }

    /// Loses its machine.
    pub(super) fn kill(&mut self) -> Result<()> {
        let life = self.life.take().context("a collector that has ended")?;
        life.running.process.kill()?;
        self.links.iter().for_each(|link| link.refuse());
        Ok(())
    }

    /// Ends it cleanly, so that everything is in tables.
    pub(super) fn stop(&mut self) -> Result<()> {
        let life = self.life.take().context("a collector that has ended")?;
        life.running.process.stop().map(drop)
    }

    /// Whether the loss of its disk would lose data.
    pub(super) fn needs_disk(&self) -> bool {
        self.shared.ack == Ack::Disk
    }

    /// The end of its log.
    pub(super) fn log(&self) -> String {
        self.life
            .as_ref()
            .map_or_else(String::new, |life| life.running.process.log())
    }

    /// Fails in one way for a time, and works again.
    pub(super) fn fail(
        &mut self,
        kind: Kind,
        length: Duration,
        random: &mut Random,
        patience: &Patience,
    ) -> Result<()> {
        match kind {
            Kind::Killed => {
                self.kill()?;
                patience.wait(length)?;
                self.start()
            }
            Kind::Paused => {
                self.life()?.running.process.signal(Signal::SIGSTOP)?;
                patience.wait(length)?;
                self.life()?.running.process.signal(Signal::SIGCONT)
            }
            Kind::ReplacedDead => {
                self.kill()?;
                patience.wait(length)?;
                self.start_elsewhere()
            }
            Kind::ReplacedPaused | Kind::ReplacedCut => self.be_replaced(kind, length, patience),
            Kind::BucketCut => {
                let bucket = &self.life()?.bucket;
                bucket.hold();
                patience.wait(length)?;
                restore(bucket, random);
                Ok(())
            }
            Kind::BucketOverloaded | Kind::BucketLossy => {
                let bucket = &self.life()?.bucket;
                if kind == Kind::BucketLossy {
                    bucket.lose_some(random.next());
                } else {
                    bucket.set_fates(|| Fate::Overload);
                }
                bucket.break_connections();
                patience.wait(length)?;
                bucket.set_fates(|| Fate::Passes);
                bucket.break_connections();
                Ok(())
            }
            Kind::WorkerCut => bail!("a fault of another network"),
        }
    }

    /// A successor starts while this life is paused, or cut off from the bucket, and still has connections. When it
    /// continues, it must notice.
    fn be_replaced(&mut self, kind: Kind, length: Duration, patience: &Patience) -> Result<()> {
        let mut former = self.life.take().context("a collector that has ended")?;
        match kind {
            Kind::ReplacedPaused => former.running.process.signal(Signal::SIGSTOP)?,
            Kind::ReplacedCut => former.bucket.hold(),
            _ => {}
        }
        patience.wait(length / 2)?;
        self.start_elsewhere()?;
        patience.wait(length / 2)?;
        match kind {
            Kind::ReplacedPaused => former.running.process.signal(Signal::SIGCONT)?,
            // Its requests arrive now.
            Kind::ReplacedCut => former.bucket.release(),
            _ => {}
        }
        let begin = Instant::now();
        while !former.running.process.log().contains(TAKEN_OVER) {
            if begin.elapsed() > NOTICE_MAX {
                let log = former.running.process.log();
                bail!(
                    "{} does not notice its successor; end of its log:\n{log}",
                    self.name
                );
            }
            patience.wait(POLL_EVERY)?;
        }
        former.running.process.kill()
    }
}

/// Ends a cut: what was held arrives late, or is lost with its connections.
pub(super) fn restore(network: &Proxy, random: &mut Random) {
    if random.chance(0.5) {
        network.break_connections();
    }
    network.release();
}

/// Reads the store without a collector, and checks every file.
pub(super) fn verify(shared: &Shared, name: &str) -> Result<()> {
    let mut command = std::process::Command::new(Path::new(&shared.program));
    command.args(["store", "verify", "--store", &shared.place, "--name", name]);
    command
        .envs(s3::environment(shared.server_port))
        .env("NO_COLOR", "1");
    let done = command.stdin(std::process::Stdio::null()).output()?;
    if !done.status.success() {
        bail!(
            "the store of {name}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}
