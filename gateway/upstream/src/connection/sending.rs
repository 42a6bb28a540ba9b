//! The queue of messages to the server.
//!
//! Invariants: a server that does not read delays only itself: beyond the limits, client messages are refused and the
//! gateway's answers to the server are dropped; a client message that is refused or never sent was not delivered.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::SendError;
use mooring_protocol::Reply;

/// Most queued messages of the client.
const MESSAGES_MAX: usize = 256;
/// Most queued answers of the gateway. Only a server that keeps asking and never reads reaches this limit.
const INTERNAL_MAX: usize = 1024;

/// Where the reply to a client's message is sent.
pub(super) type ReplyTo = oneshot::Sender<Result<Reply, SendError>>;

/// A message, and the reply to return once it is sent.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    /// Its text.
    pub(super) text: Bytes,
    /// `None` for the gateway's own messages.
    pub(super) receipt: Option<SendReceipt>,
}

/// A reply that waits until its message is sent.
#[derive(Debug)]
pub(super) struct SendReceipt {
    to: ReplyTo,
    reply: Reply,
}

impl SendReceipt {
    pub(super) const fn new(to: ReplyTo, reply: Reply) -> Self {
        Self { to, reply }
    }

    /// Confirms that the message was sent. The receiver may be gone.
    pub(super) fn confirm(self) {
        let _ = self.to.send(Ok(self.reply));
    }

    /// Reports that the message was not and will not be sent.
    pub(super) fn refuse(self, error: SendError) {
        let _ = self.to.send(Err(error));
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    messages: VecDeque<QueuedMessage>,
    clients: usize,
    bytes: usize,
    bytes_max: usize,
}

impl SendQueue {
    /// An empty queue. It always accepts one client message, and more up to `bytes_max` bytes in total.
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self {
            messages: VecDeque::new(),
            clients: 0,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether a client message of this size fits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.clients == 0
            || (self.clients < MESSAGES_MAX && self.bytes.saturating_add(bytes) <= self.bytes_max)
    }

    /// Queues a client message, which must fit.
    pub(super) fn add(&mut self, text: Bytes, receipt: SendReceipt) {
        self.clients += 1;
        self.bytes += text.len();
        self.messages.push_back(QueuedMessage {
            text,
            receipt: Some(receipt),
        });
    }

    /// Queues a message of the gateway; returns whether it fitted.
    pub(super) fn add_internal(&mut self, text: Bytes) -> bool {
        let has_room = self.messages.len() - self.clients < INTERNAL_MAX;
        if has_room {
            self.messages.push_back(QueuedMessage {
                text,
                receipt: None,
            });
        }
        has_room
    }

    /// Removes and returns the next message.
    pub(super) fn next(&mut self) -> Option<QueuedMessage> {
        let message = self.messages.pop_front()?;
        if message.receipt.is_some() {
            self.clients -= 1;
            self.bytes = self.bytes.saturating_sub(message.text.len());
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::reply;

    fn add(sending: &mut SendQueue, bytes: usize) {
        let receipt = SendReceipt::new(oneshot::channel().0, reply::accepted());
        sending.add(Bytes::from(vec![b'x'; bytes]), receipt);
    }

    #[test]
    fn one_message_always_fits_and_more_up_to_the_limit() {
        let mut sending = SendQueue::new(10);
        assert!(sending.has_room(100));
        add(&mut sending, 4);
        assert!(sending.has_room(6) && !sending.has_room(7));
        assert!(
            sending
                .next()
                .is_some_and(|message| message.text.len() == 4)
        );
        assert!(sending.is_empty() && sending.has_room(100));
        for _ in 0..MESSAGES_MAX {
            assert!(sending.has_room(0));
            add(&mut sending, 0);
        }
        assert!(!sending.has_room(0));
    }

    #[test]
    fn gateway_answers_do_not_use_the_clients_room() {
        let mut sending = SendQueue::new(10);
        for _ in 0..INTERNAL_MAX {
            assert!(sending.add_internal(Bytes::from_static(b"{}")));
        }
        assert!(!sending.add_internal(Bytes::from_static(b"{}")));
        assert!(sending.has_room(10));
        add(&mut sending, 10);
        assert!(!sending.add_internal(Bytes::from_static(b"{}")));
    }
}
