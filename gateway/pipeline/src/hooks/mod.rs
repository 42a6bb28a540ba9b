//! Asks other services about tool calls: each may allow, change or refuse a call (`calls.hooks`).
//!
//! Invariant: a call that a hook refused is not sent, and a result that a hook refused is not returned. If a hook gives
//! no valid answer, its `on_failure` alone decides.

mod exchange;

use std::sync::Arc;
use std::time::Instant;

use mooring_session::names::ServerName;
use serde_json::value::RawValue;

use self::exchange::{Question, Verdict};
use mooring_identity::Identity;
use mooring_metrics::{self as metrics, HookOutcome};
use mooring_settings::{HookPhase, HookSettings, OnHookFailure};
use mooring_upstream::{HttpClient, with_causes};

/// The hooks of the settings, in their order.
#[derive(Debug)]
pub struct CallHooks {
    hooks: Vec<Arc<HookSettings>>,
    client: HttpClient,
    /// Longest answer in bytes.
    answer_bytes_max: usize,
}

/// The caller and the server of a call.
#[derive(Debug)]
pub struct CallRoute {
    /// Who calls.
    pub caller: Arc<Identity>,
    /// The digest of the session, if there is one.
    pub session_digest: Option<Arc<str>>,
    /// The id of the server.
    pub server: ServerName,
}

/// A call that hooks are asked about.
#[derive(Debug)]
pub struct HookedCall {
    /// Those that are asked about it.
    hooks: Vec<Arc<HookSettings>>,
    client: HttpClient,
    answer_bytes_max: usize,
    /// The same in every question about the call.
    id: String,
    caller: Arc<Identity>,
    session_digest: Option<Arc<str>>,
    server: ServerName,
    /// None where only the answer is known, as in a stream that its client has resumed.
    tool: Option<Box<str>>,
    /// The arguments that the server gets.
    arguments: Option<Box<RawValue>>,
}

