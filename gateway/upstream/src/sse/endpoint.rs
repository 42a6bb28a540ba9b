//! The URI for POSTs, which the server names in its `endpoint` event.
//!
//! Invariant: it has the stream's origin, so that messages and the server's credentials go nowhere else.

use http::Uri;
use url::Url;

/// Longest accepted URI, in bytes. SDKs send a path and a session id, under 100.
const ENDPOINT_BYTES_MAX: usize = 2048;

/// Why an `endpoint` event is refused. The URI is never repeated, because it contains the session id.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is too long.
    #[error("its URI is longer than {ENDPOINT_BYTES_MAX} bytes")]
    TooLong,
    /// It is not a usable URI.
    #[error("its URI cannot be requested: {0}")]
    Unusable(Box<str>),
    /// It has another origin than the configured server.
    #[error("its URI is of another origin, {0}")]
    ForeignOrigin(Box<str>),
    /// It contains a user or password, in addition to the configured headers.
    #[error("its URI holds credentials")]
    Credentials,
}

/// The URI for messages, from the stream's URI and the named one: an absolute URI, a path or a relative reference.
pub(super) fn resolve(stream: &Uri, named: &str) -> Result<Uri, EndpointError> {
    let named = named.trim();
    if named.len() > ENDPOINT_BYTES_MAX {
        return Err(EndpointError::TooLong);
    }
    let unusable =
        |cause: &dyn std::fmt::Display| EndpointError::Unusable(cause.to_string().into());
    let stream = Url::parse(&stream.to_string()).map_err(|cause| unusable(&cause))?;
    let mut endpoint = stream.join(named).map_err(|cause| unusable(&cause))?;
    if endpoint.origin() != stream.origin() {
        let origin = endpoint.origin().ascii_serialization();
        return Err(EndpointError::ForeignOrigin(origin.into()));
    }
    if !endpoint.username().is_empty() || endpoint.password().is_some() {
        return Err(EndpointError::Credentials);
    }
    endpoint.set_fragment(None);
    endpoint
        .as_str()
        .parse()
        .map_err(|cause: http::uri::InvalidUri| unusable(&cause))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn resolved(named: &str) -> Result<Uri, EndpointError> {
        let stream = Uri::from_static("http://tools.example:9001/a/sse?key=1");
        resolve(&stream, named)
    }

    #[test]
    fn allowed_endpoints() {
        for (named, uri) in [
            (
                "/messages?sessionId=7",
                "http://tools.example:9001/messages?sessionId=7",
            ),
            (
                "messages/?session_id=7",
                "http://tools.example:9001/a/messages/?session_id=7",
            ),
            (
                "?sessionId=7",
                "http://tools.example:9001/a/sse?sessionId=7",
            ),
            ("http://tools.example:9001/m", "http://tools.example:9001/m"),
            (
                " HTTP://Tools.Example:9001/m#x ",
                "http://tools.example:9001/m",
            ),
        ] {
            assert_eq!(resolved(named).unwrap().to_string(), uri, "{named}");
        }
        let secure = Uri::from_static("https://tools.example/sse");
        assert_eq!(
            resolve(&secure, "https://tools.example:443/m")
                .unwrap()
                .to_string(),
            "https://tools.example/m",
            "the port of the scheme is the same origin"
        );
    }

    #[test]
    fn foreign_origins_are_refused() {
        for named in [
            "http://tools.example:9002/m",
            "https://tools.example:9001/m",
            "http://other.example:9001/m",
            "//other.example:9001/m",
            "\\\\other.example:9001/m",
            "/\t/other.example:9001/m",
            "http://tools.example@other.example:9001/m",
            "file:///etc/passwd",
            "data:text/plain,x",
        ] {
            let refused = resolved(named).unwrap_err();
            assert!(
                matches!(refused, EndpointError::ForeignOrigin(_)),
                "{named}: {refused}"
            );
        }
    }

    #[test]
    fn unusable_endpoints_are_refused_without_repeating_them() {
        let long = format!("/m?sessionId={}", "7".repeat(ENDPOINT_BYTES_MAX));
        for (named, expected) in [
            ("http://user@tools.example:9001/secret", "credentials"),
            ("http://:p@tools.example:9001/secret", "credentials"),
            ("http://[secret", "cannot be requested"),
            (long.as_str(), "longer than 2048 bytes"),
        ] {
            let refused = resolved(named).unwrap_err().to_string();
            assert!(refused.contains(expected), "{named}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
