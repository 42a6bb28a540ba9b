//! Reversible, stateless rewriting of JSON-RPC ids and progress tokens.
//!
//! | id | wire form | read by |
//! |---|---|---|
//! | a client's request, seen by the upstream | `"c:<tag>:<the id as JSON>"` | the client, after it is restored |
//! | the same in a cancellation, if only the owner of the connection knows the tag | `"c::<the id as JSON>"` | the owner |
//! | a request of the gateway itself | `"<boot id>:<n>"` | the gateway |
//! | an upstream's request, seen by the client | `"s:<epoch>:<the id as JSON>"` | the upstream, after it is restored |
//! | the same if the fleet has keys | `"s:<epoch>.<seal>:<the id as JSON>"` | the same, after the seal is verified |
//!
//! Invariant: restoring an id yields the bytes that its owner wrote (so `1` and `"1"`, `"A"` and `"\u0041"` stay
//! distinct), whatever escapes the other side used. Any gateway can restore it, because only the text is needed.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use memchr::memchr2_iter;
use thiserror::Error;

/// Longest id or progress token of a client or upstream, in bytes of JSON text.
pub const ID_BYTES_MAX: usize = 1024;

/// Longest rewritten id, in bytes of JSON text. Writing every character as a `\uXXXX` escape makes six bytes of one,
/// and the rewrite itself at most doubles an id.
pub const WIRE_ID_BYTES_MAX: usize = 14 * ID_BYTES_MAX;

/// Length limits of a boot id: a single character could be mistaken for a rewrite's prefix.
const BOOT_ID_CHARS: std::ops::RangeInclusive<usize> = 2..=128;

/// Why a JSON value is not a valid id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IdError {
    /// Null, a fraction, a boolean, an object or an array (MCP 2025-03-26, base protocol, requests).
    #[error("an id must be a string or an integer")]
    Type,
    /// Longer than [`ID_BYTES_MAX`], or [`WIRE_ID_BYTES_MAX`] in rewritten form.
    #[error("an id must not be longer than {ID_BYTES_MAX} bytes")]
    TooLong,
}

/// A valid id as its owner wrote it: the JSON text of a string or an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// Wraps the text of a JSON value that was parsed before.
    pub(super) fn of_value(raw: &'a str, bytes_max: usize) -> Result<Self, IdError> {
        if raw.len() > bytes_max {
            return Err(IdError::TooLong);
        }
        let integer = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if raw.starts_with('"') || integer(raw) {
            Ok(Self(raw))
        } else {
            Err(IdError::Type)
        }
    }

    /// Parses an id from any text.
    ///
    /// # Errors
    /// [`IdError`], including for text that is not JSON.
    pub fn from_json(raw: &'a str) -> Result<Self, IdError> {
        let id = Self::of_value(raw, ID_BYTES_MAX)?;
        match serde_json::from_str::<serde::de::IgnoredAny>(raw) {
            Ok(_) => Ok(id),
            Err(_) => Err(IdError::Type),
        }
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &'a str {
        self.0
    }
}

/// Distinguishes clients that share a session or a pooled upstream session: unique per client in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(pub u64);

/// Distinguishes one request of one client from every other request of all clients, also from those with the same id:
/// 128 bits, written as 32 hexadecimal digits. Clients reuse ids, and a reply that reaches the wrong request must not be
/// mistaken for its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestTag(pub u128);

impl RequestTag {
    /// Parses a tag; only the canonical spelling is accepted.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hexadecimal(text, TAG_CHARS).map(Self)
    }
}

impl fmt::Display for RequestTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for RequestTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RequestTag({self})")
    }
}

/// The length of a written tag.
const TAG_CHARS: usize = 32;

/// The epoch of a binding, incremented by every rebind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Proof that the gateway made this id for this client: 128 bits, written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub u128);

/// The length of a written seal.
const SEAL_CHARS: usize = 32;

