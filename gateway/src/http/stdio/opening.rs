//! The client's `initialize`: its session is begun, or found and gone on with.
//!
//! Invariant: a session that could not be opened is ended, so that nobody waits for its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{Front, Keeping, Open, text_of};
use crate::downlink::{OpenStream, Wire};
use crate::http::answer;
use crate::http::downlink::{Asked, introduce, introduced_by, revision_for};
use crate::http::target::Target;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{Kind, Message, call};
use mooring_router::affinity::{Beginning, InFlightKind, OpenError, Session};
use mooring_settings::Affinity;

impl Front {
    /// Opens the server, or goes on where an earlier process of the client was.
    pub(super) async fn initialize(&mut self, line: &Bytes, message: &Message<'_>) {
        let keeps_sessions = match &self.target {
            // One process serves one client, so there is nothing to gain by not keeping its session.
            Target::Upstream(server) => server.affinity != Affinity::Off,
            Target::Group(_) => true,
            Target::Code(_) | Target::Agent(_) => false,
        };
        let begun = if keeps_sessions {
            self.begin(message).await
        } else {
            self.mint().map(|session| (session, None))
        };
        let (session, beginning) = match begun {
            Ok(begun) => begun,
            Err(cause) => {
                return self
                    .say(&text_of(answer::unopened(&cause, message.id())).await)
                    .await;
            }
        };
        let affinity = &self.app.affinity;
        let in_flight = keeps_sessions.then(|| {
            affinity
                .driven()
                .begin(&session, &self.server, InFlightKind::Stream)
        });
        let stream = OpenStream::new(session, self.server.clone(), None, Wire::Lines);
        let asked = Asked {
            app: Arc::clone(&self.app),
            stream: Arc::new(stream),
            headers: HeaderMap::new(),
            lane: keeps_sessions.then_some(self.lane),
        };
        let text = match beginning {
            Some(Beginning::GoesOn(result)) => go_on(&asked, message, &result),
            Some(Beginning::New | Beginning::Unknown) | None => {
                self.opening = keeps_sessions.then(|| asked.stream.session.clone());
                let text = self.introduce(&asked, line, message).await;
                self.opening = None;
                text
            }
        };
        if asked.stream.introduced().is_some() {
            self.write_from(&asked.stream);
            self.open = Some(Open { asked, in_flight });
        }
        self.say(&text).await;
    }

    async fn begin(
        &self,
        message: &Message<'_>,
    ) -> Result<(Session, Option<Beginning>), OpenError> {
        let params = message.raw_params().unwrap_or("{}");
        let affinity = &self.app.affinity;
        let session = match &self.keeping {
            Keeping::Named(name) => Session::of_name(
                &affinity.options().key_prefix,
                &self.principal,
                self.server.as_str(),
                name,
                params,
            )?,
            Keeping::OneProcess => self.mint()?,
        };
        match affinity.begin_or_continue(&session, params).await? {
            Beginning::Unknown => {
                let session = self.mint()?;
                let beginning = affinity.begin_or_continue(&session, params).await?;
                Ok((session, Some(beginning)))
            }
            beginning => Ok((session, Some(beginning))),
        }
    }

    fn mint(&self) -> Result<Session, OpenError> {
        let prefix = &self.app.affinity.options().key_prefix;
        Ok(Session::mint(prefix, self.principal.clone())?)
    }

    /// Opens the server in a session that has just begun, and keeps its answer for those that continue it. A session that
    /// could not be opened is ended.
    async fn introduce(&self, asked: &Asked, line: &Bytes, message: &Message<'_>) -> String {
        let reply = introduce(asked, line, message).await;
        let text = text_of(reply).await;
        if asked.lane.is_none() {
            return text;
        }
        let (affinity, session) = (&self.app.affinity, &asked.stream.session);
        let answer = Message::parse(text.as_bytes(), Sender::Upstream).ok();
        let result = answer
            .filter(|answer| answer.kind() == Kind::Result)
            .and_then(|answer| answer.outcome());
        match result {
            Some(result) => affinity.note_answer(session, result).await,
            None => {
                if let Err(error) = affinity.close(session).await {
                    tracing::info!(session = %session.digest, %error, "a session that could not be opened was not ended; it will expire");
                }
            }
        }
        text
    }
}

/// The client's answer where its session goes on.
fn go_on(asked: &Asked, message: &Message<'_>, result: &str) -> String {
    let id = message.id().map_or("null", |id| id.as_json());
    let text = call::result(id, result);
    let header = HeaderValue::from_str(asked.stream.session.id.as_str()).ok();
    let _ = asked.stream.begin_introduction();
    asked
        .stream
        .end_introduction(introduced_by(&text, header, revision_for(message)));
    text
}
