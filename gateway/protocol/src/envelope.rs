//! A JSON-RPC message, inspected without copying it.
//!
//! Only the parts that the gateway routes by or rewrites are read: id, method, a few params and some `_meta` keys, all
//! as slices of the original text. Invariant: every JSON parser reads these fields of an accepted message in the same
//! way (they have no duplicate keys), and its id is a string or an integer of bounded length.

use std::borrow::Cow;

use serde::de::MapAccess;
use thiserror::Error;

use super::ids::{ID_BYTES_MAX, Id, IdError, WIRE_ID_BYTES_MAX, decode};
use super::keys::{Members, Object, ObjectSeed, Shape, is_deeper_than, is_json, read_object};
use super::method::Method;

/// Nesting limit of objects and arrays in a client's message. It protects upstreams that parse JSON recursively; the
/// gateway does not, so it sets no limit for upstreams.
pub const NESTING_MAX: usize = 128;

/// The `_meta` key with which a request declares a revision without sessions (MCP 2026-07-28).
pub const MODERN_VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The author of a message. Clients must conform to the specification; real upstreams deviate in known, harmless ways
/// (an error without an id, no `jsonrpc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The MCP client, downstream of the gateway.
    Client,
    /// The gateway itself, which has rewritten a validated message of a client.
    Gateway,
    /// The MCP server, upstream of the gateway.
    Upstream,
}

/// The kind of a message, according to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A method and an id.
    Request,
    /// A method without an id.
    Notification,
    /// A result.
    Result,
    /// An error.
    Error,
}

impl Kind {
    /// Whether this answers a request.
    #[must_use]
    pub fn is_response(self) -> bool {
        matches!(self, Self::Result | Self::Error)
    }
}

/// Why a body is not an accepted message.
#[derive(Debug, Error)]
pub enum EnvelopeError {
    /// The body is not UTF-8 (RFC 8259, 8.1).
    #[error("the body is not UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    /// The body is not JSON.
    #[error("the body is not JSON")]
    Json(#[from] serde_json::Error),
    /// Deeper than [`NESTING_MAX`].
    #[error("the body is nested deeper than {NESTING_MAX} levels")]
    Nesting,
    /// An array: 2025-03-26 had batches, later revisions removed them.
    #[error("batches are not supported: send one message in each request")]
    Batch,
    /// JSON, but not an object.
    #[error("a message must be an object")]
    NotAnObject,
    /// A key that the gateway reads is duplicated.
    #[error("the key `{0}` occurs more than once")]
    DuplicateKey(&'static str),
    /// A key differs only in case from one that the gateway reads.
    #[error("a key is written like `{0}` in another case: the case of keys matters")]
    KeyCase(&'static str),
    /// `jsonrpc` is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// A method differs only in case from one that the gateway distinguishes.
    #[error("the method is written like `{0}` in another case: the case of methods matters")]
    MethodCase(&'static str),
    /// A method, or the name of a tool or prompt, has a control character, or a space at an end.
    #[error("`{0}` has a control character, or a space at an end")]
    Padded(&'static str),
    /// `method` is not a string.
    #[error("`method` must be a string")]
    MethodType,
    /// A client's request without an id. Servers may execute such a message, although no reply can be sent.
    #[error("`{0}` is a request, which needs an `id`")]
    RequestWithoutId(&'static str),
    /// `params` is a string, a number or a boolean.
    #[error("`params` must be an object")]
    ParamsType,
    /// The id is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Neither a request nor a notification nor a response.
    #[error("a message must have either `method`, or an `id` and one of `result` and `error`")]
    Shape,
}

/// The members of `params` that the gateway reads, as the JSON text of their values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a> {
    name: Option<&'a str>,
    uri: Option<&'a str>,
    level: Option<&'a str>,
    protocol_version: Option<&'a str>,
    pub(super) request_id: Option<&'a str>,
    pub(super) progress_token: Option<&'a str>,
    pub(super) meta_progress_token: Option<&'a str>,
    modern_version: Option<&'a str>,
    traceparent: Option<&'a str>,
    tracestate: Option<&'a str>,
}

impl<'a> Params<'a> {
    /// `name`, of tools/call and prompts/get; `None` also if it is not a string.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(decode)
    }

    /// `uri`, of resources/read and resources/subscribe; `None` also if it is not a string.
    #[must_use]
    pub fn uri(&self) -> Option<Cow<'a, str>> {
        self.uri.and_then(decode)
    }

    /// `level`, of logging/setLevel; `None` also if it is not a string.
    #[must_use]
    pub fn level(&self) -> Option<Cow<'a, str>> {
        self.level.and_then(decode)
    }

    /// `protocolVersion`, of initialize; `None` also if it is not a string.
    #[must_use]
    pub fn protocol_version(&self) -> Option<Cow<'a, str>> {
        self.protocol_version.and_then(decode)
    }

    /// `progressToken` of a progress notification, as JSON text; may be an invalid token.
    #[must_use]
    pub fn progress_token(&self) -> Option<&'a str> {
        self.progress_token
    }

