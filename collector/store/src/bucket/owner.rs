//! One collector at a time writes to a store in a bucket.
//!
//! Each life of a collector creates `owner/<epoch>.json`, whose number is one more than that of the life
//! before. While it lives it replaces `owner/<epoch>.beat` a few times in the time that others watch it for. Another
//! process with the same name is refused if it sees the beat change within that time. No clocks are compared.
//!
//! This is courtesy. Safety comes from creating: the next life occupies the next version of the manifest and
//! the next file of the log, so that an earlier one can create neither.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use profiler_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::error::StoreError;
use super::super::objects::Objects;
use base::clock::Clock;
use base::limits::{CLOCK_OFFSET_MAX, OWNER_CLAIMS_MAX, nanoseconds};
use base::sync::{Mutex, lock, rank};

const DIRECTORY: &str = "owner";

/// Name of the thread that beats.
const THREAD_NAME: &str = "emberline-owner";

/// How often an owner beats while another process watches it.
const BEATS: u32 = 3;

/// How often the watching process looks.
const LOOKS: u32 = 15;

/// Where acknowledged data is before it is in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ack {
    /// On the local disk.
    Disk,
    /// In the bucket.
    Store,
}

/// The log that the newest version of the manifest needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogState {
    /// [`LogState::IN_STORE`], or the random id of a log on a disk.
    pub id: String,
    /// Whether all its records are in tables.
    pub is_sealed: bool,
}

impl LogState {
    /// The id of the log in the bucket.
    pub const IN_STORE: &str = "store";
}

/// The content of `owner/<epoch>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Claim {
    epoch: u64,
    /// Random, so that no two processes write the same claim.
    token: String,
    host: String,
    pid: u32,
    /// For people.
    started_at: String,
    /// As the life before left it.
    log: Option<LogState>,
}

/// The content of `owner/<epoch>.beat`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Beat {
    beats: u64,
    /// Set when the process writes no more.
    is_released: bool,
    log: Option<LogState>,
}

/// The ownership of a store. Dropped, it is released.
#[derive(Debug)]
pub struct Owner {
    shared: Arc<Shared>,
    /// By this machine's clock.
    claimed_at: Timestamp,
    /// Ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    objects: Objects,
    epoch: u64,
    beat: Mutex<Beat, rank::OwnerBeat>,
}

impl Owner {
    /// Takes the store, and starts to beat.
    ///
    /// # Errors
    /// [`StoreError::Owned`] if its owner lives; [`StoreError::ClockOff`] if this machine's clock is far from the server's.
    pub fn take(objects: &Objects, watch: Duration) -> Result<Owner, StoreError> {
        let mut owner = Owner::claim(objects, watch)?;
        check_clock(objects, &claim_path(owner.shared.epoch), owner.claimed_at)?;
        let beat_every = watch / BEATS;
        let (end, ended) = mpsc::channel();
        let shared = owner.shared.clone();
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                while ended.recv_timeout(beat_every) == Err(RecvTimeoutError::Timeout) {
                    // The next beat may succeed where this one fails.
                    if let Err(error) = shared.beat(|_| {}) {
                        tracing::warn!(%error, "the store's owner cannot show that it lives");
                    }
                    shared.look_for_successor();
                    if shared.objects.check_fence().is_err() {
                        break;
                    }
                }
            });
        owner.end = Some(end);
        owner.thread = Some(thread.map_err(|source| StoreError::Io {
            doing: "starting the thread for",
            path: DIRECTORY.to_owned(),
            source,
        })?);
        Ok(owner)
    }

    /// Takes the store after its owner has not beaten for `watch`; does not beat.
    ///
    /// # Errors
    /// As [`Owner::take`], and if the server does not have the one operation that all depends on.
    pub fn claim(objects: &Objects, watch: Duration) -> Result<Owner, StoreError> {
        for _ in 0..OWNER_CLAIMS_MAX {
            let before = newest(objects)?;
            let log = match &before {
                None => None,
                Some(claim) => await_end(objects, claim, watch)?,
            };
            let epoch = before.as_ref().map_or(1, |before| before.epoch + 1);
            let claim = Claim {
                epoch,
                token: random_id()?,
                host: host(),
                pid: std::process::id(),
                started_at: jiff::Timestamp::now().to_string(),
                log: log.clone(),
            };
            let content = json(&claim);
            let claimed_at = Clock::default().now();
            match objects.put_new(&claim_path(epoch), content.clone()) {
                Ok(()) => {
                    objects.own(epoch);
                    delete_before(objects, epoch);
                    let beat = Mutex::new(Beat {
                        log,
                        ..Beat::default()
                    });
                    let shared = Shared {
                        objects: objects.clone(),
                        epoch,
                        beat,
                    };
                    let shared = Arc::new(shared);
                    let owner = Owner {
                        shared,
                        claimed_at,
                        end: None,
                        thread: None,
                    };
                    objects.check_refusal(&claim_path(epoch), &content)?;
                    return Ok(owner);
                }
                // Another process was faster: it is the owner to watch now.
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::damaged(
            DIRECTORY,
            "many processes claim the store at once",
        ))
    }

    /// The log that the tables need; `None` in a new store.
    pub fn log(&self) -> Option<LogState> {
        lock(&self.shared.beat).log.clone()
    }

    /// Records which log the tables need from now on. Call it before anything is acknowledged.
    pub fn use_log(&self, id: &str) -> Result<(), StoreError> {
        let state = LogState {
            id: id.to_owned(),
            is_sealed: false,
        };
        self.shared.beat(|beat| beat.log = Some(state))
    }

    /// Records that all records of the log are in tables.
    pub fn note_sealed(&self) {
        // Written by the release.
        if let Some(log) = &mut lock(&self.shared.beat).log {
            log.is_sealed = true;
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.end.take());
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the owner's thread panicked: a bug of Emberline");
        }
        if self.shared.objects.check_fence().is_err() {
            return;
        }
        let done = if self.shared.is_unused() {
            self.shared.withdraw()
        } else {
            self.shared.beat(|beat| beat.is_released = true)
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the next start has to wait until this one counts as gone");
        }
    }
}

