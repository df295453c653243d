//! Credentials that let a request through: a token, a session of a browser, or the connection itself.

use std::sync::Arc;

use axum::http::{HeaderMap, Method, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use profiler_core::Token;
use zeroize::Zeroizing;

use super::cookie::CookieScope;
use crate::auth::{
    Access, Denied, DeniedLog, Role, Session, SessionSecret, Sessions, TokenRecord, Tokens,
};
use base::clock::Clock;
use shares::QuotaSettings;
use shares::identity::{CertificateNames, Identity};

/// The tokens and sessions of a collector, against which requests are checked.
#[derive(Debug)]
pub struct Gate {
    tokens: Arc<Tokens>,
    sessions: Sessions,
    clock: Clock,
    denied: DeniedLog,
    is_tls: bool,
}

/// The sender of a request that was let through: an extension of every such request but those of open
/// routes.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Shared: each of ten thousand streams has two callers.
    request: Arc<CheckedRequest>,
}

#[derive(Debug)]
struct CheckedRequest {
    gate: Arc<Gate>,
    credential: Credential,
    who: Identity,
    path: String,
}

/// Credential that lets a request through.
#[derive(Clone, Debug)]
pub enum Credential {
    /// None: the collector has no tokens, and everyone may do everything.
    NotNeeded,
    /// A token, in the request or in the login of its session.
    Token {
        record: Arc<TokenRecord>,
        session: Option<Session>,
    },
    /// The Unix socket, which only the operators' own users can use.
    User,
    /// The client's certificate, whose names are the workers that its holder may report as.
    Certificate(CertificateNames),
}

impl Credential {
    pub fn allows(&self, access: Access) -> bool {
        match self {
            Credential::NotNeeded | Credential::User => true,
            Credential::Token { record, .. } => access.is_granted_to(record.role),
            Credential::Certificate(_) => access.is_granted_to(Role::Agent),
        }
    }

    fn covers(&self, worker: &str) -> bool {
        match self {
            Credential::NotNeeded | Credential::User => true,
            Credential::Token { record, .. } => record.covers(worker),
            Credential::Certificate(CertificateNames(names)) => {
                names.iter().any(|name| name == worker)
            }
        }
    }

    /// The sender, as the answer to a rejected request names it.
    pub fn holder(&self) -> String {
        match self {
            Credential::Token { record, .. } => format!("a token of role {}", record.role),
            Credential::Certificate(_) => "a client's certificate".to_owned(),
            Credential::NotNeeded | Credential::User => "everyone".to_owned(),
        }
    }
}

impl Gate {
    pub fn new(tokens: Arc<Tokens>, clock: Clock) -> Gate {
        let sessions = Sessions::default();
        Gate {
            tokens,
            sessions,
            clock,
            denied: DeniedLog::default(),
            is_tls: false,
        }
    }

    /// With a port that speaks TLS.
    #[must_use]
    pub fn with_tls(self, is_tls: bool) -> Gate {
        Gate { is_tls, ..self }
    }

    pub fn cookie_scope(&self, uri: &Uri, headers: &HeaderMap) -> CookieScope {
        CookieScope::of(uri, headers, self.is_tls)
    }

    /// Credential of the sender: a token, the cookie of a session or, without one, the connection itself.
    pub fn authenticate(
        &self,
        scope: CookieScope,
        headers: &HeaderMap,
        peer: &Identity,
        schemes: Schemes,
    ) -> Result<Credential, Denied> {
        let Some(tokens) = self.tokens.current() else {
            return Ok(Credential::NotNeeded);
        };
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            if let Some(session) = self.session(scope, headers) {
                let record = session.token.clone();
                return Ok(Credential::Token {
                    record,
                    session: Some(session),
                });
            }
            return match peer {
                Identity::User(_) => Ok(Credential::User),
                Identity::Certificate(names) => Ok(Credential::Certificate(names.clone())),
                _ => Err(Denied::Missing),
            };
        };
        if values.next().is_some() {
            return Err(Denied::Invalid);
        }
        let token = value
            .to_str()
            .ok()
            .and_then(|value| schemes.token(value))
            .ok_or(Denied::Invalid)?;
        let record = tokens.authenticate(&token, self.clock.now())?;
        Ok(Credential::Token {
            record,
            session: None,
        })
    }

    /// The session of a cookie. It ends with its token.
    fn session(&self, scope: CookieScope, headers: &HeaderMap) -> Option<Session> {
        let now = self.clock.now();
        let session = self.sessions.find(&scope.secret(headers)?, now)?;
        let tokens = self.tokens.current()?;
        let record = tokens.still_valid(session.token.id, now).ok();
        if record.is_none_or(|record| record.sha256 != session.token.sha256) {
            self.sessions.close(&session);
            return None;
        }
        Some(session)
    }

    /// Exchanges a token for a session.
    pub fn log_in(&self, token: &Token) -> Result<LoggedIn, LoginError> {
        let now = self.clock.now();
        let tokens = self.tokens.current().ok_or(LoginError::NotNeeded)?;
        let record = tokens
            .authenticate(token, now)
            .map_err(LoginError::Denied)?;
        if !Access::Reader.is_granted_to(record.role) {
            return Err(LoginError::Role(record.role));
        }
        let secret = self
            .sessions
            .open(record.clone(), now)
            .map_err(LoginError::Random)?;
        Ok(LoggedIn { secret, record })
    }

    /// Ends the session of a cookie and returns its token.
    pub fn log_out(&self, scope: CookieScope, headers: &HeaderMap) -> Option<Arc<TokenRecord>> {
        let session = self
            .sessions
            .find(&scope.secret(headers)?, self.clock.now())?;
        self.sessions.close(&session);
        Some(session.token)
    }

    /// Notes a rejected request in the audit log.
    pub fn report_denied(&self, peer: &Identity, reason: &str, method: &Method, path: &str) {
        self.denied
            .report(&peer.to_string(), reason, method.as_str(), path);
    }
}