    /// The request's own progress token, as JSON text; may be invalid.
    #[must_use]
    pub fn requested_progress(&self) -> Option<&'a str> {
        self.meta_progress_token
    }

    /// The context of the sender's trace in `_meta` (SEP-414), which may be invalid; `None` also if it is not a string.
    #[must_use]
    pub fn traceparent(&self) -> Option<Cow<'a, str>> {
        self.traceparent.and_then(decode)
    }

    /// What the systems of the sender's trace say beside it; `None` also if it is not a string.
    #[must_use]
    pub fn tracestate(&self) -> Option<Cow<'a, str>> {
        self.tracestate.and_then(decode)
    }

    /// Whether the request declares a revision without sessions, even with an invalid value.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.modern_version.is_some()
    }

    /// The revision without sessions that the request declares; `None` also if it is not a string.
    #[must_use]
    pub fn modern_version(&self) -> Option<Cow<'a, str>> {
        self.modern_version.and_then(decode)
    }
}

/// A message and the parts of it that the gateway uses.
#[derive(Debug)]
pub struct Message<'a> {
    pub(super) text: &'a str,
    kind: Kind,
    pub(super) id: Option<Id<'a>>,
    method: Option<Cow<'a, str>>,
    method_kind: Method,
    /// The members of `params`.
    pub params: Params<'a>,
    pub(super) outcome: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// Parses a message. The caller limits the length of the body.
    ///
    /// # Errors
    /// [`EnvelopeError`]; [`super::ErrorKind`] has the error code for each.
    pub fn parse(body: &'a [u8], sender: Sender) -> Result<Self, EnvelopeError> {
        let text = std::str::from_utf8(body)?;
        // RFC 8259, 8.1 lets a reader ignore a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if sender == Sender::Client && is_deeper_than(text, NESTING_MAX) {
            return Err(EnvelopeError::Nesting);
        }
        match text.trim_start_matches([' ', '\t', '\n', '\r']).as_bytes() {
            [b'{', ..] => {}
            other => {
                is_json(text)?;
                return Err(match other {
                    [b'[', ..] => EnvelopeError::Batch,
                    _ => EnvelopeError::NotAnObject,
                });
            }
        }
        let mut draft = Draft::new();
        read_object(text, &mut draft)?;
        draft.into_message(text, sender)
    }

    /// The text of the whole message.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The message's kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The id; `None` for notifications, and for an upstream's errors without an id.
    #[must_use]
    pub fn id(&self) -> Option<Id<'a>> {
        self.id
    }

    /// The method, if the gateway distinguishes it; [`Method::Other`] for a response.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method_kind
    }

    /// The method's name as the sender wrote it; not for metric labels.
    #[must_use]
    pub fn method_name(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The id of the request that this message cancels, as JSON text, which may be an invalid id; `None` for other
    /// messages.
    #[must_use]
    pub fn cancelled_request(&self) -> Option<&'a str> {
        let is_cancellation =
            self.kind == Kind::Notification && self.method_kind == Method::Cancelled;
        self.params.request_id.filter(|_| is_cancellation)
    }

    /// The JSON text of a response's `result` or `error`.
    #[must_use]
    pub fn outcome(&self) -> Option<&'a str> {
        self.outcome
    }

    /// The JSON text of the whole `params`, from a second parse, needed only for the messages whose params are stored
    /// or inspected.
    #[must_use]
    pub fn raw_params(&self) -> Option<&'a str> {
        let [params] = Members::read(&["params"], self.text).ok()?.values;
        params
    }
}

