//! Requests that only the instance can serve which has what they are about: a request that is sent again with the input
//! that it needs, and requests about tasks.
//!
//! Invariant: a state is used up directly before it is sent, and then once in the whole fleet: by the store, or not at all.

use std::sync::Arc;

use mooring_session::time::Millis;

use crate::answer;
use crate::client_states::{STATE_KEPT, SealScope, Task, digest_of, once_name};
use crate::request::UpstreamRequest;
use mooring_protocol::modern::{
    is_of_task, listened_tasks, returned_state, task_id, with_listened_tasks, with_returned_state,
    with_task_id,
};
use mooring_protocol::{ErrorKind, Message, Method, Reply};
use mooring_session::names::InstanceName;
use mooring_store::StoreError;
use mooring_upstream::Instance;

/// The request as its instance gets it.
#[derive(Debug, Default)]
pub(super) struct BoundRequest {
    /// The instance; none if any will do.
    pub(super) instance: Option<Arc<Instance>>,
    /// Its text, if it is another one.
    pub(super) text: Option<String>,
    /// The tasks that it names: the server's own id and the sealed one.
    pub(super) tasks: Vec<(Box<str>, Box<str>)>,
    /// The name under which the store remembers that its state was used; see [`use_up`].
    state: Option<String>,
}

/// Finds the instance of a request, and opens what is sealed in it.
///
/// # Errors
/// The reply that refuses it.
pub(super) fn bind(
    request: &UpstreamRequest<'_>,
    scope: &SealScope,
    message: &Message<'_>,
) -> Result<BoundRequest, Box<Reply>> {
    match message.method() {
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead => {
            match returned_state(message) {
                Some(sealed) => open_state(request, scope, message, &sealed),
                None => Ok(BoundRequest::default()),
            }
        }
        Method::SubscriptionsListen => of_listened_tasks(request, scope, message),
        _ if is_of_task(message) => of_task(request, scope, message),
        _ => Ok(BoundRequest::default()),
    }
}

fn open_state(
    request: &UpstreamRequest<'_>,
    scope: &SealScope,
    message: &Message<'_>,
    sealed: &str,
) -> Result<BoundRequest, Box<Reply>> {
    let refuse = |detail: &dyn std::fmt::Display| refused(message, detail);
    let states = &request.core.client_states;
    let opened = states.open_state(scope, &digest_of(message), sealed);
    let opened = opened.map_err(|cause| refuse(&cause))?;
    let Some(instance) = instance_named(request, &opened.instance) else {
        let detail =
            "the instance that has given requestState is gone: send the request again without it";
        return Err(refuse(&detail));
    };
    let Some(text) = with_returned_state(message, &opened.state) else {
        return Err(refuse(&"requestState cannot be read"));
    };
    Ok(BoundRequest {
        instance: Some(instance),
        text: Some(text),
        tasks: Vec::new(),
        state: Some(once_name(sealed)),
    })
}

/// Uses up the state of a request, which is sent next. One that is not sent keeps its state.
///
/// # Errors
/// The reply that refuses it.
pub(super) async fn use_up(
    request: &UpstreamRequest<'_>,
    message: &Message<'_>,
    bound: &BoundRequest,
) -> Result<(), Box<Reply>> {
    let Some(name) = &bound.state else {
        return Ok(());
    };
    let store = request.core.session_router.store();
    // It expires before the store forgets it.
    let window = Millis::from(STATE_KEPT.saturating_mul(2));
    match store.take_once(name, window).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let detail = "requestState was used before: send the request again without it";
            Err(refused(message, &detail))
        }
        Err(cause @ (StoreError::Away(_) | StoreError::NotReady(_))) => {
            tracing::warn!(%cause, "request not served: whether its state was used is not known");
            let detail = "whether requestState was used is not known without the store";
            let (kind, id) = (ErrorKind::StoreUnavailable, message.id());
            Err(Box::new(answer::detailed(kind, id, detail)))
        }
        Err(cause) => Err(Box::new(answer::store(&cause, message.id()))),
    }
}

fn refused(message: &Message<'_>, detail: &dyn std::fmt::Display) -> Box<Reply> {
    let (kind, id) = (ErrorKind::ParamsRefused, message.id());
    Box::new(answer::detailed(kind, id, detail))
}

fn of_task(
    request: &UpstreamRequest<'_>,
    scope: &SealScope,
    message: &Message<'_>,
) -> Result<BoundRequest, Box<Reply>> {
    let unknown = || {
        let detail = "you have no task with this id at this server";
        Box::new(answer::detailed(
            ErrorKind::ParamsRefused,
            message.id(),
            detail,
        ))
    };
    let sealed = task_id(message).ok_or_else(unknown)?;
    let states = &request.core.client_states;
    let Task { instance, id } = states.open_task(scope, &sealed).ok_or_else(unknown)?;
    let instance = instance_named(request, &instance).ok_or_else(unknown)?;
    let text = with_task_id(message, &id).ok_or_else(unknown)?;
    Ok(BoundRequest {
        instance: Some(instance),
        text: Some(text),
        tasks: vec![(id.into(), sealed.into())],
        state: None,
    })
}

/// A subscription goes to the instance of the first task that it names. It is acknowledged for those of that instance:
/// the server says which (2026-07-28, subscriptions, "Acknowledgment").
fn of_listened_tasks(
    request: &UpstreamRequest<'_>,
    scope: &SealScope,
    message: &Message<'_>,
) -> Result<BoundRequest, Box<Reply>> {
    let named = listened_tasks(message);
    if named.is_empty() {
        return Ok(BoundRequest::default());
    }
    let states = &request.core.client_states;
    let mut bound = BoundRequest::default();
    for sealed in named {
        let Some(Task { instance, id }) = states.open_task(scope, &sealed) else {
            continue;
        };
        let first = bound.instance.as_ref();
        if first.is_some_and(|first| first.name.as_str() != instance) {
            continue;
        }
        if first.is_none() {
            let Some(instance) = instance_named(request, &instance) else {
                continue;
            };
            bound.instance = Some(instance);
        }
        bound.tasks.push((id.into(), sealed.into()));
    }
    let ids: Vec<&str> = bound.tasks.iter().map(|(id, _)| &**id).collect();
    let Some(text) = with_listened_tasks(message, &ids) else {
        let (kind, detail) = (ErrorKind::ParamsRefused, "taskIds cannot be read");
        return Err(Box::new(answer::detailed(kind, message.id(), detail)));
    };
    bound.text = Some(text);
    Ok(bound)
}

fn instance_named(request: &UpstreamRequest<'_>, name: &str) -> Option<Arc<Instance>> {
    let name = InstanceName::parse(name.as_bytes()).ok()?;
    request.server.instance(&name).cloned()
}
