//! Connections that one gateway owns: one connection per session and server.
//!
//! A [`link::Link`] carries raw messages. An actor task turns it into an in-process Streamable HTTP endpoint:
//! [`Connection::serve`] takes a request as it would be sent to an instance and returns the reply.
//!
//! Invariants: only the actor touches the connection's state; every buffer has a limit; each accepted request is
//! answered, or its stream breaks with the connection, or the stream can be resumed. If an answer is lost, the client
//! gets an error saying that the call may have run.

mod activity;
mod actor;
mod calls;
pub mod event_id;
mod key;
pub mod link;
mod log;
mod mailbox;
mod negotiated;
mod open_questions;
mod options;
mod outbox;
mod pending_messages;
mod refusal;
mod reply;
mod route;
mod sending;
mod server_messages;
mod serving;
mod stream;
#[cfg(test)]
mod tests;

use http::{Method, StatusCode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use self::activity::{Activity, IdleLimits, StoppedServer};
pub use self::event_id::EventId;
pub use self::negotiated::ClientCapabilities;
pub use self::options::ConnectionOptions;

use self::actor::Actor;
use self::link::{Link, LinkEnd};
use self::mailbox::{Command, ConnectionRequest, Mailbox, StatusSenders};
use crate::{MessageTransport, Outgoing, ReplySource, SendError};
use mooring_protocol::Reply;
use mooring_protocol::header::LAST_EVENT_ID;
use mooring_traces::without_scope;
use mooring_usage::for_same_user;

/// Most requests queued for the actor. The actor never blocks on a single event source, so the queue is short-lived.
const COMMANDS_MAX: usize = 64;
/// One connection to one server. Cheap to clone; the connection is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    commands: mpsc::Sender<Command>,
    closing: CancellationToken,
    calls_open: watch::Receiver<usize>,
    activity: watch::Receiver<Activity>,
    end: watch::Receiver<Option<LinkEnd>>,
    gone: CancellationToken,
}

impl Connection {
    /// Starts a connection over `link` and spawns its actor task.
    #[must_use]
    pub fn start(link: Link, options: ConnectionOptions) -> Self {
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (open, calls_open) = watch::channel(0);
        let since = Instant::now();
        let (active, activity) = watch::channel(Activity::Idle { since });
        let (ending, end) = watch::channel(None);
        let closing = CancellationToken::new();
        let gone = link.gone.clone();
        let ConnectionOptions {
            server, session, ..
        } = &options;
        let span = tracing::info_span!("connection", %server, %session, epoch = options.epoch);
        let mailbox = Mailbox {
            commands: received,
            closing: closing.clone(),
        };
        let status = StatusSenders {
            calls_open: open,
            activity: active,
            end: ending,
        };
        let actor = Actor::new(options, status);
        let running = actor.run(link, mailbox).instrument(span);
        tokio::spawn(for_same_user(without_scope(running)));
        Self {
            commands,
            closing,
            calls_open,
            activity,
            end,
            gone,
        }
    }

    /// Serves one request as an instance over HTTP would: POST of a request returns an event stream that ends with the
    /// answer, POST of anything else returns 202, GET returns a stream, DELETE closes the connection.
    ///
    /// # Errors
    /// [`SendError::Ended`]: the connection has ended and the request was not delivered.
    pub async fn serve(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        let request = match *outgoing.method() {
            Method::POST => ConnectionRequest::Post(outgoing.body().clone()),
            Method::GET => {
                let after = outgoing.headers().get(LAST_EVENT_ID);
                ConnectionRequest::Listen {
                    after: after.and_then(|id| id.to_str().ok()).map(Into::into),
                }
            }
            Method::DELETE => {
                self.close();
                return Ok(Reply::empty(StatusCode::NO_CONTENT));
            }
            _ => return Ok(Reply::empty(StatusCode::METHOD_NOT_ALLOWED)),
        };
        let (reply, answer) = oneshot::channel();
        let Ok(room) = self.commands.reserve().await else {
            return Err(self.ended_error().await);
        };
        outgoing.check_permit()?;
        room.send(Command::Serve { request, reply });
        match answer.await {
            Ok(served) => served,
            Err(_) => Err(self.ended_error().await),
        }
    }

    /// Why the connection ended; `None` while it is open.
    #[must_use]
    pub fn end(&self) -> Option<LinkEnd> {
        self.end.borrow().clone()
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        // An error means that the task is gone, so the connection has ended too.
        let _ = self.end.clone().wait_for(Option::is_some).await;
    }

    /// Waits until all processes and sockets of the server are gone, which can be later than [`Self::ended`].
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Closes the connection in order. Callers that wait for an answer get an error saying that the call may have run.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Whether the server is in use.
    #[must_use]
    pub fn activity(&self) -> Activity {
        *self.activity.borrow()
    }

    /// Stops the server if it has been idle for as long as `limits` allow; returns it if so. Open streams stay open, new streams
    /// can be opened and pings are answered. Any other message gets [`SendError::Ended`], so that its sender opens a
    /// new connection.
    pub async fn stop_if_idle(&self, limits: IdleLimits) -> Option<StoppedServer> {
        let (reply, stopped) = oneshot::channel();
        let command = Command::StopIfIdle { limits, reply };
        // A task that is gone has already stopped its server.
        self.commands.send(command).await.ok()?;
        stopped.await.ok()?
    }

    /// The number of unanswered requests of the client, without cancelled ones.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        *self.calls_open.borrow()
    }

    /// Waits until the client has no unanswered request.
    pub async fn idle(&self) {
        // An error means that the task is gone, and all requests with it.
        let _ = self.calls_open.clone().wait_for(|open| *open == 0).await;
    }

    /// The error for a request that arrived after the end.
    async fn ended_error(&self) -> SendError {
        self.ended().await;
        let end = self.end().unwrap_or(LinkEnd::Closed);
        SendError::Ended(end.to_string().into())
    }
}

impl ReplySource for Connection {
    /// Its task gives each message of the server to the call that it answers, so the connection cannot be shifted.
    fn distrust(&self) {}
}

impl MessageTransport for Connection {
    async fn send(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        self.serve(outgoing).await
    }
}
