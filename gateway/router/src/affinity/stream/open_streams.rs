//! The streams that are open at this gateway, or that it is opening.
//!
//! Invariant: a stream is in the set before its binding is made, so a binding of this gateway whose stream is not in the
//! set has no stream. The set does not reveal other principals' streams: the store decides whose session it is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use mooring_session::names::{Principal, ServerName};

use super::super::Session;
use mooring_store::SessionKey;

/// A stream: its session, the principal of the request, and the name of its binding.
type StreamName = (SessionKey, Principal, ServerName);

/// The streams of this gateway.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct OpenStreams(Arc<Mutex<HashSet<StreamName, RandomState>>>);

/// A stream in the set. It leaves the set when dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: OpenStreams,
    of: StreamName,
}

impl OpenStreams {
    /// Adds a stream. `None` if it is open or being opened.
    pub(super) fn add(&self, session: &Session, server: &ServerName) -> Option<OpenStream> {
        let session = session.clone();
        let of = (session.key, session.principal, server.clone());
        (self.lock().insert(of.clone())).then(|| OpenStream {
            streams: self.clone(),
            of,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<StreamName, RandomState>> {
        // The set is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.lock().remove(&self.of);
    }
}
