//! What waits to be sent to the server.
//!
//! Invariants: a server that does not read holds up nobody but itself: what is more than may wait is refused, or, where
//! it is an answer to the server's own questions, dropped; a client's message that is refused or never sent was certainly
//! not delivered.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::SendError;
use mooring_protocol::Reply;

/// Most messages of the client that wait.
const MESSAGES_MAX: usize = 256;
/// Most answers of the gateway's own that wait besides. Only a server that asks without end and reads nothing gets there.
const OWN_MAX: usize = 1024;

/// Where the reply to a client's message goes.
pub(super) type ReplyTo = oneshot::Sender<Result<Reply, SendError>>;

/// A message, and the reply that is given when it was sent.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    /// Its text.
    pub(super) text: Bytes,
    /// None for the gateway's own.
    pub(super) receipt: Option<SendReceipt>,
}

/// A reply that waits for its message to be sent.
#[derive(Debug)]
pub(super) struct SendReceipt {
    to: ReplyTo,
    reply: Reply,
}

impl SendReceipt {
    pub(super) const fn new(to: ReplyTo, reply: Reply) -> Self {
        Self { to, reply }
    }

    /// The message was sent. Who does not wait any more does not need to know.
    pub(super) fn give(self) {
        let _ = self.to.send(Ok(self.reply));
    }

    /// It was not, and never will be.
    pub(super) fn refuse(self, error: SendError) {
        let _ = self.to.send(Err(error));
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    letters: VecDeque<QueuedMessage>,
    clients: usize,
    bytes: usize,
    bytes_max: usize,
}

impl SendQueue {
    /// An empty queue. One message of a client always has place, further ones up to `bytes_max` together.
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self {
            letters: VecDeque::new(),
            clients: 0,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Whether a client's message of this size has place.
    pub(super) fn has_place(&self, bytes: usize) -> bool {
        self.clients == 0
            || (self.clients < MESSAGES_MAX && self.bytes.saturating_add(bytes) <= self.bytes_max)
    }

    /// Adds a client's message, for which there is place.
    pub(super) fn add(&mut self, text: Bytes, receipt: SendReceipt) {
        self.clients += 1;
        self.bytes += text.len();
        self.letters.push_back(QueuedMessage {
            text,
            receipt: Some(receipt),
        });
    }

    /// Adds a message of the gateway's own; returns whether there was place.
    pub(super) fn add_own(&mut self, text: Bytes) -> bool {
        let has_place = self.letters.len() - self.clients < OWN_MAX;
        if has_place {
            self.letters.push_back(QueuedMessage {
                text,
                receipt: None,
            });
        }
        has_place
    }

    /// Takes out the next message.
    pub(super) fn next(&mut self) -> Option<QueuedMessage> {
        let letter = self.letters.pop_front()?;
        if letter.receipt.is_some() {
            self.clients -= 1;
            self.bytes = self.bytes.saturating_sub(letter.text.len());
        }
        Some(letter)
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
    fn one_message_always_has_place_and_more_up_to_the_limit() {
        let mut sending = SendQueue::new(10);
        assert!(sending.has_place(100));
        add(&mut sending, 4);
        assert!(sending.has_place(6) && !sending.has_place(7));
        assert!(sending.next().is_some_and(|letter| letter.text.len() == 4));
        assert!(sending.is_empty() && sending.has_place(100));
        for _ in 0..MESSAGES_MAX {
            assert!(sending.has_place(0));
            add(&mut sending, 0);
        }
        assert!(!sending.has_place(0));
    }

    #[test]
    fn answers_of_the_gateway_take_no_place_from_the_client() {
        let mut sending = SendQueue::new(10);
        for _ in 0..OWN_MAX {
            assert!(sending.add_own(Bytes::from_static(b"{}")));
        }
        assert!(!sending.add_own(Bytes::from_static(b"{}")));
        assert!(sending.has_place(10));
        add(&mut sending, 10);
        assert!(!sending.add_own(Bytes::from_static(b"{}")));
    }
}
