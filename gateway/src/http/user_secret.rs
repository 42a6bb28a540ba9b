//! Asking a user to store the secret that a server needs (MCP 2025-11-25, elicitation in URL mode).
//!
//! Invariant: only a client that has declared that mode is asked; every other one gets the error of a request that could
//! not be sent.

use serde_json::{Value, json};
use url::Url;

use super::answer;
use super::endpoint::{UpstreamContext, is_initialize};
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Reply};
use mooring_upstream::{Caller, UserSecretError};

/// The reply that asks the user to store a secret for the server of this request, before it is sent; none if there is one,
/// or the user cannot be asked.
pub(super) async fn ask_for_secret(
    context: &UpstreamContext,
    message: &Message<'_>,
) -> Option<Reply> {
    context.server.user_secret.as_ref()?;
    if message.kind() != Kind::Request {
        return None;
    }
    let server = context.server.id.as_str();
    let page = context.app.vault.as_ref()?.page_for(server)?;
    let caller = Caller::of(&context.identity.principal);
    match context.server.user_secret_version(&caller).await {
        Err(UserSecretError::Missing | UserSecretError::Unreadable) => {}
        Ok(_) | Err(UserSecretError::Unavailable) => return None,
    }
    let opens_addresses = match is_initialize(message) {
        true => message.raw_params().is_some_and(opens_addresses),
        false => {
            let session = context.session().ok()?;
            let stored = context.app.session_router.initialize_params(&session).await;
            stored.ok()?.is_some_and(|params| opens_addresses(&params))
        }
    };
    opens_addresses.then(|| {
        let body = ErrorBody::new(ErrorKind::UrlElicitationRequired)
            .answering(message.id())
            .data_json(elicitation(server, &page).to_string());
        answer::error(&body)
    })
}

/// Whether the client whose params of `initialize` these are opens addresses for its user.
fn opens_addresses(params: &str) -> bool {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let mode = params.pointer("/capabilities/elicitation/url");
    mode.is_some_and(|mode| !mode.is_null())
}

fn elicitation(server: &str, page: &Url) -> Value {
    json!({"elicitations": [{
        "mode": "url",
        "elicitationId": format!("{:032x}", rand::random::<u128>()),
        "url": page.as_str(),
        "message": format!("Store your credential for {server}, then try again."),
    }]})
}
