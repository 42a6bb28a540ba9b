//! The gateway's own answers: one place that turns what went wrong into a status and a body.
//!
//! Two messages: the caller's says what to do; the log's says what happened. Neither holds a session id.

use futures_util::stream;
use http::{HeaderValue, StatusCode};
use mooring_session::Refusal;
use mooring_session::refusal::Busy;

use crate::identity::IdentityError;
use mooring_protocol::ids::Id;
use mooring_protocol::{ErrorBody, ErrorKind, Reply};
use mooring_router::affinity::{HoldError, OpenError, RebindNotice, ResolveError, TurnError};
use mooring_router::dispatch::DeliverError;
use mooring_router::pooled::PooledError;
use mooring_store::StoreError;
use mooring_upstream::{Answer, ExchangeError, FailureCause, HandshakeError};

/// How soon a client is asked to try again, in seconds: a worker finds a store that returned well within that.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// A reply that is a JSON-RPC error.
pub(super) fn error(body: &ErrorBody<'_>) -> Reply {
    let status = body.status();
    let is_for_later = matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
    );
    Reply {
        retry_after: is_for_later.then_some(RETRY_AFTER_SECONDS),
        ..Reply::json(status, body.to_bytes())
    }
}

/// A plain error of this kind to the request with this id.
pub(super) fn plain(kind: ErrorKind, id: Option<Id<'_>>) -> Reply {
    error(&ErrorBody::new(kind).answering(id))
}

/// Nobody can be named as the sender.
pub(super) fn identity_error(cause: IdentityError) -> ErrorBody<'static> {
    let kind = match cause.status() {
        StatusCode::FORBIDDEN => ErrorKind::Forbidden,
        _ => ErrorKind::Unauthenticated,
    };
    ErrorBody::new(kind).detail(cause)
}

/// What the store said. Unknown, expired, ended and foreign sessions look the same from outside.
pub(super) fn store(cause: &StoreError, id: Option<Id<'_>>) -> Reply {
    match cause {
        StoreError::Refused(Refusal::NoSession | Refusal::Ended | Refusal::Denied) => {
            plain(ErrorKind::SessionNotFound, id)
        }
        StoreError::Refused(refusal @ Refusal::Limit { .. }) => error(
            &ErrorBody::new(ErrorKind::TooManyRequests)
                .answering(id)
                .detail(refusal),
        ),
        // It names another session's key, which is nobody's to read.
        StoreError::Refused(Refusal::Cap { .. }) => plain(ErrorKind::TooManyRequests, id),
        // This worker owns nothing new any more; another does.
        StoreError::Refused(Refusal::Busy(Busy::Draining)) => plain(ErrorKind::ShuttingDown, id),
        StoreError::Refused(refusal) => {
            tracing::error!(%refusal, "the store refused what the gateway asked");
            plain(ErrorKind::Internal, id)
        }
        cause => {
            tracing::warn!(%cause, "a request could not be served without the store");
            plain(ErrorKind::StoreUnavailable, id)
        }
    }
}

/// A session has no binding that is ready.
pub(super) fn resolve_error(cause: &ResolveError, id: Option<Id<'_>>) -> Reply {
    match cause {
        ResolveError::Store(cause) => store(cause, id),
        ResolveError::NoInstance(cause) => unavailable(&cause.into(), id),
        ResolveError::Unsettled => plain(ErrorKind::UpstreamUnavailable, id),
        ResolveError::Handshake(cause) => handshake(cause, id),
        ResolveError::ParamsGone | ResolveError::LostByPolicy => {
            plain(ErrorKind::SessionNotFound, id)
        }
        ResolveError::Name(cause) => {
            tracing::error!(%cause, "a name of the gateway's own making was refused");
            plain(ErrorKind::Internal, id)
        }
    }
}

/// No instance could be reached, and this is why. Nothing ran.
fn unavailable(cause: &FailureCause, id: Option<Id<'_>>) -> Reply {
    error(
        &ErrorBody::new(ErrorKind::UpstreamUnavailable)
            .answering(id)
            .detail(cause),
    )
}

/// A call did not get its turn. Nothing of it was done.
pub(super) fn turn_error(cause: &TurnError, id: Option<Id<'_>>) -> Reply {
    match cause {
        TurnError::Store(cause) => store(cause, id),
        TurnError::Busy => plain(ErrorKind::TurnBusy, id),
        TurnError::Withdrawn => empty_event_stream(),
        TurnError::TooMany => error(
            &ErrorBody::new(ErrorKind::TooManyRequests)
                .answering(id)
                .detail(cause),
        ),
        TurnError::Name(cause) => {
            tracing::error!(%cause, "a name of the gateway's own making was refused");
            plain(ErrorKind::Internal, id)
        }
    }
}

/// What a call gets that its client has cancelled: no client waits for an answer (MCP 2025-11-25, cancellation).
fn empty_event_stream() -> Reply {
    Reply::events(stream::empty())
}

/// A stream of the session cannot be opened here.
pub(super) fn hold_error(cause: &HoldError) -> Reply {
    match cause {
        HoldError::Taken => plain(ErrorKind::StreamConflict, None),
        HoldError::Draining => plain(ErrorKind::ShuttingDown, None),
        HoldError::Store(cause) => store(cause, None),
        HoldError::Name(cause) => {
            tracing::error!(%cause, "a name of the gateway's own making was refused");
            plain(ErrorKind::Internal, None)
        }
    }
}

