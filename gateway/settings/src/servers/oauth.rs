//! How the gateway gets the tokens with which it calls a server of kind `http`: by its own credentials, or in exchange
//! for the token of each caller.

use std::path::PathBuf;

use http::header::AUTHORIZATION;
use url::Url;

use super::headers::UpstreamHeaders;
use crate::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use crate::reader::{Reader, Reason, list, text};
use crate::rows::{settings, words};
use crate::token::{URL_BYTES_MAX, URL_SHAPE, parse_fetched_url};

words! {
    /// What the gateway gets a token for.
    pub enum TokenGrant {
        /// one token of the gateway, for all callers (RFC 6749, section 4.4)
        ClientCredentials = "client-credentials",
        /// one for each caller, in exchange for the caller's own (RFC 8693); needs auth.mode = "jwt"
        TokenExchange = "token-exchange",
    }
}

words! {
    /// How the gateway proves to the authorization server who it is (RFC 6749, section 2.3.1).
    pub enum ClientAuthentication {
        /// id and secret in the Authorization header
        Basic = "basic",
        /// id and secret in the form
        Post = "post",
    }
}

settings! {
    /// The rows of `servers.oauth`.
    pub(super) struct OauthRows {
        /// Where tokens for this server are fetched. Each request to the server has one in its Authorization header. The
        /// gateway's own is fetched before the gateway serves, and again when four fifths of its life are over.
        token_url: Option<Url> = Text("servers.oauth.token_url", URL_BYTES_MAX, URL_SHAPE, None)
            .unset("no token is fetched") => text(parse_fetched_url),
        /// Whose token a request has: the gateway's, or one that is made for its caller in exchange for the token with which
        /// the caller was authenticated. What the gateway does by itself, such as deleting expired sessions, has the
        /// gateway's own in both cases.
        grant: TokenGrant = Choice("servers.oauth.grant"),
        /// The gateway's id at the authorization server. Required with `servers.oauth.token_url`.
        client_id: Option<String> = Text("servers.oauth.client_id", 256, "printable ASCII", None)
            .unset("refused") => text(parse_ascii),
        /// The file with the gateway's secret at the authorization server, readable by the gateway's user only. It is
        /// read for each token, and every five seconds: if the secret has changed, tokens are fetched again. Required
        /// with `servers.oauth.token_url`.
        client_secret_file: Option<PathBuf> =
            Text("servers.oauth.client_secret_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("refused") => text(absolute_file),
        /// How the gateway proves who it is.
        authentication: ClientAuthentication = Choice("servers.oauth.authentication"),
        /// The scopes to ask for.
        scopes: Vec<String> = List("servers.oauth.scopes", 64, 128, "scopes, printable ASCII without spaces")
            .unset("those that the authorization server chooses") => list(parse_ascii),
        /// The resource that the token is for (RFC 8707), mostly the URL of the server.
        resource: Option<Url> = Text("servers.oauth.resource", URL_BYTES_MAX, "a URL without a fragment", None)
            .unset("none is named") => text(parse_resource),
        /// The name of the service that the token is for, where the authorization server wants a name instead of a URL (RFC
        /// 8693, section 2.1).
        audience: Option<String> = Text("servers.oauth.audience", 256, "printable ASCII", None)
            .unset("none is named") => text(parse_ascii),
    }
}

/// How the tokens for a server are fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct OauthSettings {
    /// Whose tokens they are.
    pub grant: TokenGrant,
    /// Where.
    pub token_url: Url,
    /// The gateway's id there.
    pub client_id: String,
    /// The file with its secret.
    pub client_secret_file: PathBuf,
    /// How it proves who it is.
    pub authentication: ClientAuthentication,
    /// The scopes to ask for.
    pub scopes: Vec<String>,
    /// The resource that the token is for.
    pub resource: Option<Url>,
    /// The service that the token is for.
    pub audience: Option<String>,
}

impl OauthRows {
    /// None where no token is fetched. `headers` and `forwards_identity` are the server's other credentials.
    pub(super) fn parse(
        reader: &mut Reader<'_>,
        headers: &UpstreamHeaders,
        forwards_identity: bool,
    ) -> Option<OauthSettings> {
        let rows = Self::read(reader);
        let Some(token_url) = rows.token_url else {
            let is_used = rows.client_id.is_some() || rows.client_secret_file.is_some();
            if is_used && !reader.was_refused(&Self::token_url) {
                let reason = "it is missing, so that no token would be fetched";
                reader.refuse(&Self::token_url, "", reason, URL_SHAPE);
            }
            return None;
        };
        let reason = "it is missing, and without it there is no token";
        if rows.client_id.is_none() && !reader.was_refused(&Self::client_id) {
            reader.refuse(&Self::client_id, "", reason, Self::client_id.shape);
        }
        let file = &Self::client_secret_file;
        if rows.client_secret_file.is_none() && !reader.was_refused(file) {
            reader.refuse(file, "", reason, file.shape);
        }
        let other = match forwards_identity {
            true => Some("servers.forward_identity is set"),
            false if headers.map().contains_key(AUTHORIZATION) => {
                Some("servers.headers has an Authorization header")
            }
            false => None,
        };
        if let Some(other) = other {
            let reason = format!("{other}, and a request has only one");
            reader.refuse(
                &Self::token_url,
                token_url.as_str(),
                reason,
                "one of the two",
            );
        }
        Some(OauthSettings {
            grant: rows.grant,
            token_url,
            client_id: rows.client_id?,
            client_secret_file: rows.client_secret_file?,
            authentication: rows.authentication,
            scopes: rows.scopes,
            resource: rows.resource,
            audience: rows.audience,
        })
    }
}

fn parse_ascii(text: &str) -> Result<String, Reason> {
    match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("it has a space, or characters that are not printable ASCII".to_owned()),
    }
}

fn parse_resource(text: &str) -> Result<Url, Reason> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    match url.fragment() {
        None => Ok(url),
        Some(_) => Err("it has a fragment (RFC 8707, section 2)".to_owned()),
    }
}
