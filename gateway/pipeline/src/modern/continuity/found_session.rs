//! Finds the session of a request by its key, or begins it.
//!
//! A key that the gateway has issued is the id of its session: once that has ended, requests with it are refused. Any other
//! key has a session for as long as it is used, and the first result of a new one says so.

use http::{HeaderValue, StatusCode};
use mooring_session::names::SessionId;

use crate::answer;
use crate::request::UpstreamRequest;
use mooring_protocol::bridge::{BegunSession, initialize_params, unknown_session_result};
use mooring_protocol::mark::MarkPlace;
use mooring_protocol::{ErrorKind, Message, Method, Reply, Revision, SessionKeyChange, call};
use mooring_router::affinity::{
    ContinuedSession, InitializeRequest, OpenError, Session, SessionBeginning,
};
use mooring_settings::{Continuity, LostStateNotice};

/// Longest key that a client may choose, in bytes.
const KEY_BYTES_MAX: usize = 128;
/// The session of a user's requests that need no state, such as lists. No key of a client begins so.
const KEY_OF_LISTS: &str = "lists";
const KEY_OF_PRINCIPAL: &str = "principal";

/// The session of a request.
pub(super) struct FoundSession {
    pub(super) session: Session,
    /// The revision that it speaks.
    pub(super) revision: Revision,
    /// The note for its client if the request has begun it, or no result has reported a loss yet.
    pub(super) begun: Option<BegunSession>,
    /// The key that its client gets for it.
    pub(super) key_change: Option<Box<SessionKeyChange>>,
}

/// What a request is served in.
enum WantedSession {
    /// The session of this key, which begins with it.
    Keyed(String),
    /// The session with this id, if it exists.
    Issued(SessionId),
    /// A new session.
    New,
}

/// Finds the session of a request; `handle` names it where a model does.
///
/// # Errors
/// The reply: there is none, or it cannot be opened.
pub(super) async fn find_session(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
    handle: Option<&str>,
) -> Result<FoundSession, Box<Reply>> {
    let server = request.server.id.as_str();
    let wanted = match request.server.continuity {
        Continuity::Principal => WantedSession::Keyed(KEY_OF_PRINCIPAL.to_owned()),
        Continuity::Handle => match handle {
            Some(handle) => {
                let id = SessionId::parse(handle.as_bytes()).ok();
                let id = id.filter(|id| Session::is_id_of(id, server));
                WantedSession::Issued(id.ok_or_else(|| unknown_handle(message))?)
            }
            None if message.method() == Method::ToolsCall => WantedSession::New,
            None => WantedSession::Keyed(KEY_OF_LISTS.to_owned()),
        },
        Continuity::Header | Continuity::None => match client_key(request, message)? {
            Some(wanted) => wanted,
            None if needs_state(message.method()) => WantedSession::New,
            None => WantedSession::Keyed(KEY_OF_LISTS.to_owned()),
        },
    };
    match wanted {
        WantedSession::Keyed(key) => {
            let session = keyed(request, message, &key)?;
            let continued = open(request, message, &session).await?;
            let is_of_lists = key == KEY_OF_LISTS;
            if is_of_lists && continued.beginning == Some(SessionBeginning::Again) {
                // It has no state.
                request
                    .core
                    .session_router
                    .note_session_loss_reported(&session)
                    .await;
            }
            let begun = continued.beginning.filter(|_| !is_of_lists);
            let begun = begun.map(|beginning| BegunSession {
                name: None,
                lost: lost(request, beginning),
            });
            Ok(found(session, continued, begun))
        }
        WantedSession::New => {
            let session = request.mint_session();
            let session = session.map_err(|cause| open_error(&cause.into(), message))?;
            let continued = open(request, message, &session).await?;
            let is_by_handle = request.server.continuity == Continuity::Handle;
            let begun = BegunSession {
                name: is_by_handle.then(|| session.id.as_str().into()),
                lost: None,
            };
            let key_change = match is_by_handle {
                true => None,
                false => issued(server, &session),
            };
            Ok(FoundSession {
                key_change,
                ..found(session, continued, Some(begun))
            })
        }
        WantedSession::Issued(id) => {
            let prefix = &request.core.session_router.options().key_prefix;
            let session = Session::named(prefix, id, request.identity.principal.clone());
            let session = request.of_caller(session);
            let known = request.core.session_router.find_continued(&session).await;
            match known.map_err(|cause| Box::new(answer::store(&cause, message.id())))? {
                Some(continued) => Ok(found(session, continued, None)),
                None => Err(Box::new(ended(
                    request,
                    message,
                    &session,
                    handle.is_some(),
                ))),
            }
        }
    }
}

