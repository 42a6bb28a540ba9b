//! Messages that belong to no call, queued while the client has no general stream open.
//!
//! Invariants: at most [`EVENTS_MAX`] messages and [`BYTES_MAX`] bytes are queued, the newest ones; each `list_changed`
//! notification is queued once.

use std::collections::VecDeque;

use bytes::Bytes;

use super::key::Key;
use mooring_protocol::{Kind, Message};

/// Most queued messages: more than a server usually sends at startup.
const EVENTS_MAX: usize = 128;
/// Most queued bytes.
const BYTES_MAX: usize = 1024 * 1024;

/// A queued message.
#[derive(Debug)]
pub(super) struct PendingMessage {
    /// Its text.
    pub(super) text: Bytes,
    /// The request's id, if it is a server-to-client request.
    pub(super) question: Option<Key>,
    /// The method, if it is a `list_changed` notification, of which one is enough.
    list: Option<Box<str>>,
}

/// The queue, oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    items: VecDeque<PendingMessage>,
    bytes: usize,
}

impl PendingMessages {
    /// Adds a message and returns the messages evicted for it, which can include the message itself.
    pub(super) fn add(
        &mut self,
        message: &Message<'_>,
        question: Option<Key>,
    ) -> Vec<PendingMessage> {
        let list = message
            .method_name()
            .filter(|name| message.kind() == Kind::Notification && name.ends_with("/list_changed"));
        if list.is_some() && self.items.iter().any(|item| item.list.as_deref() == list) {
            return Vec::new();
        }
        self.bytes += message.text().len();
        self.items.push_back(PendingMessage {
            text: Bytes::copy_from_slice(message.text().as_bytes()),
            question,
            list: list.map(Into::into),
        });
        let mut gone = Vec::new();
        while (self.items.len() > EVENTS_MAX || self.bytes > BYTES_MAX)
            && let Some(oldest) = self.items.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.text.len());
            gone.push(oldest);
        }
        gone
    }

    /// Removes a server-to-client request.
    pub(super) fn remove(&mut self, question: &Key) {
        self.items
            .retain(|item| item.question.as_ref() != Some(question));
        self.bytes = self.items.iter().map(|item| item.text.len()).sum();
    }

    /// Removes and returns all messages.
    pub(super) fn take(&mut self) -> VecDeque<PendingMessage> {
        std::mem::take(self).items
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use mooring_protocol::Sender;

    fn add(pending_messages: &mut PendingMessages, text: &str, question: Option<Key>) -> usize {
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        pending_messages.add(&message, question).len()
    }

    #[test]
    fn the_newest_messages_are_kept() {
        let mut pending_messages = PendingMessages::default();
        for number in 0..EVENTS_MAX + 10 {
            let text = format!(r#"{{"method":"n/{number}"}}"#);
            assert_eq!(
                add(&mut pending_messages, &text, None),
                usize::from(number >= EVENTS_MAX)
            );
        }
        let items = pending_messages.take();
        assert_eq!(items.len(), EVENTS_MAX);
        assert_eq!(items.front().unwrap().text, r#"{"method":"n/10"}"#);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut pending_messages = PendingMessages::default();
        let text = format!(
            r#"{{"method":"n","params":{{"x":"{}"}}}}"#,
            "y".repeat(BYTES_MAX / 2)
        );
        let gone: Vec<_> = (0..3)
            .map(|_| add(&mut pending_messages, &text, None))
            .collect();
        assert_eq!(gone, [0, 1, 1]);
        let text = format!(
            r#"{{"method":"n","params":{{"x":"{}"}}}}"#,
            "y".repeat(BYTES_MAX)
        );
        assert_eq!(add(&mut pending_messages, &text, None), 2);
        assert_eq!(pending_messages.bytes, 0);
    }

    #[test]
    fn a_list_changed_notification_is_queued_once() {
        let mut pending_messages = PendingMessages::default();
        for name in ["tools", "prompts", "tools", "tools"] {
            let text = format!(r#"{{"method":"notifications/{name}/list_changed"}}"#);
            add(&mut pending_messages, &text, None);
        }
        assert_eq!(pending_messages.take().len(), 2);
    }

    #[test]
    fn a_withdrawn_question_is_removed() {
        let mut pending_messages = PendingMessages::default();
        let key = Key::of("1");
        add(
            &mut pending_messages,
            r#"{"id":1,"method":"roots/list"}"#,
            Some(key.clone()),
        );
        pending_messages.remove(&key);
        assert_eq!(
            (pending_messages.bytes, pending_messages.take().len()),
            (0, 0)
        );
    }
}
