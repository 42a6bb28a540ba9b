//! How a refused client finds out where to get a token: challenges (RFC 6750), and the metadata of this resource
//! (RFC 9728).
//!
//! Invariant: neither contains any part of the request's token, and both are the same whether or not the server of the
//! path exists.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::app::App;
use super::caller::{RequestHead, RequestSender};
use super::reply::json as json_response;
use super::{endpoint, stranger_rate};
use mooring_identity::{IdentityError, TokenError, proof_algorithms};

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
        head: RequestHead<'_>,
    ) -> Option<HeaderValue> {
        let code = match error {
            IdentityError::TokenMissing | IdentityError::ApiKeyMissing => None,
            IdentityError::Proof(_) => Some("invalid_dpop_proof"),
            error if error.status() == StatusCode::UNAUTHORIZED => Some("invalid_token"),
            error if error.status() == StatusCode::BAD_REQUEST => Some("invalid_request"),
            _ => return None,
        };
        let needs_proof = matches!(
            error,
            IdentityError::Proof(_)
                | IdentityError::Token(TokenError::KeyBound | TokenError::NotBound)
        );
        let parameters = code.map(|code| format!(r#"error="{code}", error_description="{error}""#));
        self.challenge(head, parameters, needs_proof)
    }

    /// The challenge to a client whose token lacks scopes (RFC 6750, 3.1).
    pub(super) fn scope_challenge(
        &self,
        scopes: &[String],
        head: RequestHead<'_>,
    ) -> Option<HeaderValue> {
        // A client cannot get a key with more scopes, but a token.
        self.authenticator.issuer()?;
        let scopes = scopes.join(" ");
        let parameters = format!(r#"error="insufficient_scope", scope="{scopes}""#);
        self.challenge(head, Some(parameters), false)
    }

    fn challenge(
        &self,
        head: RequestHead<'_>,
        parameters: Option<String>,
        needs_proof: bool,
    ) -> Option<HeaderValue> {
        if !self.authenticator.takes_bearers() {
            return None;
        }
        let path = Some(head.uri.path())
            .filter(|path| is_endpoint(path))
            .unwrap_or_default();
        let metadata = self
            .base_url(head)
            .filter(|_| self.authenticator.issuer().is_some())
            .map(|base| format!(r#"resource_metadata="{base}{METADATA_PATH}{path}""#));
        let mut parameters: Vec<String> = metadata.into_iter().chain(parameters).collect();
        let scheme = if needs_proof || self.authenticator.requires_proofs() == Some(true) {
            let algorithms: Vec<&str> = proof_algorithms().collect();
            // RFC 9449, 5.1.
            parameters.push(format!(r#"algs="{}""#, algorithms.join(" ")));
            "DPoP"
        } else {
            "Bearer"
        };
        let challenge = format!("{scheme} {}", parameters.join(", "));
        HeaderValue::try_from(challenge.trim_end()).ok()
    }

    /// The URL under which this client reaches the gateway, without a trailing slash.
    pub(super) fn base_url(&self, head: RequestHead<'_>) -> Option<String> {
        if let Some(url) = &self.listen.public_url {
            return Some(url.clone());
        }
        // Parsed again: where every host is allowed, it may be any text.
        let named = || {
            head.headers
                .get(HOST)?
                .to_str()
                .ok()?
                .parse::<Authority>()
                .ok()
        };
        let host = head.uri.authority().cloned().or_else(named)?;
        let scheme = if self.listen.tls.is_some() {
            "https"
        } else {
            "http"
        };
        Some(format!("{scheme}://{host}"))
    }

    /// Whether the sender reaches the gateway over TLS, so that its cookies need never go in the clear.
    pub(super) fn is_secure(&self, head: RequestHead<'_>) -> bool {
        self.base_url(head)
            .is_some_and(|url| url.starts_with("https:"))
    }
}

/// The metadata of the gateway, or of the endpoint whose path follows.
pub(super) async fn metadata(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let path = (head.uri.path())
        .strip_prefix(METADATA_PATH)
        .unwrap_or_default();
    let base = app
        .base_url(RequestHead::of(&sender, &head))
        .filter(|_| path.is_empty() || is_endpoint(path));
    let (Some(base), Some(issuer)) = (base, app.authenticator.issuer()) else {
        return endpoint::unknown_path().await;
    };
    let algorithms: Vec<&str> = proof_algorithms().collect();
    let body = json!({
        "resource": format!("{base}{path}"),
        "authorization_servers": [issuer],
        "bearer_methods_supported": ["header"],
        "scopes_supported": app.core.policy.scopes(),
        "dpop_signing_alg_values_supported": algorithms,
        "dpop_bound_access_tokens_required": app.authenticator.requires_proofs() == Some(true),
        "resource_name": RESOURCE_NAME,
    });
    stranger_rate::public(json_response(StatusCode::OK, body.to_string()))
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