/// A session could not be opened.
pub(super) fn open_error(cause: &OpenError, id: Option<Id<'_>>) -> Reply {
    match cause {
        cause @ OpenError::ParamsTooLong(_) => error(
            &ErrorBody::new(ErrorKind::InvalidParams)
                .answering(id)
                .detail(cause),
        ),
        cause @ OpenError::TooFast { retry_after, .. } => {
            let mut reply = error(
                &ErrorBody::new(ErrorKind::TooManyRequests)
                    .answering(id)
                    .detail(cause),
            );
            let seconds = retry_after.get().div_ceil(1000).max(1);
            reply.retry_after = Some(seconds.into());
            reply
        }
        // The only argument that is the client's own: its params.
        OpenError::Store(StoreError::Refused(refusal @ Refusal::Argument(_))) => error(
            &ErrorBody::new(ErrorKind::InvalidParams)
                .answering(id)
                .detail(refusal),
        ),
        OpenError::Store(cause) => store(cause, id),
        OpenError::Resolve(cause) => resolve_error(cause, id),
        cause @ (OpenError::AtCap(_) | OpenError::Displaced) => error(
            &ErrorBody::new(ErrorKind::TooManyRequests)
                .answering(id)
                .detail(cause),
        ),
        OpenError::Name(cause) => {
            tracing::error!(%cause, "a name of the gateway's own making was refused");
            plain(ErrorKind::Internal, id)
        }
    }
}

/// The instance refused the handshake. Its own error goes to the client: it is about the client's params.
fn handshake(cause: &HandshakeError, id: Option<Id<'_>>) -> Reply {
    match cause {
        HandshakeError::Refused(answer) => refused(answer, id),
        HandshakeError::Exchange(cause) => exchange(cause, id),
        HandshakeError::SessionAssigned => error(
            &ErrorBody::new(ErrorKind::SessionMissing)
                .answering(id)
                .detail("the server assigns session ids by now: initialize again"),
        ),
        HandshakeError::SessionId(_) => {
            tracing::warn!(%cause, "a session was not begun");
            error(
                &ErrorBody::new(ErrorKind::UpstreamInvalid)
                    .answering(id)
                    .detail(cause),
            )
        }
    }
}

fn refused(answer: &Answer, id: Option<Id<'_>>) -> Reply {
    let own_error = answer
        .message()
        .and_then(|message| message.outcome().map(str::to_owned));
    match (own_error, id) {
        (Some(outcome), Some(id)) => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{outcome}}}"#,
                id.as_json()
            );
            Reply::json(StatusCode::OK, body)
        }
        _ => error(&refused_without_error(answer.status).answering(id)),
    }
}

/// What a status says where the answer to `initialize` holds no JSON-RPC error.
fn refused_without_error(status: StatusCode) -> ErrorBody<'static> {
    if status.is_success() {
        return ErrorBody::new(ErrorKind::UpstreamInvalid)
            .detail("its answer to initialize is no JSON-RPC response");
    }
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; check the credentials that the gateway sends it (servers.headers)"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "; check the path of its URL (servers.instances)"
        }
        _ => "",
    };
    ErrorBody::new(ErrorKind::UpstreamRefused).detail(format_args!(
        "initialize was answered with HTTP status {status}{advice}"
    ))
}

/// An answer of the upstream could not be read.
pub(super) fn exchange(cause: &ExchangeError, id: Option<Id<'_>>) -> Reply {
    tracing::warn!(%cause, "an upstream's answer could not be read");
    let kind = match cause {
        ExchangeError::Send(sent) if sent.is_undelivered() => {
            return unavailable(&cause.into(), id);
        }
        ExchangeError::TimedOut(_) => ErrorKind::UpstreamTimeout,
        _ => ErrorKind::UpstreamInvalid,
    };
    plain(kind, id)
}

/// A message was not delivered, or its answer not received.
pub(super) fn delivery_error(cause: &DeliverError, id: Option<Id<'_>>) -> Reply {
    match cause {
        DeliverError::Resolve(cause) => resolve_error(cause, id),
        DeliverError::Answer(cause) => exchange(cause, id),
        DeliverError::Unreachable(cause) => {
            tracing::warn!(%cause, "an instance cannot be reached");
            unavailable(&cause.into(), id)
        }
        DeliverError::OutcomeUnknown { moved } => outcome_unknown(moved.as_ref(), id),
        DeliverError::Lost => error(
            &ErrorBody::new(ErrorKind::AnswerUnexpected)
                .answering(id)
                .detail("the upstream session that asked is gone"),
        ),
    }
}

fn outcome_unknown(moved: Option<&RebindNotice>, id: Option<Id<'_>>) -> Reply {
    let body = ErrorBody::new(ErrorKind::OutcomeUnknown).answering(id);
    let body = match moved {
        Some(moved) => {
            let told = moved.told().to_json();
            body.data_json(format!(r#"{{"mooring/rebound":{told}}}"#))
        }
        None => body,
    };
    error(&body)
}

/// A request of a session that is not kept got no response.
pub(super) fn pool_error(cause: &PooledError, id: Option<Id<'_>>) -> Reply {
    match cause {
        PooledError::NoInstance(cause) => unavailable(&cause.into(), id),
        PooledError::Handshake(cause) => handshake(cause, id),
        PooledError::OutcomeUnknown(_) => plain(ErrorKind::OutcomeUnknown, id),
        PooledError::Answer(cause) => exchange(cause, id),
    }
}

/// The answer to a GET or DELETE at a server that is the gateway itself.
pub(super) fn only_post() -> Reply {
    Reply {
        allow: Some("POST"),
        ..error(
            &ErrorBody::new(ErrorKind::MethodNotAllowed)
                .detail("this server keeps no MCP sessions; everything is a POST"),
        )
    }
}
