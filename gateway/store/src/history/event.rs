//! What can happen to a session, with the facts that are kept of it.
//!
//! Invariant: a fact is a name, a number or a word, never what a client or a server has written in a message.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A word of a fixed set, which a newer gateway may extend.
pub type Word = Cow<'static, str>;

/// What has happened to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HistoryEvent {
    /// A client began it.
    Created {
        /// Name and version of the client, as it introduced itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        client: Option<Word>,
        /// The revision of MCP that it asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        protocol: Option<Word>,
        /// `http`, `sse` or `stdio`.
        #[serde(skip_serializing_if = "Option::is_none")]
        transport: Option<Word>,
    },
    /// A server was bound to an instance.
    Bound {
        /// The server.
        server: Word,
        /// The instance.
        instance: Word,
        /// The epoch of the binding.
        epoch: u64,
    },
    /// A binding was moved.
    Rebound {
        /// The server.
        server: Word,
        /// The instance that it left.
        from: Word,
        /// The instance that it has now.
        to: Word,
        /// The epoch that began.
        epoch: u64,
        /// Why, in the words of the log.
        reason: Word,
        /// Whether what the session had upstream is lost.
        state_lost: bool,
    },
    /// A connection that one gateway holds was opened or ended.
    Owner {
        /// The server.
        server: Word,
        /// The epoch of the binding.
        epoch: u64,
        /// What happened to it.
        change: OwnerChange,
        /// Why, where there are several reasons.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Word>,
    },
    /// A call waited long for its turn.
    Waited {
        /// The server.
        server: Word,
        /// How long, in milliseconds.
        wait_ms: u64,
        /// The gateway that had the turn, where the store told.
        #[serde(skip_serializing_if = "Option::is_none")]
        holder: Option<Word>,
        /// How it ended: `got it`, `gave up` or `withdrawn`.
        outcome: Word,
    },
    /// A server asked the client.
    Asked {
        /// The server.
        server: Word,
        /// The method of the question.
        method: Word,
    },
    /// The client answered a server's question.
    Answered {
        /// The server.
        server: Word,
    },
    /// Code or an agent ran.
    Ran {
        /// The server.
        server: Word,
        /// The id of its record, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        run: Option<Word>,
        /// How it ended.
        outcome: Word,
        /// How long it took, in milliseconds.
        took_ms: u64,
    },
    /// A request was refused, and nothing was executed.
    Refused {
        /// The server.
        server: Word,
        /// The limit, or the right that is missing.
        limit: Word,
    },
    /// A call was sent and has no result: it may have run.
    OutcomeUnknown {
        /// The server.
        server: Word,
    },
    /// The session was ended. An expired one has no such entry: nobody sees it expire.
    Ended {
        /// Who or what ended it.
        cause: EndCause,
    },
    /// What the session had left upstream or on the volume was deleted.
    Cleaned {
        /// What became of it.
        outcome: Word,
    },
    /// Of a kind that this version does not know.
    #[serde(skip)]
    Unknown {
        /// Its kind.
        kind: Box<str>,
    },
}

/// What happened to a connection that one gateway holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerChange {
    /// It was opened.
    Connected,
    /// It was closed, because another gateway has it or the session is over.
    Closed,
    /// It was closed after this gateway had not reached the store for a while.
    Fenced,
}

/// Who or what ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Its client.
    Client,
    /// An operator.
    Operator,
    /// A newer session of its principal, at the limit of sessions.
    Limit,
    /// Its state upstream was lost, and `on_upstream_loss` is `fail`.
    StateLost,
    /// It could not be opened.
    NotOpened,
    /// Its server was removed from the settings.
    ServerRemoved,
}

impl HistoryEvent {
    /// Whether it is the same as an earlier one but for its figures, so that both can be one entry. What a client can
    /// cause at will is repeated; what changes a session is not.
    pub(crate) fn repeats(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (
                Self::Waited {
                    server, outcome, ..
                },
                Self::Waited {
                    server: earlier_server,
                    outcome: earlier_outcome,
                    ..
                },
            )
            | (
                Self::Ran {
                    server, outcome, ..
                },
                Self::Ran {
                    server: earlier_server,
                    outcome: earlier_outcome,
                    ..
                },
            ) => server == earlier_server && outcome == earlier_outcome,
            (
                Self::Asked { .. }
                | Self::Answered { .. }
                | Self::Refused { .. }
                | Self::OutcomeUnknown { .. },
                earlier,
            ) => self == earlier,
            _ => false,
        }
    }

    /// Whether a client can cause it as often as it calls, so that later ones are counted in one entry.
    pub(crate) const fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::Waited { .. }
                | Self::Ran { .. }
                | Self::Asked { .. }
                | Self::Answered { .. }
                | Self::Refused { .. }
                | Self::OutcomeUnknown { .. }
        )
    }

    /// The later of two that are one entry: of waits the longer one.
    pub(crate) fn absorb(&mut self, later: Self) {
        if let (
            Self::Waited { wait_ms, .. },
            Self::Waited {
                wait_ms: longest, ..
            },
        ) = (&later, &*self)
            && wait_ms < longest
        {
            return;
        }
        *self = later;
    }
}

/// A name as a fact, cut to what an entry may hold of one.
#[must_use]
pub fn word(text: &str) -> Word {
    /// Most bytes of one fact.
    const WORD_BYTES_MAX: usize = 96;
    let end = text.floor_char_boundary(WORD_BYTES_MAX);
    Word::Owned(text.get(..end).unwrap_or_default().to_owned())
}
