//! What a client gets in place of what its server wrote: sealed states and tasks, its own subscription id, and lists and
//! offers of revisions as a gateway can make them.
//!
//! Invariant: everything else of a message stays byte for byte, and a message that has none of it is not parsed.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use mooring_session::names::InstanceName;

use crate::client_states::{ClientStates, STATE_BYTES_MAX, SealScope, TASK_BYTES_MAX, digest_of};
use mooring_protocol::modern::{
    ResultChanges, ResultFields, listened_tasks, task_id, with_client_subscription,
    with_listened_tasks, with_task_id,
};
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Method, Revision, Sender};

/// A message with none of these needs no change.
const MARKS: [&str; 5] = [
    "requestState",
    "taskId",
    "cacheScope",
    "supportedVersions",
    "subscriptionId",
];

/// The changes to the messages of one reply.
#[derive(Debug)]
pub(super) struct ReplyChanges {
    pub(super) states: ClientStates,
    pub(super) scope: SealScope,
    /// The instance that replies.
    pub(super) instance: InstanceName,
    /// The request, as its client sent it.
    pub(super) request: Bytes,
    /// The tasks that the request names, which its client knows under these ids.
    pub(super) tasks: Vec<(Box<str>, Box<str>)>,
}

/// Whether replies to this method have something to change.
pub(super) fn concern(message: &Message<'_>) -> bool {
    !matches!(message.method(), Method::CompletionComplete)
}

impl ReplyChanges {
    /// The message as the client gets it.
    pub(super) fn apply(self: &Arc<Self>, text: Bytes) -> Bytes {
        if !MARKS
            .iter()
            .any(|mark| memmem::find(&text, mark.as_bytes()).is_some())
        {
            return text;
        }
        let Ok(message) = Message::parse(&text, Sender::Upstream) else {
            return text;
        };
        let changed = match message.kind() {
            Kind::Result => self.result(&message),
            Kind::Notification => self.notification(&message),
            Kind::Request | Kind::Error => None,
        };
        changed.map_or_else(|| text.clone(), Bytes::from)
    }

    fn result(&self, message: &Message<'_>) -> Option<String> {
        if let Some(changed) = with_client_subscription(message) {
            return Some(changed);
        }
        let fields = ResultFields::of(message)?;
        let mut changes = ResultChanges::default();
        changes.make_private(message, &fields);
        // Clients with sessions find the others by `initialize`.
        let is_served = |name: &str| name == Revision::MODERN.as_str();
        changes.limit_versions(message, &fields, is_served);
        if let Some((raw, state)) = &fields.request_state {
            match self.seal_state(state) {
                Some(sealed) => changes.replace(message, raw, &sealed),
                None => return Some(self.too_long(message, "requestState", STATE_BYTES_MAX)),
            }
        }
        if let Some((raw, id)) = &fields.task_id {
            match self.client_task(id) {
                Some(sealed) => changes.replace(message, raw, &sealed),
                None => return Some(self.too_long(message, "taskId", TASK_BYTES_MAX)),
            }
        }
        changes.apply(message)
    }

    fn notification(&self, message: &Message<'_>) -> Option<String> {
        let with_subscription = with_client_subscription(message);
        let text = with_subscription.as_deref().unwrap_or(message.text());
        // The id of the subscription is in `_meta`, and tasks are beside it.
        let message = Message::parse(text.as_bytes(), Sender::Upstream).ok()?;
        let with_tasks = match task_id(&message) {
            Some(id) => self
                .client_task(&id)
                .and_then(|sealed| with_task_id(&message, &sealed)),
            None => match listened_tasks(&message) {
                ids if ids.is_empty() => None,
                ids => {
                    let sealed: Vec<String> =
                        ids.iter().filter_map(|id| self.client_task(id)).collect();
                    with_listened_tasks(&message, &sealed)
                }
            },
        };
        with_tasks.or(with_subscription)
    }

    fn seal_state(&self, state: &str) -> Option<String> {
        let request = Message::parse(&self.request, Sender::Client).ok()?;
        let digest = digest_of(&request);
        self.states
            .seal_state(&self.scope, &self.instance, &digest, state)
    }

    /// The id under which the client knows a task: the one that it has named, or else a new one.
    fn client_task(&self, id: &str) -> Option<String> {
        let named = self.tasks.iter().find(|(own, _)| **own == *id);
        match named {
            Some((_, sealed)) => Some(sealed.to_string()),
            None => self.states.seal_task(&self.scope, &self.instance, id),
        }
    }

    fn too_long(&self, message: &Message<'_>, field: &str, bytes_max: usize) -> String {
        tracing::warn!(server = %self.scope.server, instance = %self.instance, field, bytes_max, "a result was withheld: a field that its client has to return is too long");
        let detail = format!("its {field} is longer than {bytes_max} bytes");
        let error = ErrorBody::new(ErrorKind::UpstreamInvalid)
            .answering(message.id())
            .detail(detail);
        String::from_utf8_lossy(&error.to_bytes()).into_owned()
    }
}
