//! A request of the gateway itself over a session's binding, with its complete answer.
//!
//! Invariant: a move of the binding is returned with the answer or its error, so that the client learns of the lost
//! state in the reply to its own request.

use super::deliver::{Call, DeliverError, DeliveryResult, OnLoss, RetrySafety, deliver};
use crate::affinity::{
    BindingHolder, InFlightKind, RebindNotice, Session, SessionRouter, caller_of,
};
use mooring_upstream::{Answer, ExchangeError, Outgoing, Server, read_answer, within};

/// How many answers a delivery may wait for: of the handshake, a probe, and the attempts.
const DELIVERY_ANSWERS: u32 = 4;

/// A request that is safe to repeat.
#[derive(Debug)]
pub struct GatewayRequest<'a> {
    /// The session to use.
    pub session: &'a Session,
    /// The server to ask.
    pub server: &'a Server,
    /// The request, with an id of the gateway.
    pub outgoing: Outgoing,
}

/// The result of a delivered request.
#[derive(Debug)]
pub struct GatewayReply {
    /// The answer, or why it could not be read.
    pub answer: Result<Answer, ExchangeError>,
    /// Set if the binding was moved during the delivery.
    pub moved: Option<RebindNotice>,
}

/// Sends the request and reads its answer within `answer_timeout`. Other messages on the same stream are dropped.
///
/// # Errors
/// The request was not delivered.
pub async fn send_gateway_request(
    router: &SessionRouter,
    request: GatewayRequest<'_>,
) -> Result<GatewayReply, DeliverError> {
    let GatewayRequest {
        session,
        server,
        outgoing,
    } = request;
    let mut call = Call {
        session,
        server,
        outgoing: outgoing.on_behalf_of(server, &caller_of(session)),
        on_loss: OnLoss::Recover,
        repeat: RetrySafety::Harmless,
        epoch: None,
        routed: None,
        permit: None,
    };
    let in_flight = router
        .active_bindings()
        .begin(session, &server.id, InFlightKind::Call);
    let DeliveryResult {
        reply,
        binding,
        moved,
        ..
    } = within_deliveries(router, &mut call).await?;
    in_flight.set_holder(BindingHolder::of(&binding, router.worker()));
    let answer = within(
        router.options().answer_timeout,
        read_answer(
            reply,
            &call.outgoing,
            &router.reply_source(server, &binding),
        ),
    )
    .await;
    Ok(GatewayReply { answer, moved })
}

/// Delivers within the time of [`DELIVERY_ANSWERS`] answers, so that a server which accepts requests and sends no head
/// collects none of them.
async fn within_deliveries(
    router: &SessionRouter,
    call: &mut Call<'_>,
) -> Result<DeliveryResult, DeliverError> {
    let limit = router.options().answer_timeout * DELIVERY_ANSWERS;
    tokio::time::timeout(limit, deliver(router, call))
        .await
        .unwrap_or(Err(DeliverError::Answer(ExchangeError::TimedOut(limit))))
}
