//! A link: the transport of one connection to one server, as queues of raw messages.
//!
//! Invariant: a link that is down reports the reason once, before its last message is read. `gone` follows when no
//! process or socket of the server is left in this gateway.

use std::process::ExitStatus;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A transport to one server: raw JSON messages each way.
#[derive(Debug)]
pub struct Link {
    /// Messages to the server, each one JSON text. Bounded; closed when the link is down. Dropping the last sender
    /// requests an orderly shutdown after the queued messages are delivered. Closed from the start for a server that
    /// accepts no messages.
    pub to_server: mpsc::Sender<Bytes>,
    /// Messages from the server in order, each one JSON text without a newline. Ends when the link is down, after `end`
    /// was set. Bounded: backpressure applies to the server.
    pub from_server: mpsc::Receiver<Bytes>,
    /// Why the link is down; set once.
    pub end: watch::Receiver<Option<LinkEnd>>,
    /// Dropping it requests an orderly shutdown at once; queued messages are dropped.
    pub stop: DropGuard,
    /// Cancelled when every process of the server has ended and every socket is closed.
    pub gone: CancellationToken,
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnd {
    /// This gateway closed it.
    #[error("the gateway closed it")]
    Closed,
    /// The server's process exited or was killed, with its exit status.
    #[error("the server ended: {0}")]
    Exited(ExitStatus),
    /// The transport broke, with the reason.
    #[error("the connection broke: {0}")]
    Broken(Box<str>),
    /// The server sent a message that exceeds the limit.
    #[error("a message of the server is longer than {bytes_max} bytes")]
    MessageTooLong {
        /// The limit, in bytes.
        bytes_max: usize,
    },
}

/// The transport's side of a [`Link`].
#[derive(Debug)]
pub struct TransportEnd {
    /// Messages to the server. Closing or dropping it closes the link's `to_server`.
    pub outgoing: mpsc::Receiver<Bytes>,
    /// Messages from the server. Drop it after `ending` is set.
    pub incoming: mpsc::Sender<Bytes>,
    /// Takes the reason of the end.
    pub ending: LinkEndSender,
    /// Cancelled to request an orderly shutdown.
    pub stop: CancellationToken,
    /// Drop it when no process or socket of the server is left.
    pub gone: DropGuard,
}

/// Sets why a link is down. If dropped unset, the reason is that the transport was abandoned.
#[derive(Debug)]
pub struct LinkEndSender(watch::Sender<Option<LinkEnd>>);

impl LinkEndSender {
    /// Sets the reason, unless it is already set.
    pub fn set(&self, end: LinkEnd) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            if is_first {
                *current = Some(end);
            }
            is_first
        });
    }
}

impl Drop for LinkEndSender {
    fn drop(&mut self) {
        self.set(LinkEnd::Broken("its transport was abandoned".into()));
    }
}

/// Both sides of a link. Each direction queues up to `messages_max` messages, at least one.
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

/// A message without raw newlines. In JSON these occur only between tokens, where a space is equivalent.
pub(crate) fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let blank = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    };
    message.iter().map(blank).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[tokio::test]
    async fn the_first_reason_is_kept() {
        let (mut link, transport_end) = pair(1);
        transport_end.ending.set(LinkEnd::Closed);
        transport_end
            .ending
            .set(LinkEnd::Exited(ExitStatus::from_raw(1 << 8)));
        drop(transport_end);
        assert_eq!(link.from_server.recv().await, None);
        assert_eq!(*link.end.borrow(), Some(LinkEnd::Closed));
        assert!(link.gone.is_cancelled());
    }

    #[tokio::test]
    async fn a_dropped_transport_is_abandoned() {
        let (link, transport_end) = pair(1);
        drop(transport_end);
        assert!(matches!(&*link.end.borrow(), Some(LinkEnd::Broken(_))));
    }

    #[tokio::test]
    async fn a_dropped_link_requests_shutdown() {
        let (link, transport_end) = pair(1);
        assert!(!transport_end.stop.is_cancelled());
        drop(link);
        assert!(transport_end.stop.is_cancelled());
    }

    #[test]
    fn newlines_between_tokens_become_spaces() {
        let message = Bytes::from_static(b"{\r\n\"a\":\n\"b\\n\"}");
        assert_eq!(one_line(message), &b"{  \"a\": \"b\\n\"}"[..]);
        let message = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(one_line(message.clone()).as_ptr(), message.as_ptr());
    }
}
