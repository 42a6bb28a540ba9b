//! One call's way into its session: what the store says of it, what the volume has, and how the two come together.
//!
//! Reading takes no turn and mostly no lock. Writing takes the session's turn, which orders the calls of the whole fleet,
//! and then its lock, which also holds while the store is away; both are given back in the opposite order.
//!
//! Invariant: a directory is used only for the incarnation that the store named, or for the one on the disk where the
//! store is away.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use mooring_sandbox::tree::{self, VirtualPath, WriteReport};
use mooring_session::rules::{CreateRequest, Revival, TouchRequest};
use mooring_session::time::Millis;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

use super::code_server::{CallContext, Caller, CodeServer};
use super::failure::Failure;
use crate::catalog::CatalogNeed;
use crate::place::CodePlace;
use crate::volume::{
    Incarnation, MountManifest, OpenedSession, SessionHandle, SessionLock, SessionOpenError,
    TreeOrigin,
};
use mooring_metrics::{self as metrics, LockUse};
use mooring_settings::Language;
use mooring_store::{DropGuard, Session, SessionTurn};

/// Longest wait for a session's lock if its turn is not held: to initialize and to inspect the session.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// How much longer a turn and a lock are waited for than one run may last.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the record is read again where the directory turned out to be a later incarnation's.
const READS_MAX: usize = 3;

/// A session as resolved for one call: its record, its directory handle and its mounts.
pub(super) struct ResolvedSession {
    handle: SessionHandle,
    pub(super) session: Session,
    /// How many sessions of code the principal may have when this one is made.
    cap: Option<NonZeroU64>,
    incarnation: Incarnation,
    /// The tools of other servers, and the skills, that the session sees.
    pub(super) mounted: MountManifest,
    /// Keeps the record from expiring while the call waits and works.
    _in_flight: DropGuard,
}

/// A session's files under its lock and turn. Fields are dropped in their order.
pub(super) struct LockedSession {
    pub(super) opened: OpenedSession,
    pub(super) lock: SessionLock,
    pub(super) turn: SessionTurn,
}

impl ResolvedSession {
    /// The digest that identifies the session in logs.
    pub(super) fn digest(&self) -> &str {
        &self.session.digest
    }
}

impl LockedSession {
    /// Releases the session after `use_of_it`. If its last use cannot be recorded, it only expires earlier.
    pub(super) fn release(self, use_of_it: LockUse) {
        if let Err(error) = self.opened.touch() {
            tracing::debug!(%error, "last use of a session directory not recorded");
        }
        metrics::code_lock_held(use_of_it, self.lock.held());
    }
}

impl CodeServer {
    /// The caller's session in this language: created, found, or revived.
    pub(super) async fn resolve_session(
        &self,
        context: &CallContext,
        language: Option<Language>,
        need: CatalogNeed,
    ) -> Result<ResolvedSession, Failure> {
        let volume = &self.services.storage()?.volume;
        let language = self.language_or_default(language);
        let Caller {
            principal, client, ..
        } = &context.caller;
        let place = CodePlace::new(&self.id, principal, language, client.as_ref())?;
        let session = place.session(self.services.sessions.store())?;
        let mounted = self.resolve_manifest(context, language, need).await?;
        let cap = place.is_of_client().then_some(self.policy.sessions_max);
        let incarnation = self.read_record(&session, cap, &mounted, None).await?;
        self.services.note_use(&session.key);
        Ok(ResolvedSession {
            _in_flight: self.services.sessions.begin_call(&session, &self.id),
            handle: volume.session(&place).with_ttl(self.policy.session_ttl),
            session,
            cap,
            incarnation,
            mounted,
        })
    }

    /// The caller's session in this language, as calls of its code know it.
    pub fn session_of(&self, caller: &Caller, language: Language) -> Result<Session, Failure> {
        let client = caller.client.as_ref();
        let place = CodePlace::new(&self.id, &caller.principal, language, client)?;
        Ok(place.session(self.services.sessions.store())?)
    }

    /// Reads the session's record; `outranks` is the generation of a directory that contradicted it before.
    async fn read_record(
        &self,
        session: &Session,
        cap: Option<NonZeroU64>,
        mounted: &MountManifest,
        outranks: Option<u64>,
    ) -> Result<Incarnation, Failure> {
        let store = self.services.sessions.store();
        let request = CreateRequest {
            id: session.id.clone(),
            principal: session.principal.clone(),
            ttl: Millis::from(self.policy.session_ttl),
            content_hash: Some(mounted.content_hash().clone()),
            labels: BTreeMap::new(),
            revival: Revival::Allowed,
            cap,
        };
        let was_degraded = store.is_degraded();
        let created = store.create(&session.key, &request).await?;
        // A record that memory creates while the store is away is unrelated to the session in the store.
        if was_degraded || store.is_degraded() {
            return Ok(Incarnation::StoreAway);
        }
        let (generation, created_at) = (created.record.generation, created.record.created_at);
        Ok(Incarnation::Recorded {
            generation,
            created_at_ms: created_at.unix_ms(),
            // A new key gets a generation that is not behind the store's clock, a revived one exactly the next number.
            is_new_key: generation >= created_at.least_number(),
            outranks,
        })
    }

