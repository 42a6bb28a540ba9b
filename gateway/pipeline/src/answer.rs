//! The gateway's own errors: the one module that maps failures to a status and a body.
//!
//! Two messages: the caller's says what to do, the log's says what happened. Neither contains a session id.

use std::fmt::Display;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderValue, StatusCode};
use mooring_session::Refusal;
use mooring_session::names::NameError;
use mooring_session::refusal::{Busy, Stale};

use mooring_identity::IdentityError;
use mooring_protocol::ids::Id;
use mooring_protocol::mark::STATE_LOST;
use mooring_protocol::{ErrorBody, ErrorKind, Reply, ReplyError, call};
use mooring_router::affinity::{HoldError, OpenError, RebindNotice, ResolveError, TurnError};
use mooring_router::dispatch::DeliverError;
use mooring_router::pooled::PooledError;
use mooring_store::{StoreError, TurnHolder};
use mooring_upstream::{
    Answer, CredentialError, ExchangeError, FailureCause, HandshakeError, SendError,
    TokenExchangeError, UserSecretError,
};
use mooring_usage::{NoRoom, TooManyCalls};

/// Seconds after which a client should retry: a gateway reconnects to a recovered store well within that.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The limit of sessions of one user.
const SESSIONS_LIMIT: &str = "affinity.max_sessions_per_principal";

