//! Sends the changes of an outage to Redis when it returns, before any command is served from it again.
//!
//! ENDs are sent first, so that no session that its client ended reappears. Then each session that was created or
//! changed: it is created without reviving a tombstone, and its bindings are claimed with their original tokens and
//! confirmed. The state of Redis wins: what it refuses is reported as lost. Of a code session only the record is sent
//! ([`send_code_session`]). Every step may be repeated, so after another outage the rest is sent at the next return.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use mooring_session::names::{InstanceName, ServerName};
use mooring_session::record::{Binding, Phase, Record, SessionState};
use mooring_session::refusal::Refusal;
use mooring_session::rules::{
    BindRequest, ConfirmRequest, CreateRequest, LossReport, Ownership, RebindRequest, Revival,
    TouchRequest, UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::BindingView;

use super::journal::{Origin, PendingEnd, ReadOrigin};
use super::loss::{Loss, LossReason};
use super::shared::Shared;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};

/// Most sessions reconciled concurrently.
const AT_ONCE: usize = 32;
/// Lease of a claim for a binding that already exists.
const LEASE: Millis = Millis::new(10_000);

/// Whether Redis accepted a binding.
enum ReconcileOutcome {
    Accepted,
    Overruled,
}

/// Sends all changes to Redis.
///
/// # Errors
/// Redis is away again, or not ready. What was sent is forgotten here; the rest stays for the next attempt.
pub(super) async fn reconcile(shared: &Shared) -> Result<(), StoreError> {
    let ends = shared.memory().journal.ends();
    stream::iter(ends)
        .map(|(key, end)| end_session(shared, key, end))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let pending = shared.memory().journal.sessions();
    stream::iter(pending)
        .map(|key| send_session(shared, key))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    send_inits(shared).await
}

async fn end_session(shared: &Shared, key: SessionKey, end: PendingEnd) -> Result<(), StoreError> {
    let reply = accepted(shared.redis.run(&key, &end.request).await)?;
    for view in reply.into_iter().flat_map(|ended| ended.record.bindings) {
        let is_reported = view
            .upstream_session
            .as_ref()
            .is_none_or(|session| end.reported.contains(session));
        if !is_reported {
            shared.report(Loss {
                key: key.clone(),
                server: view.server,
                instance: view.instance,
                upstream_session: view.upstream_session,
                reason: LossReason::Ended,
            });
        }
    }
    shared.memory().forget(&key);
    Ok(())
}

async fn send_session(shared: &Shared, key: SessionKey) -> Result<(), StoreError> {
    let Some((origin, record)) = shared.memory().session(&key) else {
        shared.memory().forget(&key);
        return Ok(());
    };
    let is_known = !matches!(&origin, Origin::Read(read) if !read.is_whole);
    match origin {
        _ if key.family() == Family::Code && is_known => {
            send_code_session(shared, &key, &record).await?
        }
        Origin::Minted => send_created_session(shared, &key, &record).await?,
        Origin::Read(read) => send_read_session(shared, &key, &record, read).await?,
    }
    shared.memory().forget(&key);
    Ok(())
}

/// The CREATE for a record, which does not revive a tombstone.
fn creation(record: &Record) -> CreateRequest {
    CreateRequest {
        id: record.id.clone(),
        principal: record.principal.clone(),
        ttl: record.lifetime.ttl,
        content_hash: record.content_hash.clone(),
        labels: record.labels.clone(),
        revival: Revival::Refused,
        cap: None,
    }
}

/// A code session that was used during the outage is in use. If Redis saw it expire meanwhile it is created again, so
/// that no reaper deletes its files. A session that was ended stays ended.
async fn send_code_session(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
) -> Result<(), StoreError> {
    if record.lifetime.state(shared.clock.now()) != SessionState::Active {
        return Ok(());
    }
    let create = creation(record);
    let result = shared.redis.run(key, &create).await;
    let has_expired = matches!(result, Err(StoreError::Refused(Refusal::NoSession)));
    accepted(result)?;
    if has_expired {
        let create = CreateRequest {
            revival: Revival::Allowed,
            ..create
        };
        accepted(shared.redis.run(key, &create).await)?;
    }
    Ok(())
}

async fn send_created_session(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
) -> Result<(), StoreError> {
    let create = creation(record);
    let is_active = record.lifetime.state(shared.clock.now()) == SessionState::Active;
    let is_created = is_active && accepted(shared.redis.run(key, &create).await)?.is_some();
    for (server, binding) in &record.bindings {
        let outcome = match (is_created, binding.phase) {
            // Its initialization is in progress, and will find that the claim is lost.
            (true, Phase::Claimed { .. }) => ReconcileOutcome::Accepted,
            (true, Phase::Bound) => bind(shared, key, record, server, binding).await?,
            (false, _) => ReconcileOutcome::Overruled,
        };
        report_if_overruled(shared, key, server, binding, &outcome);
    }
    Ok(())
}

