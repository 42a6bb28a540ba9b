//! The affinity fields of servers of kind `http`, `sse` and `stdio`: whether sessions are kept, whether their calls
//! run one after another, what happens when an upstream session is lost, and where a
//! result tells of it.

use crate::affinity::Affinity;
use crate::reader::Reader;
use crate::rows::{settings, words};
use crate::setting::words;

settings! {
    /// The fields of every server that is somewhere else.
    pub(super) const ROWS {
        /// Whether this server's sessions keep their instance. Sessions of the kinds `stdio` and `sse` live in one
        /// connection and are always kept: there `off` is refused.
        AFFINITY = Choice("servers.affinity", words::<ServerAffinity>),
        /// Whether tool calls (`tools/call`) of one kept session may run at the same time, over the whole fleet.
        /// Nothing else waits for a turn: answers, cancellations, progress and lists pass at once.
        CONCURRENCY = Choice("servers.concurrency", words::<Concurrency>),
        /// What happens to a session whose instance, process or connection was lost.
        ON_UPSTREAM_LOSS = Choice("servers.on_upstream_loss", words::<OnUpstreamLoss>),
        /// Where the first result of a tool after a loss reports that state is gone.
        LOST_STATE_NOTICE = Choice("servers.lost_state_notice", words::<LostStateNotice>),
        /// Which requests of MCP 2026-07-28, which has no sessions, share a session of this server, and with it what the
        /// server remembers. Clients of earlier revisions name their sessions themselves.
        CONTINUITY = Choice("servers.continuity", words::<Continuity>),
    }
}

words! {
    /// The words of `servers.affinity`, before the global switch is applied.
    pub(super) enum ServerAffinity {
        /// as `affinity.enabled` says; where that is unset, as the server itself decides
        Inherit = "inherit",
        /// yes
        On = "on",
        /// no: any call may go to any instance, over upstream sessions that the clients of one user share
        Off = "off",
    }
}

words! {
    /// Whether tool calls of one session may run at the same time.
    pub enum Concurrency {
        /// one after another, in the order of arrival; a call that waits for its client lets the next one run.
        /// `affinity.turn_wait_max_ms` limits the wait
        Serial = "serial",
        /// side by side
        Parallel = "parallel",
    }
}

words! {
    /// What happens to a session whose instance, process or connection was lost.
    pub enum OnUpstreamLoss {
        /// a new upstream session on another instance, in a new process or over a new connection; the client is
        /// notified that state was lost
        Reinitialize = "reinitialize",
        /// 404, so that the client initializes again
        Fail = "fail",
    }
}

words! {
    /// Where the first result of a tool after a loss reports that state is gone.
    pub enum LostStateNotice {
        /// in `content`, as a sentence after what the tool said, and in `_meta["mooring/rebound"]`: models read only the
        /// former. Code gets the result as the tool gave it; its run tells of the loss
        Content = "content",
        /// in `_meta["mooring/rebound"]` alone, for programs that take each content of a result for data
        Meta = "meta",
    }
}

words! {
    /// Which requests without a session of their own share one.
    pub enum Continuity {
        /// none: no session is kept for them
        None = "none",
        /// those with the same `Mooring-Session` header, or cookie `mooring-session-ID` (the id is the server's), of one user.
        /// The reply to the first call without one issues both; a client may also choose a value of its own
        Header = "header",
        /// all of one user, whichever clients they come from. Callers that are not authenticated are refused
        Principal = "principal",
        /// the calls of tools in which a model names the same session, in an argument `mooring_session` that listed tools get.
        /// The result of a call without it begins a session, and names it
        Handle = "handle",
    }
}

/// Which requests share a session; refused where no sessions are kept, or another setting says how such requests are served.
pub(super) fn parse_continuity(
    reader: &mut Reader<'_>,
    affinity: Affinity,
    era_is_written: bool,
) -> Continuity {
    let continuity = reader.read(&CONTINUITY);
    let word = match continuity {
        Continuity::None => return continuity,
        Continuity::Header => "\"header\"",
        Continuity::Principal => "\"principal\"",
        Continuity::Handle => "\"handle\"",
    };
    if affinity == Affinity::Off {
        reader.refuse(
            &CONTINUITY,
            word,
            "no sessions of this server are kept (servers.affinity, or affinity.enabled)",
            "\"none\", or servers.affinity = \"on\"",
        );
    }
    if era_is_written {
        reader.refuse(
            &CONTINUITY,
            word,
            "servers.era says how requests without a session are served",
            "\"none\", or servers.era = \"auto\"",
        );
    }
    continuity
}

/// Whether the sessions of a server that can do both are kept.
pub(super) fn parse_affinity(reader: &mut Reader<'_>, standard: Affinity) -> Affinity {
    match reader.read(&AFFINITY) {
        ServerAffinity::Inherit => standard,
        ServerAffinity::On => Affinity::On,
        ServerAffinity::Off => Affinity::Off,
    }
}

/// That the sessions of a server of this kind are kept; `off` is refused, as they cannot move from call to call.
pub(super) fn require_affinity(reader: &mut Reader<'_>, kind: &str) -> Affinity {
    if parse_affinity(reader, Affinity::On) == Affinity::Off {
        reader.refuse(
            &AFFINITY,
            "\"off\"",
            format!("a session of kind \"{kind}\" lives in one connection, so it is always kept"),
            "\"inherit\" or \"on\", which mean the same here",
        );
    }
    Affinity::On
}
