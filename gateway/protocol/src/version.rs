//! The MCP revisions, and the revision of a request.
//!
//! Invariant: a request is served only with a revision of [`Revision::SERVED`].

use http::{HeaderMap, StatusCode};
use thiserror::Error;

use super::header::MCP_PROTOCOL_VERSION;

/// A known revision of the protocol, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE on two URLs, no Streamable HTTP.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP.
    V2025_03_26,
    /// 2025-06-18: the version header, no batches.
    V2025_06_18,
    /// 2025-11-25: resumable polling, tasks, URL elicitation.
    V2025_11_25,
    /// 2026-07-28: no sessions.
    V2026_07_28,
}

/// Why a request's revision is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionError {
    /// Known but not served, or unknown.
    #[error("protocol version {0:?} is not served")]
    Unsupported(String),
    /// The header is not text, or was sent twice with different values.
    #[error("the MCP-Protocol-Version header is malformed")]
    Malformed,
}

impl VersionError {
    /// The status of the answer (MCP 2025-06-18 and later: 400).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::BAD_REQUEST
    }

    /// The `data` of the answer: the served revisions and the requested one.
    #[must_use]
    pub fn data(&self) -> String {
        let requested = match self {
            Self::Unsupported(requested) => Some(requested.as_str()),
            Self::Malformed => None,
        };
        let supported = Revision::SERVED.map(Revision::as_str);
        serde_json::json!({ "supported": supported, "requested": requested }).to_string()
    }

    /// The same for a request without a session: what `server/discover` offers.
    #[must_use]
    pub fn data_without_session(requested: &str) -> String {
        let supported = [Revision::MODERN.as_str()];
        serde_json::json!({ "supported": supported, "requested": requested }).to_string()
    }
}

impl Revision {
    /// The served revisions with sessions, oldest first. 2024-11-05 has no Streamable HTTP, but a session uses the revision that its
    /// server chose, whatever the client's transport.
    pub const SERVED: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];

    /// The revision of a request without a version header (MCP 2025-06-18, transports).
    pub const ASSUMED: Self = Self::V2025_03_26;

    /// The newest revision with sessions, offered to clients that request an unsupported one.
    pub const OFFERED: Self = Self::V2025_11_25;

    /// The newest revision without sessions, which a request names in its `_meta`.
    pub const MODERN: Self = Self::V2026_07_28;

    const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The revision's name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this name, if it is known.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// Whether the revision has no sessions.
    #[must_use]
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// The revision with this name, if it is served.
    ///
    /// # Errors
    /// [`VersionError::Unsupported`] with the name.
    pub fn served(name: &str) -> Result<Self, VersionError> {
        Self::named(name)
            .filter(|revision| Self::SERVED.contains(revision))
            .ok_or_else(|| VersionError::Unsupported(name.to_owned()))
    }

    /// The revision for an `initialize` that requests this one; always a served revision.
    #[must_use]
    pub fn negotiated(asked: &str) -> Self {
        Self::served(asked).unwrap_or(Self::OFFERED)
    }

    /// The revision in a request's header, or [`Revision::ASSUMED`] without one.
    ///
    /// # Errors
    /// [`VersionError`]: the request must be answered with 400.
    pub fn of_headers(headers: &HeaderMap) -> Result<Self, VersionError> {
        let mut values = headers.get_all(MCP_PROTOCOL_VERSION).iter();
        let Some(first) = values.next() else {
            return Ok(Self::ASSUMED);
        };
        if values.any(|other| other != first) {
            return Err(VersionError::Malformed);
        }
        let name = first.to_str().map_err(|_| VersionError::Malformed)?;
        Self::served(name.trim())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use http::HeaderValue;

    fn of(values: &[&'static [u8]]) -> Result<Revision, VersionError> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(MCP_PROTOCOL_VERSION, value);
        }
        Revision::of_headers(&headers)
    }

    #[test]
    fn a_header_names_a_served_revision_or_is_refused() {
        let unsupported = |name: &str| Err(VersionError::Unsupported(name.to_owned()));
        assert_eq!(of(&[]), Ok(Revision::V2025_03_26));
        assert_eq!(of(&[b"2025-11-25"]), Ok(Revision::V2025_11_25));
        assert_eq!(
            of(&[b"2025-06-18", b"2025-06-18"]),
            Ok(Revision::V2025_06_18)
        );
        assert_eq!(
            of(&[b"2025-06-18", b"2025-11-25"]),
            Err(VersionError::Malformed)
        );
        assert_eq!(of(&[b"\xff"]), Err(VersionError::Malformed));
        assert_eq!(of(&[b"2024-11-05"]), Ok(Revision::V2024_11_05));
        assert_eq!(of(&[b"2026-07-28"]), unsupported("2026-07-28"));
        assert_eq!(of(&[b""]), unsupported(""));
    }

    #[test]
    fn a_refusal_lists_the_served_revisions() {
        let data = VersionError::Unsupported("x\"y".to_owned()).data();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&data).unwrap(),
            serde_json::json!({
                "supported": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"],
                "requested": "x\"y",
            })
        );
    }

    #[test]
    fn every_initialize_is_served() {
        for (asked, expected) in [
            ("2024-11-05", Revision::V2024_11_05),
            ("2025-06-18", Revision::V2025_06_18),
            ("2026-07-28", Revision::OFFERED),
            ("", Revision::OFFERED),
        ] {
            assert_eq!(Revision::negotiated(asked), expected, "{asked}");
        }
    }

    #[test]
    fn names_and_revisions_are_one_to_one() {
        for revision in Revision::ALL {
            assert_eq!(Revision::named(revision.as_str()), Some(revision));
            assert_eq!(revision.is_modern(), revision == Revision::V2026_07_28);
        }
    }
}
