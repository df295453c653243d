//! A group: an S3 server, collectors, workers, and rounds that overlap.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::account::{self, Sums};
use super::kind::{Kind, WITH_DISK, WITHOUT_DISK};
use super::site::{Ack, Shared, Site, restore};
use super::worker::Worker;
use super::{Options, Run};
use crate::Api;
use crate::agent::lock;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::s3::{BUCKET, Product, Server};

/// Longest pause between two rounds of a collector.
const PAUSE_S: f64 = 2.0;
/// Longest wait for collectors to accept data after their last fault.
const READY_MAX: Duration = Duration::from_secs(180);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Waits of a group's threads, which end when one of them fails.
#[derive(Default)]
pub(super) struct Patience {
    has_failed: Mutex<bool>,
    failed: Condvar,
}

impl Patience {
    /// Waits for this time.
    ///
    /// # Errors
    /// If another thread has failed.
    pub(super) fn wait(&self, time: Duration) -> Result<()> {
        let has_failed = lock(&self.has_failed);
        let waited = self
            .failed
            .wait_timeout_while(has_failed, time, |has_failed| !*has_failed);
        let (has_failed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            bail!("another collector of the group has failed");
        }
        Ok(())
    }

    fn fail(&self) {
        *lock(&self.has_failed) = true;
        self.failed.notify_all();
    }
}

/// State that the threads of a group share.
struct Group<'a> {
    run: &'a Run<'a>,
    rounds: u32,
    next_round: AtomicU32,
    patience: Patience,
    begin: Instant,
    /// A log of the rounds, which the error of a failed group shows.
    events: Mutex<Vec<String>>,
}

/// Number of collectors and workers, and where data is.
struct Layout {
    product: Product,
    collectors: usize,
    workers: usize,
    ack: Ack,
    has_disk: bool,
}

impl Layout {
    /// Two of five groups have moto. Each fourth acknowledges what is on a disk, each second has disks.
    fn of(seed: u64) -> Layout {
        let ack = if seed % 4 == 3 { Ack::Disk } else { Ack::Store };
        let collectors = if seed.is_multiple_of(3) { 3 } else { 2 };
        let product = if seed % 5 < 2 {
            Product::Moto
        } else {
            Product::SeaweedFs
        };
        Layout {
            product,
            collectors,
            workers: 3,
            ack,
            has_disk: seed % 2 == 1,
        }
    }
}

/// Runs a group and compares its accounts.
pub(super) fn run(run: &Run<'_>, seed: u64, rounds: u32) -> Result<Sums> {
    let group = Group {
        run,
        rounds,
        next_round: AtomicU32::new(0),
        patience: Patience::default(),
        begin: Instant::now(),
        events: Mutex::default(),
    };
    group.run(seed).map_err(|error| {
        let events = lock(&group.events).join("\n  ");
        error.context(format!("what happened before:\n  {events}\n"))
    })
}

