//! The accounts of identities: what each uses, its quotas, and what it was refused.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use profiler_core::hash::KeyedMap;
use profiler_core::limits::bounded;
use tokio::sync::Semaphore;

use super::rate::Rate;
use super::{Quota, QuotaSettings, Quotas, TooFast, decode_budget};
use crate::identity::Identity;
use base::limits::{
    ACCOUNTS_MAX, ADDED_PER_FREE, AUDIT_TEXT_BYTES_MAX, IMPORT_BYTES_MAX, QUOTA_LOG_EVERY,
    RESERVED_LINKS_MAX, RESERVED_NAMES_MAX, RESERVED_PHASES_MAX,
};
use base::log_limit::{Admitted, LineLimit};
use base::sync::{Mutex, lock, rank};

/// Memory of a node of the tree, roughly.
const NODE_BYTES: u64 = 32;

/// Lines about quotas: strangers without tokens could have any number of addresses.
static REACHED: LineLimit = LineLimit::new();

/// A quota has no room for one more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{identity} has reached its quota {quota}={value}; an operator can raise it, see: emberline serve --help"
)]
pub struct QuotaExceeded {
    identity: String,
    quota: Quota,
    value: u64,
}

/// How often an identity met a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaUse {
    /// Something was refused, ended or dropped.
    pub refused: u64,
    /// Something had to wait.
    pub delayed: u64,
    /// When that was last.
    pub last: Option<Instant>,
    /// When it was last logged.
    logged: Option<Instant>,
}

/// One identity, for as long as it has connections or sessions, or was refused.
pub struct Account {
    pub identity: Identity,
    quotas: Quotas,
    pub(super) decoding: decode_budget::Share,
    /// Memory of its unfinished imports that is free.
    pub staging: Arc<Semaphore>,
    rate: Rate,
    sessions: AtomicUsize,
    growth: Arc<Growth>,
    running_bytes: AtomicUsize,
    uses: Mutex<[QuotaUse; Quota::ALL.len()], rank::AccountUses>,
}

/// Tables that all identities share and that never shrink: each identity may add some rows although
/// others have used up the common room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedTable {
    /// Task names.
    Names,
    /// Pairs of task and phase.
    Phases,
    /// Pairs of peer and type of transfers.
    Links,
}

impl SharedTable {
    /// Most rows of one identity past the common limit.
    fn reserved_max(self) -> usize {
        match self {
            SharedTable::Names => RESERVED_NAMES_MAX,
            SharedTable::Phases => RESERVED_PHASES_MAX,
            SharedTable::Links => RESERVED_LINKS_MAX,
        }
    }
}

/// Growth of the tree and of shared tables caused by an identity. Its accounts share it.
#[derive(Default)]
struct Growth {
    nodes: AtomicU64,
    symbol_bytes: AtomicU64,
    /// Rows past the common limit, by [`SharedTable`].
    reserved: [AtomicUsize; 3],
}

/// How much of something stayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedPart {
    count: u64,
    of: u64,
}

impl RetainedPart {
    /// `count` of that many.
    pub fn new(count: usize, of: usize) -> RetainedPart {
        RetainedPart {
            count: count as u64,
            of: of as u64,
        }
    }

    /// The same part of another number, rounded up.
    fn part_of(self, number: u64) -> u64 {
        let part = u128::from(number) * u128::from(self.count.min(self.of));
        u64::try_from(part.div_ceil(u128::from(self.of.max(1)))).unwrap_or(u64::MAX)
    }
}

/// A session that counts for an account; returned when it is dropped.
#[derive(Debug)]
pub struct SessionSlot {
    account: Arc<Account>,
}

impl fmt::Debug for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(formatter)
    }
}

impl Account {
    fn new(identity: Identity, quotas: Quotas, growth: Arc<Growth>) -> Arc<Account> {
        Arc::new(Account {
            identity,
            quotas,
            decoding: decode_budget::Share::new(quotas.size_of(Quota::DecodedBytes)),
            staging: Arc::new(Semaphore::new(IMPORT_BYTES_MAX)),
            rate: Rate::new(quotas.of(Quota::BytesPerSecond)),
            sessions: AtomicUsize::new(0),
            growth,
            running_bytes: AtomicUsize::new(0),
            uses: Mutex::default(),
        })
    }

    /// The value of a quota that can be set.
    pub fn value_of(&self, quota: Quota) -> Option<u64> {
        Quota::SETTABLE
            .contains(&quota)
            .then(|| self.quotas.of(quota))
    }

    /// The value of one of its quotas.
    pub fn quota(&self, quota: Quota) -> usize {
        self.quotas.size_of(quota)
    }