/// The server's answer to `initialize` in a session of this caller, which need not be that of later requests.
///
/// # Errors
/// The reply: it cannot be opened.
pub(super) async fn session_of_lists(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
) -> Result<Option<String>, Box<Reply>> {
    let key = match request.server.continuity {
        Continuity::Principal => KEY_OF_PRINCIPAL.to_owned(),
        Continuity::Header => match client_key(request, message)? {
            Some(WantedSession::Keyed(key)) => key,
            _ => KEY_OF_LISTS.to_owned(),
        },
        Continuity::Handle | Continuity::None => KEY_OF_LISTS.to_owned(),
    };
    let session = keyed(request, message, &key)?;
    let params = initialize_params(message);
    let router = &request.core.session_router;
    let result = router
        .initialize_result(&session, request.server, &initialize(&params))
        .await;
    result.map_err(|cause| open_error(&cause, message))
}

/// The reply to a request whose session has ended, of which nothing was executed. Its next request begins another one,
/// unless it brings the key of this one again.
pub(super) fn ended(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
    session: &Session,
    is_by_handle: bool,
) -> Reply {
    request.core.session_router.forget_continued(session);
    if is_by_handle {
        return *unknown_handle(message);
    }
    let detail = match request.fields.continuity.header {
        Some(_) => "a request without Mooring-Session, or with another value, begins a new one",
        None => "the next request begins a new one",
    };
    let server = request.server.id.as_str().into();
    Reply {
        session_key: (request.server.continuity == Continuity::Header)
            .then(|| Box::new(SessionKeyChange::Ended { server })),
        ..answer::detailed(ErrorKind::SessionEnded, message.id(), detail)
    }
}

/// The key that the client has chosen or was given; none if it brings none.
fn client_key(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
) -> Result<Option<WantedSession>, Box<Reply>> {
    let server = request.server.id.as_str();
    let fields = &request.fields.continuity;
    let key = match &fields.header {
        Some(header) => header.as_bytes(),
        None => match fields.cookie_of(server) {
            Some(cookie) => cookie.as_bytes(),
            None => return Ok(None),
        },
    };
    let is_visible = |byte: &u8| matches!(byte, b'!'..=b'~');
    let text = std::str::from_utf8(key).unwrap_or_default();
    if !(1..=KEY_BYTES_MAX).contains(&text.len()) || !key.iter().all(is_visible) {
        let detail =
            format!("Mooring-Session needs one value of 1 to {KEY_BYTES_MAX} visible characters");
        let reply = answer::detailed(ErrorKind::InvalidRequest, message.id(), detail);
        return Err(Box::new(reply));
    }
    let issued = SessionId::parse(key).ok();
    Ok(Some(
        match issued.filter(|id| Session::is_id_of(id, server)) {
            Some(id) => WantedSession::Issued(id),
            None => WantedSession::Keyed(format!("header {text}")),
        },
    ))
}

/// Whether a request of this method, if it brings no key, begins a session that its client can continue.
const fn needs_state(method: Method) -> bool {
    !matches!(
        method,
        Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::CompletionComplete
    )
}

fn keyed(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
    key: &str,
) -> Result<Session, Box<Reply>> {
    let prefix = &request.core.session_router.options().key_prefix;
    let (principal, server) = (&request.identity.principal, request.server.id.as_str());
    let session = Session::of_continuity_key(prefix, principal, server, key);
    let session = session.map_err(|cause| open_error(&cause.into(), message))?;
    Ok(request.of_caller(session))
}

async fn open(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
    session: &Session,
) -> Result<ContinuedSession, Box<Reply>> {
    let params = initialize_params(message);
    let router = &request.core.session_router;
    let opened = router
        .open_or_continue(session, request.server, &initialize(&params))
        .await;
    opened.map_err(|cause| open_error(&cause, message))
}

fn initialize(params: &str) -> InitializeRequest<'_> {
    InitializeRequest {
        transport: Some("HTTP"),
        params,
        revision: Revision::OFFERED.as_str(),
        // The gateway writes it.
        text: bytes::Bytes::new(),
    }
}

fn found(
    session: Session,
    continued: ContinuedSession,
    begun: Option<BegunSession>,
) -> FoundSession {
    FoundSession {
        session,
        revision: continued.revision,
        begun,
        key_change: None,
    }
}

/// Where the first result tells that the state of an earlier session with the same key is gone.
fn lost(request: &UpstreamRequest<'_>, beginning: SessionBeginning) -> Option<MarkPlace> {
    match (beginning, request.server.lost_state_notice) {
        (SessionBeginning::First, _) => None,
        (SessionBeginning::Again, LostStateNotice::Content) => Some(MarkPlace::Content),
        (SessionBeginning::Again, LostStateNotice::Meta) => Some(MarkPlace::Meta),
    }
}

fn issued(server: &str, session: &Session) -> Option<Box<SessionKeyChange>> {
    let key = HeaderValue::from_str(session.id.as_str()).ok()?;
    let server = server.into();
    Some(Box::new(SessionKeyChange::Issued { server, key }))
}

fn unknown_handle(message: &Message<'_>) -> Box<Reply> {
    let id = message.id().map_or("null", |id| id.as_json());
    let text = call::result(id, &unknown_session_result());
    Box::new(Reply::json(StatusCode::OK, text))
}

fn open_error(cause: &OpenError, message: &Message<'_>) -> Box<Reply> {
    Box::new(answer::open_error(cause, message.id()))
}