/// How a request may carry its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schemes {
    Bearer,
    /// Also as the password or the user of basic authentication, of which Pyroscope's clients have fields.
    /// Only for what no browser sends: browsers keep such passwords and send them unasked.
    BearerAndBasic,
}

impl Schemes {
    fn token(self, value: &str) -> Option<Token> {
        match self {
            Schemes::Bearer => Token::parse_bearer(value).ok(),
            Schemes::BearerAndBasic => Token::parse_bearer(value)
                .ok()
                .or_else(|| basic_token(value)),
        }
    }
}

fn basic_token(value: &str) -> Option<Token> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let (user, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
    Token::parse(password).or_else(|_| Token::parse(user)).ok()
}

/// A new session.
pub struct LoggedIn {
    pub secret: SessionSecret,
    pub record: Arc<TokenRecord>,
}

/// Why there is no session.
pub enum LoginError {
    /// The collector has no tokens.
    NotNeeded,
    Denied(Denied),
    /// Tokens of this role cannot read.
    Role(Role),
    Random(getrandom::Error),
}

impl Caller {
    pub fn new(gate: Arc<Gate>, credential: Credential, who: Identity, path: &str) -> Caller {
        let request = CheckedRequest {
            gate,
            credential,
            who,
            path: path.to_owned(),
        };
        Caller {
            request: Arc::new(request),
        }
    }

    /// Whether it may report as this worker. The audit log has those that may not.
    pub fn covers(&self, worker: &str) -> bool {
        let is_covered = self.request.credential.covers(worker);
        if !is_covered {
            let reason = format!("may not report as {worker}");
            let CheckedRequest {
                gate, who, path, ..
            } = &*self.request;
            gate.report_denied(who, &reason, &Method::POST, path);
        }
        is_covered
    }

    /// The quotas of its token; `None` without a token.
    pub fn quotas(&self) -> Option<&QuotaSettings> {
        match &self.request.credential {
            Credential::Token { record, .. } => Some(&record.quotas),
            _ => None,
        }
    }

    pub fn credential(&self) -> &Credential {
        &self.request.credential
    }

    /// Resolves when it may no longer do what it does: its token is revoked or expired, or its session
    /// has ended.
    pub async fn revoked(&self) {
        let gate = &self.request.gate;
        let now = || gate.clock.now();
        match &self.request.credential {
            Credential::NotNeeded => gate.tokens.revoked(None, now).await,
            Credential::Token {
                record,
                session: None,
            } => {
                gate.tokens.revoked(Some(record), now).await;
            }
            Credential::Token {
                record,
                session: Some(session),
            } => {
                // In boxes, because ten thousand agents wait here too, which have no session.
                tokio::select! {
                    () = Box::pin(gate.tokens.revoked(Some(record), now)) => {}
                    () = Box::pin(gate.sessions.ended(session, now)) => {}
                }
            }
            // They last as long as their connection.
            Credential::User | Credential::Certificate(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::TokenId;

    use super::*;

    #[test]
    fn a_token_is_the_password_or_the_user_of_basic_authentication_where_allowed() {
        let token = Token::new(TokenId(7), &[1; 32]);
        let text = token.expose();
        for value in [
            basic("any", text),
            basic(text, ""),
            token.bearer().to_string(),
        ] {
            assert_eq!(Schemes::BearerAndBasic.token(&value), Some(token.clone()));
        }
        assert_eq!(Schemes::Bearer.token(&basic("any", text)), None);
        for value in [
            &*basic("any", "x"),
            "Basic",
            "Basic !",
            "Digest abc",
            &basic("", ""),
        ] {
            assert_eq!(Schemes::BearerAndBasic.token(value), None, "{value}");
        }
    }

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    #[test]
    fn a_certificate_reports_as_its_names_and_does_nothing_else() {
        let names = ["worker-1", "worker-2.example"].map(str::to_owned);
        let certificate = Credential::Certificate(CertificateNames(names.into()));
        assert!(certificate.covers("worker-1") && certificate.covers("worker-2.example"));
        for other in ["worker", "worker-11", "worker-2", ""] {
            assert!(!certificate.covers(other), "{other}");
        }
        let allowed = [Access::Agent, Access::Reader, Access::Operator]
            .map(|access| certificate.allows(access));
        assert_eq!(allowed, [true, false, false]);
    }
}