/// A server's answer to a call, as JSON text.
#[derive(Clone, Copy, Debug)]
pub enum CallOutcome<'a> {
    /// The `result`.
    Result(&'a RawValue),
    /// The `error`.
    Error(&'a RawValue),
}

/// Why a call or its result is not let through.
#[derive(Debug, PartialEq, Eq)]
pub enum HookRefusal {
    /// A hook refused it; with the reason that it gave.
    Refused(Option<String>),
    /// A hook whose answer is needed gave no valid one.
    NoAnswer,
}

impl CallHooks {
    /// Hooks that are asked by this client. Their answers may have `answer_bytes_max` bytes.
    #[must_use]
    pub fn new(hooks: &[HookSettings], client: HttpClient, answer_bytes_max: usize) -> Self {
        Self {
            hooks: hooks.iter().cloned().map(Arc::new).collect(),
            client,
            answer_bytes_max,
        }
    }

    /// Whether no hook is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Whether a hook is asked about calls of this tool.
    #[must_use]
    pub fn are_asked_about(&self, server: &str, tool: &str) -> bool {
        (self.hooks.iter()).any(|hook| hook.is_for_tool(server, tool))
    }

    /// A call of a tool; none where no hook is asked about it.
    #[must_use]
    pub fn of_call(
        &self,
        route: CallRoute,
        tool: &str,
        arguments: Option<Box<RawValue>>,
    ) -> Option<HookedCall> {
        let call = self.call(route, |hook, server| hook.is_for_tool(server, tool))?;
        Some(HookedCall {
            tool: Some(tool.into()),
            arguments,
            ..call
        })
    }

    /// Calls of which nothing is known but that their answers may arrive, as in a stream that a client resumes. None where
    /// no hook is asked about results of this server or, if it is a group, of its `members`.
    #[must_use]
    pub fn of_unknown_calls(&self, route: CallRoute, members: &[&str]) -> Option<HookedCall> {
        self.call(route, |hook, server| {
            let mut servers = members.iter().chain([&server]);
            hook.phases.contains(&HookPhase::After)
                && servers.any(|server| hook.is_for_server(server))
        })
    }

    fn call(
        &self,
        route: CallRoute,
        is_asked: impl Fn(&HookSettings, &str) -> bool,
    ) -> Option<HookedCall> {
        let hooks: Vec<_> = (self.hooks.iter())
            .filter(|hook| is_asked(hook, route.server.as_str()))
            .cloned()
            .collect();
        (!hooks.is_empty()).then(|| HookedCall {
            hooks,
            client: self.client.clone(),
            answer_bytes_max: self.answer_bytes_max,
            id: format!("{:032x}", rand::random::<u128>()),
            caller: route.caller,
            session_digest: route.session_digest,
            server: route.server,
            tool: None,
            arguments: None,
        })
    }
}

impl HookedCall {
    /// Whether it is known which tool was called.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.tool.is_some()
    }

    /// Asks the hooks before the call is sent. Returns the arguments to send if they changed.
    ///
    /// # Errors
    /// [`HookRefusal`]: the call must not be sent.
    pub async fn before(&mut self) -> Result<Option<&RawValue>, HookRefusal> {
        let mut is_changed = false;
        for hook in self.hooks_of(HookPhase::Before) {
            if let Some(arguments) = self.ask(&hook, HookPhase::Before, None).await? {
                self.arguments = Some(arguments);
                is_changed = true;
            }
        }
        Ok(self.arguments.as_deref().filter(|_| is_changed))
    }

    /// Asks the hooks about the server's answer. Returns the result to forward if it changed.
    ///
    /// # Errors
    /// [`HookRefusal`]: the answer must not be forwarded.
    pub async fn after(
        &self,
        outcome: CallOutcome<'_>,
    ) -> Result<Option<Box<RawValue>>, HookRefusal> {
        let mut changed: Option<Box<RawValue>> = None;
        for hook in self.hooks_of(HookPhase::After) {
            let outcome = changed.as_deref().map_or(outcome, CallOutcome::Result);
            if let Some(result) = self.ask(&hook, HookPhase::After, Some(outcome)).await? {
                changed = Some(result);
            }
        }
        Ok(changed)
    }

    fn hooks_of(&self, phase: HookPhase) -> Vec<Arc<HookSettings>> {
        let hooks = self
            .hooks
            .iter()
            .filter(|hook| hook.phases.contains(&phase));
        hooks.cloned().collect()
    }

    /// Asks one hook. Returns what it puts in the place of the arguments or of the outcome.
    async fn ask(
        &self,
        hook: &HookSettings,
        phase: HookPhase,
        outcome: Option<CallOutcome<'_>>,
    ) -> Result<Option<Box<RawValue>>, HookRefusal> {
        let began = Instant::now();
        let verdict = exchange::ask(
            &self.client,
            hook,
            &self.question(phase, outcome),
            self.answer_bytes_max,
        )
        .await;
        let (server, tool, url) = (self.server.as_str(), self.tool.as_deref(), &hook.url);
        let (outcome, answer) = match verdict {
            Ok(Verdict::Allowed) => (HookOutcome::Allowed, Ok(None)),
            Ok(Verdict::Changed(value)) => (HookOutcome::Changed, Ok(Some(value))),
            Ok(Verdict::Refused(reason)) => {
                tracing::info!(server, tool, hook = %url, %phase, "call refused by a hook");
                (HookOutcome::Refused, Err(HookRefusal::Refused(reason)))
            }
            Err(error) => {
                let cause = with_causes(&error);
                tracing::warn!(server, tool, hook = %url, %phase, %cause, on_failure = ?hook.on_failure, "a hook gave no valid answer");
                let answer = match hook.on_failure {
                    OnHookFailure::Refuse => Err(HookRefusal::NoAnswer),
                    OnHookFailure::Allow => Ok(None),
                };
                (HookOutcome::Failed, answer)
            }
        };
        metrics::hook_answered(phase.into(), outcome, began.elapsed());
        answer
    }

    fn question<'a>(&'a self, phase: HookPhase, outcome: Option<CallOutcome<'a>>) -> Question<'a> {
        let (result, error) = match outcome {
            Some(CallOutcome::Result(result)) => (Some(result), None),
            Some(CallOutcome::Error(error)) => (None, Some(error)),
            None => (None, None),
        };
        Question {
            version: exchange::VERSION,
            phase,
            call_id: &self.id,
            server: self.server.as_str(),
            tool: self.tool.as_deref(),
            user: self.caller.principal.as_str(),
            teams: &self.caller.teams,
            roles: &self.caller.roles,
            session: self.session_digest.as_deref(),
            arguments: self.arguments.as_deref(),
            result,
            error,
        }
    }
}