/// The members found during parsing. Of duplicate keys, the last value is used.
struct Draft<'a> {
    top: Members<'a, 5>,
    params: ParamsDraft<'a>,
    params_shape: Option<Shape>,
}

const TOP_KEYS: [&str; 6] = ["jsonrpc", "id", "method", "result", "error", "params"];

impl<'a> Object<'a> for Draft<'a> {
    fn keys(&self) -> &'static [&'static str] {
        &TOP_KEYS
    }

    fn note_variant(&mut self, key: &'static str) {
        self.top.note_variant(key);
    }

    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error> {
        if at < self.top.values.len() {
            return self.top.take(at, map);
        }
        if self.params_shape.is_some() {
            self.top.duplicate = Some("params");
        }
        self.params_shape = Some(map.next_value_seed(ObjectSeed(&mut self.params))?);
        Ok(())
    }
}

struct ParamsDraft<'a> {
    kept: Members<'a, 7>,
    meta: MetaDraft<'a>,
    meta_seen: bool,
}

/// `arguments` are read only by servers, but must not be duplicated.
const PARAM_KEYS: [&str; 8] = [
    "name",
    "arguments",
    "uri",
    "level",
    "protocolVersion",
    "requestId",
    "progressToken",
    "_meta",
];
const META_KEYS: [&str; 4] = [
    "progressToken",
    MODERN_VERSION_KEY,
    "traceparent",
    "tracestate",
];

/// The members of `_meta`.
struct MetaDraft<'a>(Members<'a, 4>);

impl<'a> Object<'a> for MetaDraft<'a> {
    fn keys(&self) -> &'static [&'static str] {
        &META_KEYS
    }

    /// Nothing is decided by the context of a trace, so it may also be written in another case, where nothing reads it.
    fn note_variant(&mut self, key: &'static str) {
        if !key.starts_with("trace") {
            self.0.note_variant(key);
        }
    }

    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error> {
        self.0.take(at, map)
    }
}

impl<'a> Object<'a> for ParamsDraft<'a> {
    fn keys(&self) -> &'static [&'static str] {
        &PARAM_KEYS
    }

    fn note_variant(&mut self, key: &'static str) {
        self.kept.note_variant(key);
    }

    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error> {
        if at < self.kept.values.len() {
            return self.kept.take(at, map);
        }
        if self.meta_seen {
            self.kept.duplicate = Some("_meta");
        }
        self.meta_seen = true;
        map.next_value_seed(ObjectSeed(&mut self.meta))?;
        Ok(())
    }
}

impl<'a> Draft<'a> {
    fn new() -> Self {
        Self {
            top: Members::new(&TOP_KEYS),
            params: ParamsDraft {
                kept: Members::new(&PARAM_KEYS),
                meta: MetaDraft(Members::new(&META_KEYS)),
                meta_seen: false,
            },
            params_shape: None,
        }
    }

