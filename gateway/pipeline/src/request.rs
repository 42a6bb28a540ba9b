//! A request of an admitted caller, as every transport hands it over.

use std::ops::Deref;
use std::sync::Arc;

use http::HeaderValue;
use mooring_session::names::{NameError, ServerName, SessionId};
use tokio_util::sync::CancellationToken;

use super::hooks::CallRoute;
use super::latest_session::LatestSession;
use super::request_entry::RequestEntry;
use super::request_log::RequestLog;
use super::serving_core::ServingCore;
use mooring_identity::Identity;
use mooring_protocol::{ErrorKind, Kind, Lane, Message, Method, Revision, VersionError};
use mooring_router::affinity::Session;
use mooring_upstream::{ForwardedFields, Server};
use mooring_usage::{CallPermit, UserUsage};

/// A request that passed every check that needs neither its message nor its session.
#[derive(Clone, Debug)]
pub struct Request {
    /// What serves it.
    pub core: Arc<ServingCore>,
    /// The server that its client has named, whose sessions it may name: the group where it is for a member.
    pub endpoint: ServerName,
    /// Who sends it.
    pub identity: Arc<Identity>,
    /// What it says besides its message.
    pub fields: RequestFields,
    /// Where its session comes from.
    pub session: SessionSource,
    /// Tells the clients of one session apart, where there may be several.
    pub lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub client_gone: CancellationToken,
    /// The usage of its user.
    pub usage: Arc<UserUsage>,
    /// Counts it among the calls of its sender; none if it is no call, or part of another one.
    pub call: Option<Arc<CallPermit>>,
    /// Its entry for metrics and the log; none for a request that begins inside the gateway.
    pub entry: Option<Arc<RequestEntry>>,
}

/// A request, and the server of kind `S` that it is for.
#[derive(Debug)]
pub(crate) struct ServerRequest<'a, S> {
    pub(crate) request: &'a Request,
    pub(crate) server: &'a S,
}

impl<S> Deref for ServerRequest<'_, S> {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request
    }
}

/// A request for an upstream server.
pub(crate) type UpstreamRequest<'a> = ServerRequest<'a, Arc<Server>>;

/// What a request says besides its message: in the headers of HTTP, or as its transport has agreed with the client.
#[derive(Clone, Debug)]
pub struct RequestFields {
    /// The session that it names; [`ErrorKind::SessionMissing`] if it names none.
    pub session: Result<SessionId, ErrorKind>,
    /// Its revision: the assumed one if it names none.
    pub revision: Result<Revision, VersionError>,
    /// What it repeats of its message.
    pub mirrored: MirroredFields,
    /// Which session a request without one is to share with others.
    pub continuity: ContinuityFields,
    /// The name of its client, which tells the sessions of code apart.
    pub client_name: Option<HeaderValue>,
    /// What goes on to upstream servers.
    pub forwarded: ForwardedFields,
    /// How it came.
    pub transport: ClientTransport,
    /// Whether a page in a browser sent it that is none of the gateway's own. Such a page does no operator's act.
    pub is_from_foreign_page: bool,
}

/// What a request repeats of its message in headers, for those who route by them (MCP 2026-07-28, transports, "Request
/// Metadata"). Values that occur more than once are joined (RFC 9110, 5.3).
#[derive(Clone, Debug, Default)]
pub struct MirroredFields {
    /// The revision.
    pub revision: Option<HeaderValue>,
    /// The method.
    pub method: Option<HeaderValue>,
    /// The tool, prompt, resource or task.
    pub name: Option<HeaderValue>,
}

/// The keys by which requests without a session share one. They are secrets.
#[derive(Clone, Debug, Default)]
pub struct ContinuityFields {
    /// The key that its client names in `Mooring-Session`.
    pub header: Option<HeaderValue>,
    /// The keys that the gateway has issued as cookies, by their servers.
    pub cookies: Vec<(Box<str>, HeaderValue)>,
}

/// How a client's request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientTransport {
    /// Over standard input.
    #[default]
    Pipe,
    /// Over HTTP of this version; none if another gateway has read it.
    Http(Option<http::Version>),
}

/// Where the session of a request comes from.
#[derive(Clone, Debug)]
pub enum SessionSource {
    /// The request names it, most often the latest of its connection; its `initialize` creates one.
    Fields(Arc<LatestSession>),
    /// The request names it; its `initialize` opens this one, which began with the client's stream.
    Begun(Session),
    /// It is this one, whose record exists: that of the group for a member, or that of code. The server serves it as
    /// stateful, whatever its setting.
    Given(Session),
}

/// A server that requests are for.
pub trait RequestServer {
    /// Its id.
    fn id(&self) -> &ServerName;

    /// Whether hooks are asked about calls of it. They are not at a group, whose members ask them.
    fn asks_hooks(&self) -> bool {
        true
    }
}

impl RequestServer for Arc<Server> {
    fn id(&self) -> &ServerName {
        &self.id
    }
}

impl Default for RequestFields {
    /// Those of a request that says nothing.
    fn default() -> Self {
        Self {
            session: Err(ErrorKind::SessionMissing),
            revision: Ok(Revision::ASSUMED),
            mirrored: MirroredFields::default(),
            continuity: ContinuityFields::default(),
            client_name: None,
            forwarded: ForwardedFields::default(),
            transport: ClientTransport::default(),
            is_from_foreign_page: false,
        }
    }
}

