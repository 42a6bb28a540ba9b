//! The messages of a client that has a single stream, as requests like any other.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::open_stream::{NegotiatedSession, OpenStream};
use crate::answer;
use crate::directory::{ServerDirectory, ServerTarget};
use crate::pipeline::{Operation, serve};
use crate::request::{Request, RequestFields, RequestServer as _, SessionSource};
use mooring_protocol::{ErrorKind, Lane, Message, Reply, Revision};
use mooring_usage::CallPermit;

/// The stream that a message belongs to, and the fields that came with it.
#[derive(Clone, Debug)]
pub(crate) struct StreamContext {
    pub(crate) directory: Arc<ServerDirectory>,
    pub(crate) stream: Arc<OpenStream>,
    /// They name no session, and a revision only if the client has sent one.
    pub(crate) fields: RequestFields,
    /// Tells the clients of one session apart, where there may be several.
    pub(crate) lane: Option<Lane>,
    /// Counts the message among the calls of its sender; none if it is no request.
    pub(crate) call: Option<Arc<CallPermit>>,
}

impl StreamContext {
    /// The request of the stream's client, in its session, and its server; none if the client may not use that any more.
    pub(super) fn request(
        &self,
        negotiated: Option<&NegotiatedSession>,
    ) -> Option<(Request, ServerTarget)> {
        let mut fields = self.fields.clone();
        if let Some(negotiated) = negotiated {
            let id = negotiated.session_id.clone();
            fields.session = id.ok_or(ErrorKind::SessionMissing);
            // Clients of this transport need not send the revision header; those of Streamable HTTP must, from the
            // revision on that introduced it.
            let revision = negotiated.revision;
            fields.revision = Ok(revision);
            fields.forwarded.revision = (revision >= Revision::V2025_06_18).then_some(revision);
        }
        let server = self
            .directory
            .target_for(self.stream.server.as_str(), &self.stream.identity)?;
        let stream = &self.stream;
        let request = Request {
            core: Arc::clone(&self.directory.core),
            endpoint: server.id().clone(),
            identity: Arc::clone(&stream.identity),
            fields,
            session: SessionSource::Begun(stream.session.clone()),
            lane: self.lane,
            client_gone: stream.over(),
            usage: Arc::clone(&stream.usage),
            call: self.call.clone(),
            entry: None,
        };
        Some((request, server))
    }

    /// The stream of unrelated messages, or the events after `last_event_id`.
    pub(super) async fn get(&self, last_event_id: Option<HeaderValue>) -> Reply {
        let negotiated = self.stream.negotiated();
        let Some((mut request, server)) = self.request(negotiated.as_ref()) else {
            return answer::plain(ErrorKind::ServerNotFound, None);
        };
        if last_event_id.is_some() {
            request.fields.forwarded.last_event_id = last_event_id;
        }
        serve(&request, &server, Operation::Stream).await
    }
}

/// Serves a message as a request of its own.
pub(super) async fn serve_watched(
    (mut request, server): (Request, ServerTarget),
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let entry = request.begin_entry(body.len());
    if let SessionSource::Begun(session) = &request.session {
        entry.note_session(&session.digest);
    }
    let operation = Operation::Message {
        body,
        message,
        revision,
    };
    entry.watch(serve(&request, &server, operation).await)
}
