//! The ids of a connection's events: `m:<epoch>:<stream>:<number>`. The stream is `g` for the general stream, or
//! `c.<tag of the client's request>.<its id as JSON, in base64url>`.
//!
//! Invariant: the id alone identifies the client's request, so that a gateway without any state of the connection can
//! report that the call may have run.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use mooring_protocol::{Id, RequestTag};

/// The prefix of every such id.
pub const PREFIX: &str = "m:";
/// The longest id of a client's request, in bytes of JSON text, that event ids carry. Streams of requests with longer
/// ids have no event ids and cannot be resumed, because the id would be repeated in every event and in the header of
/// the resume.
pub const CARRIED_ID_BYTES_MAX: usize = 256;

/// The id of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The epoch of the binding that the connection belongs to.
    pub epoch: u64,
    /// The stream it is on.
    pub stream: StreamName,
    /// Its number, which increases across all streams of a connection.
    pub number: u64,
}

/// Which stream of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// The stream for messages that belong to no call.
    General,
    /// The stream of a call.
    Call {
        /// The tag of the request.
        tag: RequestTag,
        /// The id of the request as the client wrote it, as JSON text.
        id_json: Box<str>,
    },
}

impl StreamName {
    /// The stream of the client's request with this id; `None` if the id is too long or invalid.
    #[must_use]
    pub fn call(tag: RequestTag, id_json: &str) -> Option<Self> {
        let is_carried = id_json.len() <= CARRIED_ID_BYTES_MAX && Id::from_json(id_json).is_ok();
        is_carried.then(|| Self::Call {
            tag,
            id_json: id_json.into(),
        })
    }

    /// The request that the stream answers.
    #[must_use]
    pub fn request(&self) -> Option<(RequestTag, Id<'_>)> {
        match self {
            Self::General => None,
            Self::Call { tag, id_json } => Some((*tag, Id::from_json(id_json).ok()?)),
        }
    }
}

impl EventId {
    /// Parses an id that a client sent; `None` if no connection can have written it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(PREFIX)?.split(':');
        let (epoch, stream, number) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let stream = match stream.strip_prefix("c.") {
            None if stream == "g" => StreamName::General,
            None => return None,
            Some(encoded) => {
                let (tag, encoded) = encoded.split_once('.')?;
                let id_json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
                StreamName::call(RequestTag::parse(tag)?, std::str::from_utf8(&id_json).ok()?)?
            }
        };
        Some(Self {
            epoch: decimal(epoch)?,
            stream,
            number: decimal(number)?,
        })
    }
}

fn decimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, number, .. } = self;
        match &self.stream {
            StreamName::General => write!(formatter, "m:{epoch}:g:{number}"),
            StreamName::Call { tag, id_json } => {
                let encoded = URL_SAFE_NO_PAD.encode(id_json.as_bytes());
                write!(formatter, "m:{epoch}:c.{tag}.{encoded}:{number}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    const TAG: RequestTag = RequestTag(10);

    #[test]
    fn event_ids_round_trip() {
        let ids = ["1", "-7", r#""a:b""#, r#""\u0041\"""#, r#""ä""#];
        let calls = ids.map(|id| StreamName::call(TAG, id).unwrap());
        for stream in calls.into_iter().chain([StreamName::General]) {
            let id = EventId {
                epoch: 3,
                stream,
                number: u64::MAX,
            };
            let text = id.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(EventId::parse(&text), Some(id));
        }
    }

    #[test]
    fn malformed_event_ids_are_rejected() {
        for text in [
            "",
            "m:",
            "m:1:g",
            "m:1:g:2:3",
            "m:1:x:2",
            "m:+1:g:2",
            "m:1:g:",
            "m:1:c.MQ:2",
            "m:1:c.a.MQ:2",
            "m:1:c.0000000000000000000000000000000a.!:2",
            "m:1:c.0000000000000000000000000000000a.:2",
            // `null` and `1.5` are JSON, but not ids.
            "m:1:c.0000000000000000000000000000000a.bnVsbA:2",
            "m:1:c.0000000000000000000000000000000a.MS41:2",
            "m:99999999999999999999:g:1",
            "s:1:g:2",
        ] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_event_id_names_its_request() {
        let text = EventId {
            epoch: 1,
            stream: StreamName::call(TAG, r#""x\"y""#).unwrap(),
            number: 9,
        }
        .to_string();
        let id = EventId::parse(&text).unwrap();
        let (tag, id) = id.stream.request().unwrap();
        assert_eq!((tag, id.as_json()), (TAG, r#""x\"y""#));
    }

    #[test]
    fn long_ids_are_not_carried() {
        let id = |len: usize| format!("\"{}\"", "x".repeat(len));
        assert!(StreamName::call(TAG, &id(CARRIED_ID_BYTES_MAX - 2)).is_some());
        assert!(StreamName::call(TAG, &id(CARRIED_ID_BYTES_MAX - 1)).is_none());
    }
}