    /// Opens the session by `open`, reading the record again if the directory is of a later incarnation.
    async fn open<T: Send + 'static>(
        &self,
        known: &mut ResolvedSession,
        open: impl Fn(
            &SessionHandle,
            Incarnation,
            &MountManifest,
        ) -> Result<(OpenedSession, T), SessionOpenError>
        + Clone
        + Send
        + 'static,
    ) -> Result<(OpenedSession, T), Failure> {
        let mut reads = 1;
        let (opened, with_it) = loop {
            let (handle, incarnation) = (known.handle.clone(), known.incarnation);
            let (mounted, open) = (known.mounted.clone(), open.clone());
            match spawn_blocking(move || open(&handle, incarnation, &mounted)).await? {
                Err(SessionOpenError::Superseded { generation }) if reads < READS_MAX => {
                    reads += 1;
                    known.incarnation = self
                        .read_record(&known.session, known.cap, &known.mounted, Some(generation))
                        .await?;
                }
                opened => break opened?,
            }
        };
        metrics::code_tools_tree(opened.trees == TreeOrigin::Made);
        metrics::code_session_opened(opened.opening.into());
        if let Some(held) = opened.lock_held {
            metrics::code_lock_held(LockUse::Open, held);
        }
        let is_recorded = matches!(known.incarnation, Incarnation::Recorded { .. });
        if opened.opening.sets_content_hash() && is_recorded {
            self.note_content(known).await;
        }
        Ok((opened, with_it))
    }

    /// Tells the store what is mounted now. It is a hint to others; the disk is the truth.
    async fn note_content(&self, known: &ResolvedSession) {
        let session = &known.session;
        let request = TouchRequest {
            principal: session.principal.clone(),
            ttl: None,
            content_hash: Some(known.mounted.content_hash().clone()),
            labels: BTreeMap::new(),
            reported: None,
        };
        let store = self.services.sessions.store();
        if let Err(error) = store.touch(&session.key, &request).await {
            tracing::debug!(session = %session.digest, %error, "content hash not stored in the session record");
        }
    }

    /// Looks into the session's files.
    pub(super) async fn with_view<T: Send + 'static>(
        &self,
        context: &CallContext,
        language: Option<Language>,
        need: CatalogNeed,
        look: impl FnOnce(&OpenedSession) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut known = self.resolve_session(context, language, need).await?;
        let work = async {
            let _slot = self.services.file_call().await?;
            let (opened, ()) = self
                .open(&mut known, |handle, incarnation, mounted| {
                    Ok((handle.open(incarnation, mounted, LOCK_WITHIN)?, ()))
                })
                .await?;
            spawn_blocking(move || look(&opened)).await?
        };
        let result = work.await;
        result.inspect_err(|failure| failure.log(known.digest()))
    }

    /// Writes one file.
    pub(super) async fn write(
        &self,
        context: &CallContext,
        language: Option<Language>,
        path: VirtualPath,
        content: Vec<u8>,
    ) -> Result<WriteReport, Failure> {
        let files = CatalogNeed::Files;
        let mut known = self.resolve_session(context, language, files).await?;
        let limits = self.policy.limits.clone();
        let work = async {
            let slot = self.services.file_call();
            let (held, _slot) = self.lock_session(&mut known, slot).await?;
            let write = move || {
                let written = tree::write(&held.opened.directory, &path, &content, &limits);
                held.release(LockUse::Write);
                written
            };
            Ok(spawn_blocking(write).await??)
        };
        let result = work.await;
        result.inspect_err(|failure: &Failure| failure.log(known.digest()))
    }

    /// Takes the session's turn, then a slot of this gateway, then the session's lock.
    pub(super) async fn lock_session(
        &self,
        known: &mut ResolvedSession,
        slot: impl Future<Output = Result<OwnedSemaphorePermit, Failure>>,
    ) -> Result<(LockedSession, OwnedSemaphorePermit), Failure> {
        let (wait, started) = (self.turn_timeout(), Instant::now());
        let sessions = &self.services.sessions;
        let turn = sessions.take_turn(&known.session, &self.id, wait).await;
        metrics::turn_wait(started.elapsed());
        let (turn, slot) = (turn?, slot.await?);
        let (opened, lock) = self
            .open(known, move |handle, incarnation, mounted| {
                let lock = handle.lock(wait)?;
                let mut opened = handle.open_locked(&lock, incarnation, mounted)?;
                // What the lock is held for after that is the call's own work.
                opened.lock_held = opened.opening.sets_content_hash().then(|| lock.held());
                Ok((opened, lock))
            })
            .await?;
        Ok((LockedSession { opened, lock, turn }, slot))
    }

    /// How long a call waits for its turn and for the session lock.
    fn turn_timeout(&self) -> Duration {
        self.policy.limits.wall_time + PATIENCE
    }
}