impl Shared {
    /// Changes the beat, and shows it.
    fn beat(&self, change: impl FnOnce(&mut Beat)) -> Result<(), StoreError> {
        let mut beat = lock(&self.beat);
        beat.beats += 1;
        change(&mut beat);
        self.objects.replace(&beat_path(self.epoch), json(&*beat))
    }

    /// Whether the claim is all that the store has: its first collector was refused, such as by a wrong clock.
    fn is_unused(&self) -> bool {
        self.epoch == 1 && lock(&self.beat).log.is_none()
    }

    /// Removes the claim, so that readers of the place do not find a store.
    fn withdraw(&self) -> Result<(), StoreError> {
        self.objects
            .delete_all(&[claim_path(self.epoch), beat_path(self.epoch)])
    }

    /// Ends all writing if there is a later life.
    fn look_for_successor(&self) {
        let successor = read_json::<Claim>(&self.objects, &claim_path(self.epoch + 1));
        if let Ok(Some(claim)) = successor {
            let Claim { pid, host, .. } = claim;
            self.objects
                .fence(format!("since then process {pid} on {host} owns it"));
        }
    }
}

/// Compares the time at which this process created an object with the server's.
fn check_clock(objects: &Objects, path: &str, at: Timestamp) -> Result<(), StoreError> {
    let listed = objects.list(DIRECTORY)?;
    let Some(object) = listed.iter().find(|object| object.path == path) else {
        return Ok(());
    };
    let ahead_ns = at.unix_ns().saturating_sub(object.modified.unix_ns());
    if ahead_ns.saturating_abs() <= nanoseconds(CLOCK_OFFSET_MAX) {
        return Ok(());
    }
    Err(StoreError::ClockOff {
        place: objects.place(),
        seconds: ahead_ns.unsigned_abs() / 1_000_000_000,
        direction: if ahead_ns > 0 { "ahead of" } else { "behind" },
    })
}

/// Waits until the owner has released the store or stopped beating. Returns the log that it left.
fn await_end(
    objects: &Objects,
    claim: &Claim,
    watch: Duration,
) -> Result<Option<LogState>, StoreError> {
    let first = read_beat(objects, claim)?;
    let looks = if watch.is_zero() { 0 } else { LOOKS };
    if !first.is_released && looks > 0 {
        let Claim { host, pid, .. } = claim;
        tracing::info!(
            host,
            pid,
            "the store's last collector did not say that it stopped: watching it for {watch:?}"
        );
    }
    let mut last = first.clone();
    for _ in 0..looks {
        if last.is_released {
            break;
        }
        thread::sleep(watch / LOOKS);
        last = read_beat(objects, claim)?;
        if last.beats != first.beats && !last.is_released {
            return Err(StoreError::Owned {
                place: objects.place(),
                host: claim.host.clone(),
                pid: claim.pid,
            });
        }
    }
    Ok(last.log)
}