    /// Counts a refusal, and logs it now and then.
    pub fn note_refusal(&self, quota: Quota) {
        let now = Instant::now();
        let mut uses = lock(&self.uses);
        let counted = &mut uses[quota as usize];
        counted.refused += 1;
        counted.last = Some(now);
        let is_due = counted
            .logged
            .is_none_or(|at| now.duration_since(at) >= QUOTA_LOG_EVERY);
        if is_due && let Some(Admitted { suppressed }) = REACHED.admit() {
            counted.logged = Some(now);
            let refused = counted.refused;
            drop(uses);
            let identity = self.identity.to_string();
            let identity = &*bounded(&identity, AUDIT_TEXT_BYTES_MAX);
            let quota = quota.name();
            tracing::warn!(target: "audit", identity, quota, refused, suppressed, "quota reached");
        }
    }

    /// Counts something that waits for a quota.
    pub fn note_delay(&self, quota: Quota) {
        let mut uses = lock(&self.uses);
        let counted = &mut uses[quota as usize];
        counted.delayed += 1;
        counted.last = Some(Instant::now());
    }

    /// The quotas that it ever met.
    pub fn uses(&self) -> Vec<(Quota, QuotaUse)> {
        let uses = *lock(&self.uses);
        Quota::ALL
            .into_iter()
            .zip(uses)
            .filter(|(_, counted): &(Quota, QuotaUse)| counted.refused + counted.delayed > 0)
            .collect()
    }

    /// Charges a message's bytes. Returns how long to wait until it may be used.
    pub fn charge_bytes(&self, bytes: usize) -> Result<Duration, TooFast> {
        let charged = self.rate.charge(bytes as u64, Instant::now());
        match charged {
            Ok(Duration::ZERO) => {}
            Ok(_) => self.note_delay(Quota::BytesPerSecond),
            Err(_) => self.note_refusal(Quota::BytesPerSecond),
        }
        charged
    }

