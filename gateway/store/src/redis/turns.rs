//! The ENTER and LEAVE commands, and ROUTE with a delegation.

use std::sync::atomic::Ordering;
use std::time::Instant;

use mooring_session::names::{ServerName, WorkerId};
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::time::Millis;
use mooring_session::view::BindingView;
use redis::{Cmd, Value};

use super::failure::{accepted, invalid_reply};
use super::reply::{self, Fields, Problem};
use super::{RedisStore, Resend, Wire, sized_command};
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::status::AnsweredBy;
use crate::transition::Transition;
use crate::turns::{
    DelegatedRoute, EnterReply, EnterRequest, LEAVE, LeaveRequest, LeaveTarget, Line, TurnEnding,
    TurnHolder, TurnScope,
};

impl RedisStore {
    pub(crate) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.enter(key, request).await;
        }
        if request.scope == TurnScope::Call || !self.may_delegate(&request.worker) {
            return self.enter_as(key, request, TurnScope::Call).await;
        }
        let with = self.enter_as(key, request, TurnScope::Delegation);
        let without = async || self.enter_as(key, request, TurnScope::Call).await;
        self.with_delegation(key, with, without).await
    }

    /// Asks for a route, and to use it without asking.
    pub(crate) async fn delegate_route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.delegate_route(key, request, lease).await;
        }
        let with = self.route_for(key, request, lease);
        let without = async || {
            let routed = self.run(key, request).await?;
            Ok(DelegatedRoute {
                routed,
                delegated_for: None,
            })
        };
        if !self.may_delegate(&request.worker) {
            return without().await;
        }
        self.with_delegation(key, with, without).await
    }

    /// Whether the worker could rely on a delegation. A server that reaches the worker grants one, but while another primary
    /// of the cluster does not, the worker relies on none.
    fn may_delegate(&self, worker: &WorkerId) -> bool {
        self.servers.cluster().is_none() || self.event_path(worker).is_some()
    }

    /// Asks for a delegation, or without one if the module does not know the word. It is asked for again after a
    /// reconnection, which may lead to another module.
    async fn with_delegation<R>(
        &self,
        key: &SessionKey,
        with: impl Future<Output = Result<R, StoreError>>,
        without: impl AsyncFnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let connection = self.servers.connection_number(key.secret());
        if connection == self.without_delegations.load(Ordering::Relaxed) {
            return without().await;
        }
        match with.await {
            // An older module refuses the word.
            Err(StoreError::Reply { .. }) => {
                let replied = without().await;
                if replied.is_ok() {
                    (self.without_delegations).store(connection, Ordering::Relaxed);
                }
                replied
            }
            result => result,
        }
    }

    async fn route_for(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        let name = RouteRequest::COMMAND;
        let known = self.known_bindings.get(key, &request.server);
        let mut command = sized_command();
        request.write(key, &mut command);
        command
            .arg(("DELEGATE", lease.get()))
            .arg(known.as_ref().map(|known| ("EPOCH", known.epoch)));
        let value = self.send(&command, name, Resend::Once).await?;
        if let Some(known) = &known
            && let Some(delegated_for) = routed_as_known(&value)
        {
            return Ok(DelegatedRoute {
                routed: RouteReply::known(BindingView::clone(known)),
                delegated_for,
            });
        }
        let mut fields = Fields::of(value).map_err(invalid_reply(name))?;
        let delegated_ms = fields.optional_number("delegated_ms");
        let delegated_for = delegated_ms.map_err(invalid_reply(name))?.map(Millis::new);
        let routed = reply::routed_of(fields, &request.server).map_err(invalid_reply(name))?;
        self.known_bindings
            .note(key, &request.server, &request.worker, &routed);
        Ok(DelegatedRoute {
            routed,
            delegated_for,
        })
    }

    async fn enter_as(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
        scope: TurnScope,
    ) -> Result<EnterReply, StoreError> {
        let name = "SESSION.ENTER";
        let known = self.known_bindings.get(key, &request.server);
        let mut command = sized_command();
        command
            .arg((name, key.secret(), request.principal.as_str()))
            .arg((request.server.as_str(), request.worker.as_str()))
            .arg((request.ticket.as_str(), "LEASE", request.lease.get()))
            .arg((request.line == Line::First).then_some("FIRST"))
            .arg(request.held.map(|turn| ("HELD", turn)))
            .arg(known.as_ref().map(|known| ("EPOCH", known.epoch)))
            .arg((scope == TurnScope::Delegation).then_some("DELEGATE"));
        // The same ticket gets the same reply again.
        let value = self.send(&command, name, Resend::Once).await?;
        if let Some(known) = &known
            && let Some((turn, delegated_for)) = granted_as_known(&value)
        {
            return Ok(EnterReply {
                turn,
                delegated_for,
                holder: None,
                answered_by: AnsweredBy::Store,
                routed: RouteReply::known(BindingView::clone(known)),
            });
        }
        let entered = entered(value, &request.server).map_err(invalid_reply(name))?;
        let (server, worker) = (&request.server, &request.worker);
        self.known_bindings
            .note(key, server, worker, &entered.routed);
        Ok(entered)
    }

    pub(crate) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.leave(key, request).await;
        }
        // A repeated LEAVE returns STALE, as if the first one had failed.
        let command = leave_command(key, request);
        self.send(&command, LEAVE, Resend::Never).await.map(drop)
    }

    /// Sends the LEAVE of a turn whose caller does not wait for the reply. It leaves with the next write of the connection.
    pub(crate) fn leave_unawaited(&self, ending: impl TurnEnding, started: Instant) {
        if let Some(scripted) = &self.scripted {
            return scripted.leave_unawaited(ending, started);
        }
        let command = leave_command(ending.key(), ending.turn());
        self.servers.send_unawaited(
            &command,
            Box::new(move |reply| {
                let left = reply.map(|value| accepted(value, LEAVE).map(drop));
                ending.attempted(started, left);
            }),
        );
    }
}

