//! One client's open stream: whose it is, how far its client has got, and the messages for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use mooring_session::names::{Principal, ServerName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::queue::{Queue, StreamOver};
use super::wire::Wire;
use mooring_protocol::{Event, Revision};
use mooring_router::affinity::Session;

/// Most requests of one stream that are worked on at the same time. Nothing else bounds them: what
/// carried them has been answered already.
const CALLS_MAX: usize = 256;

/// What the `initialize` of a client negotiated, for every later message.
#[derive(Clone, Debug)]
pub struct NegotiatedSession {
    /// The session id that a client of Streamable HTTP would send; none at servers that keep no session.
    pub session_header: Option<HeaderValue>,
    /// The revision that was negotiated.
    pub revision: Revision,
}

#[derive(Debug)]
enum Phase {
    New,
    /// Its `initialize` is under way.
    Initializing,
    Initialized(NegotiatedSession),
}

/// A stream that this worker holds.
#[derive(Debug)]
pub struct OpenStream {
    /// The session, which lives at least as long as the stream.
    pub session: Session,
    /// The server that the client speaks to.
    pub server: ServerName,
    epoch: Option<u64>,
    wire: Wire,
    queue: Queue,
    phase: Mutex<Phase>,
    is_listening: AtomicBool,
    calls: Arc<Semaphore>,
    over: CancellationToken,
}

impl OpenStream {
    /// A stream whose client has said nothing yet. `epoch` is the fence of its binding; none where it has none, or the store
    /// is away.
    #[must_use]
    pub fn new(session: Session, server: ServerName, epoch: Option<u64>, wire: Wire) -> Self {
        Self {
            session,
            server,
            epoch,
            wire,
            queue: Queue::new(),
            phase: Mutex::new(Phase::New),
            is_listening: AtomicBool::new(false),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            over: CancellationToken::new(),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        // It is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a message is for this stream: of its owner, for its server, and meant for this epoch where one is named.
    #[must_use]
    pub fn takes(&self, principal: &Principal, server: &ServerName, epoch: Option<u64>) -> bool {
        self.session.principal == *principal
            && self.server == *server
            && (epoch.is_none() || epoch == self.epoch)
            && !self.over.is_cancelled()
    }

    /// Writes a message, when there is room for it.
    ///
    /// # Errors
    /// Where the stream is over; by this, where the client does not read.
    pub async fn say(&self, message: &str) -> Result<(), StreamOver> {
        self.write(self.wire.message(message)).await
    }

    /// Tells a client of HTTP+SSE where to POST: what a stream begins with. `endpoint` holds the session's id.
    ///
    /// # Errors
    /// Where the stream is over.
    pub async fn say_endpoint(&self, endpoint: &str) -> Result<(), StreamOver> {
        let event = Event {
            event: Some("endpoint".into()),
            ..Event::message(endpoint.to_owned())
        };
        self.write(event.encode()).await
    }

    async fn write(&self, event: Bytes) -> Result<(), StreamOver> {
        let written = self.queue.push(event).await;
        if written == Err(StreamOver::Unread) {
            tracing::warn!(session = %self.session.digest, "a client does not read its stream; it is cut off");
            self.over.cancel();
        }
        written
    }

    /// The bytes that are to be written next; none when the stream is over and all of it was taken.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.queue.poll_next(context)
    }

    /// A place for one more request; none where too many are worked on.
    #[must_use]
    pub fn begin_call(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.calls).try_acquire_owned().ok()
    }

    /// Whether this `initialize` may go on: it is the first, or those before it failed.
    #[must_use]
    pub fn begin_initialize(&self) -> bool {
        let mut phase = self.phase();
        let may = matches!(*phase, Phase::New);
        if may {
            *phase = Phase::Initializing;
        }
        may
    }

    /// What came of the `initialize`; none where it failed, and the client may try again.
    pub fn end_initialize(&self, negotiated: Option<NegotiatedSession>) {
        *self.phase() = negotiated.map_or(Phase::New, Phase::Initialized);
    }

    /// What the `initialize` negotiated; none before it.
    #[must_use]
    pub fn negotiated(&self) -> Option<NegotiatedSession> {
        match &*self.phase() {
            Phase::Initialized(negotiated) => Some(negotiated.clone()),
            Phase::New | Phase::Initializing => None,
        }
    }

    /// Whether the caller is the first to listen for what answers no request.
    #[must_use]
    pub fn begin_listening(&self) -> bool {
        !self.is_listening.swap(true, Ordering::Relaxed)
    }

    /// Ends the stream after what was written.
    pub fn finish(&self) {
        self.queue.finish();
        self.over.cancel();
    }

    /// Ends the stream: its client is gone.
    pub fn cut(&self) {
        self.queue.cut();
        self.over.cancel();
    }

    /// Cancelled when the stream is over.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Returns when the stream is over.
    pub async fn ended(&self) {
        self.over.cancelled().await;
    }
}