    /// Counts one more session.
    pub fn open_session(self: &Arc<Self>) -> Result<SessionSlot, QuotaExceeded> {
        let sessions_max = self.quota(Quota::Sessions);
        let opened = self
            .sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sessions| {
                (sessions < sessions_max).then_some(sessions + 1)
            });
        if opened.is_err() {
            self.note_refusal(Quota::Sessions);
            return Err(QuotaExceeded {
                identity: self.identity.to_string(),
                quota: Quota::Sessions,
                value: self.quotas.of(Quota::Sessions),
            });
        }
        Ok(SessionSlot {
            account: self.clone(),
        })
    }

    /// Sessions that count for it.
    #[cfg(any(test, feature = "testing"))]
    pub fn session_count(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Nodes that it may still add to a tree with room for this many.
    pub fn nodes_left(&self, free_nodes: usize) -> usize {
        let added = self.growth.nodes.load(Ordering::Relaxed) as usize;
        let own = self.quota(Quota::Nodes).saturating_sub(added);
        own.min(share_left(added, free_nodes))
    }

    /// Whether it may add names to a tree with room for this many bytes of them.
    pub fn may_add_symbols(&self, free_bytes: usize) -> bool {
        let added = self.growth.symbol_bytes.load(Ordering::Relaxed);
        added < self.quotas.of(Quota::SymbolBytes) && share_left(added as usize, free_bytes) > 0
    }

    /// Whether it may add one more row past the limit for everybody, which is counted then.
    pub fn reserve(&self, table: SharedTable) -> bool {
        let rows = &self.growth.reserved[table as usize];
        rows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rows| {
            (rows < table.reserved_max()).then_some(rows + 1)
        })
        .is_ok()
    }

    /// Counts what it added to the tree.
    pub fn note_growth(&self, nodes: usize, symbol_bytes: usize) {
        self.growth.nodes.fetch_add(nodes as u64, Ordering::Relaxed);
        self.growth
            .symbol_bytes
            .fetch_add(symbol_bytes as u64, Ordering::Relaxed);
    }

    /// Memory of what it added to the tree, roughly.
    fn added_bytes(&self) -> u64 {
        let nodes = self.growth.nodes.load(Ordering::Relaxed);
        let symbol_bytes = self.growth.symbol_bytes.load(Ordering::Relaxed);
        nodes
            .saturating_mul(NODE_BYTES)
            .saturating_add(symbol_bytes)
    }

    /// Whether a running task of this size has room. A refusal is counted.
    pub fn has_room_for_task(&self, bytes: usize) -> bool {
        let running_bytes = self.running_bytes.load(Ordering::Relaxed);
        let has_room = running_bytes + bytes <= self.quota(Quota::RunningBytes);
        if !has_room {
            self.note_refusal(Quota::RunningBytes);
        }
        has_room
    }

    /// Whether its running tasks take more than half of what they may.
    pub fn is_half_full_of_tasks(&self) -> bool {
        self.running_bytes.load(Ordering::Relaxed) > self.quota(Quota::RunningBytes) / 2
    }

    /// Counts a running task.
    pub fn add_task(&self, bytes: usize) {
        self.running_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The opposite of [`Account::add_task`].
    pub fn remove_task(&self, bytes: usize) {
        self.running_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The refusals so far, of the quotas that were ever exceeded.
    #[cfg(any(test, feature = "testing"))]
    pub fn refusals(&self) -> impl Iterator<Item = (Quota, u64)> {
        let uses = self
            .uses()
            .into_iter()
            .map(|(quota, counted)| (quota, counted.refused));
        uses.filter(|(_, refused)| *refused > 0)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(number: u8) -> Arc<Account> {
        Account::of_test_with(number, &QuotaSettings::default())
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn of_test_with(number: u8, settings: &QuotaSettings) -> Arc<Account> {
        let identity = Identity::Address([10, 0, 0, number].into());
        Account::new(identity, Quotas::default().with(settings), Arc::default())
    }

    #[cfg(test)]
    pub(crate) fn of_identity(identity: Identity) -> Arc<Account> {
        Account::new(identity, Quotas::default(), Arc::default())
    }
}

/// How much more an identity that has added this much may add, so that it has at most
/// [`ADDED_PER_FREE`] times the free room. Quotas count from the start of the collector, but what
/// was added before takes room too.
fn share_left(added: usize, free: usize) -> usize {
    free.saturating_mul(ADDED_PER_FREE).saturating_sub(added) / (ADDED_PER_FREE + 1)
}

impl SessionSlot {
    /// Whether it counts for this account.
    pub fn is_of(&self, account: &Account) -> bool {
        self.account.identity == account.identity
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.account.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All identities with connections or sessions, and those that were here lately.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Of identities without quotas of their own.
    quotas: Quotas,
    by_identity: Mutex<KeyedMap<Identity, Arc<Account>>, rank::Accounts>,
}

impl Accounts {
    /// Accounts whose quotas are the defaults, except for `settings`.
    pub fn new(settings: &QuotaSettings) -> Accounts {
        Accounts {
            quotas: Quotas::default().with(settings),
            by_identity: Mutex::default(),
        }
    }

    /// The account of an identity that has quotas of its own. A new account replaces one with other
    /// quotas, which lasts as long as the streams that use it.
    pub fn of(&self, identity: &Identity, own: Option<&QuotaSettings>) -> Arc<Account> {
        let quotas = own.map_or(self.quotas, |own| self.quotas.with(own));
        let mut accounts = lock(&self.by_identity);
        let growth = match accounts.get(identity) {
            Some(account) if account.quotas == quotas => return account.clone(),
            Some(replaced) => replaced.growth.clone(),
            None => Arc::default(),
        };
        if accounts.len() >= ACCOUNTS_MAX {
            prune(&mut accounts);
        }
        let account = Account::new(identity.clone(), quotas, growth);
        accounts.insert(identity.clone(), account.clone());
        account
    }

    /// Counts for each identity the same part of what it added as stayed of all.
    pub fn note_forgotten(&self, nodes: RetainedPart, symbol_bytes: RetainedPart) {
        for account in self.all() {
            let Growth {
                nodes: own_nodes,
                symbol_bytes: own_bytes,
                ..
            } = &*account.growth;
            for (added, kept) in [(own_nodes, nodes), (own_bytes, symbol_bytes)] {
                let part = |added| Some(kept.part_of(added));
                let _ = added.fetch_update(Ordering::Relaxed, Ordering::Relaxed, part);
            }
        }
    }

    /// All accounts.
    pub fn all(&self) -> Vec<Arc<Account>> {
        lock(&self.by_identity).values().cloned().collect()
    }
}

/// Drops accounts that nobody uses. Accounts in use stay; their number is bounded by those of connections
/// and sessions. Of the others, those that have added most stay too, so that their quotas go on.
fn prune(accounts: &mut KeyedMap<Identity, Arc<Account>>) {
    let unused = accounts.values().filter(|account| is_unused(account));
    let mut added: Vec<u64> = unused.map(|account| account.added_bytes()).collect();
    added.sort_unstable_by_key(|bytes| Reverse(*bytes));
    let least = added.get(ACCOUNTS_MAX / 2).copied().unwrap_or(0);
    accounts.retain(|_, account| !is_unused(account) || account.added_bytes() > least);
}

fn is_unused(account: &Arc<Account>) -> bool {
    Arc::strong_count(account) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_count_until_they_end() {
        let mut settings = QuotaSettings::default();
        settings.set(Quota::Sessions, 2).unwrap();
        let account = Account::of_test_with(1, &settings);
        let first = account.open_session().unwrap();
        let _second = account.open_session().unwrap();
        let error = account.open_session().unwrap_err().to_string();
        assert!(
            error.starts_with("10.0.0.1 has reached its quota sessions=2; "),
            "{error}"
        );
        drop(first);
        assert!(account.open_session().is_ok());
        assert_eq!(account.session_count(), 1);
        assert_eq!(
            account.refusals().collect::<Vec<_>>(),
            [(Quota::Sessions, 1)]
        );
    }

    #[test]
    fn an_identity_has_one_account_until_its_quotas_change() {
        let accounts = Accounts::default();
        let identity = Identity::User(7);
        let first = accounts.of(&identity, None);
        assert!(Arc::ptr_eq(&first, &accounts.of(&identity, None)));
        let mut own = QuotaSettings::default();
        own.set(Quota::Queries, 3).unwrap();
        let second = accounts.of(&identity, Some(&own));
        assert_eq!(
            (first.quota(Quota::Queries), second.quota(Quota::Queries)),
            (66, 3)
        );
        assert!(Arc::ptr_eq(&second, &accounts.of(&identity, Some(&own))));
        assert_eq!(accounts.all().len(), 1);
    }

    #[test]
    fn what_is_forgotten_may_be_added_again() {
        let accounts = Accounts::default();
        let account = accounts.of(&Identity::User(7), None);
        account.note_growth(1_000, 50);
        accounts.note_forgotten(RetainedPart::new(1, 4), RetainedPart::new(0, 0));
        let added = &account.growth;
        let added = [&added.nodes, &added.symbol_bytes].map(|added| added.load(Ordering::Relaxed));
        assert_eq!(added, [250, 0]);
    }

    /// Remaining quota of an account, in a tree with room for more than its quota.
    fn left(account: &Account) -> (usize, bool) {
        (
            account.nodes_left(usize::MAX / 4),
            account.may_add_symbols(usize::MAX / 4),
        )
    }

    #[test]
    fn what_an_identity_has_added_counts_whatever_becomes_of_its_account() {
        let accounts = Accounts::default();
        let identity = Identity::User(7);
        let mut own = QuotaSettings::default();
        own.set(Quota::Nodes, 100).unwrap();
        own.set(Quota::SymbolBytes, 1_000).unwrap();
        accounts.of(&identity, Some(&own)).note_growth(60, 1_000);
        assert_eq!(left(&accounts.of(&identity, Some(&own))), (40, false));
        // Its token was edited.
        own.set(Quota::Nodes, 90).unwrap();
        own.set(Quota::SymbolBytes, 1_001).unwrap();
        assert_eq!(left(&accounts.of(&identity, Some(&own))), (30, true));
        // Many others come and go.
        for user in 1_000..1_000 + 3 * ACCOUNTS_MAX as u32 {
            accounts.of(&Identity::User(user), None);
        }
        assert_eq!(left(&accounts.of(&identity, Some(&own))), (30, true));
        assert!(
            accounts.all().len() <= ACCOUNTS_MAX,
            "{}",
            accounts.all().len()
        );
    }

    #[test]
    fn strangers_that_add_little_are_forgotten_before_those_that_add_much() {
        let accounts = Accounts::default();
        for user in 0..3 * ACCOUNTS_MAX as u32 {
            accounts
                .of(&Identity::User(user), None)
                .note_growth(user as usize, 1);
        }
        assert!(
            accounts.all().len() <= ACCOUNTS_MAX,
            "{}",
            accounts.all().len()
        );
        let last = 3 * ACCOUNTS_MAX as u32 - 1;
        let left = accounts
            .of(&Identity::User(last), None)
            .nodes_left(usize::MAX / 4);
        assert_eq!(
            left,
            Account::of_test(1).quota(Quota::Nodes) - last as usize
        );
    }

    #[test]
    fn an_identity_leaves_others_a_part_of_what_is_free() {
        let account = Account::of_test(1);
        let mut free = 4_000;
        // However often it asks.
        for _ in 0..10 {
            let more = account.nodes_left(free);
            account.note_growth(more, more);
            free -= more;
        }
        assert_eq!(free, 1_000);
        assert!(!account.may_add_symbols(free));
        assert_eq!(Account::of_test(2).nodes_left(free), 750);
    }
}
