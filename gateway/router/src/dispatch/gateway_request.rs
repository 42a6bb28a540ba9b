//! A request of the gateway itself over a session's binding, and its whole answer.
//!
//! Invariant: a move of the binding is reported with the answer or its error, so that the client learns of the lost state
//! in the reply to its own request.

use super::deliver::{Call, DeliverError, DeliveryResult, OnLoss, RetrySafety, deliver};
use crate::affinity::{BindingHolder, InFlightKind, RebindNotice, Session, SessionRouter};
use mooring_upstream::{Answer, ExchangeError, Outgoing, Server, read_answer, within};

/// One request, which is safe to repeat.
#[derive(Debug)]
pub struct GatewayRequest<'a> {
    /// The session it is asked in.
    pub session: &'a Session,
    /// The server that is asked.
    pub server: &'a Server,
    /// The request, with an id of the gateway's own.
    pub outgoing: Outgoing,
}

/// What came of a request that was delivered.
#[derive(Debug)]
pub struct GatewayReply {
    /// The answer, or why it cannot be read.
    pub answer: Result<Answer, ExchangeError>,
    /// Set where the binding was moved on the way.
    pub moved: Option<RebindNotice>,
}

/// Sends the request and reads its answer within `answer_timeout`. Other messages on the same stream are dropped.
///
/// # Errors
/// Where the request was not delivered.
pub async fn send_gateway_request(
    router: &SessionRouter,
    request: GatewayRequest<'_>,
) -> Result<GatewayReply, DeliverError> {
    let GatewayRequest {
        session,
        server,
        outgoing,
    } = request;
    let call = Call {
        session,
        server,
        outgoing,
        on_loss: OnLoss::Recover,
        repeat: RetrySafety::Harmless,
        epoch: None,
        routed: None,
    };
    let in_flight = router
        .active_bindings()
        .begin(session, &server.id, InFlightKind::Call);
    let DeliveryResult {
        reply,
        binding,
        moved,
    } = deliver(router, &call).await?;
    in_flight.set_holder(BindingHolder::of(&binding, router.worker()));
    let answer = within(router.options().answer_timeout, read_answer(reply)).await;
    // One that the record tells of waits for the reply to a request of the client's own.
    let moved = moved.filter(|moved| !moved.is_recorded);
    Ok(GatewayReply { answer, moved })
}