impl Seal {
    /// Parses a seal; only the canonical spelling is accepted.
    pub(super) fn parse(text: &str) -> Option<Self> {
        hexadecimal(text, SEAL_CHARS).map(Self)
    }
}

/// Parses exactly `digits` lower-case hexadecimal digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_canonical = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_canonical))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// The owner of a rewritten id, with the data needed to restore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A client's id, as sent to an upstream. Without a tag the owner of the connection adds it.
    Client(Option<RequestTag>),
    /// An upstream's id, as sent to a client.
    Server(Epoch, Option<Seal>),
}

/// An id with its owner, to be written in rewritten form.
#[derive(Debug, Clone, Copy)]
pub(super) struct RewrittenId<'a> {
    /// The owner.
    pub(super) owner: Owner,
    /// The id.
    pub(super) id: Id<'a>,
}

impl RewrittenId<'_> {
    /// The exact length of the output of [`RewrittenId::write`], in bytes.
    pub(super) fn len(&self) -> usize {
        let prefix = match self.owner {
            Owner::Client(None) => "c::".len(),
            Owner::Client(Some(_)) => "c::".len() + TAG_CHARS,
            Owner::Server(Epoch(epoch), None) => "s::".len() + digits(epoch),
            Owner::Server(Epoch(epoch), Some(_)) => "s:.:".len() + digits(epoch) + SEAL_CHARS,
        };
        let text = self.id.0.as_bytes();
        "\"\"".len() + prefix + text.len() + memchr2_iter(b'"', b'\\', text).count()
    }

    /// Writes the JSON string. The text of an id contains no control characters, so only quotes and backslashes are
    /// escaped.
    pub(super) fn write(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self.owner {
            Owner::Client(None) => out.write_str("\"c::"),
            Owner::Client(Some(tag)) => write!(out, "\"c:{tag}:"),
            Owner::Server(Epoch(epoch), None) => write!(out, "\"s:{epoch}:"),
            Owner::Server(Epoch(epoch), Some(Seal(seal))) => {
                write!(out, "\"s:{epoch}.{seal:032x}:")
            }
        };
        let mut rest = self.id.0;
        while let Some(at) = rest.find(['"', '\\']) {
            let (plain, special) = rest.split_at(at);
            let (special, after) = special.split_at(1);
            out.push_str(plain);
            out.push('\\');
            out.push_str(special);
            rest = after;
        }
        out.push_str(rest);
        out.push('"');
    }
}

/// The number of decimal digits.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The origin of the request to which an upstream's response or progress notification refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOrigin<'a> {
    /// A client; `id` is the JSON text that the client wrote.
    Client {
        /// The client's own id as JSON.
        id: Cow<'a, str>,
        /// The request's tag; `None` only in a cancellation.
        tag: Option<RequestTag>,
    },
    /// The gateway itself; the response must not reach any client.
    Gateway {
        /// The boot id of the gateway that sent the request.
        boot: Cow<'a, str>,
        /// The request's number at that gateway.
        sequence: u64,
    },
    /// None: an error with `id: null` or without an id.
    Nobody,
    /// Unknown: an id that no gateway has written.
    Foreign,
}

impl<'a> RequestOrigin<'a> {
    /// Parses the id of an upstream's response, given as the text of a JSON value.
    #[must_use]
    pub fn of_value(raw: &'a str) -> Self {
        Self::of_decoded(decode(raw)).unwrap_or(Self::Foreign)
    }

    /// Whether a gateway has sent the request.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Client { .. } | Self::Gateway { .. })
    }

    /// Parses an id that is given as the content of its JSON string.
    #[must_use]
    pub fn of_text(text: &'a str) -> Self {
        Self::of_decoded(Some(Cow::Borrowed(text))).unwrap_or(Self::Foreign)
    }

    fn of_decoded(text: Option<Cow<'a, str>>) -> Option<Self> {
        let text = text?;
        if let Some(rest) = text.strip_prefix("c:") {
            let (tag, _) = rest.split_once(':')?;
            let at = "c::".len() + tag.len();
            let tag = match tag {
                "" => None,
                tag => Some(RequestTag::parse(tag)?),
            };
            let id = tail(text, at)?;
            Id::from_json(&id).ok()?;
            return Some(Self::Client { id, tag });
        }
        let (boot, sequence) = text.rsplit_once(':')?;
        if !is_boot_id(boot) {
            return None;
        }
        let (sequence, boot_len) = (decimal(sequence)?, boot.len());
        let boot = match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.get(..boot_len)?),
            Cow::Owned(mut text) => {
                text.truncate(boot_len);
                Cow::Owned(text)
            }
        };
        Some(Self::Gateway { boot, sequence })
    }
}

