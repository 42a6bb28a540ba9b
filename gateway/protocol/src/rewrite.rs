//! Rewrites a message on its way up to a server or down to a client, by splicing.
//!
//! Invariant: only ids and progress tokens change, and every change in one direction is reverted in the other (`ids.rs`
//! has the forms). A message that needs no change is not copied.

use std::borrow::Cow;

use bytes::Bytes;
use thiserror::Error;

use super::envelope::{Kind, Message};
use super::ids::{
    ID_BYTES_MAX, Id, IdError, RequestOrigin, RequestTag, RewrittenId, ServerRequestId,
};
use super::marker::{IdScope, Marker};
use super::method::Method;
use super::splice::{Edit, Fill, span_of, splice};

/// Why a message cannot be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RewriteError {
    /// A response whose id this gateway has not given to the client.
    #[error("the id of the response belongs to no request of the server")]
    UnknownRequest,
    /// Progress with a token that this gateway has not given to the client.
    #[error("the progress token belongs to no request of the server")]
    UnknownProgressToken,
    /// A progress token, or a cancellation's `requestId`, that is not a valid id.
    #[error("`{field}` is not valid: {source}")]
    Token {
        /// The field's name.
        field: &'static str,
        /// Why it is invalid.
        source: IdError,
    },
    /// The spans do not fit the text, which is a defect of the gateway.
    #[error("the message could not be rewritten")]
    Splice,
}

/// A client's message, rewritten for the upstream.
#[derive(Debug)]
pub struct Upward<'a> {
    /// The JSON text to send.
    pub text: Cow<'a, str>,
    /// For a response or progress: the server-to-client request to which it belongs.
    pub refers_to: Option<ServerRequestId<'a>>,
}

/// An upstream's message, rewritten for the client.
#[derive(Debug)]
pub struct Downward<'a> {
    /// The JSON text to send.
    pub text: Cow<'a, str>,
    /// For a response or progress: the origin of its request. Only messages for a client may be sent to one.
    pub answers: Option<RequestOrigin<'a>>,
}

/// Rewrites a client's message for the upstream. `tag` is that of the request, or of the request that is cancelled; a
/// cancellation without a tag can only be sent to the owner of a connection, which adds it.
///
/// # Errors
/// [`RewriteError`]: the message refers to an id that cannot be restored.
pub fn rewrite_up<'a>(
    message: &Message<'a>,
    tag: Option<RequestTag>,
) -> Result<Upward<'a>, RewriteError> {
    let hiding = IdScope::Client(tag);
    match (message.kind(), message.method()) {
        (Kind::Request, _) => Ok(Upward {
            text: wrap_request(message, hiding)?,
            refers_to: None,
        }),
        (Kind::Notification, Method::Cancelled) => Ok(Upward {
            text: wrap_cancelled(message, hiding)?,
            refers_to: None,
        }),
        (Kind::Notification, Method::Progress) => {
            let token = message.params.progress_token;
            restore_upstream_id(message, token, RewriteError::UnknownProgressToken)
        }
        (Kind::Notification, _) => Ok(Upward {
            text: Cow::Borrowed(message.text),
            refers_to: None,
        }),
        (Kind::Result | Kind::Error, _) => {
            let id = message.id.map(|id| id.as_json());
            restore_upstream_id(message, id, RewriteError::UnknownRequest)
        }
    }
}

/// Rewrites an upstream's message for the client. `marker` belongs to the binding over which it came.
///
/// # Errors
/// [`RewriteError`]: the upstream used an id or a token that the protocol does not allow.
pub fn rewrite_down<'a>(
    message: &Message<'a>,
    marker: &Marker,
) -> Result<Downward<'a>, RewriteError> {
    let hiding = IdScope::Server(marker);
    match (message.kind(), message.method()) {
        (Kind::Request, _) => Ok(Downward {
            text: wrap_request(message, hiding)?,
            answers: None,
        }),
        (Kind::Notification, Method::Cancelled) => Ok(Downward {
            text: wrap_cancelled(message, hiding)?,
            answers: None,
        }),
        (Kind::Notification, Method::Progress) => {
            restore_client_id(message, message.params.progress_token)
        }
        (Kind::Notification, _) => Ok(Downward {
            text: Cow::Borrowed(message.text),
            answers: None,
        }),
        (Kind::Result | Kind::Error, _) => {
            restore_client_id(message, message.id.map(|id| id.as_json()))
        }
    }
}

