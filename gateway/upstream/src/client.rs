//! The client to upstream instances over HTTP: pooled connections for traffic, a fresh one for every probe.
//!
//! Invariant: an error of [`Client::send`] says whether a byte of the request can have reached the instance.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::credential::RequestCredential;
use super::credential_header::CredentialHeader;
use super::http::{ConnectionChoice, HttpClient, HttpError, HttpRequest, ResponseBody};
use super::redirect::redirect;
use super::{FailureCause, Instance, Outgoing, SendError, UNREACHED_LOST_AFTER, is_refused};
use mooring_protocol::Reply;
use mooring_usage::MemoryShare;

/// Pause between attempts while connections are refused.
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// The client to upstream instances. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: HttpClient,
    lost_after: Duration,
}

/// How a request is sent.
#[derive(Clone, Copy)]
enum Sending {
    /// Over a pooled connection, retried while connections are refused.
    Pooled,
    /// The same over a new connection.
    Fresh,
    /// Over a pooled connection, without retries.
    Once,
}

impl Client {
    /// A client for which an instance counts as lost when it has refused connections for `lost_after`.
    #[must_use]
    pub const fn new(http: HttpClient, lost_after: Duration) -> Self {
        Self { http, lost_after }
    }

    /// The client for services that are no instances.
    #[must_use]
    pub const fn http(&self) -> &HttpClient {
        &self.http
    }

    /// Sends a request over a pooled connection. Refused connections are retried until the instance counts as lost. A
    /// broken connection is not retried, because the request may have run.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&self, instance: &Instance, outgoing: &Outgoing) -> Result<Reply, SendError> {
        self.send_outgoing(Sending::Pooled, instance, outgoing)
            .await
    }

    /// The same for a request with its own URI.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn send_request(
        &self,
        instance: &Instance,
        request: &Request<Bytes>,
    ) -> Result<Reply, SendError> {
        let sent = self.send_over(Sending::Pooled, instance, request.into(), None);
        let sent = sent.await;
        note_redirect(instance, &sent);
        sent
    }

    /// Sends a request over a new connection, because a reset of a reused connection proves nothing.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_fresh(
        &self,
        instance: &Instance,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        self.send_outgoing(Sending::Fresh, instance, outgoing).await
    }

    /// Sends a request without retrying a refused connection: for requests that no caller waits for.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_once(
        &self,
        instance: &Instance,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        self.send_outgoing(Sending::Once, instance, outgoing).await
    }

    async fn send_outgoing(
        &self,
        sending: Sending,
        instance: &Instance,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        match outgoing.credential() {
            // Boxed, so that the future of other calls is small.
            Some(credential) => {
                Box::pin(self.send_with_credential(sending, instance, outgoing, credential)).await
            }
            None => self.send_as(sending, instance, outgoing, None).await,
        }
    }

    /// Sends a request with its credential. A server that answers 401 has not executed it, so it is sent once more if there
    /// is another credential.
    async fn send_with_credential(
        &self,
        sending: Sending,
        instance: &Instance,
        outgoing: &Outgoing,
        credential: &RequestCredential,
    ) -> Result<Reply, SendError> {
        let header = credential.header(&self.http).await?;
        let reply = self
            .send_as(sending, instance, outgoing, header.as_ref())
            .await?;
        if let (StatusCode::UNAUTHORIZED, Some(refused)) = (reply.status, &header)
            && let Some(renewed) = credential.renew(&self.http, refused).await
        {
            return self
                .send_as(sending, instance, outgoing, Some(&renewed))
                .await;
        }
        Ok(credential.watched(outgoing.method(), header.as_ref(), reply))
    }

    async fn send_as(
        &self,
        sending: Sending,
        instance: &Instance,
        outgoing: &Outgoing,
        credential: Option<&CredentialHeader>,
    ) -> Result<Reply, SendError> {
        let request = outgoing.to(instance, credential);
        let memory = outgoing.memory();
        let sent = match self.send_over(sending, instance, request, memory).await {
            Err(SendError::Redirected {
                target: Some(uri), ..
            }) => {
                let request = HttpRequest {
                    uri: &uri,
                    ..request
                };
                Box::pin(self.send_over(sending, instance, request, memory)).await
            }
            sent => sent,
        };
        note_redirect(instance, &sent);
        sent
    }

    async fn send_over(
        &self,
        sending: Sending,
        instance: &Instance,
        request: HttpRequest<'_>,
        memory: Option<&Arc<MemoryShare>>,
    ) -> Result<Reply, SendError> {
        let choice = match sending {
            Sending::Pooled | Sending::Once => ConnectionChoice::Pooled,
            Sending::Fresh => ConnectionChoice::Fresh,
        };
        let error = loop {
            let began = Instant::now();
            let error = match self.http.send(request, choice).await {
                Ok(response) => return self.received(instance, response, memory),
                Err(HttpError::RoundTrip(error)) => break error.into(),
                // It says nothing about the instance.
                Err(HttpError::NotPermitted) => return Err(SendError::TurnLost),
                Err(HttpError::Connect(error)) => error,
            };
            match (sending, is_refused(&error)) {
                // One attempt says nothing about the time for which an instance cannot be reached.
                (Sending::Once, true) => break SendError::Refused,
                (Sending::Once, false) => break SendError::Connect(error),
                (_, true) if instance.reach.refused() >= self.lost_after => {
                    break SendError::Refused;
                }
                (_, true) => tokio::time::sleep(RETRY_PAUSE).await,
                (_, false) if instance.reach.unreached(began) >= UNREACHED_LOST_AFTER => {
                    break SendError::Unreachable(error);
                }
                (_, false) => break SendError::Connect(error),
            }
        };
        instance.contact.fail(FailureCause::from(&error));
        Err(error)
    }

    /// Records what the response head says about the instance. A 4xx status concerns the request, so the caller
    /// evaluates it.
    ///
    /// # Errors
    /// [`SendError::Redirected`]
    fn received(
        &self,
        instance: &Instance,
        response: Response<ResponseBody>,
        memory: Option<&Arc<MemoryShare>>,
    ) -> Result<Reply, SendError> {
        instance.reach.succeeded();
        let status = response.status();
        if let Some(error) = redirect(&instance.uri, status, response.headers()) {
            return Err(error);
        }
        if status.is_server_error() {
            instance.contact.fail(FailureCause::status(status));
        } else if !status.is_client_error() {
            instance.contact.succeed();
        }
        Ok(self.http.read(response, memory))
    }

    /// Closes the idle connections to an instance, and those in use after their reply. For a reply that answers another
    /// message than it was sent for: its connection is shifted by a response, and may have been given back with the
    /// reply's last byte, or carry the next request already.
    pub fn distrust_connections(&self, instance: &Instance) {
        self.http.distrust(&instance.uri);
    }
}

/// Records a redirect that was not followed.
fn note_redirect(instance: &Instance, sent: &Result<Reply, SendError>) {
    if let Err(error @ SendError::Redirected { .. }) = sent {
        instance.contact.fail(FailureCause::from(error));
    }
}
