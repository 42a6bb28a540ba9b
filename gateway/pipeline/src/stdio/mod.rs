//! The client on stdin and stdout: each line is a message, served as one of any other transport; everything to the
//! client goes onto one stream of lines.
//!
//! A client that is restarted for each call continues its session by name (see
//! [`mooring_router::affinity::SessionStart`]). Several processes may use one session concurrently; each has its own
//! lane, so that their request ids do not collide.
//!
//! Invariant: every request is answered, also an invalid one, or the client learns that the session has ended. A line
//! that is too long is not parsed: its id is looked for at its beginning and its end.

mod opening;

use std::sync::Arc;

use bytes::Bytes;
use mooring_session::names::ServerName;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client_stream::{
    OpenStream, StreamContext, Wire, answer_request, listen, serve_message,
};
use crate::directory::{ServerDirectory, ServerTarget};
use mooring_identity::Identity;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{
    CutMessage, ErrorBody, ErrorKind, Id, Kind, Lane, Message, Method, call, request_id,
};
use mooring_router::affinity::{InFlight, Session};

/// The lifetime of this client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StdioSessionLifetime {
    /// It can be continued by this name, until it was idle for its TTL.
    Named(Box<str>),
    /// It ends with this process.
    Process,
}

/// A client and its calls in progress.
#[derive(Debug)]
pub struct StdioClient {
    directory: Arc<ServerDirectory>,
    target: ServerTarget,
    server: ServerName,
    identity: Arc<Identity>,
    lifetime: StdioSessionLifetime,
    lane: Lane,
    written: mpsc::Sender<Bytes>,
    /// None before `initialize`.
    open: Option<OpenSession>,
    /// The session that is being opened, if it is stateful.
    opening: Option<Session>,
    calls: JoinSet<()>,
    over: CancellationToken,
}

/// The state of an initialized client.
#[derive(Debug)]
struct OpenSession {
    context: StreamContext,
    /// Keeps the session from expiring while this process runs; none at servers that keep no session.
    in_flight: Option<InFlight>,
}

impl StdioClient {
    /// A client of this server, with this identity; none if the server does not exist. Messages to the client are sent to `written`.
    pub fn new(
        directory: Arc<ServerDirectory>,
        server: &ServerName,
        identity: Arc<Identity>,
        lifetime: StdioSessionLifetime,
        written: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        Some(Self {
            target: directory.target(server.as_str())?,
            server: server.clone(),
            identity,
            lifetime,
            lane: Lane(rand::random()),
            written,
            open: None,
            opening: None,
            calls: JoinSet::new(),
            over: CancellationToken::new(),
            directory,
        })
    }

    /// Cancelled when the session has ended for any reason: the client has to start over.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Handles one line. Requests are answered later, in any order; everything else is served before this returns, so
    /// that later messages cannot overtake it.
    pub async fn handle_line(&mut self, line: Bytes) {
        while self.calls.try_join_next().is_some() {}
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line, Sender::Client) {
            Ok(message) => message,
            Err(cause) => return self.write_error(&ErrorBody::from(&cause)).await,
        };
        match (&self.open, message.kind()) {
            (Some(_), Kind::Request) => self.begin_call(&line, &message).await,
            (Some(_), _) => self.handle_one_way(&line, &message).await,
            (None, Kind::Request) => self.handle_before_initialize(&line, &message).await,
            // Before `initialize` there is no session to deliver it to.
            (None, _) => {}
        }
    }

    /// Refuses a line longer than `bytes_max`, under the id of the request that it is, if that can be read.
    pub async fn refuse_long_line(&self, line: &CutMessage, bytes_max: usize) {
        let id_json = request_id(&line.beginning, &line.end);
        let body = ErrorBody::new(ErrorKind::BodyTooLarge)
            .answering(id_json.and_then(|id_json| Id::from_json(id_json).ok()))
            .detail(format!("at most {bytes_max} bytes"));
        self.write_error(&body).await;
    }

    /// Returns when every request is answered.
    pub async fn answered(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }

    /// Leaves the session, and ends it if it was only for this process.
    pub async fn leave(mut self) {
        self.calls.shutdown().await;
        let session_router = &self.directory.core.session_router;
        if let Some(session) = &self.opening
            && let Err(error) = session_router.close(session).await
        {
            tracing::info!(%error, "a session that failed to open could not be ended; it will expire");
        }
        let Some(OpenSession { context, in_flight }) = self.open else {
            return;
        };
        if self.lifetime == StdioSessionLifetime::Process
            && in_flight.is_some()
            && let Err(error) = session_router.close(&context.stream.session).await
        {
            tracing::info!(%error, "the session of this process could not be ended; it will expire");
        }
        context.stream.finish();
    }

    async fn write(&self, message: &str) {
        // If stdout is closed, the message is dropped.
        let _ = self.written.send(Wire::Lines.message(message, None)).await;
    }

    async fn write_error(&self, error: &ErrorBody<'_>) {
        self.write(&String::from_utf8_lossy(&error.to_bytes()))
            .await;
    }

    /// Handles a request before the session is open.
    async fn handle_before_initialize(&mut self, line: &Bytes, message: &Message<'_>) {
        match (message.method(), message.id()) {
            (Method::Initialize, _) => self.initialize(line, message).await,
            (Method::Ping, Some(id)) => {
                self.write(&call::empty_result(id.as_json())).await;
            }
            (_, id) => {
                let body = ErrorBody::new(ErrorKind::InvalidRequest)
                    .answering(id)
                    .detail("the client has to initialize first");
                self.write_error(&body).await;
            }
        }
    }

    async fn begin_call(&mut self, line: &Bytes, message: &Message<'_>) {
        let Some(OpenSession { context, .. }) = &self.open else {
            return;
        };
        let call = match context.stream.begin_call() {
            Ok(call) => call,
            Err(refusal) => {
                let body = ErrorBody::new(ErrorKind::TooManyRequests).answering(message.id());
                return self.write_error(&body.detail(refusal)).await;
            }
        };
        let (mut context, line) = (context.clone(), line.clone());
        context.call = Some(Arc::clone(&call.of_user));
        self.calls.spawn(async move {
            answer_request(&context, &line).await;
            drop(call);
        });
        // Lets the call start before the next line is handled, so that a cancellation finds it.
        tokio::task::yield_now().await;
    }

    /// Handles a message without a response.
    async fn handle_one_way(&self, line: &Bytes, message: &Message<'_>) {
        let Some(open) = &self.open else {
            return;
        };
        let context = &open.context;
        // Also sent in a continued session: the process that opened it may have died before it sent
        // `notifications/initialized`.
        let reply = serve_message(context, line, message).await;
        context.stream.finish_if_over(reply.status);
        if !reply.status.is_success() {
            tracing::info!(status = %reply.status, "a message of the client was refused");
            return;
        }
        if message.method() == Method::Initialized && context.stream.begin_listening() {
            tokio::spawn(listen(context.clone()));
        }
    }

    /// Copies the stream's messages to the output until the stream ends.
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