/// A reply with a JSON-RPC error.
#[must_use]
pub fn error(body: &ErrorBody<'_>) -> Reply {
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

/// Adds the session id to the reply.
pub(crate) fn with_session_id(reply: Reply, id: &str) -> Reply {
    Reply {
        session_id: HeaderValue::from_str(id).ok(),
        ..reply
    }
}

/// An error of this kind without details, to the request with this id.
#[must_use]
pub fn plain(kind: ErrorKind, id: Option<Id<'_>>) -> Reply {
    error(&ErrorBody::new(kind).answering(id))
}

/// An error of this kind to the request with this id, and what is wrong.
#[must_use]
pub fn detailed(kind: ErrorKind, id: Option<Id<'_>>, detail: impl Display) -> Reply {
    error(&ErrorBody::new(kind).answering(id).detail(detail))
}

/// The sender has sent too many requests, and has to wait this long.
#[must_use]
pub fn too_many_requests(wait: Duration) -> Reply {
    let detail = "the limit of requests within a minute (listen.requests_per_user_per_minute)";
    Reply {
        retry_after: Some(HeaderValue::from(seconds_of(wait))),
        refused_by: Some("listen.requests_per_user_per_minute"),
        ..detailed(ErrorKind::TooManyRequests, None, detail)
    }
}

/// The sender has too many calls in progress. Nothing was executed.
#[must_use]
pub fn too_many_calls(cause: TooManyCalls, id: Option<Id<'_>>) -> Reply {
    let detail = format_args!("{cause}, as many as listen.calls_per_user_at_once allows");
    Reply {
        refused_by: Some("listen.calls_per_user_at_once"),
        ..detailed(ErrorKind::TooManyRequests, id, detail)
    }
}

/// There is no memory for a text that was made from the message. Nothing was executed.
pub(crate) fn no_room(cause: NoRoom, id: Option<Id<'_>>) -> Reply {
    detailed(ErrorKind::Overloaded, id, cause)
}

/// A reply could not be read completely, so nothing of it is forwarded. Its request has run.
pub(crate) fn unread(cause: &ReplyError) -> Reply {
    match cause {
        ReplyError::NoRoom(_) => detailed(ErrorKind::OutcomeUnknown, None, cause),
        _ => plain(ErrorKind::UpstreamInvalid, None),
    }
}

/// A wait in whole seconds, at least one.
#[must_use]
pub fn seconds_of(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The sender is not authenticated.
#[must_use]
pub fn identity_error(cause: IdentityError) -> ErrorBody<'static> {
    let kind = match cause.status() {
        StatusCode::FORBIDDEN => ErrorKind::Forbidden,
        StatusCode::BAD_REQUEST => ErrorKind::CredentialsInvalid,
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::AuthenticationUnavailable,
        _ => ErrorKind::Unauthenticated,
    };
    ErrorBody::new(kind).detail(cause)
}

/// An error of the store. Unknown, expired, ended and foreign sessions look the same to clients.
pub(crate) fn store(cause: &StoreError, id: Option<Id<'_>>) -> Reply {
    match cause {
        StoreError::Refused(Refusal::NoSession | Refusal::Ended | Refusal::Denied) => {
            plain(ErrorKind::SessionNotFound, id)
        }
        StoreError::Refused(refusal @ Refusal::Limit { .. }) => {
            detailed(ErrorKind::TooManyRequests, id, refusal)
        }
        // The refusal contains another session's key, which must not be disclosed.
        StoreError::Refused(Refusal::Cap { .. }) => Reply {
            refused_by: Some(SESSIONS_LIMIT),
            ..plain(ErrorKind::TooManyRequests, id)
        },
        // A draining gateway makes no new owned bindings; another gateway does.
        StoreError::Refused(Refusal::Busy(Busy::Draining)) => plain(ErrorKind::ShuttingDown, id),
        // This gateway counts as dead until its next heartbeat, which another process of its name may keep from it.
        StoreError::Refused(Refusal::Stale(Stale::Worker)) => {
            tracing::warn!(%cause, "request not served: the store has no heartbeat of this gateway");
            plain(ErrorKind::StoreUnavailable, id)
        }
        StoreError::Refused(refusal) => {
            tracing::error!(%refusal, "the store refused a command of the gateway");
            plain(ErrorKind::Internal, id)
        }
        cause => {
            tracing::warn!(%cause, "request not served: the store failed");
            plain(ErrorKind::StoreUnavailable, id)
        }
    }
}

/// A session has no usable binding.
pub(crate) fn resolve_error(cause: &ResolveError, id: Option<Id<'_>>) -> Reply {
    match cause {
        ResolveError::Store(cause) => store(cause, id),
        ResolveError::NoInstance(cause) => unavailable(&cause.into(), id),
        ResolveError::Parked => detailed(ErrorKind::UpstreamUnavailable, id, cause),
        ResolveError::ClaimPending => plain(ErrorKind::UpstreamUnavailable, id),
        ResolveError::Handshake(cause) => handshake(cause, id),
        ResolveError::ParamsGone | ResolveError::LostByPolicy => {
            plain(ErrorKind::SessionNotFound, id)
        }
        ResolveError::Name(cause) => invalid_name(cause, id),
    }
}

/// A name that the gateway has made is none, which does not happen.
fn invalid_name(cause: &NameError, id: Option<Id<'_>>) -> Reply {
    tracing::error!(%cause, "a name generated by the gateway is invalid");
    plain(ErrorKind::Internal, id)
}

/// No instance is reachable. Nothing was executed.
fn unavailable(cause: &FailureCause, id: Option<Id<'_>>) -> Reply {
    detailed(ErrorKind::UpstreamUnavailable, id, cause)
}

/// A message was not delivered to its instance.
fn undelivered(cause: &SendError, id: Option<Id<'_>>) -> Reply {
    match cause {
        // Waiting does not help.
        SendError::Redirected { .. } => detailed(
            ErrorKind::UpstreamRefused,
            id,
            format_args!("{cause}; name that in servers.instances"),
        ),
        _ => unavailable(&cause.into(), id),
    }
}

/// A call did not get its turn. Nothing was executed.
pub(crate) fn turn_error(cause: &TurnError, id: Option<Id<'_>>) -> Reply {
    match cause {
        TurnError::Store(cause) => store(cause, id),
        TurnError::Busy { holder } => {
            detailed(ErrorKind::TurnBusy, id, turn_advice(holder.as_ref()))
        }
        TurnError::Withdrawn => empty_event_stream(),
        TurnError::TooMany => Reply {
            refused_by: Some("calls that wait for a turn"),
            ..detailed(ErrorKind::TooManyRequests, id, cause)
        },
        TurnError::Name(cause) => invalid_name(cause, id),
    }
}

/// Advice for a call that waited for its turn in vain: what it waited for, and what to do.
fn turn_advice(holder: Option<&TurnHolder>) -> String {
    let held = match holder {
        Some(TurnHolder { worker, held_for }) => format!(
            "the call before it has run for {} s through gateway {}",
            held_for.get() / 1000,
            worker.name(),
        ),
        None => "the call before it still runs".to_owned(),
    };
    format!(
        "{held}; cancel it (notifications/cancelled), DELETE the session, or set concurrency = \"parallel\" for the server"
    )
}

/// The reply to a call that its client cancelled: the client ignores any response (MCP 2025-11-25, cancellation).
fn empty_event_stream() -> Reply {
    Reply::events(stream::empty())
}

/// A stream of the session cannot be opened at this gateway.
pub(crate) fn hold_error(cause: &HoldError) -> Reply {
    match cause {
        HoldError::Taken => plain(ErrorKind::StreamConflict, None),
        HoldError::Draining => plain(ErrorKind::ShuttingDown, None),
        HoldError::Store(cause) => store(cause, None),
        HoldError::Name(cause) => invalid_name(cause, None),
    }
}

/// A session could not be opened.
pub(crate) fn open_error(cause: &OpenError, id: Option<Id<'_>>) -> Reply {
    match cause {
        cause @ OpenError::ParamsTooLong(_) => detailed(ErrorKind::InvalidParams, id, cause),
        cause @ OpenError::TooFast { retry_after, .. } => {
            let mut reply = detailed(ErrorKind::TooManyRequests, id, cause);
            let seconds = retry_after.get().div_ceil(1000).max(1);
            reply.retry_after = Some(seconds.into());
            reply.refused_by = Some("affinity.initializes_per_minute");
            reply
        }
        // The only argument that the client supplies: its params.
        OpenError::Store(StoreError::Refused(refusal @ Refusal::Argument(_))) => {
            detailed(ErrorKind::InvalidParams, id, refusal)
        }
        OpenError::Store(cause) => store(cause, id),
        OpenError::Resolve(cause) => resolve_error(cause, id),
        cause @ (OpenError::AtCap(_) | OpenError::Displaced) => Reply {
            refused_by: Some(SESSIONS_LIMIT),
            ..detailed(ErrorKind::TooManyRequests, id, cause)
        },
        OpenError::Name(cause) => invalid_name(cause, id),
    }
}

/// The instance refused the handshake. Its error is relayed to the client, since it is about the client's params.
fn handshake(cause: &HandshakeError, id: Option<Id<'_>>) -> Reply {
    match cause {
        HandshakeError::Refused(answer) => refused(answer, id),
        HandshakeError::Exchange(cause) => exchange(cause, id),
        HandshakeError::SessionAssigned => detailed(
            ErrorKind::SessionMissing,
            id,
            "the server assigns session ids by now: initialize again",
        ),
        HandshakeError::SessionId(_) => {
            tracing::warn!(%cause, "initialize handshake with the upstream failed");
            detailed(ErrorKind::UpstreamInvalid, id, cause)
        }
    }
}

fn refused(answer: &Answer, id: Option<Id<'_>>) -> Reply {
    let own_error = answer
        .message()
        .and_then(|message| message.outcome().map(str::to_owned));
    match (own_error, id) {
        (Some(outcome), Some(id)) => {
            Reply::json(StatusCode::OK, call::error(id.as_json(), &outcome))
        }
        _ => error(&refused_without_error(answer.status).answering(id)),
    }
}

/// The error for an HTTP status where the reply to `initialize` is no JSON-RPC error.
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

/// An upstream's reply could not be read.
pub(crate) fn exchange(cause: &ExchangeError, id: Option<Id<'_>>) -> Reply {
    if let ExchangeError::Send(SendError::Credential(cause)) = cause {
        return no_credential(cause, id);
    }
    tracing::warn!(%cause, "an upstream's reply could not be read");
    let kind = match cause {
        ExchangeError::Send(sent) if sent.is_undelivered() => return undelivered(sent, id),
        ExchangeError::Send(SendError::Invalid(cause)) => {
            return detailed(ErrorKind::UpstreamInvalid, id, cause);
        }
        ExchangeError::TimedOut(_) => ErrorKind::UpstreamTimeout,
        ExchangeError::Body(_) => ErrorKind::OutcomeUnknown,
        ExchangeError::Invalid(cause) => {
            return detailed(ErrorKind::UpstreamInvalid, id, cause);
        }
        _ => ErrorKind::UpstreamInvalid,
    };
    plain(kind, id)
}

/// There is no token of the server's authorization server for the caller, or no secret of theirs. Nothing was executed.
fn no_credential(cause: &CredentialError, id: Option<Id<'_>>) -> Reply {
    use TokenExchangeError as T;
    use UserSecretError as S;
    let kind = match cause {
        CredentialError::Token(T::NoToken | T::Refused(_)) => ErrorKind::Forbidden,
        // A client that renews its token may try again.
        CredentialError::Token(T::Expired) => ErrorKind::Unauthenticated,
        CredentialError::Token(T::GatewayRefused(_)) => ErrorKind::UpstreamRefused,
        CredentialError::Token(T::Unavailable) => ErrorKind::UpstreamUnavailable,
        // What has no id, such as a stream, gets no response that its user could see.
        CredentialError::Secret(S::Missing | S::Unreadable) if id.is_none() => ErrorKind::Forbidden,
        CredentialError::Secret(S::Missing | S::Unreadable) => ErrorKind::CredentialMissing,
        CredentialError::Secret(S::Unavailable) => ErrorKind::StoreUnavailable,
    };
    detailed(kind, id, cause)
}

/// A message was not delivered, or its reply not received.
pub(crate) fn delivery_error(cause: &DeliverError, id: Option<Id<'_>>) -> Reply {
    match cause {
        DeliverError::Resolve(cause) => resolve_error(cause, id),
        DeliverError::Answer(cause) => exchange(cause, id),
        DeliverError::Unreachable(SendError::Credential(cause)) => no_credential(cause, id),
        DeliverError::Unreachable(SendError::TurnLost) => detailed(
            ErrorKind::TurnBusy,
            id,
            "its turn lapsed before it could be sent, because the store answers this gateway late; repeat the call",
        ),
        DeliverError::Unreachable(cause) => {
            tracing::warn!(%cause, "instance unreachable");
            undelivered(cause, id)
        }
        DeliverError::OutcomeUnknown { moved } => {
            let body = ErrorBody::new(ErrorKind::OutcomeUnknown).answering(id);
            let body = match moved {
                Some(_) => body.detail(STATE_LOST),
                None => body,
            };
            error(&with_notice(body, moved.as_ref()))
        }
        DeliverError::LostAgain { moved } => {
            tracing::warn!(%cause, "message not delivered");
            let body = ErrorBody::new(ErrorKind::UpstreamUnavailable).answering(id);
            error(&with_notice(body.detail(cause), moved.as_ref()))
        }
        DeliverError::Lost => detailed(
            ErrorKind::AnswerUnexpected,
            id,
            "the upstream session that asked is gone",
        ),
    }
}

/// The error with the notice of a move as its data.
fn with_notice<'a>(body: ErrorBody<'a>, moved: Option<&RebindNotice>) -> ErrorBody<'a> {
    match moved {
        Some(moved) => {
            let told = moved.to_mark().to_json();
            body.data_json(format!(r#"{{"mooring/rebound":{told}}}"#))
        }
        None => body,
    }
}

/// A request of a stateless session got no response.
pub(crate) fn pool_error(cause: &PooledError, id: Option<Id<'_>>) -> Reply {
    match cause {
        PooledError::NoInstance(cause) => unavailable(&cause.into(), id),
        PooledError::Parked => detailed(ErrorKind::UpstreamUnavailable, id, cause),
        PooledError::Handshake(cause) => handshake(cause, id),
        PooledError::OutcomeUnknown(_) => plain(ErrorKind::OutcomeUnknown, id),
        PooledError::Answer(cause) => exchange(cause, id),
    }
}

/// The reply to GET or DELETE at a code or agent server.
pub(crate) fn only_post() -> Reply {
    Reply {
        allow: Some("POST"),
        ..detailed(
            ErrorKind::MethodNotAllowed,
            None,
            "this server keeps no MCP sessions; everything is a POST",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_credential_says_who_can_help() {
        use TokenExchangeError as T;
        use UserSecretError as S;
        for (cause, status) in [
            (T::NoToken.into(), StatusCode::FORBIDDEN),
            (
                T::Refused("invalid_target".into()).into(),
                StatusCode::FORBIDDEN,
            ),
            (T::Expired.into(), StatusCode::UNAUTHORIZED),
            (
                T::GatewayRefused("invalid_client".into()).into(),
                StatusCode::BAD_GATEWAY,
            ),
            (T::Unavailable.into(), StatusCode::SERVICE_UNAVAILABLE),
            (S::Missing.into(), StatusCode::FORBIDDEN),
            (S::Unreadable.into(), StatusCode::FORBIDDEN),
            (S::Unavailable.into(), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let cause: CredentialError = cause;
            let sent = || SendError::Credential(cause.clone());
            let by_call = delivery_error(&DeliverError::Unreachable(sent()), None);
            let by_handshake = handshake(&HandshakeError::Exchange(sent().into()), None);
            let by_pool = pool_error(&PooledError::Answer(sent().into()), None);
            for reply in [by_call, by_handshake, by_pool] {
                assert_eq!(reply.status, status, "{cause}");
            }
        }
    }
}