/// Turns rewritten text into shared bytes: a slice of the body if nothing was changed, otherwise the text's allocation.
#[must_use]
pub fn into_bytes(text: Cow<'_, str>, body: &Bytes) -> Bytes {
    match text {
        Cow::Owned(text) => Bytes::from(text),
        Cow::Borrowed(text) => {
            let whole = std::str::from_utf8(body).ok();
            match whole.and_then(|whole| span_of(whole, text)) {
                Some(span) => body.slice(span),
                None => Bytes::copy_from_slice(text.as_bytes()),
            }
        }
    }
}

/// Rewrites the sender's id and its progress token.
fn wrap_request<'a>(
    message: &Message<'a>,
    hiding: IdScope<'_>,
) -> Result<Cow<'a, str>, RewriteError> {
    let text = message.text;
    let id = message.id.ok_or(RewriteError::Splice)?;
    let id = wrap(text, hiding, id)?;
    let changed = match message.params.meta_progress_token {
        Some(token) => {
            let token = wrap(text, hiding, token_id("progressToken", token)?)?;
            splice(text, &mut [id, token])
        }
        None => splice(text, &mut [id]),
    };
    changed.map(Cow::Owned).ok_or(RewriteError::Splice)
}

/// Rewrites the id of the sender's request that is cancelled. A cancellation without an id, which 2025-11-25 has for
/// tasks, is unchanged.
fn wrap_cancelled<'a>(
    message: &Message<'a>,
    hiding: IdScope<'_>,
) -> Result<Cow<'a, str>, RewriteError> {
    let Some(raw) = message.params.request_id else {
        return Ok(Cow::Borrowed(message.text));
    };
    let edit = wrap(message.text, hiding, token_id("requestId", raw)?)?;
    splice(message.text, &mut [edit])
        .map(Cow::Owned)
        .ok_or(RewriteError::Splice)
}

fn token_id<'a>(field: &'static str, raw: &'a str) -> Result<Id<'a>, RewriteError> {
    Id::of_value(raw, ID_BYTES_MAX).map_err(|source| RewriteError::Token { field, source })
}

fn wrap<'a>(text: &'a str, hiding: IdScope<'_>, id: Id<'a>) -> Result<Edit<'a>, RewriteError> {
    Ok(Edit {
        at: span_of(text, id.as_json()).ok_or(RewriteError::Splice)?,
        with: Fill::Wrapped(RewrittenId {
            owner: hiding.owner(id),
            id,
        }),
    })
}

/// Restores the upstream's own id.
fn restore_upstream_id<'a>(
    message: &Message<'a>,
    raw: Option<&'a str>,
    unknown: RewriteError,
) -> Result<Upward<'a>, RewriteError> {
    let raw = raw.ok_or(unknown)?;
    let request = ServerRequestId::of_value(raw).ok_or(unknown)?;
    Ok(Upward {
        text: replace(message.text, raw, &request.id)?,
        refers_to: Some(request),
    })
}

/// Restores the client's own id. Ids of other origins are unchanged, and the origin is returned.
fn restore_client_id<'a>(
    message: &Message<'a>,
    raw: Option<&'a str>,
) -> Result<Downward<'a>, RewriteError> {
    let answers = raw.map_or(RequestOrigin::Nobody, RequestOrigin::of_value);
    let text = match (&answers, raw) {
        (RequestOrigin::Client { id, .. }, Some(raw)) => replace(message.text, raw, id)?,
        _ => Cow::Borrowed(message.text),
    };
    Ok(Downward {
        text,
        answers: Some(answers),
    })
}

/// The message with another id, given as JSON text, and otherwise unchanged. `None` if it has no id.
#[must_use]
pub fn with_id(message: &Message<'_>, id_json: &str) -> Option<String> {
    let id = message.id()?;
    let text = replace(message.text, id.as_json(), id_json).ok()?;
    Some(text.into_owned())
}

/// A cancellation of another request, given by its id as JSON text, and otherwise unchanged. `None` if it names none.
#[must_use]
pub fn with_request_id(message: &Message<'_>, id_json: &str) -> Option<String> {
    let text = replace(message.text, message.params.request_id?, id_json).ok()?;
    Some(text.into_owned())
}

fn replace<'a>(text: &'a str, part: &str, with: &str) -> Result<Cow<'a, str>, RewriteError> {
    let at = span_of(text, part).ok_or(RewriteError::Splice)?;
    let with = Fill::Text(Cow::Borrowed(with));
    splice(text, &mut [Edit { at, with }])
        .map(Cow::Owned)
        .ok_or(RewriteError::Splice)
}
