//! Opens a stream, which begins a session, and ends both.
//!
//! Invariant: a session that began with a stream ends with it, for whatever reason.

use std::sync::Arc;

use mooring_session::names::ServerName;

use super::clients::LegacyClients;
use super::events::StreamEvents;
use crate::answer;
use crate::client_stream::OpenStream;
use mooring_identity::Identity;
use mooring_protocol::{ErrorKind, Reply};
use mooring_router::affinity::{InFlight, InFlightKind, StreamHold, StreamKind};
use mooring_store::StoreError;
use mooring_usage::for_same_user;

impl LegacyClients {
    /// Begins a session for a client of `server`. `endpoint` is the URL to POST to, without the session's id.
    ///
    /// # Errors
    /// The reply to a client that gets no stream.
    pub async fn open(
        self,
        server: ServerName,
        identity: Arc<Identity>,
        endpoint: String,
    ) -> Result<StreamEvents, Box<Reply>> {
        let core = &self.directory.core;
        let refused = |reply| Err(Box::new(reply));
        let draining = core.relay.departure.draining();
        if draining.is_cancelled() {
            return refused(answer::plain(ErrorKind::ShuttingDown, None));
        }
        let Some(slot) = self.streams.slot() else {
            return refused(answer::detailed(
                ErrorKind::TooManyRequests,
                None,
                "too many streams are open",
            ));
        };
        let session_router = &core.session_router;
        let usage = core.usages.of(&identity.principal);
        usage.charge_task().await;
        let session = match session_router
            .begin_uninitialized(&identity.principal, &server)
            .await
        {
            Ok(session) => session.of_caller(&identity.teams, identity.token.as_ref(), &usage),
            Err(cause) => return refused(answer::open_error(&cause, None)),
        };
        // Keeps the session from expiring while its client sends nothing.
        let in_flight =
            session_router
                .active_bindings()
                .begin(&session, &server, InFlightKind::Stream);
        // While the store is away, no other gateway knows of the session, and the stream has no binding.
        let hold = match session_router
            .hold_stream(&session, StreamKind::Legacy)
            .await
        {
            Ok(hold) => hold,
            Err(cause) => {
                let ending = session_router.close(&session).await;
                if let Err(error) = ending {
                    tracing::info!(session = %session.digest, %error, "a session whose stream could not be opened was not ended; it will expire");
                }
                return refused(answer::hold_error(&cause));
            }
        };
        let endpoint = format!("{endpoint}{}", session.id.as_str());
        let epoch = hold.as_ref().map(StreamHold::epoch);
        let stream = self.streams.enter(session, identity, usage, server, epoch);
        let events = StreamEvents::new(Arc::clone(&stream), slot, draining);
        tracing::info!(session = %stream.session.digest, server = %stream.server, "an HTTP+SSE client opened its stream");
        tokio::spawn(for_same_user(Self::close_when_ended(
            self.clone(),
            Arc::clone(&stream),
            hold,
            in_flight,
        )));
        // The queue is empty, so this does not wait.
        let _ = stream.send_endpoint(&endpoint).await;
        Ok(events)
    }

    /// Ends the session when its stream is over.
    async fn close_when_ended(
        self,
        stream: Arc<OpenStream>,
        hold: Option<StreamHold>,
        in_flight: InFlight,
    ) {
        stream.ended().await;
        let session = &stream.session;
        match self.directory.core.session_router.close(session).await {
            Ok(_) => {
                tracing::info!(session = %session.digest, "an HTTP+SSE client's session ended with its stream");
            }
            // It had ended or expired before.
            Err(StoreError::Refused(_)) => {}
            Err(error) => {
                tracing::warn!(session = %session.digest, %error, "the session of a closed stream could not be ended; it will expire");
            }
        }
        drop((hold, in_flight));
        self.streams.remove(&session.key);
    }
}
