//! Signing in: a person shows an API key, an access token or an account at an OpenID provider once, and gets a cookie.
//!
//! Where requests have an identity of their own (a trusted proxy, a client certificate, `auth.mode = "none"`), nobody needs
//! to sign in.
//!
//! Invariant: the cookie holds no credential. It ends with the credential that it was given for: at its expiry, and that of
//! an API key also when the key is revoked.

mod credential;
mod openid;
mod screen;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::http::app::App;

/// The paths of signing in and out.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/ui/sign-in", get(screen::show).post(credential::sign_in))
        .route("/ui/sign-in/provider", get(openid::begin))
        .route("/ui/sign-in/callback", get(openid::complete))
        .route("/ui/sign-out", post(screen::sign_out))
}