/// A client's request that waits for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// The id as the client wrote it.
    pub id_json: Arc<str>,
    /// The tag under which it was sent.
    pub tag: RequestTag,
}

impl PendingRequest {
    /// Whether a response with an id of this origin answers this request.
    #[must_use]
    pub fn is_answered(&self, origin: &RequestOrigin<'_>) -> bool {
        match origin {
            RequestOrigin::Client { id, tag } => *tag == Some(self.tag) && **id == *self.id_json,
            _ => false,
        }
    }
}

/// The id of a server-to-client request as a client returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRequestId<'a> {
    /// The epoch of the binding over which the request came. An answer for an earlier epoch belongs to an upstream
    /// session that is gone, and must be refused.
    pub epoch: Epoch,
    /// The upstream's own id as JSON.
    pub id: Cow<'a, str>,
    /// The id's seal, which must be verified if the fleet has keys.
    pub seal: Option<Seal>,
}

impl<'a> ServerRequestId<'a> {
    /// Restores the id; `None` for an id that no gateway has written.
    pub(super) fn of_value(raw: &'a str) -> Option<Self> {
        let text = decode(raw)?;
        let (head, _) = text.strip_prefix("s:")?.split_once(':')?;
        let at = "s:".len() + head.len() + ":".len();
        let (epoch, seal) = match head.split_once('.') {
            Some((epoch, seal)) => (epoch, Some(Seal::parse(seal)?)),
            None => (head, None),
        };
        let epoch = Epoch(decimal(epoch)?);
        let id = tail(text, at)?;
        Id::from_json(&id).ok()?;
        Some(Self { epoch, id, seal })
    }
}

/// A client's id in the form in which its upstream sees it, as a JSON string.
#[must_use]
pub fn tagged_id(tag: RequestTag, id: Id<'_>) -> String {
    let owner = Owner::Client(Some(tag));
    let rewritten = RewrittenId { owner, id };
    let mut out = String::with_capacity(rewritten.len());
    rewritten.write(&mut out);
    out
}

/// Whether two JSON texts are the same id: the same string, whatever escapes its sender used, or the same integer.
#[must_use]
pub fn is_same_id(one: &str, other: &str) -> bool {
    one == other || decode(one).is_some_and(|one| decode(other) == Some(one))
}

/// The id of a request of the gateway itself: `<boot id>:<n>` as a JSON string.
///
/// Returns `None` for a boot id that is not 2 to 128 letters, digits, `.`, `_` or `-`.
#[must_use]
pub fn gateway_id(boot: &str, sequence: u64) -> Option<String> {
    is_boot_id(boot).then(|| format!("\"{boot}:{sequence}\""))
}

fn is_boot_id(boot: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    BOOT_ID_CHARS.contains(&boot.len()) && boot.bytes().all(allowed)
}

/// Parses a decimal number in canonical spelling.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

/// The text from `at` on, borrowed if possible.
fn tail(text: Cow<'_, str>, at: usize) -> Option<Cow<'_, str>> {
    match text {
        Cow::Borrowed(text) => text.get(at..).map(Cow::Borrowed),
        Cow::Owned(mut text) => {
            text.is_char_boundary(at).then(|| text.drain(..at));
            Some(Cow::Owned(text))
        }
    }
}

/// The content of a JSON string, copied only if it has escapes; `None` for other values.
pub(super) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}
