//! Delivers a message: performs what [`mooring_delivery`] decides, from the binding to the reply.

use mooring_delivery::{
    ATTEMPTS_MAX, Action, Delivery, DeliveryOutcome, Event, Failure, MessageRules, ProbeOutcome,
    Repetition, SendFault, Task, TaskOutcome, ToolReading, UNREACHED_WITHIN,
};
use mooring_session::names::NameError;
use mooring_session::rules::{Ownership, RouteReply};
use mooring_session::view::BindingView;

use super::annotations::read_tool;
use crate::affinity::{
    RebindNotice, ResolveError, Resolving, RouterErrors, ServerInstances, Session, SessionRouter,
    lacks_reason, now,
};
pub use mooring_delivery::OnLoss;
use mooring_metrics as metrics;
use mooring_protocol::Reply;
use mooring_protocol::ids::Epoch;
use mooring_settings::Concurrency;
use mooring_traces::{TraceScope, in_scope};
use mooring_upstream::{
    ExchangeError, Outgoing, ProbeResult, SendError, SendPermit, Server, TimedExchange,
    UNREACHED_LOST_AFTER, is_session_unknown, may_be_session_unknown, read_answer,
};

const _: () = assert!(UNREACHED_WITHIN.as_millis() > UNREACHED_LOST_AFTER.as_millis());

/// A message to deliver.
#[derive(Debug)]
pub struct Call<'a> {
    /// The session it belongs to.
    pub session: &'a Session,
    /// The server it goes to.
    pub server: &'a Server,
    /// The request, without instance. Each attempt sets the upstream session.
    pub outgoing: Outgoing,
    /// What to do if the upstream session is lost.
    pub on_loss: OnLoss,
    /// Whether it may be sent again after it may have been delivered.
    pub repeat: RetrySafety<'a>,
    /// Set if the message belongs to one epoch only: an answer to a server-to-client request must not reach a later
    /// upstream session, where the same id may mean another request.
    pub epoch: Option<Epoch>,
    /// The route that the store returned with the call's turn.
    pub routed: Option<RouteReply>,
    /// Its permit, if it needs a turn: see [`Turn::permit`](crate::affinity::Turn::permit).
    pub permit: Option<SendPermit>,
}

/// Whether a message that may have been delivered may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety<'a> {
    /// Yes: it only reads, or is idempotent.
    Harmless,
    /// Depends on the annotations of this tool.
    ByTool(&'a str),
    /// No.
    Never,
}

/// The upstream's reply, and the binding over which it came.
#[derive(Debug)]
pub struct DeliveryResult {
    /// The reply, whose body may still be arriving.
    pub reply: Reply,
    /// The binding it came over.
    pub binding: BindingView,
    /// The loss that the reply tells of.
    pub moved: Option<RebindNotice>,
    /// Whether the loss counts as reported once the result has carried it.
    pub reports_loss: bool,
}

