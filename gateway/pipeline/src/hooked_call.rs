//! Asks hooks about tool calls: about a call before it is sent, and about its answer before it is forwarded.
//!
//! Invariant: a call or an answer that cannot be sent to a hook is not forwarded.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use super::answer;
use super::held_text::into_held;
use super::hooks::{CallOutcome, HookRefusal, HookedCall};
use super::map_messages::map_messages;
use super::request::{RequestServer, ServerRequest};
use mooring_protocol::modern::{task_outcome, with_task_outcome};
use mooring_protocol::renaming::{arguments, with_arguments};
use mooring_protocol::repeated_keys::has_repeated_keys;
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Method, Reply, Sender, call, mark};

/// Serves a message; if it is a call that hooks are asked about, as they decide.
pub(crate) async fn serve_hooked<S: RequestServer>(
    request: &ServerRequest<'_, S>,
    body: &Bytes,
    message: &Message<'_>,
    serve: impl AsyncFnOnce(&Bytes, &Message<'_>) -> Reply,
) -> Reply {
    let (core, route) = (&request.core, request.call_route());
    let bytes_max = core.relay.message_bytes_max;
    match message.method() {
        Method::ToolsCall => {}
        // Such as tasks/get, which fetches the result of a call. Notifications of a subscription can have it too.
        Method::Other | Method::SubscriptionsListen if message.kind() == Kind::Request => {
            let calls = core.hooks.of_unknown_calls(route, &[]);
            let reply = serve(body, message).await;
            return match calls {
                Some(calls) => answered(calls, reply, bytes_max).await,
                None => reply,
            };
        }
        _ => return serve(body, message).await,
    }
    let refuse = |kind, detail: &str| answer::detailed(kind, message.id(), detail);
    let Some(tool) = message.params.name() else {
        return refuse(ErrorKind::ParamsRefused, "the call names no tool");
    };
    let arguments = arguments(message);
    // A server could read such arguments in another way than a hook.
    if arguments.is_some_and(|text| has_repeated_keys(text).unwrap_or(true)) {
        let detail = "the arguments have a key twice, or a value that not every program can read";
        return refuse(ErrorKind::ParamsRefused, detail);
    }
    let Some(mut call) = core.hooks.of_call(route, &tool, arguments.and_then(raw)) else {
        return serve(body, message).await;
    };
    let reply = match call.before().await {
        Err(refusal) => return answer::error(&refused_call(refusal).answering(message.id())),
        Ok(None) => serve(body, message).await,
        Ok(Some(changed)) => {
            let Some(text) = with_arguments(message, changed.get()) else {
                return refuse(ErrorKind::Internal, "the call could not be changed");
            };
            let text = match into_held(text.into(), body, request.usage.messages()) {
                Ok(text) => text,
                Err(cause) => return answer::no_room(cause, message.id()),
            };
            match Message::parse(&text, Sender::Client) {
                Ok(message) => serve(&text, &message).await,
                Err(cause) => {
                    tracing::warn!(%cause, "the arguments that a hook made are no part of a message");
                    return answer::error(
                        &refused_call(HookRefusal::NoAnswer).answering(message.id()),
                    );
                }
            }
        }
    };
    answered(call, reply, bytes_max).await
}

/// The reply to a call, as the hooks let it through. A JSON reply is read whole first.
pub(crate) async fn answered(call: HookedCall, reply: Reply, bytes_max: usize) -> Reply {
    if !reply.status.is_success() {
        return reply;
    }
    let call = Arc::new(call);
    let ask = move |text| consult(Arc::clone(&call), text);
    match map_messages(reply, bytes_max, ask).await {
        Ok(reply) => reply,
        Err(cause) => answer::unread(&cause),
    }
}

/// A message of a reply, or its replacement by the hooks.
async fn consult(call: Arc<HookedCall>, text: Bytes) -> Bytes {
    let message = match Message::parse(&text, Sender::Upstream) {
        Ok(message) => message,
        Err(cause) => {
            tracing::warn!(%cause, "an answer that no hook can be shown is withheld");
            return ErrorBody::new(ErrorKind::UpstreamInvalid).to_bytes();
        }
    };
    let outcome = message.outcome().and_then(raw);
    let outcome = match (message.kind(), &outcome) {
        (Kind::Result, Some(result)) if call.is_known() || is_of_a_call(result) => {
            CallOutcome::Result(result)
        }
        (Kind::Error, Some(error)) => CallOutcome::Error(error),
        _ => return consult_task(&call, &message).await.unwrap_or(text),
    };
    let id = message.id();
    match call.after(outcome).await {
        Ok(None) => text,
        Ok(Some(changed)) => {
            let id_json = id.map_or("null", |id| id.as_json());
            let response = call::result(id_json, changed.get());
            // A hook does not know of the loss that must be reported to the client.
            let marked = message
                .outcome()
                .and_then(|result| mark::copy_mark(result, &response));
            Bytes::from(marked.unwrap_or(response))
        }
        Err(refusal) => withheld(refusal).answering(id).to_bytes(),
    }
}

/// A message that shows a task, whose result is another after the hooks; none if nothing changes.
async fn consult_task(call: &HookedCall, message: &Message<'_>) -> Option<Bytes> {
    let inner = match task_outcome(message) {
        Ok(inner) => inner?,
        Err(cause) => {
            tracing::warn!(%cause, "an answer that no hook can be shown is withheld");
            let error = ErrorBody::new(ErrorKind::UpstreamInvalid).answering(message.id());
            return Some(error.to_bytes());
        }
    };
    let result = raw(inner).filter(|result| is_of_a_call(result))?;
    let changed = match call.after(CallOutcome::Result(&result)).await {
        Ok(None) => return None,
        Ok(Some(changed)) => with_task_outcome(message, inner, changed.get()),
        // What is no answer to a request cannot be an error.
        Err(_) if message.kind() == Kind::Notification => {
            let text =
                json!({ "content": [{ "type": "text", "text": WITHHELD }], "isError": true });
            with_task_outcome(message, inner, &text.to_string())
        }
        Err(refusal) => return Some(withheld(refusal).answering(message.id()).to_bytes()),
    };
    let failed = || ErrorBody::new(ErrorKind::Internal).answering(message.id());
    Some(changed.map_or_else(|| failed().to_bytes(), Bytes::from))
}

/// Whether a result is that of a tool call: only those have content of their own.
fn is_of_a_call(result: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Contents {
        #[serde(rename = "structuredContent")]
        structured: Option<serde::de::IgnoredAny>,
        content: Option<serde::de::IgnoredAny>,
    }
    let contents = serde_json::from_str::<Contents>(result.get());
    contents.map_or(true, |of| of.structured.is_some() || of.content.is_some())
}

/// JSON text that is forwarded unchanged.
fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

/// The error of a call that is not sent.
fn refused_call(refusal: HookRefusal) -> ErrorBody<'static> {
    match refusal {
        HookRefusal::Refused(Some(reason)) => ErrorBody::new(ErrorKind::CallRefused).detail(reason),
        HookRefusal::Refused(None) => ErrorBody::new(ErrorKind::CallRefused),
        HookRefusal::NoAnswer => {
            ErrorBody::new(ErrorKind::HookUnavailable).detail("the call has not run")
        }
    }
}

const WITHHELD: &str = "the call has run, and its result is withheld";

/// The error in the place of a call's result.
fn withheld(refusal: HookRefusal) -> ErrorBody<'static> {
    match refusal {
        HookRefusal::Refused(Some(reason)) => {
            let detail = format_args!("{WITHHELD}: {reason}");
            ErrorBody::new(ErrorKind::CallRefused).detail(detail)
        }
        HookRefusal::Refused(None) => ErrorBody::new(ErrorKind::CallRefused).detail(WITHHELD),
        HookRefusal::NoAnswer => ErrorBody::new(ErrorKind::HookUnavailable).detail(WITHHELD),
    }
}
