//! Responses that send a request elsewhere.
//!
//! Invariants: only a path of the same origin is followed, and only with the same method; no other host is named.

use http::header::LOCATION;
use http::{HeaderMap, StatusCode, Uri};
use url::{Position, Url};

use super::SendError;

/// How much of the path of a redirect is shown, in bytes.
const REDIRECT_SHOWN_BYTES: usize = 200;

/// The error for a response that sends the request elsewhere. It names no other host, whose address may be internal.
pub(crate) fn redirect(uri: &Uri, status: StatusCode, headers: &HeaderMap) -> Option<SendError> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = headers.get(LOCATION).filter(|_| is_redirect)?;
    let here = Url::parse(&uri.to_string()).ok();
    let to = here.as_ref().zip(location.to_str().ok());
    let to = to.and_then(|(here, location)| here.join(location).ok());
    let to = to.filter(|to| here.is_some_and(|here| here.origin() == to.origin()));
    let path = to.as_ref().map(|to| {
        let path = to.path();
        path.get(..REDIRECT_SHOWN_BYTES).unwrap_or(path)
    });
    let keeps_method = matches!(status.as_u16(), 307 | 308);
    Some(SendError::Redirected {
        status,
        to: path.unwrap_or("another host").into(),
        target: to
            .as_ref()
            .filter(|_| keeps_method)
            .and_then(|to| to[..Position::AfterQuery].parse().ok())
            .map(Box::new),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_redirect_names_the_path_and_no_other_host_and_is_followed_on_its_own() {
        let uri = Uri::from_static("http://a:8080/mcp");
        let followed = ["http://a:8080/mcp/", "http://a:8080/mcp/?token=b"].map(Some);
        for (status, location, expected, target) in [
            (307, Some("/mcp/"), Some("/mcp/"), followed[0]),
            (
                308,
                Some("http://a:8080/mcp/?token=b#c"),
                Some("/mcp/"),
                followed[1],
            ),
            (
                302,
                Some("https://login.internal/"),
                Some("another host"),
                None,
            ),
            (301, Some("http://a/mcp"), Some("another host"), None),
            (303, Some("mcp/"), Some("/mcp/"), None),
            (307, Some("//b/mcp"), Some("another host"), None),
            (307, None, None, None),
            (304, Some("/mcp/"), None, None),
            (201, Some("/mcp/"), None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(location) = location {
                headers.insert(LOCATION, location.parse().unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            let to = redirect(&uri, status, &headers).map(|error| match error {
                SendError::Redirected { to, target, .. } => (to, target),
                error => panic!("{error}"),
            });
            let (to, uri) = to.unzip();
            assert_eq!(to.as_deref(), expected, "{status} {location:?}");
            let uri = uri.flatten().map(|uri| uri.to_string());
            assert_eq!(uri.as_deref(), target, "{status} {location:?}");
        }
    }
}