    fn into_message(self, text: &'a str, sender: Sender) -> Result<Message<'a>, EnvelopeError> {
        let [version, id, method, result, error] = self.top.values;
        let duplicate = self.top.duplicate.or(self.params.kept.duplicate);
        if let Some(key) = duplicate.or(self.params.meta.0.duplicate) {
            return Err(EnvelopeError::DuplicateKey(key));
        }
        let variant = self.top.variant.or(self.params.kept.variant);
        if let Some(key) = variant.or(self.params.meta.0.variant)
            && sender == Sender::Client
        {
            return Err(EnvelopeError::KeyCase(key));
        }
        if sender == Sender::Client && version.and_then(decode).as_deref() != Some("2.0") {
            return Err(EnvelopeError::Version);
        }
        if self.params_shape == Some(Shape::Scalar) {
            return Err(EnvelopeError::ParamsType);
        }
        let (kind, outcome) = match (method, result, error) {
            (Some(_), None, None) if id.is_some() => (Kind::Request, None),
            (Some(_), None, None) => (Kind::Notification, None),
            (None, Some(_), None) => (Kind::Result, result),
            (None, None, Some(_)) => (Kind::Error, error),
            // Some serializers write the absent one of the two as null.
            (None, Some("null"), Some(_)) => (Kind::Error, error),
            (None, Some(_), Some("null")) => (Kind::Result, result),
            _ => return Err(EnvelopeError::Shape),
        };
        let method = match method {
            Some(raw) => Some(decode(raw).ok_or(EnvelopeError::MethodType)?),
            None => None,
        };
        let method_kind = method.as_deref().map_or(Method::Other, Method::named);
        if kind == Kind::Notification && method_kind.is_of_requests() && sender == Sender::Client {
            return Err(EnvelopeError::RequestWithoutId(method_kind.label()));
        }
        let message = Message {
            text,
            kind,
            id: id_of(id, kind, sender)?,
            method_kind,
            method,
            params: params_of(&self.params.kept, &self.params.meta.0),
            outcome,
        };
        if sender == Sender::Client {
            check_spelling(&message)?;
        }
        Ok(message)
    }
}

/// Refuses what a server could read as another method or name than the gateway does, whose rules it would then evade.
fn check_spelling(message: &Message<'_>) -> Result<(), EnvelopeError> {
    let Some(method) = message.method_name() else {
        return Ok(());
    };
    match message.method() {
        Method::Other if is_padded(method) => Err(EnvelopeError::Padded("method")),
        Method::Other => Method::in_another_case(method).map_or(Ok(()), |known| {
            Err(EnvelopeError::MethodCase(known.label()))
        }),
        Method::ToolsCall | Method::PromptsGet => match message.params.name() {
            Some(name) if is_padded(&name) => Err(EnvelopeError::Padded("name")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether some parsers would take the text for a shorter one.
fn is_padded(text: &str) -> bool {
    let is_space = |letter: char| letter.is_whitespace() || letter == '\u{feff}';
    text.contains(char::is_control) || text.starts_with(is_space) || text.ends_with(is_space)
}

fn id_of(raw: Option<&str>, kind: Kind, sender: Sender) -> Result<Option<Id<'_>>, EnvelopeError> {
    let nameless = kind == Kind::Error && sender == Sender::Upstream;
    match raw {
        None | Some("null") if nameless => Ok(None),
        None if kind.is_response() => Err(EnvelopeError::Shape),
        None => Ok(None),
        Some(raw) => {
            let is_rewritten = kind.is_response() || sender == Sender::Gateway;
            let bytes_max = if is_rewritten {
                WIRE_ID_BYTES_MAX
            } else {
                ID_BYTES_MAX
            };
            Ok(Some(Id::of_value(raw, bytes_max)?))
        }
    }
}

fn params_of<'a>(params: &Members<'a, 7>, meta: &Members<'a, 4>) -> Params<'a> {
    let [
        name,
        _arguments,
        uri,
        level,
        protocol_version,
        request_id,
        progress_token,
    ] = params.values;
    let [meta_progress_token, modern_version, traceparent, tracestate] = meta.values;
    Params {
        name,
        uri,
        level,
        protocol_version,
        request_id,
        progress_token,
        meta_progress_token,
        modern_version,
        traceparent,
        tracestate,
    }
}
