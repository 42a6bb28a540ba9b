//! The ENTER and LEAVE commands.

use mooring_session::names::ServerName;
use mooring_session::refusal::{Refusal, Stale};
use redis::Value;

use super::reply::{self, Fields, Problem};
use super::{RedisStore, Resend, sized_command, unreadable};
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::status::AnsweredBy;
use crate::turns::{EnterReply, EnterRequest, LeaveRequest, LeaveTarget, Line};

impl RedisStore {
    pub(crate) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        let name = "SESSION.ENTER";
        let mut command = sized_command();
        command
            .arg((name, key.secret(), request.principal.as_str()))
            .arg((request.server.as_str(), request.worker.as_str()))
            .arg((request.ticket.as_str(), "LEASE", request.lease.get()))
            .arg((request.line == Line::First).then_some("FIRST"))
            .arg(request.held.map(|turn| ("HELD", turn)));
        // The same ticket gets the same reply again.
        let value = self.send(&command, name, Resend::Once).await?;
        entered(value, &request.server).map_err(unreadable(name))
    }

    pub(crate) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        let name = "SESSION.LEAVE";
        let (LeaveTarget::Ticket(ticket) | LeaveTarget::WaitingUnder(ticket)) = &request.who;
        let mut command = sized_command();
        let is_for_waiting = matches!(request.who, LeaveTarget::WaitingUnder(_));
        command
            .arg((name, key.secret(), request.principal.as_str()))
            .arg((request.server.as_str(), ticket.as_str()))
            .arg(is_for_waiting.then_some("WAITING"));
        // A repeated LEAVE returns STALE, as if the first one had failed.
        match self.send(&command, name, Resend::Never).await {
            // An error reply of unknown meaning: the module is older than WAITING, and the caller stays in the queue.
            Err(StoreError::Reply { .. }) if is_for_waiting => {
                Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
            }
            answer => answer.map(drop),
        }
    }
}

/// Parses the reply of ENTER: that of ROUTE, and the turn.
pub(super) fn entered(value: Value, server: &ServerName) -> Result<EnterReply, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(EnterReply {
        turn: fields.optional_number("turn")?,
        answered_by: AnsweredBy::Store,
        routed: reply::routed_of(fields, server)?,
    })
}
