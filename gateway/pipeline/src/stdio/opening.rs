//! The client's `initialize`: begins its session, or continues an existing one.
//!
//! Invariant: a session that could not be opened is ended, so that no other process waits for its result.

use std::sync::Arc;

use bytes::Bytes;

use super::{OpenSession, StdioClient, StdioSessionLifetime};
use crate::answer;
use crate::client_stream::{
    OpenStream, StreamContext, Wire, initialize, negotiated_by, revision_for,
};
use crate::directory::ServerTarget;
use crate::request::RequestFields;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{Kind, Message, Reply, ReplyBody, call};
use mooring_router::affinity::{InFlightKind, OpenError, Session, SessionStart};
use mooring_settings::Affinity;

impl StdioClient {
    /// Opens the server, or continues the session of an earlier process of this client.
    pub(super) async fn initialize(&mut self, line: &Bytes, message: &Message<'_>) {
        let keeps_sessions = match &self.target {
            // One process serves one client, so a stateless session would save nothing.
            ServerTarget::Upstream(server) => server.affinity != Affinity::Off,
            ServerTarget::Group(_) => true,
            ServerTarget::Code(_) | ServerTarget::Agent(_) | ServerTarget::Admin(_) => false,
        };
        let begun = if keeps_sessions {
            self.begin(message).await
        } else {
            self.mint().map(|session| (session, None))
        };
        let (session, start) = match begun {
            Ok(begun) => begun,
            Err(cause) => {
                return self
                    .write(&text_of(&answer::open_error(&cause, message.id())))
                    .await;
            }
        };
        let session_router = &self.directory.core.session_router;
        let in_flight = keeps_sessions.then(|| {
            session_router
                .active_bindings()
                .begin(&session, &self.server, InFlightKind::Stream)
        });
        let stream = OpenStream::new(
            session,
            Arc::clone(&self.identity),
            self.directory.core.usages.of(&self.identity.principal),
            self.server.clone(),
            None,
            Wire::Lines,
        );
        let context = StreamContext {
            directory: Arc::clone(&self.directory),
            stream: Arc::new(stream),
            fields: RequestFields::default(),
            lane: keeps_sessions.then_some(self.lane),
            call: None,
        };
        let text = match start {
            Some(SessionStart::Continued(result)) => continue_session(&context, message, &result),
            Some(SessionStart::New | SessionStart::Unknown) | None => {
                self.opening = keeps_sessions.then(|| context.stream.session.clone());
                let text = self.initialize_new_session(&context, line, message).await;
                self.opening = None;
                text
            }
        };
        if context.stream.negotiated().is_some() {
            self.write_from(&context.stream);
            self.open = Some(OpenSession { context, in_flight });
        }
        self.write(&text).await;
    }

    async fn begin(
        &self,
        message: &Message<'_>,
    ) -> Result<(Session, Option<SessionStart>), OpenError> {
        let params = message.raw_params().unwrap_or("{}");
        let session_router = &self.directory.core.session_router;
        let session = match &self.lifetime {
            StdioSessionLifetime::Named(name) => Session::of_name(
                &session_router.options().key_prefix,
                &self.identity.principal,
                self.server.as_str(),
                name,
                params,
            )?,
            StdioSessionLifetime::Process => self.mint()?,
        };
        match session_router.begin_or_continue(&session, params).await? {
            SessionStart::Unknown => {
                let session = self.mint()?;
                let start = session_router.begin_or_continue(&session, params).await?;
                Ok((session, Some(start)))
            }
            start => Ok((session, Some(start))),
        }
    }

    fn mint(&self) -> Result<Session, OpenError> {
        let prefix = &self.directory.core.session_router.options().key_prefix;
        let principal = self.identity.principal.clone();
        Ok(Session::mint(prefix, principal, self.server.as_str())?)
    }

    /// Opens the server in a new session, and stores the result for processes that continue it. Ends the session if
    /// that fails.
    async fn initialize_new_session(
        &self,
        context: &StreamContext,
        line: &Bytes,
        message: &Message<'_>,
    ) -> String {
        let reply = initialize(context, line, message).await;
        let text = text_of(&reply);
        if context.lane.is_none() {
            return text;
        }
        let (session_router, session) =
            (&self.directory.core.session_router, &context.stream.session);
        let answer = Message::parse(text.as_bytes(), Sender::Upstream).ok();
        let result = answer
            .filter(|answer| answer.kind() == Kind::Result)
            .and_then(|answer| answer.outcome());
        match result {
            Some(result) => session_router.note_answer(session, result).await,
            None => {
                if let Err(error) = session_router.close(session).await {
                    tracing::info!(session = %session.digest, %error, "a session that failed to open could not be ended; it will expire");
                }
            }
        }
        text
    }
}

/// The response to `initialize` in a continued session.
fn continue_session(context: &StreamContext, message: &Message<'_>, result: &str) -> String {
    let id = message.id().map_or("null", |id| id.as_json());
    let text = call::result(id, result);
    let _ = context.stream.begin_initialize();
    context.stream.end_initialize(negotiated_by(
        text.as_bytes(),
        Some(context.stream.session.id.clone()),
        revision_for(message),
    ));
    text
}

/// The text of a reply that was made here and is complete.
fn text_of(reply: &Reply) -> String {
    match &reply.body {
        ReplyBody::Json(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}
