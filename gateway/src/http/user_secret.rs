//! Asking a user to store the secret that a server needs (MCP 2025-11-25, elicitation in URL mode).
//!
//! Invariant: only a client that has declared that mode is asked; every other one gets the error of a request that could
//! not be sent.

use serde_json::{Value, json};
use url::Url;

use super::answer;
use super::endpoint::{UpstreamContext, is_initialize};
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Reply};
use mooring_upstream::connection::ClientCapabilities;
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
    let client = match is_initialize(message) {
        true => ClientCapabilities::declared_in(message.raw_params()?),
        false => {
            let session = context.session().ok()?;
            let stored = context.app.session_router.initialize_params(&session).await;
            ClientCapabilities::declared_in(&stored.ok()??)
        }
    };
    client.opens_addresses().then(|| {
        let body = ErrorBody::new(ErrorKind::UrlElicitationRequired)
            .answering(message.id())
            .data_json(elicitation(server, &page).to_string());
        answer::error(&body)
    })
}

fn elicitation(server: &str, page: &Url) -> Value {
    json!({"elicitations": [{
        "mode": "url",
        "elicitationId": format!("{:032x}", rand::random::<u128>()),
        "url": page.as_str(),
        "message": format!("Store your credential for {server}, then try again."),
    }]})
}
