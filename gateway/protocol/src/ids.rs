//! Reversible, stateless rewriting of JSON-RPC ids and progress tokens.
//!
//! | id | wire form | read by |
//! |---|---|---|
//! | a client's request, seen by the upstream | `"c:<the id as JSON>"` | the client, after it is restored |
//! | the same over a pooled upstream session that clients share | `"c@<lane>:<the id as JSON>"` | the same |
//! | a request of the gateway itself | `"<boot id>:<n>"` | the gateway |
//! | an upstream's request, seen by the client | `"s:<epoch>:<the id as JSON>"` | the upstream, after it is restored |
//! | the same if the fleet has keys | `"s:<epoch>.<seal>:<the id as JSON>"` | the same, after the seal is verified |
//!
//! Invariant: restoring an id yields the bytes that its owner wrote (so `1` and `"1"`, `"A"` and `"\u0041"` stay
//! distinct), whatever escapes the other side used. Any gateway can restore it, because only the text is needed.

use std::borrow::Cow;
use std::fmt::Write as _;

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

/// Distinguishes clients that share a pooled upstream session: unique per client in that session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(pub u64);

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
        let is_canonical = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == SEAL_CHARS && text.bytes().all(is_canonical))
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

/// The owner of a rewritten id, with the data needed to restore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A client's id, as sent to an upstream.
    Client(Option<Lane>),
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
            Owner::Client(None) => "c:".len(),
            Owner::Client(Some(Lane(lane))) => "c@:".len() + digits(lane),
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
            Owner::Client(None) => out.write_str("\"c:"),
            Owner::Client(Some(Lane(lane))) => write!(out, "\"c@{lane}:"),
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
        /// The client's lane in a pooled upstream session.
        lane: Option<Lane>,
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
    pub(super) fn of_value(raw: &'a str) -> Self {
        Self::of_decoded(decode(raw)).unwrap_or(Self::Foreign)
    }

    /// A copy that does not borrow from the message.
    #[must_use]
    pub fn into_owned(self) -> RequestOrigin<'static> {
        match self {
            Self::Client { id, lane } => RequestOrigin::Client {
                id: Cow::Owned(id.into_owned()),
                lane,
            },
            Self::Gateway { boot, sequence } => RequestOrigin::Gateway {
                boot: Cow::Owned(boot.into_owned()),
                sequence,
            },
            Self::Nobody => RequestOrigin::Nobody,
            Self::Foreign => RequestOrigin::Foreign,
        }
    }

    fn of_decoded(text: Option<Cow<'a, str>>) -> Option<Self> {
        let text = text?;
        if let Some(at) = client_prefix_len(&text) {
            let lane = match text.get("c@".len()..at.checked_sub(1)?) {
                Some(lane) if text.starts_with("c@") => Some(Lane(decimal(lane)?)),
                _ => None,
            };
            let id = tail(text, at)?;
            Id::from_json(&id).ok()?;
            return Some(Self::Client { id, lane });
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

/// The length of a leading `c:` or `c@<lane>:`.
fn client_prefix_len(text: &str) -> Option<usize> {
    if text.starts_with("c:") {
        return Some("c:".len());
    }
    let lane = text.strip_prefix("c@")?.find(':')?;
    Some("c@".len() + lane + ":".len())
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
