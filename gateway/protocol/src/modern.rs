//! What MCP 2026-07-28 puts into a request and its headers, and into its replies.
//!
//! A request names its revision and the capabilities of its client in `_meta`, and repeats some of its fields in headers
//! (2026-07-28, transports, "Request Metadata"). Invariants: a header decodes to one text or is refused; what is replaced in
//! a message changes nothing else of it; a message that two parsers could read differently is not changed.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use thiserror::Error;

use super::envelope::{Kind, Message};
use super::ids::{RequestOrigin, decode};
use super::keys::{Members, Shape, read_object};
use super::method::Method;
use super::splice::{Edit, Fill, quoted, span_of, splice};

/// The `_meta` key of the capabilities of a request's client.
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key that names the `subscriptions/listen` request of a message.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// What the names of notifications about tasks begin with.
const TASK_NOTIFICATIONS: &str = "notifications/tasks";
/// What a header begins and ends with whose value is encoded ("Value Encoding").
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The value of a header that repeats a field of the message.
///
/// None if it is not text, has characters that a header may not have, or an encoding that is none.
#[must_use]
pub fn decode_mirrored(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let is_plain = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    if !text.bytes().all(is_plain) {
        return None;
    }
    let inner = text.strip_prefix(ENCODED.0);
    match inner.and_then(|inner| inner.strip_suffix(ENCODED.1)) {
        None => Some(Cow::Borrowed(text)),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?)
            .ok()
            .map(Cow::Owned),
    }
}

/// The value of a header that repeats this field; encoded where it has to be.
#[must_use]
pub fn encode_mirrored(text: &str) -> Option<HeaderValue> {
    let is_visible = |byte: u8| matches!(byte, b'!'..=b'~');
    let is_safe = text.bytes().all(|byte| byte == b' ' || is_visible(byte))
        && text.trim_matches(' ').len() == text.len()
        && !text.is_empty()
        && !(text.starts_with(ENCODED.0) && text.ends_with(ENCODED.1));
    match is_safe {
        true => HeaderValue::from_str(text).ok(),
        false => {
            let encoded = format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1);
            HeaderValue::from_str(&encoded).ok()
        }
    }
}

/// The field of a request that the header `Mcp-Name` repeats; none if its method has none. `Some(None)` if it should have
/// one and has not.
#[must_use]
pub fn mirrored_name<'a>(message: &Message<'a>) -> Option<Option<Cow<'a, str>>> {
    match message.method() {
        Method::ToolsCall | Method::PromptsGet => Some(message.params.name()),
        Method::ResourcesRead => Some(message.params.uri()),
        _ if is_of_task(message) => Some(task_id(message)),
        _ => None,
    }
}

/// Whether the request says in `_meta` which capabilities its client has, as each has to.
#[must_use]
pub fn declares_capabilities(message: &Message<'_>) -> bool {
    let found = || {
        let params = Members::read(&["_meta"], message.raw_params()?).ok()?;
        let [meta] = params.values;
        let [capabilities] = Members::read(&[CAPABILITIES_KEY], meta?).ok()?.values;
        let mut members = Members::<0>::new(&[]);
        let shape = read_object(capabilities?, &mut members).ok()?;
        Some(shape == Shape::Object)
    };
    found().unwrap_or(false)
}

/// What is wrong with the state or the task that a request brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BoundFieldError {
    /// Two parsers could read two values.
    #[error("params has `{0}` more than once, or in another case")]
    Ambiguous(&'static str),
    /// The state is no string.
    #[error("`requestState` must be a string")]
    State,
    /// The tasks of a subscription are no strings.
    #[error("`taskIds` must be a list of strings")]
    TaskList,
}

/// Checks what binds a request to an instance: a server must not find a state or a task in it that the gateway does not.
///
/// # Errors
/// It is ambiguous, or of another type.
pub fn check_bound_fields(message: &Message<'_>) -> Result<(), BoundFieldError> {
    let Some(raw_params) = message.raw_params() else {
        return Ok(());
    };
    let params = unambiguous(&["requestState", "taskId", "notifications"], raw_params)?;
    let [state, _task, filter] = params;
    if state.is_some_and(|raw| decode(raw).is_none()) {
        return Err(BoundFieldError::State);
    }
    let [ids] = match filter {
        Some(filter) => unambiguous(&["taskIds"], filter)?,
        None => [None],
    };
    let read = ids.map(serde_json::from_str::<Option<Vec<String>>>);
    match read {
        Some(Err(_)) => Err(BoundFieldError::TaskList),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn unambiguous<'a, const N: usize>(
    keys: &'static [&'static str; N],
    text: &'a str,
) -> Result<[Option<&'a str>; N], BoundFieldError> {
    // What is no object has no members, and what is no JSON is no message.
    let Ok(found) = Members::read(keys, text) else {
        return Ok([None; N]);
    };
    match found.duplicate.or(found.variant) {
        Some(key) => Err(BoundFieldError::Ambiguous(key)),
        None => Ok(found.values),
    }
}

