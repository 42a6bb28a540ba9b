//! Signing in with an API key or an access token that a person pastes.
//!
//! Invariant: the credential is in no reply and no log.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;

use super::screen::{NOBODY, sign_in_page, signed_in};
use crate::http::RequestBodies;
use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use crate::http::operator_page::SignIn;
use crate::http::ui::context::{form_fields, outdated_form};
use crate::http::ui::html::{self, Notice, TOKEN_FIELD};
use mooring_identity::now;
use mooring_session::names::Principal;

/// Longest form: senders are not known yet.
const FORM_BYTES_MAX: usize = 32 * 1024;

/// Exchanges a credential for the cookie.
pub(super) async fn sign_in(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    // Nobody is known yet: all who sign in share the memory of one user.
    let usage = app.core.usages.of(&Principal::local());
    let bodies = RequestBodies::new(FORM_BYTES_MAX);
    match bodies.read(body, usage.messages()).await {
        Ok(body) => exchange(&app, &sender, &head, &body).await,
        Err(error) => {
            let notice = Notice::problem(format!("The form could not be read: {error}"));
            sign_in_page(&app, StatusCode::BAD_REQUEST, None, Some(&notice))
        }
    }
}

async fn exchange(app: &App, sender: &RequestSender, head: &Parts, body: &[u8]) -> Response {
    let Some(page) = &app.page else {
        return html::empty(StatusCode::NOT_FOUND);
    };
    let fields = match form_fields(&head.headers, body) {
        Ok(fields) => fields,
        Err(refusal) => return refusal,
    };
    let field = |name| fields.get(name).map_or("", String::as_str);
    if !page.form_tokens.verify(field(TOKEN_FIELD), NOBODY) {
        return outdated_form();
    }
    let credential = field("credential").trim();
    match app.authenticator.verify_credential(credential).await {
        Ok(verified) => {
            let lifetime = page.sign_in_lifetime.as_secs();
            let until = verified.accepted_until.min(now().saturating_add(lifetime));
            let sign_in = SignIn::new(&verified.identity, verified.api_key, until);
            let user = app
                .core
                .request_log
                .user_digest(&verified.identity.principal);
            tracing::info!(%user, "a person has signed in to the operators' page");
            signed_in(
                app,
                page,
                RequestHead::of(sender, head),
                &sign_in,
                field("to"),
            )
        }
        Err(error) => {
            app.authenticator
                .note_refused(sender.peer.address.ip(), error);
            let notice = Notice::problem(format!("You are not signed in: {error}"));
            sign_in_page(app, error.status(), Some(field("to")), Some(&notice))
        }
    }
}
