//! Asks servers whether they keep sessions, where no setting says so.

use std::sync::Arc;

use crate::http::App;
use mooring_settings::Affinity;
use mooring_upstream::{Servers, ask_statefulness};

/// Probes servers that decide themselves whether they are stateful, and that are not among those before a reload. Nothing
/// waits for the results.
pub(super) fn probe_servers(app: &Arc<App>, before: Option<&Servers>) {
    for server in app.core.servers.iter() {
        let present = before.and_then(|before| before.get(server.id.as_str()));
        let is_new = present.is_none_or(|present| !Arc::ptr_eq(present, server));
        if is_new && server.affinity == Affinity::ByServer {
            let (app, server) = (Arc::clone(app), Arc::clone(server));
            tokio::spawn(async move {
                let session_router = &app.core.session_router;
                let limit = session_router.options().answer_timeout;
                ask_statefulness(
                    session_router.client(),
                    &server,
                    || session_router.next_id(),
                    limit,
                )
                .await;
            });
        }
    }
}