/// State of a store's owner as other processes see it. It changes with each beat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerSighting {
    epoch: u64,
    host: String,
    beat: Beat,
}

impl OwnerSighting {
    /// The newest owner; `None` in a new store.
    pub fn of(objects: &Objects) -> Result<Option<OwnerSighting>, StoreError> {
        let Some(claim) = newest(objects)? else {
            return Ok(None);
        };
        let beat = read_beat(objects, &claim)?;
        Ok(Some(OwnerSighting {
            epoch: claim.epoch,
            host: claim.host,
            beat,
        }))
    }

    fn unsealed_log(&self) -> Option<&LogState> {
        self.beat.log.as_ref().filter(|log| !log.is_sealed)
    }

    /// Whether the log in the store may have records that are in no table.
    pub fn is_unsealed_in_store(&self) -> bool {
        self.unsealed_log()
            .is_some_and(|log| log.id == LogState::IN_STORE)
    }

    /// Where the log is that nobody but its owner can read: on the disk of this host. `None` if the log is in the
    /// store, or all of it in tables.
    pub fn log_elsewhere(&self) -> Option<&str> {
        self.unsealed_log()
            .filter(|log| log.id != LogState::IN_STORE)
            .map(|_| self.host.as_str())
    }
}

/// The claim with the greatest epoch.
fn newest(objects: &Objects) -> Result<Option<Claim>, StoreError> {
    let listed = objects.list(DIRECTORY)?;
    let Some(path) = listed
        .iter()
        .rev()
        .map(|file| &file.path)
        .find(|path| path.ends_with(".json"))
    else {
        return Ok(None);
    };
    read_json(objects, path)?.map_or_else(
        || {
            Err(StoreError::damaged(
                path,
                "it was deleted while it was read",
            ))
        },
        |claim| Ok(Some(claim)),
    )
}

fn read_beat(objects: &Objects, claim: &Claim) -> Result<Beat, StoreError> {
    let beat = read_json(objects, &beat_path(claim.epoch))?;
    Ok(beat.unwrap_or_else(|| Beat {
        log: claim.log.clone(),
        ..Beat::default()
    }))
}

fn read_json<T: for<'a> Deserialize<'a>>(
    objects: &Objects,
    path: &str,
) -> Result<Option<T>, StoreError> {
    let Some(text) = objects.get_if_exists(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&text);
    value
        .map(Some)
        .map_err(|error| StoreError::damaged(path, error))
}

/// Deletes the beats of earlier lives. Claims stay for ever: a process that was paused, however long, finds its
/// successor by them, and cannot claim an epoch that another one had.
fn delete_before(objects: &Objects, epoch: u64) {
    let kept = beat_path(epoch - 1);
    let Ok(listed) = objects.list(DIRECTORY) else {
        return;
    };
    let beats = listed
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.ends_with(".beat"));
    let old = beats.filter(|path| *path < kept);
    if let Err(error) = objects.delete_all(&old.collect::<Vec<_>>()) {
        tracing::warn!(%error, "files of earlier collectors cannot be deleted");
    }
}

fn claim_path(epoch: u64) -> String {
    format!("{DIRECTORY}/{epoch:020}.json")
}

fn beat_path(epoch: u64) -> String {
    format!("{DIRECTORY}/{epoch:020}.beat")
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value)
        .expect("it has only numbers and texts")
        .into()
}