/// Why a message was not delivered, or its reply not received.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The session has no ready binding. Nothing ran.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// No connection to the instance, which does not prove a loss. Nothing ran.
    #[error("the instance cannot be reached: {0}")]
    Unreachable(#[source] SendError),
    /// The connection broke after the message may have been delivered.
    #[error("the connection to the instance broke during the call")]
    OutcomeUnknown {
        /// Set if the binding was moved meanwhile.
        moved: Option<RebindNotice>,
    },
    /// The body of an error answer could not be read.
    #[error(transparent)]
    Answer(#[from] ExchangeError),
    /// The upstream session that the message belongs to is lost.
    #[error("the upstream session that the message belongs to is lost")]
    Lost,
    /// Every attempt met a lost upstream session. Nothing ran.
    #[error("the upstream session was lost {ATTEMPTS_MAX} times in a row")]
    LostAgain {
        /// The move from the first of them to the current one.
        moved: Option<RebindNotice>,
    },
}

/// Sends the call over the session's binding. The future of what follows a failure is boxed, so that the future of a
/// call that succeeds is small.
///
/// # Errors
/// See [`DeliverError`].
pub async fn deliver(
    router: &SessionRouter,
    call: &mut Call<'_>,
) -> Result<DeliveryResult, DeliverError> {
    let (session, server) = (call.session, call.server);
    if let Some(permit) = call.permit.take() {
        call.outgoing.set_permit(permit);
    }
    let instances = ServerInstances(server);
    let facts = router.facts(session, server, &instances);
    let mut delivery = Delivery::new(call.rules());
    let mut rare_actions = RareActions {
        // An answer to a request of one epoch may be newer than what is known of the route, and where calls have turns, the
        // store does not tell of a route whose turn was left.
        has_routed: call.epoch.is_some() || server.concurrency != Concurrency::Parallel,
        ..RareActions::default()
    };
    let mut routed_now = false;
    if let Some(mut routed) = call.routed.take() {
        router.record_takeover(session, &server.id, &routed);
        if lacks_reason(&routed) {
            Box::pin(router.read_reason(session, &mut routed)).await;
        }
        routed_now = true;
        rare_actions.has_routed = true;
        delivery.handle(
            Event::Resolving(TaskOutcome::Routed(Ok(routed))),
            &facts,
            now(),
        );
    }
    loop {
        let event = match delivery.action(&facts) {
            Action::Send {
                binding,
                has_session,
            } => {
                if routed_now {
                    metrics::affinity_hit();
                }
                // What it has read of the session may change while the message runs.
                rare_actions.resolving = None;
                send(router, call, binding, has_session, &mut rare_actions.reply).await
            }
            Action::Answer(delivered) => {
                return rare_actions
                    .reply
                    .take()
                    .map_or(Err(DeliverError::Lost), |reply| {
                        Ok(DeliveryResult::of(reply, delivered, server))
                    });
            }
            Action::Fail(failure) => return Err(DeliverError::of(failure, call)),
            action => Box::pin(rare_actions.perform(router, call, action))
                .await
                .map_err(ResolveError::Name)?,
        };
        routed_now = matches!(event, Event::Resolving(TaskOutcome::Routed(Ok(_))));
        delivery.handle(event, &facts, now());
    }
}

impl Call<'_> {
    fn rules(&self) -> MessageRules {
        MessageRules {
            on_loss: self.on_loss,
            repetition: match self.repeat {
                RetrySafety::Harmless => Repetition::Harmless,
                RetrySafety::ByTool(_) => Repetition::ByTool,
                RetrySafety::Never => Repetition::Never,
            },
            epoch: self.epoch.map(|epoch| epoch.0),
        }
    }
}

impl DeliveryResult {
    fn of(reply: Reply, delivered: DeliveryOutcome, server: &Server) -> Self {
        let resolved = delivered.resolved;
        Self {
            reply,
            binding: resolved.binding,
            moved: resolved
                .state_loss
                .map(|loss| RebindNotice::of(server, loss)),
            reports_loss: delivered.reports_loss,
        }
    }
}

impl DeliverError {
    fn of(failure: Failure<RouterErrors>, call: &Call<'_>) -> Self {
        let notice = |loss| RebindNotice::of(call.server, loss);
        match failure {
            Failure::Resolve(failure) => Self::Resolve(failure.into()),
            Failure::Unreachable(error) => {
                if is_without_instance(&error) {
                    metrics::affinity_failure("no_instance");
                }
                Self::Unreachable(error)
            }
            Failure::OutcomeUnknown { state_loss, cause } => {
                if let Some(cause) = cause {
                    let error = Self::of(*cause, call);
                    tracing::info!(session = %call.session.digest, server = %call.server.id, %error, "a call may have run, and what follows failed");
                }
                Self::OutcomeUnknown {
                    moved: state_loss.map(notice),
                }
            }
            Failure::Answer(error) => Self::Answer(error),
            Failure::Lost => Self::Lost,
            Failure::LostAgain { state_loss } => Self::LostAgain {
                moved: state_loss.map(notice),
            },
        }
    }
}

/// Sends the call over the binding once.
async fn send(
    router: &SessionRouter,
    call: &mut Call<'_>,
    binding: &BindingView,
    has_session: bool,
    received: &mut Option<Reply>,
) -> Event<RouterErrors> {
    (call.outgoing).set_upstream_session(binding.upstream_session.as_ref());
    let exchange = (call.outgoing).begin_exchange(call.server, &binding.instance);
    let call = &*call;
    let scope = exchange.as_ref().and_then(TimedExchange::scope);
    let sending = router.send(call.session, call.server, binding, &call.outgoing);
    let sent = in_scope(scope.or_else(TraceScope::current), sending).await;
    let mut span = None;
    let mut reply = match sent {
        Ok(reply) => match exchange {
            Some(exchange) => {
                span = exchange.span();
                exchange.watch(reply)
            }
            None => reply,
        },
        Err(error) => return not_answered(call, binding, error),
    };
    if call.server.ownership == Ownership::Owned
        && let Some(instance) = call.server.instance(&binding.instance)
    {
        // The contact with an owned connection is recorded only here.
        instance.contact.succeed();
    }
    let may_be_unknown = has_session && may_be_session_unknown(&mut reply);
    if let Some(span) = span.filter(|_| !may_be_unknown) {
        router.note_use_in_trace(call.session, binding, span);
    }
    *received = Some(reply);
    Event::Answered { may_be_unknown }
}

