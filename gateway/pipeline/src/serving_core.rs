//! What requests for servers of every kind share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use url::Url;

use super::client_states::ClientStates;
use super::hooks::CallHooks;
use super::policy::AccessPolicy;
use super::request_log::RequestLog;
use super::request_rate::RequestRates;
use super::user_usages::UserUsages;
use mooring_identity::Identity;
use mooring_router::affinity::SessionRouter;
use mooring_router::dispatch::RelayOptions;
use mooring_router::pooled::Pool;
use mooring_upstream::Servers;

/// The parts that serve requests for upstream servers, and that servers of other kinds use too.
#[derive(Debug)]
pub struct ServingCore {
    /// The upstream servers.
    pub servers: Arc<Servers>,
    /// Stateful sessions.
    pub session_router: SessionRouter,
    /// Upstream sessions that stateless requests share.
    pub pool: Pool,
    /// The usage of each user.
    pub usages: Arc<UserUsages>,
    /// The hooks that check tool calls.
    pub hooks: CallHooks,
    /// The access policy for callers.
    pub policy: Arc<AccessPolicy>,
    /// Logs and counts requests.
    pub request_log: Arc<RequestLog>,
    /// How many requests each user may send; none if there is no limit.
    pub request_rates: Option<Arc<RequestRates>>,
    /// The page on which users store secrets for servers; none if there is none.
    pub credential_page: Option<Url>,
    /// Seals what clients without sessions bring back.
    pub client_states: ClientStates,
    /// Limits of relaying replies.
    pub relay: RelayOptions,
}

impl ServingCore {
    /// Counts requests of this caller.
    ///
    /// # Errors
    /// How long the caller has to wait before these requests.
    pub fn count_requests(&self, caller: &Identity, count: u32) -> Result<(), Duration> {
        let Some(rates) = &self.request_rates else {
            return Ok(());
        };
        rates.take(&caller.principal, count, Instant::now())
    }
}
