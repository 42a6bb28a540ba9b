//! The client on standard input and output: each of its lines is a message, which is served as if it had come over Streamable
//! HTTP; everything for it goes onto one stream of lines.
//!
//! A client that is restarted for each call finds its session again by a name (see
//! [`mooring_router::affinity::SessionStart`]). Several processes may have the same session open at once; each has a lane of its own in it, so
//! that the ids of their requests do not meet.
//!
//! Invariant: every request is answered, also one that is not understood, or the client is told that the session is over. A
//! line that is too long to be read is answered without an id: what it asked is not known.

mod opening;

use std::sync::Arc;

use bytes::Bytes;
use mooring_session::names::{Principal, ServerName};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::App;
use super::client_stream::{StreamContext, answer_request, finish_if_over, listen, serve};
use super::target::ServerTarget;
use crate::client_stream::{OpenStream, Wire};
use mooring_protocol::envelope::Sender;
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Lane, Message, Method, call};
use mooring_router::affinity::{InFlight, Session};

/// How long the session of this client is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// For whoever names it next, until it was idle for its time to live.
    Named(Box<str>),
    /// As long as this process lives.
    OneProcess,
}

/// One client, and what it has under way.
#[derive(Debug)]
pub struct StdioClient {
    app: Arc<App>,
    target: ServerTarget,
    server: ServerName,
    principal: Principal,
    keeping: Keeping,
    lane: Lane,
    written: mpsc::Sender<Bytes>,
    /// None until the client has initialized.
    open: Option<Open>,
    /// The session that is about to be opened, if it is kept.
    opening: Option<Session>,
    calls: JoinSet<()>,
    over: CancellationToken,
}

/// What there is of a client that has initialized.
#[derive(Debug)]
struct Open {
    context: StreamContext,
    /// Keeps the session from expiring while this process lives; none at servers that keep no session.
    in_flight: Option<InFlight>,
}

impl StdioClient {
    /// A client of this server; none where there is no such server. What it is to read goes to `written`.
    pub fn new(
        app: Arc<App>,
        server: &ServerName,
        principal: Principal,
        keeping: Keeping,
        written: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        Some(Self {
            target: app.target(server.as_str())?,
            server: server.clone(),
            principal,
            keeping,
            lane: Lane(rand::random()),
            written,
            open: None,
            opening: None,
            calls: JoinSet::new(),
            over: CancellationToken::new(),
            app,
        })
    }

    /// Cancelled when the session is over, by whomever: the client has to start anew.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Takes one line. Requests are answered later, in any order; everything else is served before this returns, so that
    /// what comes next cannot overtake it.
    pub async fn take(&mut self, line: Bytes) {
        while self.calls.try_join_next().is_some() {}
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line, Sender::Client) {
            Ok(message) => message,
            Err(cause) => return self.say_error(&ErrorBody::from(&cause)).await,
        };
        match (&self.open, message.kind()) {
            (Some(_), Kind::Request) => self.begin_call(&line, &message).await,
            (Some(_), _) => self.tell(&line, &message).await,
            (None, Kind::Request) => self.take_first(&line, &message).await,
            // There is nobody yet whom it could be for.
            (None, _) => {}
        }
    }

    /// Refuses a line that is longer than `bytes_max`, whatever it says.
    pub async fn refuse_long(&self, bytes_max: usize) {
        let body =
            ErrorBody::new(ErrorKind::BodyTooLarge).detail(format!("at most {bytes_max} bytes"));
        self.say_error(&body).await;
    }

    /// Returns when every request was answered.
    pub async fn answered(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }

    /// Lets go of the session, and ends it where it was for this process alone.
    pub async fn leave(mut self) {
        self.calls.shutdown().await;
        let session_router = &self.app.session_router;
        if let Some(session) = &self.opening
            && let Err(error) = session_router.close(session).await
        {
            tracing::info!(%error, "a session that was not opened was not ended; it will expire");
        }
        let Some(Open { context, in_flight }) = self.open else {
            return;
        };
        if self.keeping == Keeping::OneProcess
            && in_flight.is_some()
            && let Err(error) = session_router.close(&context.stream.session).await
        {
            tracing::info!(%error, "the session of this process was not ended; it will expire");
        }
        context.stream.finish();
    }

    async fn say(&self, message: &str) {
        // Where nobody reads any more, nobody misses it.
        let _ = self.written.send(Wire::Lines.message(message)).await;
    }

    async fn say_error(&self, error: &ErrorBody<'_>) {
        self.say(&String::from_utf8_lossy(&error.to_bytes())).await;
    }

    /// A request before the session is open.
    async fn take_first(&mut self, line: &Bytes, message: &Message<'_>) {
        match (message.method(), message.id()) {
            (Method::Initialize, _) => self.initialize(line, message).await,
            (Method::Ping, Some(id)) => {
                self.say(&call::empty_result(id.as_json())).await;
            }
            (_, id) => {
                let body = ErrorBody::new(ErrorKind::InvalidRequest)
                    .answering(id)
                    .detail("the client has to initialize first");
                self.say_error(&body).await;
            }
        }
    }

    async fn begin_call(&mut self, line: &Bytes, message: &Message<'_>) {
        let Some(Open { context, .. }) = &self.open else {
            return;
        };
        let Some(call) = context.stream.begin_call() else {
            let body = ErrorBody::new(ErrorKind::TooManyRequests)
                .answering(message.id())
                .detail("too many requests are open");
            return self.say_error(&body).await;
        };
        let (context, line) = (context.clone(), line.clone());
        self.calls.spawn(async move {
            answer_request(&context, &line).await;
            drop(call);
        });
        // It begins before the next line is looked at, so that a cancellation finds it.
        tokio::task::yield_now().await;
    }

    /// What has no answer.
    async fn tell(&self, line: &Bytes, message: &Message<'_>) {
        let Some(open) = &self.open else {
            return;
        };
        let context = &open.context;
        // Also where the session goes on: whoever opened it may have died before it said that it is initialized.
        let reply = serve(context, line, message).await;
        finish_if_over(&context.stream, reply.status);
        if !reply.status.is_success() {
            tracing::info!(status = %reply.status, "a message of the client was refused");
            return;
        }
        if message.method() == Method::Initialized && context.stream.begin_listening() {
            tokio::spawn(listen(context.clone()));
        }
    }

    /// Passes on what is written onto the stream, until that is over.
    fn write_from(&self, stream: &Arc<OpenStream>) {
        let (stream, written, over) = (Arc::clone(stream), self.written.clone(), self.over.clone());
        tokio::spawn(async move {
            while let Some(line) = std::future::poll_fn(|context| stream.poll_next(context)).await {
                if written.send(line).await.is_err() {
                    stream.cut();
                    break;
                }
            }
            over.cancel();
        });
    }
}
