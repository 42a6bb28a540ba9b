//! Cleaning: deletes the upstream sessions of a session that has ended, then drops its tombstone.
//!
//! Invariants: only upstream sessions named by the record of an ended incarnation are deleted, so none of a later
//! incarnation can be among them. A tombstone is dropped only when nothing is left to delete; until then it lists the
//! rest for the next reaper.

use std::time::Duration;

use futures_util::future::join_all;
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::view::{BindingView, OwnerView, RecordView};

use super::SessionRouter;
use super::owned::ConnectionKey;
use super::stream::is_stream;
use mooring_store::SessionKey;
use mooring_upstream::{Caller, DiscardOutcome, Outgoing, discard};

/// Time limit of one DELETE. Shorter than the leases under which tombstones are cleaned: the reaper's, and the 30 s
/// that END grants.
pub(super) const DELETED_WITHIN: Duration = Duration::from_secs(10);

/// The result of cleaning a session.
#[derive(Debug, Default)]
pub(super) struct CleanupResult {
    /// Instances that did not answer or were not asked.
    pub(super) unanswered: Vec<(ServerName, InstanceName)>,
    /// The number of upstream sessions whose instance refused the deletion for now.
    pub(super) refused: usize,
    /// The number of upstream sessions whose server or instance is no longer configured.
    pub(super) unconfigured: usize,
}

/// The result for one binding.
enum Deletion {
    Done,
    Refused,
    Unanswered(ServerName, InstanceName),
    Unconfigured,
}

impl CleanupResult {
    /// Whether something is left to delete later.
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
    /// Deletes the upstream sessions of a record in parallel, except those that `is_put_off` names. Streams have no
    /// upstream session; their holder notices the end of the session itself.
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

    /// Deletes the upstream sessions of a record. Returns `false` if something is left to delete later.
    pub async fn delete_all_held(&self, key: &SessionKey, record: &RecordView) -> bool {
        !self.delete_held(key, record, |_| false).await.is_undone()
    }

    /// Time limit for the answer to a DELETE.
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
            return self.close_owned(key, principal, binding, owner).await;
        }
        // A claim that was not confirmed has no upstream session; its holder deletes what it creates.
        let Some(upstream_session) = &binding.upstream_session else {
            return Deletion::Done;
        };
        let named = self.named_instance(&binding.server, &binding.instance);
        let Some((server, instance)) = named else {
            tracing::warn!(
                server = %binding.server,
                instance = %binding.instance,
                "an upstream session is left to its instance's own expiry: the instance is not configured any more"
            );
            return Deletion::Unconfigured;
        };
        let limit = self.deletion_timeout();
        let digest = key.digest();
        let caller = Caller {
            session_digest: Some(&digest),
            ..Caller::of(principal)
        };
        let deletion = Outgoing::delete(&server).on_behalf_of(&server, &caller);
        match discard(self.client(), &instance, &deletion, upstream_session, limit).await {
            DiscardOutcome::Final => Deletion::Done,
            DiscardOutcome::Refused => Deletion::Refused,
            DiscardOutcome::Unanswered => {
                Deletion::Unanswered(binding.server.clone(), binding.instance.clone())
            }
        }
    }

    /// Closes an owned connection at its owner. If the owner is dead, the connection is gone.
    async fn close_owned(
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
                tracing::info!(server = %binding.server, %error, "a connection at another gateway was not closed; its sweep closes it");
                // The owner's sweep closes it later, and the record must not wait for that.
                Deletion::Done
            }
        }
    }

    /// Cleans up after a session that this gateway has just ended. The reaper does what fails here.
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
