//! The open streams of this gateway, by session.
//!
//! Invariant: a session has at most one stream here, since every stream begins a new session, and there are never more
//! than [`STREAMS_MAX`] of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mooring_session::names::{Principal, ServerName};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::client_stream::{OpenStream, Wire};
use mooring_identity::Identity;
use mooring_router::affinity::Session;
use mooring_store::SessionKey;
use mooring_usage::UserUsage;

/// Most concurrently open streams of one gateway.
const STREAMS_MAX: usize = 10_000;

/// The streams of one gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: Mutex<HashMap<SessionKey, Arc<OpenStream>>>,
    slots: Arc<Semaphore>,
    /// Notified whenever a stream and its session have ended.
    fewer: Notify,
}

/// A permit for one open stream.
#[derive(Debug)]
pub(super) struct StreamSlot(
    #[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit,
);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Shared {
            open: Mutex::default(),
            slots: Arc::new(Semaphore::new(STREAMS_MAX)),
            fewer: Notify::new(),
        }))
    }
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<OpenStream>>> {
        // Every statement leaves the map consistent, so the guard of a poisoned lock is safe to use.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for a stream; none if too many are open.
    pub(super) fn slot(&self) -> Option<StreamSlot> {
        let permit = Arc::clone(&self.0.slots).try_acquire_owned().ok()?;
        Some(StreamSlot(permit))
    }

    /// Registers the stream of a new session.
    pub(super) fn enter(
        &self,
        session: Session,
        identity: Arc<Identity>,
        usage: Arc<UserUsage>,
        server: ServerName,
        epoch: Option<u64>,
    ) -> Arc<OpenStream> {
        let key = session.key.clone();
        let stream = Arc::new(OpenStream::new(
            session,
            identity,
            usage,
            server,
            epoch,
            Wire::Events,
        ));
        self.lock().insert(key, Arc::clone(&stream));
        stream
    }

    /// The stream of this user's session, if this gateway has it. Another user's is as unknown as one that never was, so
    /// that the store is asked for both.
    pub(super) fn find(&self, key: &SessionKey, user: &Principal) -> Option<Arc<OpenStream>> {
        let stream = self.lock().get(key).cloned();
        stream.filter(|stream| stream.session.principal == *user)
    }

    /// Ends the streams of this server after what is queued for them.
    pub(super) fn finish_of(&self, server: &ServerName) {
        let streams: Vec<_> = self.lock().values().cloned().collect();
        for stream in streams.iter().filter(|stream| stream.server == *server) {
            stream.finish();
        }
    }

    /// Removes a stream whose session has ended.
    pub(super) fn remove(&self, key: &SessionKey) {
        self.lock().remove(key);
        self.0.fewer.notify_waiters();
    }

    /// Returns when all streams and their sessions have ended.
    pub(super) async fn all_over(&self) {
        loop {
            let fewer = self.0.fewer.notified();
            if self.lock().is_empty() {
                return;
            }
            fewer.await;
        }
    }
}
