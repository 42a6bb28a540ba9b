//! The order of the steps that every message passes, at whichever server and from whichever transport.
//!
//! | step | where | may end it |
//! |---|---|---|
//! | authenticate | the transport | yes |
//! | limit the rate, authorize the server | `ServerDirectory::admit` | yes |
//! | limit the calls at once | the transport, before it reads the message | yes |
//! | authorize the tool | [`VisibleTools::refuse_call`] | yes |
//! | ask the hooks about the call | [`serve_hooked`] | yes |
//! | route by the server's kind, and relay the reply | `route` | |
//! | ask the hooks about the reply | [`serve_hooked`] | |
//! | take tools of others out of lists | [`VisibleTools::list_filter`] | |
//!
//! A message to a group passes the steps at the group and again at its member. Calls of code begin with the tool.
//!
//! Invariant: a message that a step refuses reaches neither the store nor a server.

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
