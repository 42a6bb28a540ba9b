//! What all requests that begin between two reloads share.

use std::collections::HashMap;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;

use super::operator_page::OperatorPage;
use super::request_body::RequestBodies;
use super::stranger_rate::StrangerRates;
use crate::reload::ReloadHandle;
use crate::vault::Vault;
use mooring_admin::{Operator, OperatorCache};
use mooring_identity::Authenticator;
use mooring_peers::fleet::CallerSigner;
use mooring_pipeline::legacy::LegacyClients;
use mooring_pipeline::{ServerDirectory, ServingCore};
use mooring_settings::ListenSettings;
use mooring_traces::ExportOutlet;
use mooring_upstream::OauthTokens;

/// The state shared by all requests.
#[derive(Debug)]
pub struct App {
    /// What serves requests.
    pub core: Arc<ServingCore>,
    /// The servers.
    pub directory: Arc<ServerDirectory>,
    /// The clients of HTTP+SSE.
    pub legacy: LegacyClients,
    /// Settings of the listener for clients.
    pub listen: ListenSettings,
    /// How request bodies are read.
    pub request_bodies: RequestBodies,
    /// Signs the caller's identity for upstream requests; none if no server gets it.
    pub caller_signer: Option<Arc<CallerSigner>>,
    /// The tokens of authorization servers for upstream servers, by their ids.
    pub server_tokens: HashMap<Box<str>, Arc<OauthTokens>>,
    /// The secrets that users store for servers; none if there are no keys for them.
    pub vault: Option<Arc<Vault>>,
    /// How many replies unauthenticated senders get without delay; none if there is no limit.
    pub stranger_rates: Option<Arc<StrangerRates>>,
    /// How requests are authenticated.
    pub authenticator: Arc<Authenticator>,
    /// The operators' page; none if it is disabled.
    pub page: Option<Arc<OperatorPage>>,
    /// What operators' requests leave for later ones.
    pub operator_cache: Arc<OperatorCache>,
    /// Reloads the settings; none in a process that cannot.
    pub reloads: Option<ReloadHandle>,
    /// Sends the spans of requests; none if they are not traced.
    pub spans: Option<ExportOutlet>,
    /// Renders `/metrics`.
    pub metrics: PrometheusHandle,
}

impl App {
    /// The operators' side of this gateway.
    pub(super) fn operator(&self) -> Operator {
        Operator::new(
            Arc::clone(&self.directory),
            Arc::clone(&self.operator_cache),
        )
    }
}