impl Group<'_> {
    fn run(&self, seed: u64) -> Result<Sums> {
        let options = self.run.options;
        let layout = Layout::of(seed);
        let build = options
            .worker
            .parent()
            .context("the worker is in a directory")?;
        let server = Server::start(layout.product, build)?.context("chaos needs S3 servers")?;
        let directory = tempfile::Builder::new()
            .prefix("emberline-chaos-")
            .tempdir()?;
        let shared = Shared {
            program: options.program.clone(),
            server_port: server.port,
            place: format!("s3://{BUCKET}/chaos"),
            ack: layout.ack,
            has_disk: layout.has_disk,
            directory: directory.path().to_owned(),
        };
        let mut links: Vec<Vec<Arc<Proxy>>> = Vec::new();
        for _ in 0..layout.collectors {
            let of_site = (0..layout.workers).map(|_| Ok(Arc::new(Proxy::new()?)));
            links.push(of_site.collect::<Result<_>>()?);
        }
        let mut sites = Vec::new();
        for (links, number) in links.iter().zip(1..) {
            let mut site = Site::new(format!("c{number}"), shared.clone(), links.clone());
            site.start_elsewhere()?;
            sites.push(site);
        }
        let mut workers = Vec::new();
        for number in 0..layout.workers {
            let urls: Vec<String> = links
                .iter()
                .map(|links: &Vec<Arc<Proxy>>| format!("http://127.0.0.1:{}", links[number].port))
                .collect();
            let id = format!("worker-{number}");
            workers.push(Worker::start(&options.worker, id, &urls.join(","))?);
        }
        self.fail_at_random(&mut sites, &links, &Random(seed))?;
        self.wait_until_ready(&mut sites)?;
        self.compare(&shared, &mut sites, &mut workers)
    }

    /// All rounds: one thread for each collector, and one for the networks to workers.
    fn fail_at_random(
        &self,
        sites: &mut [Site],
        links: &[Vec<Arc<Proxy>>],
        random: &Random,
    ) -> Result<()> {
        let guarded = |done: Result<()>| done.inspect_err(|_| self.patience.fail());
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (site, number) in sites.iter_mut().zip(1..) {
                let random = random.fork(number);
                threads.push(scope.spawn(move || guarded(self.fail_site(site, random))));
            }
            let random = random.fork(0);
            threads.push(scope.spawn(move || guarded(self.cut_links(links, random))));
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"));
            // The first error is the cause, unless it is about another thread.
            let results: Vec<Result<()>> = joined.collect();
            let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            errors.sort_by_key(|error| error.to_string().starts_with("another collector of"));
            errors.into_iter().next().map_or(Ok(()), Err)
        })
    }

    /// The number of the next round, if one is left.
    fn begin_round(&self) -> Option<u32> {
        let number = self.next_round.fetch_add(1, Ordering::Relaxed);
        (number < self.rounds).then_some(number + 1)
    }

    fn log(&self, number: u32, subject: &str, kind: Kind, length: Duration) {
        let at_s = self.begin.elapsed().as_secs_f64();
        let length_s = length.as_secs_f64();
        let event = format!(
            "{at_s:.1} s, round {number}: {subject} {}, {length_s:.1} s",
            kind.name()
        );
        lock(&self.events).push(event);
    }

    fn fail_site(&self, site: &mut Site, mut random: Random) -> Result<()> {
        let options: &Options = self.run.options;
        let kinds = if site.needs_disk() {
            WITH_DISK
        } else {
            WITHOUT_DISK
        };
        loop {
            self.patience
                .wait(Duration::from_secs_f64(random.fraction() * PAUSE_S))?;
            let Some(number) = self.begin_round() else {
                return Ok(());
            };
            let kind = kinds[random.below(kinds.len())];
            let length = kind.draw_length(&mut random, options.longest_s);
            self.log(number, &site.name, kind, length);
            site.fail(kind, length, &mut random, &self.patience)
                .with_context(|| format!("round {number} of the group, {}", kind.name()))?;
            self.run.count(kind);
        }
    }

    /// Cuts the network between a worker and a collector, while there are other rounds.
    fn cut_links(&self, links: &[Vec<Arc<Proxy>>], mut random: Random) -> Result<()> {
        let kind = Kind::WorkerCut;
        loop {
            self.patience
                .wait(Duration::from_secs_f64(random.fraction() * PAUSE_S))?;
            let Some(number) = self.begin_round() else {
                return Ok(());
            };
            let of_site = random.below(links.len());
            let worker = random.below(links[of_site].len());
            let link = &links[of_site][worker];
            let length = kind.draw_length(&mut random, self.run.options.longest_s);
            self.log(
                number,
                &format!("c{} and worker-{worker}:", of_site + 1),
                kind,
                length,
            );
            link.hold();
            self.patience.wait(length)?;
            restore(link, &mut random);
            self.run.count(kind);
        }
    }

    fn wait_until_ready(&self, sites: &mut [Site]) -> Result<()> {
        let begin = Instant::now();
        for site in sites {
            let address = site.address()?;
            while let Err(error) = ureq::get(format!("http://{address}/readyz")).call() {
                if begin.elapsed() > READY_MAX {
                    let log = site.log();
                    bail!(
                        "{} is not ready: {error}; end of its log:\n{log}",
                        site.name
                    );
                }
                self.patience.wait(POLL_EVERY)?;
            }
        }
        Ok(())
    }

    fn compare(&self, shared: &Shared, sites: &mut [Site], workers: &mut [Worker]) -> Result<Sums> {
        workers.iter_mut().for_each(Worker::end_input);
        let mut accounts = Vec::new();
        for worker in workers {
            let record = worker.record()?;
            accounts.push(account::Account {
                worker: worker.id.clone(),
                record,
            });
        }
        let mut apis = Vec::new();
        for site in &mut *sites {
            apis.push(Api::new(site.address()?));
        }
        let sums = account::compare(&accounts, &apis).context("by the collectors' answers")?;
        // The machines are lost, or their disks are.
        for site in &mut *sites {
            match shared.ack {
                Ack::Store => site.kill()?,
                Ack::Disk => site.stop()?,
            }
        }
        account::compare_with_reader(&accounts, shared).context("by a reader's answers")?;
        sites
            .iter()
            .try_for_each(|site| super::site::verify(shared, &site.name))?;
        Ok(sums)
    }
}
