//! Sessions for operators with the right to see them.

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::sessions::{
    AgentSessionId, SessionDetail, SessionList, SessionListRequest, SessionName, StoredSession,
    find_session, list_sessions,
};
use mooring_session::Refusal;
use mooring_settings::Right;
use mooring_store::{NotReady, SessionKey, StoreError};

impl Operator {
    /// A page of sessions. Needs `sessions.read`.
    ///
    /// # Errors
    /// Forbidden, or the store's.
    pub async fn sessions(
        &self,
        operator: &OperatorIdentity,
        request: &SessionListRequest,
    ) -> Result<SessionList, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let note = |found: &StoredSession| self.cache.note(&found.key);
        Ok(list_sessions(self.store(), request, note).await?)
    }

    /// All of one session: `named` by its digest, the beginning of it, or its place. Needs `sessions.read`.
    ///
    /// # Errors
    /// Forbidden; that the name names no session, or several; or the store's.
    pub async fn session(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<SessionDetail, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let found = self.find(named).await?;
        let explanation = self.explanation(&found.key).await?;
        Ok(SessionDetail::of(
            &found,
            AgentSessionId::Digest,
            explanation,
        ))
    }

    /// The key of the session that is `named` so, for other parts of the operators' side: a secret, that no view may show.
    /// Needs `sessions.read`.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub async fn session_key(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<SessionKey, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        Ok(self.find(named).await?.key)
    }

    /// The session that is named so: without a search, if a view has shown it lately.
    pub(crate) async fn find(&self, named: &str) -> Result<StoredSession, OperatorError> {
        let name = SessionName::parse(named)?;
        if let SessionName::Digest(digest) = name
            && let Some(key) = self.cache.key(digest)
        {
            match self.store().get(&key).await {
                Ok(record) => return Ok(StoredSession { key, record }),
                Err(StoreError::Refused(Refusal::NoSession)) => {
                    return Err(OperatorError::SessionNotFound);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let found = find_session(self.store(), name).await?;
        self.cache.note(&found.key);
        Ok(found)
    }

    /// The session in sentences; none if it is gone, or if the store's user may not ask.
    async fn explanation(&self, key: &SessionKey) -> Result<Vec<String>, OperatorError> {
        match self.store().explain(key).await {
            Ok(lines) => Ok(lines),
            Err(StoreError::Refused(_) | StoreError::NotReady(NotReady::Answered(_))) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }
}