impl ContinuityFields {
    /// The key that was issued for this server.
    pub(crate) fn cookie_of(&self, server: &str) -> Option<&HeaderValue> {
        let mut cookies = self.cookies.iter();
        let (_, key) = cookies.find(|(of, _)| **of == *server)?;
        Some(key)
    }
}

impl MirroredFields {
    /// Whether they name a revision without sessions.
    #[must_use]
    pub fn names_modern_revision(&self) -> bool {
        let named = self.revision.as_ref().and_then(|value| value.to_str().ok());
        named
            .and_then(|name| Revision::named(name.trim()))
            .is_some_and(Revision::is_modern)
    }
}

impl RequestFields {
    /// Begins the entry of the request. Its id goes to upstream servers too.
    pub fn begin_entry(&mut self, log: &Arc<RequestLog>) -> Arc<RequestEntry> {
        let entry = RequestEntry::begin(log, self.forwarded.request_id.as_ref());
        self.forwarded.request_id = Some(entry.id().clone());
        entry
    }

    /// The revision of the message: negotiated from that of its `initialize`, otherwise the one that the fields name.
    /// Messages of 2026-07-28 are refused.
    pub(crate) fn revision_of(&self, message: &Message<'_>) -> Result<Revision, VersionError> {
        if message.params.is_modern() {
            let name = message.params.modern_version().unwrap_or_default();
            return Err(VersionError::Unsupported(name.into_owned()));
        }
        if is_initialize(message) {
            let asked = message.params.protocol_version().unwrap_or_default();
            return Ok(Revision::negotiated(&asked));
        }
        self.revision.clone()
    }

    /// Whether they name a session, be it an impossible one.
    pub(crate) const fn name_session(&self) -> bool {
        !matches!(self.session, Err(ErrorKind::SessionMissing))
    }
}

impl Request {
    /// A request of this caller for the server `endpoint`: with the usage of its user, which is looked up, without a lane, a
    /// call and an entry, and with a client that waits for the reply.
    #[must_use]
    pub fn new(
        core: &Arc<ServingCore>,
        endpoint: &ServerName,
        identity: Arc<Identity>,
        fields: RequestFields,
        session: SessionSource,
    ) -> Self {
        Self {
            usage: core.usages.of(&identity.principal),
            core: Arc::clone(core),
            endpoint: endpoint.clone(),
            identity,
            fields,
            session,
            lane: None,
            client_gone: CancellationToken::new(),
            call: None,
            entry: None,
        }
    }

    /// The request, as one for this server.
    pub(crate) const fn at<'a, S>(&'a self, server: &'a S) -> ServerRequest<'a, S> {
        ServerRequest {
            request: self,
            server,
        }
    }

    /// Begins the entry of a message that is served as a request of its own, and is so long.
    pub(crate) fn begin_entry(&mut self, bytes: usize) -> Arc<RequestEntry> {
        let entry = self.fields.begin_entry(&self.core.request_log);
        entry.note_user(&self.identity.principal);
        entry.note_body(bytes);
        self.entry = Some(Arc::clone(&entry));
        entry
    }

    /// Its session; none that was opened at another server.
    pub(crate) fn session(&self) -> Result<Session, ErrorKind> {
        if let SessionSource::Given(session) = &self.session {
            return Ok(self.of_caller(session.clone()));
        }
        let id = self.fields.session.clone()?;
        if !Session::is_id_of(&id, self.endpoint.as_str()) {
            return Err(ErrorKind::SessionNotFound);
        }
        let prefix = &self.core.session_router.options().key_prefix;
        let principal = &self.identity.principal;
        Ok(self.of_caller(match &self.session {
            SessionSource::Fields(latest) => latest.named(prefix, id, principal),
            _ => Session::named(prefix, id, principal.clone()),
        }))
    }

    /// Notes in its entry which session it names, also if it is then refused.
    pub fn note_session(&self) {
        // Whoever gets the session notes it.
        let _ = self.session();
    }

    /// How its client came, for the history of the session that its `initialize` begins; none if that exists.
    pub(crate) const fn new_session_transport(&self) -> Option<&'static str> {
        match &self.session {
            SessionSource::Fields(_) => Some("HTTP"),
            SessionSource::Begun(_) => Some("a client stream"),
            SessionSource::Given(_) => None,
        }
    }

    /// A new session of its caller.
    pub(crate) fn mint_session(&self) -> Result<Session, NameError> {
        let prefix = &self.core.session_router.options().key_prefix;
        let principal = self.identity.principal.clone();
        let session = Session::mint(prefix, principal, self.endpoint.as_str())?;
        Ok(self.of_caller(session))
    }

    /// The session, as its caller uses it.
    pub(crate) fn of_caller(&self, session: Session) -> Session {
        if let Some(entry) = &self.entry {
            entry.note_session(&session.digest);
        }
        session.of_caller(
            &self.identity.teams,
            self.identity.token.as_ref(),
            &self.usage,
        )
    }
}

impl<S: RequestServer> ServerRequest<'_, S> {
    /// The caller and the server, for hooks.
    pub(crate) fn call_route(&self) -> CallRoute {
        CallRoute {
            caller: Arc::clone(&self.identity),
            session_digest: self.session().ok().map(|session| session.digest),
            server: self.server.id().clone(),
        }
    }
}

/// Whether the message opens a session.
pub(crate) fn is_initialize(message: &Message<'_>) -> bool {
    message.kind() == Kind::Request && message.method() == Method::Initialize
}