fn not_answered(call: &Call<'_>, binding: &BindingView, error: SendError) -> Event<RouterErrors> {
    let fault = match &error {
        SendError::Refused => SendFault::Refused,
        SendError::Connect(_) => SendFault::NotConnected,
        SendError::Unreachable(_) => SendFault::Unreachable,
        SendError::Redirected { .. }
        | SendError::Credential(_)
        | SendError::Unstarted(_)
        | SendError::OwnerUnverified(_)
        | SendError::TurnLost => SendFault::Undeliverable,
        SendError::Ended(_) => SendFault::Ended,
        SendError::Elsewhere => SendFault::NotHere,
        SendError::OwnerUnavailable(_) => SendFault::NotServed,
        SendError::OwnerDraining => SendFault::OwnerDraining,
        SendError::OwnerBroken(_) => SendFault::OwnerBroken,
        SendError::Broken(_) | SendError::Invalid(_) => SendFault::Broken,
    };
    let (session, server) = (&call.session.digest, &call.server.id);
    match fault {
        SendFault::OwnerBroken => {
            tracing::info!(%session, %server, %error, "the gateway that holds the connection did not answer a call that it may have begun");
        }
        SendFault::Broken => {
            tracing::info!(%session, %server, instance = %binding.instance, %error, "a connection broke during a call");
        }
        _ => {}
    }
    Event::NotAnswered(fault, error)
}

/// Whether there was no connection to the instance, rather than to its owner.
const fn is_without_instance(error: &SendError) -> bool {
    matches!(
        error,
        SendError::Connect(_)
            | SendError::Unreachable(_)
            | SendError::Unstarted(_)
            | SendError::Redirected { .. }
    )
}

/// Performs what a call that succeeds at once does not need.
#[derive(Default)]
struct RareActions {
    /// The reply of the last attempt.
    reply: Option<Reply>,
    resolving: Option<Box<Resolving>>,
    /// Whether a route was asked for. What is known of it may be what failed.
    has_routed: bool,
}

impl RareActions {
    async fn perform(
        &mut self,
        router: &SessionRouter,
        call: &Call<'_>,
        action: Action<'_, RouterErrors>,
    ) -> Result<Event<RouterErrors>, NameError> {
        let (session, server) = (call.session, call.server);
        Ok(match action {
            Action::Resolve(Task::Route(request)) => {
                let routed = match std::mem::replace(&mut self.has_routed, true) {
                    false => router.first_route(session, &request).await,
                    true => router.route(session, &request).await,
                };
                Event::Resolving(TaskOutcome::Routed(routed))
            }
            Action::Resolve(task) => {
                let resolving = self.resolving.get_or_insert_default();
                let performing = resolving.perform_traced(router, session, server, task);
                Event::Resolving(performing.await?)
            }
            Action::Read(binding) => Event::Read(self.read(router, call, binding).await),
            Action::Probe(binding) => {
                let probing = Box::pin(router.probe(session, server, binding));
                Event::Probed(match probing.await {
                    ProbeResult::Alive => ProbeOutcome::Alive,
                    ProbeResult::InstanceLost => ProbeOutcome::InstanceLost,
                    ProbeResult::SessionLost => ProbeOutcome::SessionLost,
                    ProbeResult::Unclear => ProbeOutcome::Unclear,
                })
            }
            Action::ProbeOthers(binding) => {
                let asking = router.another_instance_answers(server, &binding.instance);
                Event::OthersAnswer(asking.await)
            }
            Action::ReadTool(binding) => Event::ToolRead(match call.repeat {
                RetrySafety::ByTool(tool) => {
                    Box::pin(read_tool(router, session, server, binding, tool)).await
                }
                RetrySafety::Harmless | RetrySafety::Never => ToolReading::NotRepeatable,
            }),
            Action::Wait(pause) => {
                tokio::time::sleep(pause).await;
                Event::Waited
            }
            Action::Send { .. } | Action::Answer(_) | Action::Fail(_) => Event::Waited,
        })
    }

    /// Reads the reply whole, and whether it says that the upstream session is unknown.
    async fn read(
        &mut self,
        router: &SessionRouter,
        call: &Call<'_>,
        binding: &BindingView,
    ) -> Result<bool, ExchangeError> {
        let Some(reply) = self.reply.take() else {
            return Err(ExchangeError::NoResponse);
        };
        let retry_after = reply.retry_after.clone();
        let source = router.reply_source(call.server, binding);
        let answer = read_answer(reply, &call.outgoing, &source).await?;
        let is_unknown = is_session_unknown(&answer);
        self.reply = Some(Reply {
            retry_after,
            ..answer.into_reply()
        });
        Ok(is_unknown)
    }
}
