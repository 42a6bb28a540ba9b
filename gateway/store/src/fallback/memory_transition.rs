//! What each transition needs to be served while Redis is away, and what is remembered of its answer while it is not.

use mooring_session::names::{Principal, ServerName};
use mooring_session::refusal::{Refusal, Stale};
use mooring_session::rules::{
    BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest, EndReply,
    EndRequest, ForgetRequest, Ownership, RebindReply, RebindRequest, RouteReply, RouteRequest,
    TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::time::Timestamp;
use mooring_session::view::{BindingView, RecordView};

use super::memory::Memory;
use super::shadow::Shadow;
use crate::key::SessionKey;
use crate::redis::Wire;
use crate::transition::Get;
use crate::waking::WakingTransition;

/// What memory must know of a session that it did not mint.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequiredKnowledge<'a> {
    /// Its principal.
    Session,
    /// The whole record.
    Record,
    /// A bound binding of this server without an owner.
    Binding(&'a ServerName),
    /// Nothing that memory could know, unless it minted the session itself.
    Store,
    /// Redis, whichever session it is.
    Redis,
}

/// A transition that may be served from memory.
pub(crate) trait MemoryTransition: Wire + WakingTransition {
    /// Whether it makes a session where there is none.
    const MINTS: bool = false;

    /// What must be known.
    fn need(&self) -> RequiredKnowledge<'_>;

    /// The principal that the request names, if that is enough to serve a code session: its files are found without its
    /// record.
    fn user(&self) -> Option<&Principal> {
        None
    }

    /// Notes what an answer of Redis showed.
    fn note(&self, _key: &SessionKey, _reply: &Self::Reply, _shadow: &mut Shadow, _now: Timestamp) {
    }

    /// Notes what has to be sent to Redis on its return beside the record itself.
    fn journal(&self, _key: &SessionKey, _reply: &Self::Reply, _memory: &mut Memory) {}

    /// Notes a refusal by Redis.
    fn note_refusal(&self, key: &SessionKey, refusal: &Refusal, shadow: &mut Shadow) {
        match refusal {
            Refusal::NoSession | Refusal::Ended => shadow.forget(key),
            Refusal::Stale(Stale::Binding) | Refusal::Owned(_) => {
                if let RequiredKnowledge::Binding(server) = self.need() {
                    shadow.forget_binding(key, server);
                }
            }
            // A stranger's request says nothing about the session, and must not cost its owner anything.
            _ => {}
        }
    }
}

impl MemoryTransition for CreateRequest {
    const MINTS: bool = true;

    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Record
    }

    fn note(&self, key: &SessionKey, reply: &CreateReply, shadow: &mut Shadow, now: Timestamp) {
        shadow.note_record(key, &reply.record, now);
    }
}

impl MemoryTransition for Get {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Record
    }

    fn note(&self, key: &SessionKey, reply: &RecordView, shadow: &mut Shadow, now: Timestamp) {
        shadow.note_record(key, reply, now);
    }
}

impl MemoryTransition for TouchRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Session
    }

    fn user(&self) -> Option<&Principal> {
        Some(&self.principal)
    }

    fn journal(&self, key: &SessionKey, _reply: &TouchReply, memory: &mut Memory) {
        memory.journal_touch(key, self);
    }
}

impl MemoryTransition for EndRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Session
    }

    fn user(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    fn note(&self, key: &SessionKey, _reply: &EndReply, shadow: &mut Shadow, _now: Timestamp) {
        shadow.forget(key);
    }

    fn journal(&self, key: &SessionKey, reply: &EndReply, memory: &mut Memory) {
        memory.journal_end(key, self, reply);
    }
}

impl MemoryTransition for RouteRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn user(&self) -> Option<&Principal> {
        Some(&self.principal)
    }

    fn note(&self, key: &SessionKey, reply: &RouteReply, shadow: &mut Shadow, now: Timestamp) {
        match &reply.binding {
            Some(view) => shadow.note_binding(key, &self.principal, view, now),
            None => shadow.forget_binding(key, &self.server),
        }
    }
}

impl MemoryTransition for BindRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        binding_or_store(&self.server, self.ownership)
    }

    fn note(&self, key: &SessionKey, reply: &BindReply, shadow: &mut Shadow, now: Timestamp) {
        shadow.note_binding(key, &self.principal, &reply.binding, now);
    }
}

impl MemoryTransition for ConfirmRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn note(&self, key: &SessionKey, reply: &BindingView, shadow: &mut Shadow, now: Timestamp) {
        shadow.note_binding(key, &self.principal, reply, now);
    }
}

impl MemoryTransition for RebindRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        binding_or_store(&self.server, self.ownership)
    }

    fn note(&self, key: &SessionKey, reply: &RebindReply, shadow: &mut Shadow, now: Timestamp) {
        shadow.note_binding(key, &self.principal, &reply.binding, now);
    }
}

impl MemoryTransition for UnbindRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn note(&self, key: &SessionKey, reply: &BindingView, shadow: &mut Shadow, _now: Timestamp) {
        shadow.forget_binding(key, &reply.server);
    }
}

/// What a session held is cleaned up by one worker of the fleet, and who that is can only be agreed on in Redis.
impl MemoryTransition for ClaimRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Redis
    }
}

impl MemoryTransition for ForgetRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Redis
    }
}

/// Who else may own a binding of a session that others know too is for Redis to say.
fn binding_or_store(server: &ServerName, ownership: Ownership) -> RequiredKnowledge<'_> {
    match ownership {
        Ownership::Shared => RequiredKnowledge::Binding(server),
        Ownership::Owned => RequiredKnowledge::Store,
    }
}
