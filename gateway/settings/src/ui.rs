//! `[ui]`: the operators' page, and how people sign in to it with an account at an OpenID provider.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::auth::AuthSettings;
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, list, text};
use super::rows::settings;
use super::token::{SigningAlgorithm, TokenSettings, URL_BYTES_MAX, URL_SHAPE, parse_issuer};

settings! {
    /// The operators' page.
    pub struct UiSettings {
        /// Whether the gateway serves the operators' page at `/ui`. It shows each caller what the caller's rights allow,
        /// and nothing to a caller without any.
        pub is_enabled: bool = Switch("ui.enabled", true),
        /// How long people stay signed in. The sign-in of an access token ends with the token, that of an API key also
        /// when the key is revoked.
        pub sign_in_lifetime: Duration = Integer("ui.sign_in_seconds", "seconds", 28_800, 300..=604_800),
        /// The OpenID provider with whose accounts people sign in to the page (authorization code flow with PKCE). Its
        /// redirect URI is `listen.public_url` followed by `/ui/sign-in/callback`. `auth.user_claim`, `auth.teams_claim`,
        /// `auth.roles_claim` and `auth.leeway_seconds` say what the claims of its ID tokens mean.
        issuer: Option<String> = Text("ui.oidc_issuer", URL_BYTES_MAX, URL_SHAPE, None)
            .unset("people sign in with an API key or an access token, or are known by the request") => text(parse_issuer),
        /// The page's client id at the provider. Required with `ui.oidc_issuer`.
        client_id: Option<String> = Text("ui.oidc_client_id", 256, "text", None)
            .unset("refused with `ui.oidc_issuer`") => text(|id| Ok(id.to_owned())),
        /// The file with the client's secret, readable by the gateway's user only. It is read for each sign-in.
        client_secret_file: Option<PathBuf> = Text("ui.oidc_client_secret_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("the client is public: PKCE alone protects a sign-in") => text(absolute_file),
        /// The scopes to ask for; `openid` is always asked for.
        scopes: Vec<String> = List("ui.oidc_scopes", 32, 128, "names of scopes")
            .unset("openid, profile and email") => list(|scope| Ok(scope.to_owned())),
        /// What people may sign in with, if an account is possible.
        pub sign_in_provider: Option<SignInProvider> => |_| None,
    }
}

/// The OpenID provider of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct SignInProvider {
    /// The page's client id there.
    pub client_id: String,
    /// The file with its secret; none for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// The scopes to ask for.
    pub scopes: Vec<String>,
    /// Which ID tokens are accepted, and what their claims mean.
    pub id_tokens: TokenSettings,
}

impl UiSettings {
    /// Reads the section. Claims mean what they mean in access tokens.
    pub(super) fn parse(
        reader: &mut Reader<'_>,
        auth: &AuthSettings,
        tokens: &TokenSettings,
    ) -> Self {
        let mut settings = Self::read(reader);
        settings.sign_in_provider = settings.provider(reader, auth, tokens);
        settings
    }

    fn provider(
        &self,
        reader: &mut Reader<'_>,
        auth: &AuthSettings,
        tokens: &TokenSettings,
    ) -> Option<SignInProvider> {
        let row = &Self::issuer;
        let Some(issuer) = &self.issuer else {
            if self.client_id.is_some() && !reader.was_refused(row) {
                let reason = "it is missing, so that nobody could sign in with this client";
                reader.refuse(row, "", reason, row.shape);
            }
            return None;
        };
        if matches!(auth, AuthSettings::None) {
            let reason = "auth.mode is \"none\": everybody is the same user, whoever signs in";
            reader.refuse(row, issuer, reason, "leave it out, or another auth.mode");
        }
        let row = &Self::client_id;
        if self.client_id.is_none() && !reader.was_refused(row) {
            let reason = "it is missing, and the provider knows the page by it";
            reader.refuse(row, "", reason, row.shape);
        }
        let client_id = self.client_id.clone()?;
        let mut scopes = match self.scopes.is_empty() {
            true => vec!["profile".to_owned(), "email".to_owned()],
            false => self.scopes.clone(),
        };
        scopes.retain(|scope| scope != "openid");
        scopes.insert(0, "openid".to_owned());
        Some(SignInProvider {
            scopes,
            client_secret_file: self.client_secret_file.clone(),
            id_tokens: TokenSettings {
                issuer: issuer.clone(),
                audiences: vec![client_id.clone()],
                jwks_file: None,
                jwks_url: None::<Url>,
                algorithms: SigningAlgorithm::asymmetric(),
                dpop_required: false,
                ..tokens.clone()
            },
            client_id,
        })
    }
}
