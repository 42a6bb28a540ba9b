//! Named sessions: a restarted client finds its session by a name instead of an id.
//!
//! The id is derived from the name, the server, the principal and the client's initialize params, so different programs
//! never share an upstream session. The server's answer to the first `initialize` is stored with the initialize params,
//! for later clients.
//!
//! Invariant: if several processes begin one session at the same time, one opens it and the others continue it.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::LabelName;
use mooring_session::record::SessionState;
use mooring_session::rules::CreateReply;
use mooring_session::view::RecordView;
use tokio::time::{Instant, sleep};

use super::establish::init_digest;
use super::known_sessions::SessionBeginning;
use super::{CloseOutcome, OpenError, Session, SessionRouter};
use mooring_store::{InitDigest, StoreError, labels};
use mooring_usage::for_same_user;

/// The label that locates the server's answer: a digest, or [`NOT_KEPT`].
const ANSWER_LABEL: &[u8] = b"answer";
/// The answer was too long to store.
const NOT_KEPT: &str = "not-kept";
/// The session was not opened, and the next request begins it again.
const NOT_OPENED: &str = "not-opened";
/// The label of a session in the place of a lost one. Empty once a result has reported that.
pub(super) const LOST_STATE_LABEL: &[u8] = b"lost_state";
/// Its value before.
pub(super) const LOST_STATE_UNTOLD: &str = "untold";
/// How long another process may take to open the session before it counts as dead.
const OPENED_WITHIN: Duration = Duration::from_secs(15);
/// The same for a session that is opened in its client's name, whose server may be a program that has to start.
const OPENED_FOR_CLIENT_WITHIN: Duration = Duration::from_secs(45);
/// Interval of checks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The state of a named session when a client starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionStart {
    /// The session is new, and the client has to initialize it.
    New,
    /// The session exists. The result of its first `initialize`, as JSON text.
    Continued(String),
    /// The session exists and may be in use, but cannot be continued because the server's answer is not stored.
    Unknown,
}

/// A named session as it was found.
#[derive(Debug)]
pub(super) struct NamedSession {
    pub(super) start: SessionStart,
    /// Again also if it exists, and no result has reported the loss yet.
    pub(super) beginning: SessionBeginning,
    /// Whether it was counted as a new session of its principal.
    pub(super) is_counted: bool,
}

impl SessionRouter {
    /// Begins the session, or finds its state. Waits for another process that is opening it.
    ///
    /// # Errors
    /// `Store`, `AtCap`.
    pub async fn begin_or_continue(
        &self,
        session: &Session,
        params: &str,
    ) -> Result<SessionStart, OpenError> {
        let named = self.begin_named(session, Some(params)).await?;
        Ok(named.start)
    }

