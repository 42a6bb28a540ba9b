//! Cleaning: what a session that is over still holds upstream is deleted there, and then its tombstone is dropped.
//!
//! Invariants: deleted are only upstream sessions that the record of an incarnation named after it was over, so nothing
//! that a later incarnation holds can be among them. A tombstone is dropped only when nothing of it is left to delete;
//! until then it names what is, to whoever reaps it next.

use std::time::Duration;

use futures_util::future::join_all;
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::view::{BindingView, OwnerView, RecordView};

use super::SessionRouter;
use super::owned::ConnectionKey;
use super::stream::is_stream;
use mooring_store::SessionKey;
use mooring_upstream::{DiscardOutcome, Outgoing, discard};

/// Longest wait for the answer to one DELETE. Shorter than the lease under which its tombstone is cleaned: the
/// reaper's own, and the 30 s that END gives its caller.
pub(super) const DELETED_WITHIN: Duration = Duration::from_secs(10);

/// What is left of what a record held.
#[derive(Debug, Default)]
pub(super) struct CleanupResult {
    /// The instances that did not answer, or were not asked.
    pub(super) unanswered: Vec<(ServerName, InstanceName)>,
    /// How much its instance refused to delete for now.
    pub(super) refused: usize,
    /// How much cannot be, because its server or instance is not configured any more.
    pub(super) unconfigured: usize,
}

/// What came of one binding.
enum Deletion {
    Done,
    Refused,
    Unanswered(ServerName, InstanceName),
    Unconfigured,
}

impl CleanupResult {
    /// Whether something has to be deleted later.
    pub(super) fn is_undone(&self) -> bool {
        self.refused > 0 || !self.unanswered.is_empty()
    }

    fn note(&mut self, deletion: Deletion) {
        match deletion {
            Deletion::Done => {}
            Deletion::Refused => self.refused = self.refused.saturating_add(1),
            Deletion::Unanswered(server, instance) => self.unanswered.push((server, instance)),
            Deletion::Unconfigured => self.unconfigured = self.unconfigured.saturating_add(1),
        }
    }
}

impl SessionRouter {
    /// Deletes what the bindings of a record hold upstream, all at once, but for those that `is_put_off` names. Streams
    /// hold nothing there; whoever holds one finds by itself that its session is over.
    pub(super) async fn delete_held(
        &self,
        key: &SessionKey,
        record: &RecordView,
        is_put_off: impl Fn(&BindingView) -> bool,
    ) -> CleanupResult {
        let held = (record.bindings.iter()).filter(|binding| !is_stream(&binding.server));
        let deletions = held.map(|binding| {
            let is_put_off = is_put_off(binding);
            async move {
                if is_put_off {
                    return Deletion::Unanswered(binding.server.clone(), binding.instance.clone());
                }
                self.delete_of(key, &record.principal, binding).await
            }
        });
        let mut cleanup = CleanupResult::default();
        for deletion in join_all(deletions).await {
            cleanup.note(deletion);
        }
        cleanup
    }

    /// Deletes what the bindings of a record hold upstream. False where something is left to be deleted later.
    pub async fn delete_all_held(&self, key: &SessionKey, record: &RecordView) -> bool {
        !self.delete_held(key, record, |_| false).await.is_undone()
    }

    /// How long the answer to a DELETE is waited for.
    pub(super) fn deletion_timeout(&self) -> Duration {
        DELETED_WITHIN.min(self.options().answer_timeout)
    }

    async fn delete_of(
        &self,
        key: &SessionKey,
        principal: &Principal,
        binding: &BindingView,
    ) -> Deletion {
        if let Some(owner) = &binding.owner {
            return self.let_go(key, principal, binding, owner).await;
        }
        // A claim that was not confirmed has no upstream session; whoever holds it deletes what it makes.
        let Some(upstream_session) = &binding.upstream_session else {
            return Deletion::Done;
        };
        let configured = self
            .servers()
            .get(binding.server.as_str())
            .and_then(|server| Some((server, server.instance(&binding.instance)?)));
        let Some((server, instance)) = configured else {
            tracing::warn!(
                server = %binding.server,
                instance = %binding.instance,
                "an upstream session is left to its instance's own expiry: the instance is not configured any more"
            );
            return Deletion::Unconfigured;
        };
        let limit = self.deletion_timeout();
        let deletion = Outgoing::delete(server);
        match discard(self.client(), instance, &deletion, upstream_session, limit).await {
            DiscardOutcome::Final => Deletion::Done,
            DiscardOutcome::Refused => Deletion::Refused,
            DiscardOutcome::Unanswered => {
                Deletion::Unanswered(binding.server.clone(), binding.instance.clone())
            }
        }
    }

    /// Closes the connection of an owned binding, at its owner. That of a dead worker is gone with it.
    async fn let_go(
        &self,
        key: &SessionKey,
        principal: &Principal,
        binding: &BindingView,
        owner: &OwnerView,
    ) -> Deletion {
        let place = ConnectionKey {
            key: key.clone(),
            server: binding.server.clone(),
        };
        if self.is_owner(owner) {
            self.owned_connections().close(&place, binding.epoch);
            return Deletion::Done;
        }
        if !owner.alive {
            return Deletion::Done;
        }
        match self
            .close_at_owner(owner, &place, principal, binding.epoch)
            .await
        {
            Ok(()) => Deletion::Done,
            Err(error) => {
                tracing::info!(server = %binding.server, %error, "a connection at another worker was not closed; that worker finds it");
                // The owner looks after what it holds by itself, and the record must not wait for that.
                Deletion::Done
            }
        }
    }

    /// Cleans up after a session that this worker has just ended. What cannot be deleted now is left to the reaper.
    pub(super) async fn clean_ended(&self, key: &SessionKey, record: &RecordView) {
        let cleanup = self.delete_held(key, record, |_| false).await;
        self.drop_own_params(record).await;
        if !cleanup.is_undone() {
            self.store()
                .forget_tombstone(self.worker(), key, record.generation)
                .await;
        }
    }
}
