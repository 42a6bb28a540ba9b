//! The entry for operators: a checked caller and the parts of a gateway.
//!
//! Invariant: each function names the right that it needs, and checks it before it reads anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::operator_error::OperatorError;
use super::tally::Tally;
use super::traffic::TrafficView;
use mooring_identity::Identity;
use mooring_pipeline::{RefusalCause, ServerDirectory, TopSenders};
use mooring_settings::Right;
use mooring_store::{SessionKey, Store};
use mooring_usage::BoundedCache;

/// The target of audit lines: they are written at every log level, however many there are.
pub const AUDIT_TARGET: &str = "audit";
/// Most sessions that are found by their digest without a search.
const KEYS_MAX: usize = 20_000;

/// A caller of the admin API, whose identity has been checked.
#[derive(Clone, Debug)]
pub struct OperatorIdentity {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// The id of the request, for the audit line.
    pub request_id: Box<str>,
}

/// What operators' requests leave for later ones. It is never needed, and bounded in memory.
#[derive(Debug)]
pub struct OperatorCache {
    keys: Mutex<BoundedCache<Box<str>, SessionKey>>,
    /// One request counts at a time; others wait for its result.
    pub(crate) tally: tokio::sync::Mutex<Option<Tally>>,
    /// The same for the traffic of the fleet, with the moment when it was gathered.
    pub(crate) traffic: tokio::sync::Mutex<Option<(Instant, TrafficView)>>,
}

impl Default for OperatorCache {
    fn default() -> Self {
        Self {
            keys: Mutex::new(BoundedCache::new(KEYS_MAX)),
            tally: tokio::sync::Mutex::default(),
            traffic: tokio::sync::Mutex::default(),
        }
    }
}

impl OperatorCache {
    /// The key of the session with this digest, if a view has shown it lately.
    pub(crate) fn key(&self, digest: &str) -> Option<SessionKey> {
        self.keys().get(digest).cloned()
    }

    /// Remembers the key of a session that is shown.
    pub(crate) fn note(&self, key: &SessionKey) {
        self.keys().insert(key.digest(), key.clone());
    }

    fn keys(&self) -> MutexGuard<'_, BoundedCache<Box<str>, SessionKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads and acts for operators. Cheap to make: one for each request.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) directory: Arc<ServerDirectory>,
    pub(crate) cache: Arc<OperatorCache>,
}

impl Operator {
    /// The operators' side of this gateway.
    #[must_use]
    pub const fn new(directory: Arc<ServerDirectory>, cache: Arc<OperatorCache>) -> Self {
        Self { directory, cache }
    }

    /// Who sends most to this gateway. Needs `sessions.read`.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`].
    pub fn top(&self, operator: &OperatorIdentity) -> Result<TopSenders, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        Ok(self.directory.core.request_log.top())
    }

    /// Refuses an operator without this right.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`]; it is logged.
    pub fn require(&self, operator: &OperatorIdentity, right: Right) -> Result<(), OperatorError> {
        if self.has_right(operator, right) {
            return Ok(());
        }
        let user = self.user_digest(operator);
        let name = right.name();
        tracing::info!(%user, right = name, "request refused: its user lacks the right");
        let cause = RefusalCause {
            server: None,
            tool: None,
            reason: format!("its user lacks the right {name}").into(),
        };
        self.directory.core.request_log.note_refusal(&user, cause);
        Err(OperatorError::Forbidden(right))
    }

    /// Whether the operator has this right.
    #[must_use]
    pub fn has_right(&self, operator: &OperatorIdentity, right: Right) -> bool {
        let policy = &self.directory.core.policy;
        policy.has_right(&operator.identity, right)
    }

    /// The operator's digest in logs.
    pub(crate) fn user_digest(&self, operator: &OperatorIdentity) -> Box<str> {
        let log = &self.directory.core.request_log;
        log.user_digest(&operator.identity.principal)
    }

    /// The store of the fleet.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.directory.core.session_router.store()
    }

    /// Whether this gateway has a server with this id.
    #[must_use]
    pub fn serves(&self, id: &str) -> bool {
        self.directory.serves(id)
    }

    /// Writes the audit line of an act: who did what to whom, and the outcome.
    pub fn audit(
        &self,
        operator: &OperatorIdentity,
        act: &'static str,
        subject: &str,
        outcome: &str,
    ) {
        let user = operator.identity.principal.as_str();
        tracing::info!(
            target: AUDIT_TARGET,
            operator = user,
            act,
            subject,
            outcome,
            request_id = %operator.request_id,
            "operator's act"
        );
    }
}