/// Whether the request is about a task that exists (extension `io.modelcontextprotocol/tasks`).
#[must_use]
pub fn is_of_task(message: &Message<'_>) -> bool {
    message.kind() == Kind::Request
        && matches!(
            message.method_name(),
            Some("tasks/get" | "tasks/update" | "tasks/cancel")
        )
}

/// The task that a request or a notification names in its params.
#[must_use]
pub fn task_id<'a>(message: &Message<'a>) -> Option<Cow<'a, str>> {
    param(message, &["taskId"]).and_then(decode)
}

/// The message with another `params.taskId`.
#[must_use]
pub fn with_task_id(message: &Message<'_>, id: &str) -> Option<String> {
    replaced(message, param(message, &["taskId"])?, quoted(id))
}

/// The state that a server has given for this request, which its client returns; none if it has none, an invalid one if
/// it is no string.
#[must_use]
pub fn returned_state<'a>(message: &Message<'a>) -> Option<Cow<'a, str>> {
    let raw = param(message, &["requestState"])?;
    Some(decode(raw).unwrap_or_default())
}

/// The request with another state.
#[must_use]
pub fn with_returned_state(message: &Message<'_>, state: &str) -> Option<String> {
    replaced(message, param(message, &["requestState"])?, quoted(state))
}

/// Where a server gave something in a result that only its instance knows.
#[derive(Debug, Default)]
pub struct ResultFields<'a> {
    /// The state of a request that needs input.
    pub request_state: Option<(&'a str, Cow<'a, str>)>,
    /// The task that a result begins or shows.
    pub task_id: Option<(&'a str, Cow<'a, str>)>,
    /// Who may cache the result.
    cache_scope: Option<&'a str>,
    /// The revisions that a server offers.
    supported_versions: Option<&'a str>,
}

impl<'a> ResultFields<'a> {
    /// Those of a response; none if it is no result, or has one of them twice.
    #[must_use]
    pub fn of(message: &Message<'a>) -> Option<Self> {
        let result = message
            .outcome()
            .filter(|_| message.kind() == Kind::Result)?;
        let keys = &["requestState", "taskId", "cacheScope", "supportedVersions"];
        let found = Members::read(keys, result).ok()?;
        if found.duplicate.is_some() {
            return None;
        }
        let [request_state, task_id, cache_scope, supported_versions] = found.values;
        let text = |raw: Option<&'a str>| raw.and_then(|raw| Some((raw, decode(raw)?)));
        Some(Self {
            request_state: text(request_state),
            task_id: text(task_id),
            cache_scope,
            supported_versions,
        })
    }
}

/// A response, with what its client gets in place of fields of its result.
#[derive(Debug, Default)]
pub struct ResultChanges<'a> {
    edits: Vec<Edit<'a>>,
}

impl<'a> ResultChanges<'a> {
    /// Replaces this field, whose JSON text is `raw`, by a text.
    pub fn replace(&mut self, message: &Message<'a>, raw: &'a str, text: &str) {
        if let Some(at) = span_of(message.text, raw) {
            let with = Fill::Text(Cow::Owned(quoted(text)));
            self.edits.push(Edit { at, with });
        }
    }

    /// Lets no cache keep the result for other users: a gateway decides for each who may have it.
    pub fn make_private(&mut self, message: &Message<'a>, fields: &ResultFields<'a>) {
        if let Some(raw) = fields.cache_scope {
            self.replace(message, raw, "private");
        }
    }

    /// Leaves of the offered revisions those that `is_served`.
    pub fn limit_versions(
        &mut self,
        message: &Message<'a>,
        fields: &ResultFields<'a>,
        is_served: impl Fn(&str) -> bool,
    ) {
        let Some(raw) = fields.supported_versions else {
            return;
        };
        let offered: Vec<String> = serde_json::from_str(raw).unwrap_or_default();
        let served = offered.iter().filter(|name| is_served(name));
        let served: Vec<String> = served.map(|name| quoted(name)).collect();
        if let Some(at) = span_of(message.text, raw) {
            let with = Fill::Text(Cow::Owned(format!("[{}]", served.join(","))));
            self.edits.push(Edit { at, with });
        }
    }