async fn send_read_session(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
    read: ReadOrigin,
) -> Result<(), StoreError> {
    for (server, epoch) in &read.epochs {
        let outcome = match record.bindings.get(server) {
            None => {
                let unbind = UnbindRequest {
                    principal: record.principal.clone(),
                    server: server.clone(),
                    epoch: *epoch,
                    token: None,
                };
                accepted(shared.redis.run(key, &unbind).await)?;
                continue;
            }
            Some(binding) if binding.epoch == *epoch => continue,
            Some(binding) if binding.phase != Phase::Bound => continue,
            Some(binding) => rebind(shared, key, record, server, binding, *epoch).await?,
        };
        if let Some(binding) = record.bindings.get(server) {
            report_if_overruled(shared, key, server, binding, &outcome);
        }
    }
    // A session that was only used is touched too: the use counts.
    let touch = read.touch.unwrap_or_else(|| TouchRequest {
        principal: record.principal.clone(),
        ttl: None,
        content_hash: None,
        labels: BTreeMap::new(),
        reported: None,
    });
    accepted(shared.redis.run(key, &touch).await)?;
    Ok(())
}

/// The first bind wins: another gateway may have bound the server meanwhile.
async fn bind(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
    server: &ServerName,
    binding: &Binding,
) -> Result<ReconcileOutcome, StoreError> {
    let bind = BindRequest {
        principal: record.principal.clone(),
        server: server.clone(),
        worker: binding.driver.clone(),
        token: binding.token.clone(),
        lease: LEASE,
        instances: vec![binding.instance.clone()],
        upstream_session: None,
        ownership: ownership(binding),
    };
    match accepted(shared.redis.run(key, &bind).await)? {
        Some(bound) if bound.won => confirm(shared, key, record, binding, bound.binding).await,
        _ => Ok(ReconcileOutcome::Overruled),
    }
}

/// Rebinds from the epoch before the outage.
async fn rebind(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
    server: &ServerName,
    binding: &Binding,
    epoch: u64,
) -> Result<ReconcileOutcome, StoreError> {
    let rebind = rebind_to(record, server, binding, epoch);
    match accepted(shared.redis.run(key, &rebind).await)? {
        Some(rebound) if rebound.won => {
            confirm(shared, key, record, binding, rebound.binding).await
        }
        _ => Ok(ReconcileOutcome::Overruled),
    }
}

async fn confirm(
    shared: &Shared,
    key: &SessionKey,
    record: &Record,
    binding: &Binding,
    mut held: BindingView,
) -> Result<ReconcileOutcome, StoreError> {
    if held.instance != binding.instance {
        // This is an earlier claim whose reply was lost when Redis went away, at another instance. This gateway has its
        // token, and rebinds it.
        let rebind = rebind_to(record, &held.server, binding, held.epoch);
        match accepted(shared.redis.run(key, &rebind).await)? {
            Some(rebound) if rebound.won => held = rebound.binding,
            _ => return Ok(ReconcileOutcome::Overruled),
        }
    }
    let confirm = ConfirmRequest {
        principal: record.principal.clone(),
        server: held.server,
        epoch: held.epoch,
        token: binding.token.clone(),
        upstream_session: binding.upstream_session.clone(),
    };
    Ok(match accepted(shared.redis.run(key, &confirm).await)? {
        Some(_) => ReconcileOutcome::Accepted,
        None => ReconcileOutcome::Overruled,
    })
}

fn rebind_to(record: &Record, server: &ServerName, binding: &Binding, epoch: u64) -> RebindRequest {
    let instances: Vec<InstanceName> = vec![binding.instance.clone()];
    RebindRequest {
        principal: record.principal.clone(),
        server: server.clone(),
        epoch,
        worker: binding.driver.clone(),
        token: binding.token.clone(),
        lease: LEASE,
        instances,
        avoid: None,
        reason: binding.last_reason.clone(),
        upstream_session: None,
        ownership: ownership(binding),
        report: match binding.unreported_loss {
            Some(_) => LossReport::ByNextCall,
            None => LossReport::ByCaller,
        },
    }
}

fn ownership(binding: &Binding) -> Ownership {
    match binding.owner {
        Some(_) => Ownership::Owned,
        None => Ownership::Shared,
    }
}

async fn send_inits(shared: &Shared) -> Result<(), StoreError> {
    let pending = std::mem::take(&mut shared.memory().journal.inits);
    for (done, digest) in pending.iter().enumerate() {
        let now = shared.clock.now();
        let Some((json, keep)) = shared.memory().inits.rest(digest, now) else {
            continue;
        };
        if let Err(error) = shared.redis.put_init(digest, &json, keep).await {
            let rest = pending.iter().skip(done).cloned();
            shared.memory().journal.inits.extend(rest);
            return Err(error);
        }
    }
    Ok(())
}

fn report_if_overruled(
    shared: &Shared,
    key: &SessionKey,
    server: &ServerName,
    binding: &Binding,
    outcome: &ReconcileOutcome,
) {
    if matches!(outcome, ReconcileOutcome::Overruled) {
        shared.report(Loss {
            key: key.clone(),
            server: server.clone(),
            instance: binding.instance.clone(),
            upstream_session: binding.upstream_session.clone(),
            reason: LossReason::Overruled,
        });
    }
}

/// The reply, or none if Redis refused. An unreadable reply counts as a refusal, since the next one would be unreadable
/// too.
fn accepted<R>(result: Result<R, StoreError>) -> Result<Option<R>, StoreError> {
    match result {
        Ok(reply) => Ok(Some(reply)),
        Err(StoreError::Refused(_)) => Ok(None),
        Err(error @ StoreError::Reply { .. }) => {
            tracing::error!(%error, "a session could not be written to redis");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
