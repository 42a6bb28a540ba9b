//! The ids of the events that a connection sends: `m:<epoch>:<stream>:<number>`, where the stream is `g` for the stream
//! of unrelated messages, or `c.<the id of the client's request as JSON, in base64url>`.
//!
//! Invariant: the id alone says which request of the client an event belongs to, so that a worker that knows nothing else
//! can tell the client that its call may have run.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use mooring_protocol::Id;

/// The longest id of a client's request, in bytes of JSON text, that event ids carry. The streams of requests with a longer
/// one have no event ids and cannot be resumed: the id would be in every event, and in a header of the resume.
pub const CARRIED_ID_BYTES_MAX: usize = 256;

/// The id of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The epoch of the binding that the connection belongs to.
    pub epoch: u64,
    /// The stream it is on.
    pub stream: StreamName,
    /// Its number: events of one connection have growing numbers, over all its streams.
    pub number: u64,
}

/// Which stream of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// The one of messages that belong to no call.
    General,
    /// The one of a call.
    Call {
        /// The id of the request as the client wrote it: JSON text.
        id_json: Box<str>,
    },
}

impl StreamName {
    /// The stream of the client's request with this id; `None` where that is too long, or none.
    #[must_use]
    pub fn call(id_json: &str) -> Option<Self> {
        let is_carried = id_json.len() <= CARRIED_ID_BYTES_MAX && Id::from_json(id_json).is_ok();
        is_carried.then(|| Self::Call {
            id_json: id_json.into(),
        })
    }

    /// The request whose answer the stream carries.
    #[must_use]
    pub fn request(&self) -> Option<Id<'_>> {
        match self {
            Self::General => None,
            Self::Call { id_json } => Id::from_json(id_json).ok(),
        }
    }
}

impl EventId {
    /// Reads an id that a client gives back; `None` for one that no connection has written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("m:")?.split(':');
        let (epoch, stream, number) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let stream = match stream.strip_prefix("c.") {
            None if stream == "g" => StreamName::General,
            None => return None,
            Some(encoded) => {
                let id_json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
                StreamName::call(std::str::from_utf8(&id_json).ok()?)?
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
            StreamName::Call { id_json } => {
                let encoded = URL_SAFE_NO_PAD.encode(id_json.as_bytes());
                write!(formatter, "m:{epoch}:c.{encoded}:{number}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let ids = ["1", "-7", r#""a:b""#, r#""\u0041\"""#, r#""ä""#];
        let calls = ids.map(|id| StreamName::call(id).unwrap());
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
    fn what_no_connection_wrote_is_no_id() {
        for text in [
            "",
            "m:",
            "m:1:g",
            "m:1:g:2:3",
            "m:1:x:2",
            "m:+1:g:2",
            "m:1:g:",
            "m:1:c.!:2",
            "m:1:c.:2",
            // `null` and `1.5` are JSON, but no ids.
            "m:1:c.bnVsbA:2",
            "m:1:c.MS41:2",
            "m:99999999999999999999:g:1",
            "s:1:g:2",
        ] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_request_is_known_from_the_id_alone() {
        let text = EventId {
            epoch: 1,
            stream: StreamName::call(r#""x\"y""#).unwrap(),
            number: 9,
        }
        .to_string();
        let id = EventId::parse(&text).unwrap();
        assert_eq!(id.stream.request().unwrap().as_json(), r#""x\"y""#);
    }

    #[test]
    fn long_ids_are_not_carried() {
        let id = |len: usize| format!("\"{}\"", "x".repeat(len));
        assert!(StreamName::call(&id(CARRIED_ID_BYTES_MAX - 2)).is_some());
        assert!(StreamName::call(&id(CARRIED_ID_BYTES_MAX - 1)).is_none());
    }
}