/// A random id.
pub fn random_id() -> Result<String, StoreError> {
    let random = getrandom::u64().map_err(|error| StoreError::Io {
        doing: "drawing a number for",
        path: DIRECTORY.to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(format!("{random:016x}"))
}

fn host() -> String {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    host.unwrap_or_else(|| "an unnamed host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::super::objects::Objects;
    use super::*;

    fn claim(objects: &Objects) -> Result<Owner, StoreError> {
        Owner::claim(objects, Duration::ZERO)
    }

    /// A life that ends without a release.
    fn crash(owner: Owner) {
        std::mem::forget(owner);
    }

    #[test]
    fn each_life_has_the_next_epoch_and_knows_the_log_of_the_one_before() {
        let objects = Objects::bucket_in_memory();
        let first = claim(&objects).unwrap();
        assert_eq!((first.shared.epoch, first.log()), (1, None));
        first.use_log("d1").unwrap();
        crash(first);
        let unsealed = Some(LogState {
            id: "d1".into(),
            is_sealed: false,
        });
        // One that ends before it has a log of its own changes nothing.
        for epoch in 2..4 {
            let life = claim(&objects).unwrap();
            assert_eq!((life.shared.epoch, life.log()), (epoch, unsealed.clone()));
            if epoch == 2 { crash(life) } else { drop(life) }
        }
        let sealing = claim(&objects).unwrap();
        sealing.use_log(LogState::IN_STORE).unwrap();
        sealing.note_sealed();
        drop(sealing);
        let last = claim(&objects).unwrap();
        let sealed = Some(LogState {
            id: LogState::IN_STORE.into(),
            is_sealed: true,
        });
        assert_eq!(
            (last.shared.epoch, objects.epoch(), last.log()),
            (5, 5, sealed)
        );
        let claims = objects.list(DIRECTORY).unwrap();
        let kept: Vec<&str> = claims.iter().map(|file| &*file.path).collect();
        let claimed = [claim_path(1), claim_path(2), claim_path(3)];
        assert_eq!(kept[..3], claimed);
        assert_eq!(kept[3..], [beat_path(4), claim_path(4), claim_path(5)]);
    }

    #[test]
    fn an_owner_that_beats_is_not_replaced_and_one_that_has_a_successor_is_fenced() {
        let objects = Objects::bucket_in_memory();
        let first = claim(&objects).unwrap();
        let shared = first.shared.clone();
        let beating = thread::spawn(move || {
            (1..40).for_each(|_| {
                shared.beat(|_| {}).unwrap();
                thread::park_timeout(Duration::from_millis(100));
            });
        });
        let refused = Owner::claim(&objects, Duration::from_secs(20)).unwrap_err();
        assert!(matches!(refused, StoreError::Owned { .. }), "{refused}");
        assert!(
            refused
                .to_string()
                .contains(&std::process::id().to_string()),
            "{refused}"
        );
        beating.join().unwrap();
        first.shared.look_for_successor();
        objects.check_fence().unwrap();
        // It is found long after, too.
        for _ in 0..4 {
            crash(claim(&objects).unwrap());
        }
        first.shared.look_for_successor();
        assert!(matches!(
            objects.check_fence(),
            Err(StoreError::Fenced { .. })
        ));
    }

    #[test]
    fn a_clock_that_is_far_from_the_servers_is_refused() {
        let objects = Objects::memory();
        let _owner = claim(&objects).unwrap();
        let now = Clock::default().now();
        let check = |seconds: i64| {
            let at = now.shifted(seconds * 1_000_000_000);
            check_clock(&objects, &claim_path(1), at).map_err(|error| error.to_string())
        };
        assert_eq!(check(290), Ok(()));
        assert_eq!(check(-290), Ok(()));
        let ahead = check(4_000).unwrap_err();
        assert!(
            ahead.starts_with("the clock of this machine is 4000 s ahead of")
                || ahead.contains(" 3999 s"),
            "{ahead}"
        );
        let behind = check(-4_000).unwrap_err();
        assert!(
            behind.contains(" s behind that of the server of"),
            "{behind}"
        );
    }

    #[test]
    fn a_first_life_that_is_refused_leaves_no_store_and_a_later_one_leaves_its_log() {
        let objects = Objects::bucket_in_memory();
        // By its clock, or because it found no log that it may use.
        for _ in 0..2 {
            drop(claim(&objects).unwrap());
            assert_eq!(objects.list("").unwrap(), []);
        }
        let first = claim(&objects).unwrap();
        first.use_log("d1").unwrap();
        drop(first);
        let left = objects.list(DIRECTORY).unwrap().len();
        drop(claim(&objects).unwrap());
        let next = claim(&objects).unwrap();
        assert_eq!((left, next.shared.epoch), (2, 3));
        assert_eq!(next.log().unwrap().id, "d1");
    }
}
