//! Sessions of browsers: after a login, a cookie has a random secret instead of the token.
//!
//! They exist in memory only, by the hash of their secret, and end with the process.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::TokenRecord;
use base::limits::{LOGIN_IDLE_MAX, LOGIN_MAX, LOGINS_MAX, LOGINS_PER_TOKEN_MAX, nanoseconds};
use base::sync::{Mutex, lock, rank};

const SECRET_BYTES: usize = 32;

/// The secret of a session, as the cookie has it: 64 hexadecimal digits (256 bits).
pub struct SessionSecret(Zeroizing<String>);

impl SessionSecret {
    fn random() -> Result<SessionSecret, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut *bytes)?;
        // Reserved, because growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_BYTES));
        for byte in *bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("four bits are one digit"));
            }
        }
        Ok(SessionSecret(text))
    }

    /// The secret in a cookie; `None` if it cannot be one.
    pub fn parse(text: &str) -> Option<SessionSecret> {
        let is_secret = text.len() == 2 * SECRET_BYTES
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_secret.then(|| SessionSecret(Zeroizing::new(text.to_owned())))
    }

    /// The text, with which everybody is logged in.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

/// The SHA-256 of a secret. A lookup by it takes no time that depends on the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SecretHash([u8; 32]);

/// All sessions of a collector.
#[derive(Debug, Default)]
pub struct Sessions {
    by_hash: Mutex<HashMap<SecretHash, Entry>, rank::Logins>,
}

#[derive(Debug)]
struct Entry {
    session: Session,
    last_used: Timestamp,
    /// Dropped with the entry, which wakes the session's streams.
    _open: watch::Sender<()>,
}

/// A session that was open when it was looked up.
#[derive(Clone, Debug)]
pub struct Session {
    hash: SecretHash,
    /// The token of the login, as it was then.
    pub token: Arc<TokenRecord>,
    /// When it ends, unless it ends earlier.
    pub ends: Timestamp,
    open: watch::Receiver<()>,
}

impl Entry {
    fn is_over(&self, now: Timestamp) -> bool {
        let idle_ns = i64::try_from(now.since_ns(self.last_used)).unwrap_or(i64::MAX);
        self.session.ends <= now || idle_ns >= nanoseconds(LOGIN_IDLE_MAX)
    }
}

impl Sessions {
    /// Opens a session for the holder of a token. Past a limit, the least recently used one ends: of the
    /// same token past [`LOGINS_PER_TOKEN_MAX`], of all past [`LOGINS_MAX`].
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn open(
        &self,
        token: Arc<TokenRecord>,
        now: Timestamp,
    ) -> Result<SessionSecret, getrandom::Error> {
        let secret = SessionSecret::random()?;
        let hash = secret.hash();
        let (sender, open) = watch::channel(());
        let ends = now.shifted(nanoseconds(LOGIN_MAX));
        let mut entries = lock(&self.by_hash);
        entries.retain(|_, entry| !entry.is_over(now));
        make_room(&mut entries, LOGINS_PER_TOKEN_MAX, |entry: &Entry| {
            entry.session.token.id == token.id
        });
        make_room(&mut entries, LOGINS_MAX, |_| true);
        let session = Session {
            hash,
            token,
            ends,
            open,
        };
        entries.insert(
            hash,
            Entry {
                session,
                last_used: now,
                _open: sender,
            },
        );
        Ok(secret)
    }

    /// Returns the session with this secret, which is then in use; `None` if it has ended.
    pub fn find(&self, secret: &SessionSecret, now: Timestamp) -> Option<Session> {
        self.touch(secret.hash(), now)
    }

    fn touch(&self, hash: SecretHash, now: Timestamp) -> Option<Session> {
        let mut entries = lock(&self.by_hash);
        let entry = entries.get_mut(&hash)?;
        if entry.is_over(now) {
            entries.remove(&hash);
            return None;
        }
        entry.last_used = entry.last_used.max(now);
        Some(entry.session.clone())
    }

    /// Ends a session, and its streams.
    pub fn close(&self, session: &Session) {
        lock(&self.by_hash).remove(&session.hash);
    }

