//! One client's open stream: its owner, the phase of its client, and the messages queued for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use mooring_session::names::{Principal, ServerName, SessionId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::queue::{Queue, StreamOver};
use super::wire::Wire;
use crate::answer;
use mooring_identity::Identity;
use mooring_protocol::{ErrorKind, Event, Id, Reply, Revision};
use mooring_router::affinity::Session;
use mooring_usage::{CallPermit, HeldMemory, TooManyCalls, UserUsage};

/// Most concurrent requests of one stream. Nothing else bounds them: the POSTs that delivered them are already
/// answered.
const CALLS_MAX: usize = 256;

/// The result of a client's `initialize`, which applies to every later message.
#[derive(Clone, Debug)]
pub(crate) struct NegotiatedSession {
    /// The session id that a client of Streamable HTTP would send; none at servers that keep no session.
    pub(crate) session_id: Option<SessionId>,
    /// The negotiated revision.
    pub(crate) revision: Revision,
}

/// A request in progress, which counts among those of the stream and of its user.
#[derive(Debug)]
pub(crate) struct StreamCall {
    _of_stream: OwnedSemaphorePermit,
    /// Counts it among the calls of the user.
    pub(crate) of_user: Arc<CallPermit>,
}

/// Why a request does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallRefusal {
    /// The stream has as many as it may.
    #[error("{CALLS_MAX} requests of this stream are in progress, as many as may be")]
    OfStream,
    /// Its user has as many as it may.
    #[error(transparent)]
    OfUser(#[from] TooManyCalls),
}

impl CallRefusal {
    /// The reply to the request with this id. Nothing was executed.
    pub(crate) fn to_reply(self, id: Option<Id<'_>>) -> Reply {
        match self {
            Self::OfUser(cause) => answer::too_many_calls(cause, id),
            Self::OfStream => Reply {
                refused_by: Some("requests of one stream"),
                ..answer::detailed(ErrorKind::TooManyRequests, id, self)
            },
        }
    }
}

#[derive(Debug)]
enum Phase {
    New,
    /// The `initialize` is in progress.
    Initializing,
    Initialized(NegotiatedSession),
}

/// An open stream of this gateway.
#[derive(Debug)]
pub(crate) struct OpenStream {
    /// The session, which lives at least as long as the stream.
    pub(crate) session: Session,
    /// Who opened it.
    pub(crate) identity: Arc<Identity>,
    /// The usage of that user.
    pub(crate) usage: Arc<UserUsage>,
    /// The client's server.
    pub(crate) server: ServerName,
    epoch: Option<u64>,
    wire: Wire,
    queue: Queue,
    phase: Mutex<Phase>,
    is_listening: AtomicBool,
    calls: Arc<Semaphore>,
    over: CancellationToken,
}

impl OpenStream {
    /// A stream whose client has not sent anything. `epoch` is the epoch of its binding; none without a binding, or
    /// while the store is away.
    #[must_use]
    pub(crate) fn new(
        session: Session,
        identity: Arc<Identity>,
        usage: Arc<UserUsage>,
        server: ServerName,
        epoch: Option<u64>,
        wire: Wire,
    ) -> Self {
        Self {
            session,
            identity,
            queue: Queue::new(Arc::clone(usage.replies())),
            usage,
            server,
            epoch,
            wire,
            phase: Mutex::new(Phase::New),
            is_listening: AtomicBool::new(false),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            over: CancellationToken::new(),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        // Every statement leaves the state consistent, so the guard of a poisoned lock is safe to use.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a message is for this stream: same principal, same server and, if it names an epoch, the same epoch.
    #[must_use]
    pub(crate) fn takes(
        &self,
        principal: &Principal,
        server: &ServerName,
        epoch: Option<u64>,
    ) -> bool {
        self.session.principal == *principal
            && self.server == *server
            && (epoch.is_none() || epoch == self.epoch)
            && !self.over.is_cancelled()
    }

    /// Queues a message with the memory that it takes, waiting until there is room.
    ///
    /// # Errors
    /// If the stream has ended, or is ended now because the client does not read.
    pub(crate) async fn send(
        &self,
        message: &str,
        held: Option<Arc<HeldMemory>>,
    ) -> Result<(), StreamOver> {
        self.write(self.wire.message(message, held)).await
    }

    /// Queues the URL to POST to, with which a stream of HTTP+SSE begins. `endpoint` contains the session's id.
    ///
    /// # Errors
    /// If the stream has ended.
    pub(crate) async fn send_endpoint(&self, endpoint: &str) -> Result<(), StreamOver> {
        let event = Event {
            event: Some("endpoint".into()),
            ..Event::message(endpoint.to_owned())
        };
        self.write(event.encode()).await
    }

    async fn write(&self, event: Bytes) -> Result<(), StreamOver> {
        let written = self.queue.push(event).await;
        if written == Err(StreamOver::Unread) {
            tracing::warn!(session = %self.session.digest, "stream closed: the client does not read it");
            self.over.cancel();
        }
        written
    }

    /// The next bytes to write; none after the last ones of a stream that has ended.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.queue.poll_next(context)
    }

    /// A permit for one more request.
    ///
    /// # Errors
    /// [`CallRefusal`].
    pub(crate) fn begin_call(&self) -> Result<StreamCall, CallRefusal> {
        let of_stream = Arc::clone(&self.calls).try_acquire_owned();
        Ok(StreamCall {
            _of_stream: of_stream.map_err(|_| CallRefusal::OfStream)?,
            of_user: Arc::new(self.usage.begin_call()?),
        })
    }

    /// Whether this `initialize` may proceed: it is the first, or the earlier ones failed.
    #[must_use]
    pub(crate) fn begin_initialize(&self) -> bool {
        let mut phase = self.phase();
        let may = matches!(*phase, Phase::New);
        if may {
            *phase = Phase::Initializing;
        }
        may
    }

    /// Notes the result of the `initialize`; none if it failed and the client may retry.
    pub(crate) fn end_initialize(&self, negotiated: Option<NegotiatedSession>) {
        *self.phase() = negotiated.map_or(Phase::New, Phase::Initialized);
    }

    /// The result of the `initialize`; none before it.
    #[must_use]
    pub(crate) fn negotiated(&self) -> Option<NegotiatedSession> {
        match &*self.phase() {
            Phase::Initialized(negotiated) => Some(negotiated.clone()),
            Phase::New | Phase::Initializing => None,
        }
    }

    /// Whether the caller is the first to listen for messages that answer no request.
    #[must_use]
    pub(crate) fn begin_listening(&self) -> bool {
        !self.is_listening.swap(true, Ordering::Relaxed)
    }

    /// Ends the stream if the status says that its session has ended.
    pub(crate) fn finish_if_over(&self, status: StatusCode) {
        if status == ErrorKind::SessionNotFound.status() {
            tracing::info!(session = %self.session.digest, "session ended; closing its stream");
            self.finish();
        }
    }

    /// Ends the stream after everything queued was written.
    pub(crate) fn finish(&self) {
        self.queue.finish();
        self.over.cancel();
    }

    /// Ends the stream at once: its client is gone.
    pub(crate) fn cut(&self) {
        self.queue.cut();
        self.over.cancel();
    }

    /// Cancelled when the stream has ended.
    #[must_use]
    pub(crate) fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Returns when the stream has ended.
    pub(crate) async fn ended(&self) {
        self.over.cancelled().await;
    }
}
