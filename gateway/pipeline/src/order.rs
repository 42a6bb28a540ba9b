//! The order of the steps that a client's message passes, at whichever server and from whichever transport.
//!
//! | step | where | may end it |
//! |---|---|---|
//! | authenticate | the transport | yes |
//! | limit the rate | `ServerDirectory::admit`; standard input has no limit | yes |
//! | authorize the server | `ServerDirectory::target_for` | yes |
//! | limit the calls at once | the transport; over HTTP before it reads the message | yes |
//! | authorize the tool | [`VisibleTools::refuse_call`] | yes |
//! | ask the hooks about the call | [`serve_hooked`] | yes |
//! | ask the user for the secret of an upstream server | `ask_for_secret` | yes |
//! | route by the server's kind, and relay the reply | `route` | |
//! | ask the hooks about the reply | [`serve_hooked`] | |
//! | take tools of others out of lists | [`VisibleTools::list_filter`] | |
//!
//! A message to a group passes the steps at the group, and again those from the tool on at its member. Calls of code begin
//! with the tool, and ask for no secret.
//!
//! What does not pass [`serve_in_order`] is no call of a tool:
//! - A stream (GET), whose lists `pipeline.rs` and `group/listen.rs` filter, and about whose answers `pipeline.rs` asks the
//!   hooks; and the end of a session (DELETE).
//! - What the gateway itself asks: visits of [`super::nested_servers`] and their ends, and what a group asks its members.
//! - Notifications that a group passes on to its bound members (`group/one_way.rs`).
//!
//! Invariant: a call that a step refuses is not sent to a server. Before that, the step of the secret may read the store, and
//! a group may ask its members for their lists, to find the one whose steps the call passes.

use bytes::Bytes;

use super::hooked_call::serve_hooked;
use super::request::{RequestServer, ServerRequest};
use super::visible_tools::VisibleTools;
use mooring_protocol::{Message, Method, Reply};

/// Serves one message; `route` sends it to its server, and relays the reply.
pub(crate) async fn serve_in_order<S: RequestServer>(
    request: &ServerRequest<'_, S>,
    body: &Bytes,
    message: &Message<'_>,
    route: impl AsyncFnOnce(&Bytes, &Message<'_>) -> Reply,
) -> Reply {
    let tools = VisibleTools::of(request);
    if let Some(refusal) = tools.refuse_call(message) {
        return refusal;
    }
    let filter = match message.method() {
        Method::ToolsList => tools.list_filter(),
        _ => None,
    };
    let reply = match request.core.hooks.is_empty() || !request.server.asks_hooks() {
        true => route(body, message).await,
        false => Box::pin(serve_hooked(request, body, message, route)).await,
    };
    match filter {
        Some(filter) => Box::pin(filter.apply(reply)).await,
        None => reply,
    }
}
