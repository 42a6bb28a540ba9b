//! Asking a user to store the secret that a server needs (MCP 2025-11-25, elicitation in URL mode).
//!
//! Invariant: only a client that has declared that mode is asked; every other one gets the error of a request that could
//! not be sent.

use serde_json::{Value, json};
use url::Url;

use super::answer;
use super::request::{UpstreamRequest, is_initialize};
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Reply};
use mooring_upstream::connection::ClientCapabilities;
use mooring_upstream::{Caller, UserSecretError};

/// The page where the user has to store a secret before a request without a session can be sent; none if there is one.
async fn needs_secret(request: &UpstreamRequest<'_>) -> Option<Url> {
    request.server.user_secret.as_ref()?;
    let mut page = request.core.credential_page.clone()?;
    page.query_pairs_mut()
        .append_pair("server", request.server.id.as_str());
    let caller = Caller::of(&request.identity.principal);
    match request.server.user_secret_version(&caller).await {
        Err(UserSecretError::Missing | UserSecretError::Unreadable) => Some(page),
        Ok(_) | Err(UserSecretError::Unavailable) => None,
    }
}

/// The error that leads the user of a request without a session to that page; none if there is a secret.
pub(crate) async fn refuse_without_secret(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
) -> Option<Reply> {
    let page = needs_secret(request).await?;
    let detail = format!("store your credential at {page}, then try again");
    let kind = ErrorKind::CredentialMissing;
    Some(answer::detailed(kind, message.id(), detail))
}

/// The reply that asks the user to store a secret for the server of this request, before it is sent; none if there is one,
/// or the user cannot be asked.
pub(crate) async fn ask_for_secret(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
) -> Option<Reply> {
    if message.kind() != Kind::Request {
        return None;
    }
    let page = needs_secret(request).await?;
    let server = request.server.id.as_str();
    let client = match is_initialize(message) {
        true => ClientCapabilities::declared_in(message.raw_params()?),
        false => {
            let session = request.session().ok()?;
            let stored = request
                .core
                .session_router
                .initialize_params(&session)
                .await;
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
