//! Sessions of clients that have none of their own: the gateway opens them in their client's name, and finds them again.
//!
//! Such a session has a key: requests with the same key share it, at any gateway. Invariants: of many requests that begin one
//! session at the same time, at however many gateways, one initializes its server and the others wait; the params with
//! which it was initialized stay those of the request that has begun it; and a session that has taken the place of a lost one
//! says so in its record until a result has reported it.

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::{LabelName, LabelValue};
use mooring_session::view::RecordView;
use serde::Deserialize;

use super::active_bindings::{BindingHolder, InFlightKind};
use super::establish::REVISION_LABEL;
use super::known_sessions::{ContinuedSession, SessionBeginning};
use super::named_session::{LOST_STATE_LABEL, LOST_STATE_UNTOLD, NamedSession};
use super::{InitializeRequest, OpenError, Session, SessionRouter, SessionStart};
use mooring_protocol::Revision;
use mooring_store::{EndCause, StoreError, labels};
use mooring_upstream::Server;

impl SessionRouter {
    /// Opens the session at its server, or finds it opened. Waits for another gateway that opens it.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing of the session is left.
    pub async fn open_or_continue(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<ContinuedSession, OpenError> {
        if let Some(revision) = self.known_session(session) {
            return Ok(ContinuedSession {
                revision,
                beginning: None,
            });
        }
        let (continued, _) = Box::pin(self.find_or_open(session, server, request)).await?;
        Ok(continued)
    }

    /// What the server answered when the session was initialized, as the JSON text of the result; none if that is not
    /// stored. Opens the session if it is not open.
    ///
    /// # Errors
    /// See [`open_or_continue`](Self::open_or_continue).
    pub async fn initialize_result(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<Option<String>, OpenError> {
        let (_, result) = self.find_or_open(session, server, request).await?;
        Ok(result)
    }

    /// Finds a session that was opened before; none if there is none of this principal.
    ///
    /// # Errors
    /// The store is unreachable.
    pub async fn find_continued(
        &self,
        session: &Session,
    ) -> Result<Option<ContinuedSession>, StoreError> {
        let revision = match self.known_session(session) {
            Some(revision) => revision,
            None => match self.store().get(&session.key).await {
                Ok(record) if record.principal == session.principal => {
                    let revision = revision_label(&record).unwrap_or(Revision::OFFERED);
                    self.continued_sessions().note(&session.key, revision);
                    revision
                }
                Ok(_) | Err(StoreError::Refused(Refusal::NoSession | Refusal::Ended)) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Some(ContinuedSession {
            revision,
            beginning: None,
        }))
    }

    /// The session was found to have ended: its next use looks whether it exists.
    pub fn forget_continued(&self, session: &Session) {
        self.continued_sessions().forget(&session.key);
    }

    /// A result has reported that the state of an earlier session is gone, so that no other does. If this fails, another one does.
    pub async fn note_session_loss_reported(&self, session: &Session) {
        let reported = self.set_labels(session, labels(&[(LOST_STATE_LABEL, "")]));
        if let Err(error) = reported.await {
            tracing::info!(session = %session.digest, %error, "failed to record that the loss of state was reported");
        }
    }

    /// A session that was idle for longer may have expired.
    fn known_session(&self, session: &Session) -> Option<Revision> {
        let ttl = Duration::from_millis(self.options().session_ttl.get());
        self.continued_sessions().get(&session.key, ttl / 2)
    }

    async fn find_or_open(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<(ContinuedSession, Option<String>), OpenError> {
        let NamedSession {
            start,
            beginning,
            is_counted,
        } = self.begin_named(session, None).await?;
        let is_untold = beginning == SessionBeginning::Again;
        let (result, is_new) = match start {
            SessionStart::Continued(result) => (Some(result), false),
            SessionStart::Unknown => (None, false),
            SessionStart::New => {
                let counting = async {
                    match is_counted {
                        true => Ok(()),
                        false => self.check_rate(&session.principal).await,
                    }
                };
                let opened = self
                    .open_in_name_of_client(session, server, request, beginning, counting)
                    .await?;
                (opened, true)
            }
        };
        let beginning = (is_new || is_untold).then_some(beginning);
        let revision = match result.as_deref().and_then(revision_in) {
            Some(revision) => revision,
            // The answer could not be stored.
            None => self.recorded_revision(session).await?,
        };
        // Until its loss is reported, each request reads whether another gateway has reported it.
        if !is_untold {
            self.continued_sessions().note(&session.key, revision);
        }
        let continued = ContinuedSession {
            revision,
            beginning,
        };
        Ok((continued, result))
    }

    async fn recorded_revision(&self, session: &Session) -> Result<Revision, StoreError> {
        let record = self.store().get(&session.key).await?;
        Ok(revision_label(&record).unwrap_or(Revision::OFFERED))
    }

    /// Initializes the server in a session whose record was created just now. Ends it if that fails, so that no request
    /// waits for it, or if it is to tell of a loss, keeps that for the next request.
    async fn open_in_name_of_client(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
        beginning: SessionBeginning,
        counting: impl Future<Output = Result<(), OpenError>>,
    ) -> Result<Option<String>, OpenError> {
        // From here on the session is in use, and this gateway does not end it for another.
        let in_flight = self
            .active_bindings()
            .begin(session, &server.id, InFlightKind::Call);
        let is_untold = beginning == SessionBeginning::Again;
        let opening = async {
            if is_untold {
                let label = labels(&[(LOST_STATE_LABEL, LOST_STATE_UNTOLD)]);
                self.set_labels(session, label).await?;
            }
            counting.await?;
            self.note_initialize(session, request).await?;
            Ok(self.initialize(session, server).await?)
        };
        let opened: Result<_, OpenError> = opening.await;
        let (_, initialized) = match opened.map_err(OpenError::or_displaced) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(session = %session.digest, %error, "failed to open a session in the name of its client");
                if !is_untold || !self.note_not_opened(session).await {
                    self.close_lost(session, EndCause::NotOpened).await;
                }
                return Err(error);
            }
        };
        in_flight.set_holder(BindingHolder::This);
        if let Some(revision) = &initialized.revision
            && **revision != *request.revision
            && let Err(error) = self
                .set_labels(session, labels(&[(REVISION_LABEL, revision)]))
                .await
        {
            tracing::info!(session = %session.digest, %error, "failed to record the negotiated revision");
        }
        let answer = initialized.answer.message();
        let result = answer.and_then(|answer| answer.outcome().map(str::to_owned));
        if let Some(result) = &result {
            self.note_answer(session, result).await;
        }
        Ok(result)
    }
}

fn revision_label(record: &RecordView) -> Option<Revision> {
    let name = LabelName::parse(REVISION_LABEL).ok()?;
    record
        .labels
        .get(&name)
        .map(LabelValue::as_str)
        .and_then(Revision::named)
}

/// The revision in an `initialize` result.
fn revision_in(result: &str) -> Option<Revision> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RevisionOnly {
        protocol_version: Box<str>,
    }
    let result: RevisionOnly = serde_json::from_str(result).ok()?;
    Revision::named(&result.protocol_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_the_one_that_the_server_chose() {
        let revision = |name| revision_in(&format!(r#"{{"protocolVersion":"{name}"}}"#));
        assert_eq!(revision("2025-06-18"), Some(Revision::V2025_06_18));
        assert_eq!(revision("1"), None);
        assert_eq!(revision_in("{}"), None);
    }
}