fn leave_command(key: &SessionKey, request: &LeaveRequest) -> Cmd {
    let (LeaveTarget::Ticket(ticket) | LeaveTarget::WaitingUnder(ticket)) = &request.who;
    let is_for_waiting = matches!(request.who, LeaveTarget::WaitingUnder(_));
    let mut command = sized_command();
    command
        .arg((LEAVE, key.secret(), request.principal.as_str()))
        .arg((request.server.as_str(), ticket.as_str()))
        .arg(is_for_waiting.then_some("WAITING"));
    command
}

/// The turn in a reply without the binding, which is as it is known, and for how long the turn is delegated.
pub(super) fn granted_as_known(reply: &Value) -> Option<(Option<u64>, Option<Millis>)> {
    let Value::Array(values) = reply else {
        return None;
    };
    let (turn, delegated_ms) = match values[..] {
        [Value::Int(_), Value::Int(turn)] => (turn, None),
        [Value::Int(_), Value::Int(turn), Value::Int(ms)] => (turn, u64::try_from(ms).ok()),
        _ => return None,
    };
    Some((u64::try_from(turn).ok(), delegated_ms.map(Millis::new)))
}

/// For how long the route is delegated, in a reply without the binding, which is as it is known.
pub(super) fn routed_as_known(reply: &Value) -> Option<Option<Millis>> {
    match reply {
        Value::Int(_) => Some(None),
        Value::Array(values) => match values[..] {
            [Value::Int(_), Value::Int(ms)] => Some(u64::try_from(ms).ok().map(Millis::new)),
            _ => None,
        },
        _ => None,
    }
}

/// Parses the reply of ENTER: that of ROUTE, and the turn.
pub(super) fn entered(value: Value, server: &ServerName) -> Result<EnterReply, Problem> {
    let mut fields = Fields::of(value)?;
    // Absent where nobody has it, and from an older module.
    let holder = fields.optional_name("turn_holder", WorkerId::parse)?;
    let held_ms = fields.optional_number("turn_held_ms")?;
    Ok(EnterReply {
        turn: fields.optional_number("turn")?,
        delegated_for: fields.optional_number("delegated_ms")?.map(Millis::new),
        holder: holder.map(|worker| TurnHolder {
            worker,
            held_for: Millis::new(held_ms.unwrap_or_default()),
        }),
        answered_by: AnsweredBy::Store,
        routed: reply::routed_of(fields, server)?,
    })
}