    /// Resolves when a session has ended. Until then it is in use.
    pub async fn ended(&self, session: &Session, now: impl Fn() -> Timestamp) {
        let mut open = session.open.clone();
        while let Some(Session { ends, .. }) = self.touch(session.hash, now()) {
            let left = Duration::from_nanos(ends.since_ns(now()));
            let wait = left.clamp(Duration::from_millis(1), LOGIN_IDLE_MAX / 2);
            tokio::select! {
                // Nothing is ever sent.
                _ = open.changed() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// Removes the least recently used of these entries until there is room for another one.
fn make_room(
    entries: &mut HashMap<SecretHash, Entry>,
    entries_max: usize,
    is_counted: impl Fn(&Entry) -> bool,
) {
    while entries.values().filter(|entry| is_counted(entry)).count() >= entries_max {
        let counted = entries.iter().filter(|(_, entry)| is_counted(entry));
        let oldest = counted
            .min_by_key(|(_, entry)| entry.last_used)
            .map(|(hash, _)| *hash);
        if let Some(hash) = oldest {
            entries.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NewToken, Role};
    use super::*;

    fn token() -> Arc<TokenRecord> {
        let created = NewToken::new(Role::Reader).create(&[], jiff::Timestamp::UNIX_EPOCH);
        Arc::new(created.unwrap().1)
    }

    fn after(duration: Duration) -> Timestamp {
        Timestamp::from_unix_ns(nanoseconds(duration))
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_session_ends_when_it_is_idle_old_or_closed() {
        let sessions = Sessions::default();
        let token = token();
        let open = || sessions.open(token.clone(), after(Duration::ZERO)).unwrap();

        let idle = open();
        assert!(is_open(&sessions, &idle, LOGIN_IDLE_MAX - MINUTE));
        assert!(
            is_open(&sessions, &idle, 2 * LOGIN_IDLE_MAX - 2 * MINUTE),
            "it was used"
        );
        assert!(!is_open(&sessions, &idle, 3 * LOGIN_IDLE_MAX));
        assert!(!is_open(&sessions, &idle, Duration::ZERO), "it stays ended");

        let old = open();
        let mut used = Duration::ZERO;
        while used + LOGIN_IDLE_MAX / 2 < LOGIN_MAX {
            used += LOGIN_IDLE_MAX / 2;
            assert!(is_open(&sessions, &old, used));
        }
        assert!(!is_open(&sessions, &old, LOGIN_MAX));

        let closed = open();
        sessions.close(&sessions.find(&closed, after(MINUTE)).unwrap());
        assert!(!is_open(&sessions, &closed, MINUTE));
        let other = SessionSecret::random().unwrap();
        assert!(!is_open(&sessions, &other, MINUTE));
    }

    fn is_open(sessions: &Sessions, secret: &SessionSecret, at: Duration) -> bool {
        sessions.find(secret, after(at)).is_some()
    }

    #[test]
    fn the_least_recently_used_session_of_a_token_makes_room() {
        let sessions = Sessions::default();
        let other = sessions.open(token(), after(Duration::ZERO)).unwrap();
        let token = token();
        let open = |at| sessions.open(token.clone(), after(at)).unwrap();
        let secrets: Vec<_> = (0..LOGINS_PER_TOKEN_MAX).map(|_| open(MINUTE)).collect();
        for secret in &secrets[1..] {
            assert!(sessions.find(secret, after(2 * MINUTE)).is_some());
        }
        let newest = open(3 * MINUTE);
        let found = |secret| sessions.find(secret, after(3 * MINUTE)).is_some();
        assert!(!found(&secrets[0]));
        assert!(secrets[1..].iter().chain([&newest, &other]).all(found));
        assert_eq!(lock(&sessions.by_hash).len(), LOGINS_PER_TOKEN_MAX + 1);
    }

    #[tokio::test]
    async fn the_streams_of_a_closed_session_end() {
        let sessions = Sessions::default();
        let now = || after(MINUTE);
        let secret = sessions.open(token(), now()).unwrap();
        let session = sessions.find(&secret, now()).unwrap();
        let ended = sessions.ended(&session, now);
        let close = async {
            tokio::task::yield_now().await;
            sessions.close(&session);
        };
        let both = async { tokio::join!(ended, close) };
        tokio::time::timeout(MINUTE, both)
            .await
            .expect("the stream ends");
    }

    #[test]
    fn secrets_are_parsed_as_they_are_written_and_not_shown() {
        let secret = SessionSecret::random().unwrap();
        let text = secret.expose();
        assert_eq!(SessionSecret::parse(text).unwrap().hash(), secret.hash());
        assert_eq!(format!("{secret:?}"), "SessionSecret(..)");
        for other in [
            "",
            &text[1..],
            &text.replace(|_: char| true, "A"),
            &format!("{text}0"),
        ] {
            assert!(SessionSecret::parse(other).is_none(), "{other}");
        }
    }
}
