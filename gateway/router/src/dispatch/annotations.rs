//! Checks whether a tool is annotated as safe to repeat. Queried only if a call may have run, so nothing is cached.

use bytes::Bytes;
use mooring_session::view::BindingView;
use serde::Deserialize;

use crate::affinity::{Session, SessionRouter, caller_of};
use mooring_delivery::ToolReading;
use mooring_protocol::call;
use mooring_upstream::{ExchangeError, Outgoing, SendError, Server, read_answer, within};
use mooring_usage::work_on_text;

/// Most pages of `tools/list` that are searched.
const PAGES_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolsPage {
    tools: Vec<Tool>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(default)]
    annotations: Annotations,
}

/// The hints of MCP 2025-03-26, "Tool annotations". They come from the server, which the operator trusts by configuring
/// it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Annotations {
    read_only_hint: Option<bool>,
    idempotent_hint: Option<bool>,
}

/// Whether the tool is annotated as read-only or idempotent. It counts as neither if the server does not answer.
pub(super) async fn read_tool(
    router: &SessionRouter,
    session: &Session,
    server: &Server,
    binding: &BindingView,
    tool: &str,
) -> ToolReading {
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = tools_page(router, session, server, binding, cursor.as_deref());
        let page = match page.await {
            Ok(Some(page)) => page,
            Err(ExchangeError::Send(SendError::Refused)) => return ToolReading::Refused,
            Ok(None) | Err(_) => return ToolReading::NotRepeatable,
        };
        if let Some(found) = page.tools.iter().find(|found| found.name == tool) {
            let Annotations {
                read_only_hint,
                idempotent_hint,
            } = found.annotations;
            return match read_only_hint == Some(true) || idempotent_hint == Some(true) {
                true => ToolReading::Repeatable,
                false => ToolReading::NotRepeatable,
            };
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    ToolReading::NotRepeatable
}

async fn tools_page(
    router: &SessionRouter,
    session: &Session,
    server: &Server,
    binding: &BindingView,
    cursor: Option<&str>,
) -> Result<Option<ToolsPage>, ExchangeError> {
    let text = call::tools_list(&router.next_id(), cursor);
    let outgoing = Outgoing::post(server, Bytes::from(text))
        .on_behalf_of(server, &caller_of(session))
        .upstream_session(binding.upstream_session.as_ref());
    let exchange = async {
        let sent = router.send_fresh(session, server, binding, &outgoing);
        read_answer(
            sent.await?,
            &outgoing,
            &router.reply_source(server, binding),
        )
        .await
    };
    let answer = within(router.options().answer_timeout, exchange).await?;
    let length = answer.text.len();
    let read = move || serde_json::from_str(answer.message()?.outcome()?).ok();
    Ok(work_on_text(length, read).await.flatten())
}
