//! How a refused client finds out where to get a token: challenges (RFC 6750), and the metadata of this resource
//! (RFC 9728).
//!
//! Invariant: neither has anything of the request's token, and both are the same whether or not the server of the path
//! is there.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::json;

use super::reply::json as json_response;
use super::{App, endpoint};
use mooring_identity::IdentityError;

/// Where the metadata are; the path of an endpoint may follow (RFC 9728, 3.1).
pub(super) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// The name of the resource for people.
const RESOURCE_NAME: &str = "Mooring MCP gateway";

impl App {
    /// The challenge to a client without a valid identity; none where neither tokens nor API keys are taken, and where
    /// none would help.
    pub(super) fn identity_challenge(
        &self,
        error: IdentityError,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let code = match error.status() {
            _ if matches!(
                error,
                IdentityError::TokenMissing | IdentityError::ApiKeyMissing
            ) =>
            {
                None
            }
            StatusCode::UNAUTHORIZED => Some("invalid_token"),
            StatusCode::BAD_REQUEST => Some("invalid_request"),
            _ => return None,
        };
        let parameters = code.map(|code| format!(r#"error="{code}", error_description="{error}""#));
        self.challenge(uri, headers, parameters)
    }

    /// The challenge to a client whose token lacks scopes (RFC 6750, 3.1).
    pub(super) fn scope_challenge(
        &self,
        scopes: &[String],
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        // A client cannot get a key with more scopes, but a token.
        self.authenticator.issuer()?;
        let scopes = scopes.join(" ");
        let parameters = format!(r#"error="insufficient_scope", scope="{scopes}""#);
        self.challenge(uri, headers, Some(parameters))
    }

    fn challenge(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        parameters: Option<String>,
    ) -> Option<HeaderValue> {
        if !self.authenticator.takes_bearers() {
            return None;
        }
        let path = Some(uri.path())
            .filter(|path| is_endpoint(path))
            .unwrap_or_default();
        let metadata = self
            .base_url(uri, headers)
            .filter(|_| self.authenticator.issuer().is_some())
            .map(|base| format!(r#"resource_metadata="{base}{METADATA_PATH}{path}""#));
        let parameters: Vec<String> = metadata.into_iter().chain(parameters).collect();
        let challenge = format!("Bearer {}", parameters.join(", "));
        HeaderValue::try_from(challenge.trim_end()).ok()
    }

    /// The URL under which this client reaches the gateway, without a slash at its end.
    fn base_url(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        if let Some(url) = &self.listen.public_url {
            return Some(url.clone());
        }
        // Parsed again: where every host is allowed, it may be any text.
        let named = || headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
        let host = uri.authority().cloned().or_else(named)?;
        let scheme = if self.listen.tls.is_some() {
            "https"
        } else {
            "http"
        };
        Some(format!("{scheme}://{host}"))
    }
}

/// The metadata of the gateway, or of the endpoint whose path follows.
pub(super) async fn metadata(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path().strip_prefix(METADATA_PATH).unwrap_or_default();
    let base = app
        .base_url(&uri, &headers)
        .filter(|_| path.is_empty() || is_endpoint(path));
    let (Some(base), Some(issuer)) = (base, app.authenticator.issuer()) else {
        return endpoint::unknown_path().await;
    };
    let body = json!({
        "resource": format!("{base}{path}"),
        "authorization_servers": [issuer],
        "bearer_methods_supported": ["header"],
        "scopes_supported": app.policy.scopes(),
        "resource_name": RESOURCE_NAME,
    });
    json_response(StatusCode::OK, body.to_string())
}

/// Whether clients open this path with their MCP library. One with other characters than those of ids is none, so that
/// it needs no quoting.
fn is_endpoint(path: &str) -> bool {
    let id = |rest: &str| {
        let id = rest
            .strip_suffix("/mcp")
            .or_else(|| rest.strip_suffix("/sse"));
        id.is_some_and(|id| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !id.is_empty() && id.bytes().all(is_plain)
        })
    };
    matches!(path, "/mcp" | "/sse") || path.strip_prefix("/servers/").is_some_and(id)
}

#[cfg(test)]
mod tests {
    use super::is_endpoint;

    #[test]
    fn endpoints() {
        for path in ["/mcp", "/sse", "/servers/a/mcp", "/servers/a-b.c/sse"] {
            assert!(is_endpoint(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/mcp/",
            "/servers//mcp",
            "/servers/a\"b/mcp",
            "/servers/a/b/mcp",
            "/servers/a%20b/mcp",
            "/servers/a/skills",
        ] {
            assert!(!is_endpoint(path), "{path}");
        }
    }
}