    /// The same, and how it begins. The initialize params of a session that exists are renewed with `params`; without
    /// them, a new session counts for the rate of its principal before it ends another.
    pub(super) async fn begin_named(
        &self,
        session: &Session,
        params: Option<&str>,
    ) -> Result<NamedSession, OpenError> {
        // The process that opens the session records its initialize params.
        let create = self.creation(session, BTreeMap::new());
        let patience = match params {
            Some(_) => OPENED_WITHIN,
            None => OPENED_FOR_CLIENT_WITHIN,
        };
        let mut deadline = Instant::now() + patience;
        let mut incarnation = None;
        // Of the record that is closed here.
        let mut was_untold = false;
        let mut is_counted = false;
        loop {
            let created = match params.is_none() && !is_counted {
                true => {
                    let (created, counted) = self.admit_counted(session, &create).await?;
                    is_counted = counted;
                    created
                }
                false => self.admit(session, &create).await?,
            };
            // One that was ended by its client, or never opened, has left no bindings.
            let has_expired = created.revived == Some(SessionState::Expired);
            let is_lost = has_expired || !created.previous.is_empty();
            let is_untold = is_untold(&created.record);
            let beginning = match is_lost || is_untold || (created.created && was_untold) {
                true => SessionBeginning::Again,
                false => SessionBeginning::First,
            };
            let named = |start| NamedSession {
                start,
                beginning,
                is_counted,
            };
            if created.created {
                self.clean_before(session, created);
                return Ok(named(SessionStart::New));
            }
            match self.answer_in(&created.record).await? {
                Answer::Kept(result) => {
                    // Every process that continues it renews these.
                    if let Some(params) = params
                        && let Some(digest) = init_digest(&created.record)
                    {
                        self.store().put_init(&digest, params).await?;
                    }
                    return Ok(named(SessionStart::Continued(result)));
                }
                Answer::Gone => return Ok(named(SessionStart::Unknown)),
                Answer::Awaited if incarnation != Some(created.record.generation) => {
                    // Another process restarted it, and has the full time again.
                    incarnation = Some(created.record.generation);
                    deadline = Instant::now() + patience;
                }
                Answer::Awaited if Instant::now() < deadline => sleep(LOOK_EVERY).await,
                // The process that should have opened it is gone, or could not: restart the session.
                Answer::Awaited | Answer::NotOpened => {
                    was_untold = is_untold;
                    match self.close(session).await {
                        Ok(CloseOutcome::Now) => {
                            tracing::warn!(session = %session.digest, "session was created but never opened; restarting it");
                        }
                        // Another process has restarted it already.
                        Ok(CloseOutcome::AlreadyClosed)
                        | Err(StoreError::Refused(Refusal::NoSession)) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Stores the server's answer for processes that continue the session. If this fails, they restart it.
    pub async fn note_answer(&self, session: &Session, result: &str) {
        let digest = InitDigest::of(result);
        let kept = match self.store().put_init(&digest, result).await {
            Ok(()) => digest.as_str(),
            Err(error) => {
                tracing::warn!(session = %session.digest, %error, "initialize result not stored; the session cannot be continued");
                NOT_KEPT
            }
        };
        let noted = self.set_labels(session, labels(&[(ANSWER_LABEL, kept)]));
        if let Err(error) = noted.await {
            tracing::warn!(session = %session.digest, %error, "digest of the initialize result not stored");
        }
    }

    /// Lets the next request begin the session again, which keeps that its loss is untold. Whether that is noted.
    pub(super) async fn note_not_opened(&self, session: &Session) -> bool {
        let noted = self.set_labels(session, labels(&[(ANSWER_LABEL, NOT_OPENED)]));
        noted.await.is_ok()
    }

    /// Deletes in the background the upstream sessions of an expired incarnation.
    fn clean_before(&self, session: &Session, created: CreateReply) {
        if created.previous.is_empty() {
            return;
        }
        let before = RecordView {
            bindings: created.previous,
            ..created.record
        };
        let (router, key) = (self.clone(), session.key.clone());
        tokio::spawn(for_same_user(async move {
            router.delete_all_held(&key, &before).await
        }));
    }

    async fn answer_in(&self, record: &RecordView) -> Result<Answer, StoreError> {
        let Some(value) = answer_label(record) else {
            return Ok(Answer::Awaited);
        };
        if value == NOT_OPENED {
            return Ok(Answer::NotOpened);
        }
        let Some(digest) = InitDigest::parse(value) else {
            return Ok(Answer::Gone);
        };
        match self.store().get_init(&digest).await? {
            Some(result) => {
                // Every process that continues the session renews it.
                self.store().put_init(&digest, &result).await?;
                Ok(Answer::Kept(result))
            }
            None => Ok(Answer::Gone),
        }
    }
}

fn answer_label(record: &RecordView) -> Option<&str> {
    let label = LabelName::parse(ANSWER_LABEL).ok()?;
    record.labels.get(&label).map(|value| value.as_str())
}

/// Whether a result has still to tell that the state of an earlier session is gone.
fn is_untold(record: &RecordView) -> bool {
    let label = LabelName::parse(LOST_STATE_LABEL).ok();
    let value = label.and_then(|label| record.labels.get(&label));
    value.is_some_and(|value| value.as_str() == LOST_STATE_UNTOLD)
}

/// The digest of the stored answer.
pub(super) fn answer_digest(record: &RecordView) -> Option<InitDigest> {
    InitDigest::parse(answer_label(record)?)
}

/// The server's answer according to a record.
enum Answer {
    /// Stored.
    Kept(String),
    /// Not stored yet.
    Awaited,
    /// There is none, and there will be none.
    NotOpened,
    /// Not stored, or expired.
    Gone,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::num::NonZeroU64;

    use mooring_session::rules::CreateRequest;
    use mooring_session::time::Millis;
    use mooring_store::test_support::memory_store;
    use mooring_store::test_support::requests as make;

    use super::*;
    use crate::affinity::test_router::test_router;
    use crate::affinity::{RoutedServers, SessionLimits};

    const RESULT: &str = r#"{"protocolVersion":"2025-06-18"}"#;

    #[tokio::test]
    async fn a_loss_of_state_is_kept_until_it_is_told() {
        let (store, create) = (memory_store(), make::create("one"));
        let router = test_router(&store, &make::worker("w"), Millis::new(0));
        let session = Session::new(make::key("one"), create.id, create.principal);
        let found = async || {
            let named = router.begin_named(&session, None).await.unwrap();
            (named.start, named.beginning)
        };
        assert_eq!(found().await, (SessionStart::New, SessionBeginning::First));
        let untold = labels(&[(LOST_STATE_LABEL, LOST_STATE_UNTOLD)]);
        router.set_labels(&session, untold.clone()).await.unwrap();
        assert!(router.note_not_opened(&session).await);
        // It could not be opened: the next request does it, and tells of the loss.
        assert_eq!(found().await, (SessionStart::New, SessionBeginning::Again));
        router.set_labels(&session, untold).await.unwrap();
        router.note_answer(&session, RESULT).await;
        let continued = SessionStart::Continued(RESULT.to_owned());
        for _ in 0..2 {
            assert_eq!(
                found().await,
                (continued.clone(), SessionBeginning::Again),
                "whatever request came in between"
            );
        }
        router.note_session_loss_reported(&session).await;
        assert_eq!(found().await, (continued, SessionBeginning::First));
    }

    #[tokio::test]
    async fn a_session_beyond_the_rate_ends_no_other() {
        let (store, one) = (memory_store(), NonZeroU64::MIN);
        let create = CreateRequest {
            cap: Some(one),
            ..make::create("one")
        };
        store.create(&make::key("one"), &create).await.unwrap();
        let router = test_router(&store, &make::worker("w"), Millis::new(0));
        let limits = SessionLimits {
            sessions_max: Some(one),
            initializes_per_minute: Some(one),
        };
        router.configure(&RoutedServers::default(), limits);
        router.check_rate(&create.principal).await.unwrap();
        let other = Session::new(make::key("two"), make::create("two").id, create.principal);
        let refused = router.begin_named(&other, None).await;
        assert!(
            matches!(refused, Err(OpenError::TooFast { .. })),
            "{refused:?}"
        );
        store.get(&make::key("one")).await.unwrap();
    }
}
