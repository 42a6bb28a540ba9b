//! Connections that live in one worker: one connection to one server, of one session.
//!
//! A [`link::Link`] carries raw messages; an actor task makes of it what a Streamable HTTP endpoint would be, inside of
//! the process: [`Connection::serve`] takes what would be sent to an instance, and gives the reply that it would give.
//! Invariants: the state of a connection is touched by its task alone; everything in it has a limit; a request that was
//! taken is answered, or its stream breaks with the connection, or can be resumed, also with an error that says that it
//! may have run.

mod activity;
mod actor;
mod calls;
pub mod event_id;
mod hearing;
mod key;
pub mod link;
mod log;
mod negotiated;
mod open_questions;
mod outbox;
mod pending_messages;
mod refusal;
mod reply;
mod route;
mod sending;
mod serving;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use self::activity::Activity;
pub use self::event_id::EventId;

use self::actor::{Actor, Command, Mailbox, StatusSenders};
use self::link::{Link, LinkEnd};
use crate::{MessageTransport, Outgoing, SendError};
use mooring_protocol::Reply;
use mooring_protocol::header::LAST_EVENT_ID;

/// Most requests that wait for the actor. It never waits for anything else, so that they do not wait long.
const COMMANDS_MAX: usize = 64;
/// Most requests in flight to the server.
const REQUESTS_MAX: usize = 256;
/// Most requests of the server that wait for the client.
const QUESTIONS_MAX: usize = 64;

/// What one connection is of, and its limits.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Most events kept for resumes, over all streams.
    pub events_max: usize,
    /// Most bytes of events kept for resumes, over all streams.
    pub event_bytes_max: usize,
    /// Longest message of the server, in bytes. As much may wait for slow readers, and to be sent.
    pub message_bytes_max: usize,
    /// How long the client may take to answer a request of the server.
    pub client_answer_timeout: Duration,
    /// The epoch of the binding that the connection belongs to.
    pub epoch: u64,
    /// The server's id, for the log.
    pub server: Arc<str>,
    /// The digest of the session's id, for the log.
    pub session: Arc<str>,
}

/// What a client asks of a connection.
#[derive(Debug)]
enum ConnectionRequest {
    /// To take a message.
    Post(Bytes),
    /// For a stream: of what belongs to no call, or of what came after an event.
    Listen {
        /// The id of that event.
        after: Option<Box<str>>,
    },
}

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
    /// Starts a connection over `link`, of which it spawns the one task.
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
        tokio::spawn(actor.run(link, mailbox).instrument(span));
        Self {
            commands,
            closing,
            calls_open,
            activity,
            end,
            gone,
        }
    }

    /// Serves one request as an instance over HTTP would: a POST of a request gives a stream of events that ends with the
    /// answer, a POST of anything else 202, a GET a stream, a DELETE closes the connection.
    ///
    /// # Errors
    /// [`SendError::Ended`]: the connection has ended, and the request was certainly not delivered.
    pub async fn serve(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        let ask = match *outgoing.method() {
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
        let command = Command::Serve { ask, reply };
        if self.commands.send(command).await.is_err() {
            return Err(self.over().await);
        }
        match answer.await {
            Ok(served) => served,
            Err(_) => Err(self.over().await),
        }
    }

    /// Why it has ended; `None` while it has not.
    #[must_use]
    pub fn end(&self) -> Option<LinkEnd> {
        self.end.borrow().clone()
    }

    /// Waits until it has ended.
    pub async fn ended(&self) {
        // An error means that the task is gone, which is an end too.
        let _ = self.end.clone().wait_for(Option::is_some).await;
    }

    /// Waits until nothing of the server is left in this worker, which may be some time after the end.
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Closes it in order. Whoever waits for an answer is told that the call may have run.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Whether the server is in use.
    #[must_use]
    pub fn activity(&self) -> Activity {
        *self.activity.borrow()
    }

    /// Stops the server if it was idle for this long; answers whether it did. Streams that are open stay open, further
    /// ones are opened and pings are answered; every other message gets [`SendError::Ended`], so that whoever sends it
    /// makes a new connection.
    pub async fn stop_if_idle(&self, idle_for: Duration) -> bool {
        let (reply, stopped) = oneshot::channel();
        let command = Command::StopIfIdle { idle_for, reply };
        // A task that is gone has stopped its server before.
        self.commands.send(command).await.is_ok() && stopped.await.unwrap_or(false)
    }

    /// How many requests of the client wait for an answer, without those that it cancelled.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        *self.calls_open.borrow()
    }

    /// Waits until no request of the client waits for an answer.
    pub async fn idle(&self) {
        // An error means that the task is gone, and all requests with it.
        let _ = self.calls_open.clone().wait_for(|open| *open == 0).await;
    }

    /// The error for a request that came too late.
    async fn over(&self) -> SendError {
        self.ended().await;
        let end = self.end().unwrap_or(LinkEnd::Closed);
        SendError::Ended(end.to_string().into())
    }
}

impl MessageTransport for Connection {
    async fn send(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        self.serve(outgoing).await
    }
}