    /// The changed response; none if nothing changes.
    #[must_use]
    pub fn apply(mut self, message: &Message<'a>) -> Option<String> {
        match self.edits.is_empty() {
            true => None,
            false => splice(message.text, &mut self.edits),
        }
    }
}

/// The tasks that a `subscriptions/listen`, or its acknowledgement, names.
#[must_use]
pub fn listened_tasks(message: &Message<'_>) -> Vec<String> {
    let raw = listened_tasks_raw(message);
    raw.and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_default()
}

/// The message with other tasks in the place of those that it names.
#[must_use]
pub fn with_listened_tasks(message: &Message<'_>, ids: &[impl AsRef<str>]) -> Option<String> {
    let ids: Vec<String> = ids.iter().map(|id| quoted(id.as_ref())).collect();
    replaced(
        message,
        listened_tasks_raw(message)?,
        format!("[{}]", ids.join(",")),
    )
}

fn listened_tasks_raw<'a>(message: &Message<'a>) -> Option<&'a str> {
    let filter = param(message, &["notifications"])?;
    let [ids] = Members::read(&["taskIds"], filter).ok()?.values;
    ids
}

/// The result of the call that a task has run, as JSON text, where the message shows the task: a result, or a notification of
/// a subscription.
///
/// # Errors
/// Two parsers could read two results.
pub fn task_outcome<'a>(message: &Message<'a>) -> Result<Option<&'a str>, BoundFieldError> {
    let is_of_tasks = || {
        let method = message.method_name();
        method.is_some_and(|name| name.starts_with(TASK_NOTIFICATIONS))
    };
    let shown = match message.kind() {
        Kind::Result => message.outcome(),
        Kind::Notification if is_of_tasks() => message.raw_params(),
        Kind::Notification | Kind::Request | Kind::Error => None,
    };
    let Some(shown) = shown else {
        return Ok(None);
    };
    let [result] = unambiguous(&["result"], shown)?;
    Ok(result)
}

/// The message with another result, given as JSON text, in the place of this one of its task.
#[must_use]
pub fn with_task_outcome(message: &Message<'_>, raw: &str, result: &str) -> Option<String> {
    replaced(message, raw, result.to_owned())
}

/// The message with the id that its client gave to the subscription, in place of the rewritten one; none if it names none.
#[must_use]
pub fn with_client_subscription(message: &Message<'_>) -> Option<String> {
    let holder = match message.kind() {
        Kind::Result => message.outcome()?,
        _ => message.raw_params()?,
    };
    let [meta] = Members::read(&["_meta"], holder).ok()?.values;
    let [raw] = Members::read(&[SUBSCRIPTION_KEY], meta?).ok()?.values;
    let raw = raw?;
    match RequestOrigin::of_value(raw) {
        RequestOrigin::Client { id, .. } => replaced(message, raw, id.into_owned()),
        _ => None,
    }
}

/// The result that ends the subscription of the request with this id, as JSON text.
#[must_use]
pub fn subscription_end(id_json: &str) -> String {
    super::call::result(
        id_json,
        &format!(r#"{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_KEY}":{id_json}}}}}"#),
    )
}

/// The result of a tool server as one of this revision, given as JSON text: it says that it is complete, and where it may be
/// cached, for how long and that it is not for others.
#[must_use]
pub fn complete_result(result: &str, cached_ms: Option<u64>) -> String {
    let hints = match cached_ms {
        Some(ttl) => format!(r#","ttlMs":{ttl},"cacheScope":"private""#),
        None => String::new(),
    };
    let Some(members) = result.trim_start().strip_prefix('{') else {
        return result.to_owned();
    };
    let comma = match members.trim_start().starts_with('}') {
        true => "",
        false => ",",
    };
    format!(r#"{{"resultType":"complete"{hints}{comma}{members}"#)
}

fn param<'a>(message: &Message<'a>, key: &'static [&'static str; 1]) -> Option<&'a str> {
    let found = Members::read(key, message.raw_params()?).ok()?;
    let [raw] = found.values;
    raw.filter(|_| found.duplicate.is_none())
}

fn replaced(message: &Message<'_>, raw: &str, with: String) -> Option<String> {
    let at = span_of(message.text, raw)?;
    let with = Fill::Text(Cow::Owned(with));
    splice(message.text, &mut [Edit { at, with }])
}

#[cfg(test)]
mod tests;
