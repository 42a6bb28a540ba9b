//! A link: the transport of one connection to one server, as queues of raw messages.
//!
//! Invariant: a link that is down says why, once, and before its last message is taken; `gone` follows when nothing of
//! the server is left in this worker.

use std::process::ExitStatus;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A transport to one server: raw JSON messages each way.
#[derive(Debug)]
pub struct Link {
    /// Messages to the server, each one JSON text. Bounded; closed when the link is down. Dropping the last sender asks
    /// for an orderly shutdown after what was sent has been delivered. Closed from the start where nothing is taken.
    pub to_server: mpsc::Sender<Bytes>,
    /// Messages from the server in their order, each one JSON text without a newline. Ends when the link is down, after
    /// `end` was set. Bounded: a server whose messages are not taken waits.
    pub from_server: mpsc::Receiver<Bytes>,
    /// Why it is down; set once.
    pub end: watch::Receiver<Option<LinkEnd>>,
    /// Dropping it asks for an orderly shutdown at once; messages that still wait are dropped.
    pub stop: DropGuard,
    /// Cancelled when nothing of the server is left here: every process of it has ended, every socket is closed.
    pub gone: CancellationToken,
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnd {
    /// This worker asked for it.
    #[error("the gateway closed it")]
    Closed,
    /// The server's process ended by itself, or was killed; with what the system says of it.
    #[error("the server ended: {0}")]
    Exited(ExitStatus),
    /// The transport broke, with the reason.
    #[error("the connection broke: {0}")]
    Broken(Box<str>),
    /// A message of the server was longer than is taken.
    #[error("a message of the server is longer than {bytes_max} bytes")]
    MessageTooLong {
        /// The most, in bytes.
        bytes_max: usize,
    },
}

/// The transport's side of a [`Link`].
#[derive(Debug)]
pub struct TransportEnd {
    /// What is to be sent to the server. Closing or dropping it closes the link's `to_server`.
    pub outgoing: mpsc::Receiver<Bytes>,
    /// What the server said. To be dropped after `ending` was told.
    pub incoming: mpsc::Sender<Bytes>,
    /// Where the reason of the end is told.
    pub ending: LinkEndSender,
    /// Cancelled when an orderly shutdown is asked for.
    pub stop: CancellationToken,
    /// To be dropped when nothing of the server is left.
    pub gone: DropGuard,
}

/// Tells why a link is down. Dropped without a word, it says that the transport was abandoned.
#[derive(Debug)]
pub struct LinkEndSender(watch::Sender<Option<LinkEnd>>);

impl LinkEndSender {
    /// Tells the reason. The first one stays.
    pub fn tell(&self, end: LinkEnd) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            if is_first {
                *told = Some(end);
            }
            is_first
        });
    }
}

impl Drop for LinkEndSender {
    fn drop(&mut self) {
        self.tell(LinkEnd::Broken("its transport was abandoned".into()));
    }
}

/// Both sides of a link. `messages_max` messages wait each way before the sender has to; at least one.
#[must_use]
pub fn pair(messages_max: usize) -> (Link, TransportEnd) {
    let (to_server, outgoing) = mpsc::channel(messages_max.max(1));
    let (incoming, from_server) = mpsc::channel(messages_max.max(1));
    let (ending, end) = watch::channel(None);
    let (stop, gone) = (CancellationToken::new(), CancellationToken::new());
    let link = Link {
        to_server,
        from_server,
        end,
        stop: stop.clone().drop_guard(),
        gone: gone.clone(),
    };
    let transport_end = TransportEnd {
        outgoing,
        incoming,
        ending: LinkEndSender(ending),
        stop,
        gone: gone.drop_guard(),
    };
    (link, transport_end)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays() {
        let (mut link, transport_end) = pair(1);
        transport_end.ending.tell(LinkEnd::Closed);
        transport_end
            .ending
            .tell(LinkEnd::Exited(ExitStatus::from_raw(1 << 8)));
        drop(transport_end);
        assert_eq!(link.from_server.recv().await, None);
        assert_eq!(*link.end.borrow(), Some(LinkEnd::Closed));
        assert!(link.gone.is_cancelled());
    }

    #[tokio::test]
    async fn a_transport_that_vanishes_has_a_reason_too() {
        let (link, transport_end) = pair(1);
        drop(transport_end);
        assert!(matches!(&*link.end.borrow(), Some(LinkEnd::Broken(_))));
    }

    #[tokio::test]
    async fn a_dropped_link_asks_for_the_end() {
        let (link, transport_end) = pair(1);
        assert!(!transport_end.stop.is_cancelled());
        drop(link);
        assert!(transport_end.stop.is_cancelled());
    }
}
