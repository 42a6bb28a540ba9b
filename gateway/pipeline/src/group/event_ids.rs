//! Event ids of a group's members, marked so that a client's `Last-Event-ID` identifies the stream to resume.
//!
//! | event of | id that the client sees |
//! |---|---|
//! | a call's stream | `<server>/call/<the member's id>` |
//! | the stream of unrelated messages | `<server>/stream/<the member's id>` |
//!
//! A server's id contains no slash. Invariant: only ids change, and any gateway can read the mark.

use mooring_protocol::Event;

/// The stream of a member that an event was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The reply to one request.
    Call,
    /// Messages that belong to no request; the group has one such stream for all members.
    Unrelated,
}

impl Source {
    const fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Unrelated => "stream",
        }
    }
}

/// An event id made by a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resumption<'a> {
    /// The member.
    pub(crate) server: &'a str,
    /// The stream of the member.
    pub(crate) source: Source,
    /// The member's own id.
    pub(crate) id: &'a str,
}

impl<'a> Resumption<'a> {
    /// Reads the mark; none for an id that no group made.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (server, rest) = text.split_once('/')?;
        let (word, id) = rest.split_once('/')?;
        let source = [Source::Call, Source::Unrelated]
            .into_iter()
            .find(|source| source.word() == word)?;
        (!id.is_empty()).then_some(Self { server, source, id })
    }
}

/// Marks the id of an event of this member. An empty id, which resets the client's `Last-Event-ID`, stays empty.
pub(crate) fn mark_event(event: Event, server: &str, source: Source) -> Event {
    let id = event.id.map(|id| match &*id {
        "" => id,
        id => format!("{server}/{}/{id}", source.word()).into(),
    });
    Event { id, ..event }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    #[test]
    fn only_ids_are_marked() {
        let event = |id: Option<&str>| Event {
            id: id.map(Into::into),
            retry_ms: Some(5),
            ..Event::message("id: not this")
        };
        for (id, marked) in [
            (Some("7_1"), Some("tools/call/7_1")),
            (Some(""), Some("")),
            (None, None),
        ] {
            assert_eq!(mark_event(event(id), "tools", Source::Call), event(marked));
        }
    }

    #[test]
    fn a_mark_is_read_back() {
        let read = |text: &str| {
            Resumption::parse(text)
                .map(|found| format!("{} {:?} {}", found.server, found.source, found.id))
        };
        assert_eq!(read("a.b-c/call/7_1").unwrap(), "a.b-c Call 7_1");
        assert_eq!(read("a/stream/x/y/z").unwrap(), "a Unrelated x/y/z");
        for foreign in ["", "7", "a/7", "a/other/7", "a/call/", "a/call"] {
            assert_eq!(read(foreign), None, "{foreign}");
        }
    }
}
