//! What each transition requires of memory to be served while Redis is away, and what is recorded of its replies
//! before.

use mooring_session::names::{Principal, ServerName};
use mooring_session::refusal::{Refusal, Stale};
use mooring_session::rules::{
    BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest, EndReply,
    EndRequest, ForgetRequest, Ownership, RebindReply, RebindRequest, RouteReply, RouteRequest,
    TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::time::Monotonic;
use mooring_session::view::{BindingView, RecordView};

use super::journal::Journal;
use super::shadow::Shadow;
use crate::key::SessionKey;
use crate::redis::Wire;
use crate::transition::Get;

/// What memory must know about a session that it did not create.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequiredKnowledge<'a> {
    /// Its principal.
    Session,
    /// The whole record.
    Record,
    /// A bound binding of this server.
    Binding(&'a ServerName),
    /// Only Redis has the knowledge, unless memory created the session.
    Store,
    /// Always Redis.
    Redis,
}

/// A transition that memory may serve.
pub(crate) trait MemoryTransition: Wire {
    /// Whether it creates a missing session.
    const MINTS: bool = false;

    /// The required knowledge.
    fn need(&self) -> RequiredKnowledge<'_>;

    /// The principal in the request, if it suffices to serve a code session: its files are found without its record.
    fn user(&self) -> Option<&Principal> {
        None
    }

    /// Notes the state in a reply of Redis.
    fn note(&self, _key: &SessionKey, _reply: &Self::Reply, _shadow: &mut Shadow, _now: Monotonic) {
    }

    /// Notes what has to be sent to Redis on its return in addition to the record.
    fn journal(&self, _key: &SessionKey, _reply: &Self::Reply, _journal: &mut Journal) {}

    /// Notes a refusal by Redis.
    fn note_refusal(&self, key: &SessionKey, refusal: &Refusal, shadow: &mut Shadow) {
        match refusal {
            Refusal::NoSession | Refusal::Ended => shadow.forget(key),
            Refusal::Stale(Stale::Binding) | Refusal::Owned(_) => {
                if let RequiredKnowledge::Binding(server) = self.need() {
                    shadow.forget_binding(key, server);
                }
            }
            // A foreign principal's request says nothing about the session, and must not affect it.
            _ => {}
        }
    }
}

impl MemoryTransition for CreateRequest {
    const MINTS: bool = true;

    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Record
    }

    fn note(&self, key: &SessionKey, reply: &CreateReply, shadow: &mut Shadow, now: Monotonic) {
        shadow.note_record(key, &reply.record, now);
    }
}

impl MemoryTransition for Get {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Record
    }

    fn note(&self, key: &SessionKey, reply: &RecordView, shadow: &mut Shadow, now: Monotonic) {
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

    fn journal(&self, key: &SessionKey, _reply: &TouchReply, journal: &mut Journal) {
        journal.note_touch(key, self);
    }
}

impl MemoryTransition for EndRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Session
    }

    fn user(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    fn note(&self, key: &SessionKey, _reply: &EndReply, shadow: &mut Shadow, _now: Monotonic) {
        shadow.forget(key);
    }

    fn journal(&self, key: &SessionKey, reply: &EndReply, journal: &mut Journal) {
        journal.note_end(key, self, reply);
    }
}

impl MemoryTransition for RouteRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn user(&self) -> Option<&Principal> {
        Some(&self.principal)
    }

    fn note(&self, key: &SessionKey, reply: &RouteReply, shadow: &mut Shadow, now: Monotonic) {
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

    fn note(&self, key: &SessionKey, reply: &BindReply, shadow: &mut Shadow, now: Monotonic) {
        shadow.note_binding(key, &self.principal, &reply.binding, now);
    }
}

impl MemoryTransition for ConfirmRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn note(&self, key: &SessionKey, reply: &BindingView, shadow: &mut Shadow, now: Monotonic) {
        shadow.note_binding(key, &self.principal, reply, now);
    }
}

impl MemoryTransition for RebindRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        binding_or_store(&self.server, self.ownership)
    }

    fn note(&self, key: &SessionKey, reply: &RebindReply, shadow: &mut Shadow, now: Monotonic) {
        shadow.note_binding(key, &self.principal, &reply.binding, now);
    }
}

impl MemoryTransition for UnbindRequest {
    fn need(&self) -> RequiredKnowledge<'_> {
        RequiredKnowledge::Binding(&self.server)
    }

    fn note(&self, key: &SessionKey, reply: &BindingView, shadow: &mut Shadow, _now: Monotonic) {
        shadow.forget_binding(key, &reply.server);
    }
}

/// Cleaning up a session is done by one worker of the fleet, which only Redis can choose.
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

/// Only Redis knows whether another worker owns a binding of a session that others know.
fn binding_or_store(server: &ServerName, ownership: Ownership) -> RequiredKnowledge<'_> {
    match ownership {
        Ownership::Shared => RequiredKnowledge::Binding(server),
        Ownership::Owned => RequiredKnowledge::Store,
    }
}
