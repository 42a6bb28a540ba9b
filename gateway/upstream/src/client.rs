//! The HTTP client to upstream instances: pooled connections for traffic, a fresh one for every probe.
//!
//! Invariant: an error of [`Client::send`] says whether a byte of the request can have reached the instance.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use url::{Position, Url};

use super::cause::connect_text;
use super::credential::RequestCredential;
use super::credential_header::CredentialHeader;
use super::http::{
    ConnectionChoice, ConnectionError, Connector, ConnectorOptions, HttpClient, HttpError,
    HttpRequest, ResponseBody, RoundTripError, SilenceLimits,
};
use super::http_reply::read_http;
use super::{CredentialError, FailureCause, Instance, Outgoing, Reach, UNREACHED_LOST_AFTER};
use mooring_protocol::{Reply, ReplyError};
use mooring_usage::MemoryShare;

/// Pause between attempts while connections are refused.
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// How much of the path of a redirect is shown, in bytes.
const REDIRECT_SHOWN_BYTES: usize = 200;

/// When a host that acknowledges nothing has vanished. Calls have no time limit, so without these one over a connection
/// to such a host would never end. As long as connects may fail: both say the same of the host.
const SILENCE: SilenceLimits = SilenceLimits {
    usual: UNREACHED_LOST_AFTER,
    large_body: Duration::from_secs(60),
    // Two probes must be lost.
    probe_after: Duration::from_secs(1),
    probe_every: Duration::from_secs(1),
};

/// The HTTP client to upstream instances. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientState>);

#[derive(Debug)]
struct ClientState {
    http: HttpClient,
    lost_after: Duration,
    event_bytes_max: usize,
}

/// Why the client could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot read this system's root certificates, which the https:// instances need")]
pub struct ClientError(#[source] io::Error);

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The instance has refused connections for `lost_after`. Nothing was delivered.
    #[error("the instance refuses connections")]
    Refused,
    /// No connection for another reason (timeout, name resolution, TLS). Nothing was delivered.
    #[error("cannot connect to the instance: {}", connect_text(.0))]
    Connect(#[source] ConnectionError),
    /// No connection for [`UNREACHED_LOST_AFTER`](crate::UNREACHED_LOST_AFTER): the instance counts as lost. Nothing
    /// was delivered.
    #[error("the instance cannot be reached: {}", connect_text(.0))]
    Unreachable(#[source] ConnectionError),
    /// The connection broke after it was established. The request may have been delivered and may have run.
    #[error("the connection to the instance broke before it answered: {0}")]
    Broken(#[source] RoundTripError),
    /// The response is none that this gateway reads, or exceeds a limit. The request may have run.
    #[error("the response of the instance cannot be read: {0}")]
    Invalid(#[source] RoundTripError),
    /// The instance redirects the request, which did not run, to where it is not sent again: another host, a method that
    /// may change, or a redirect after a redirect.
    #[error("the instance redirects requests (HTTP status {}) to {to}", .status.as_u16())]
    Redirected {
        /// The status.
        status: StatusCode,
        /// Where to: a path, if it is at the same host.
        to: Box<str>,
        /// Where the same request may be sent, if that is at the same origin.
        target: Option<Box<Uri>>,
    },
    /// There is no credential for the caller. Nothing was sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The server could not be started, or its stream could not be opened. Nothing was delivered.
    #[error("the server could not be started: {0}")]
    Unstarted(Box<FailureCause>),
    /// The connection that this gateway owned has ended. Nothing was delivered.
    #[error("the connection to the server has ended: {0}")]
    Ended(Box<str>),
    /// The gateway that was asked does not own the connection at this epoch. Nothing was delivered.
    #[error("another gateway owns the connection to the server")]
    Elsewhere,
    /// The owner is draining and accepts nothing new. Nothing was delivered.
    #[error("the gateway that owns the connection to the server is stopping")]
    OwnerDraining,
    /// The owner is unreachable, or has suspended its connections because it cannot reach the store. Nothing was
    /// delivered.
    #[error("the gateway that owns the connection to the server does not answer: {0}")]
    OwnerUnavailable(Box<str>),
    /// The process at the owner's address does not belong to this fleet. Nothing was delivered.
    #[error("the gateway that owns the connection to the server cannot be verified: {0}")]
    OwnerUnverified(Box<str>),
    /// The connection to the owner broke. The request may have been delivered and may have run.
    #[error("the connection to the gateway that owns the connection to the server broke: {0}")]
    OwnerBroken(Box<str>),
}

impl SendError {
    /// Whether the instance certainly received nothing.
    #[must_use]
    pub const fn is_undelivered(&self) -> bool {
        !matches!(
            self,
            Self::Broken(_) | Self::Invalid(_) | Self::OwnerBroken(_)
        )
    }
}

impl From<RoundTripError> for SendError {
    fn from(error: RoundTripError) -> Self {
        if error.is_invalid_response() {
            Self::Invalid(error)
        } else {
            Self::Broken(error)
        }
    }
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

/// Timeouts and limits of the client's connections.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Time limit of one connection attempt.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_connection: Duration,
    /// How long refused connections are retried before the instance counts as lost.
    pub lost_after: Duration,
    /// Longest event of a reply, in bytes.
    pub event_bytes_max: usize,
}

/// The connection to an instance broke in the middle of a reply.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the instance broke")]
struct ReplyBroken(#[source] RoundTripError);

impl Client {
    /// Creates a client, and reads the system's root certificates once.
    ///
    /// # Errors
    /// There are no root certificates, and `needs_tls` says that some instance requires TLS.
    pub fn new(options: ClientOptions, needs_tls: bool) -> Result<Self, ClientError> {
        let connector = ConnectorOptions {
            connect_timeout: options.connect_timeout,
            silence: SILENCE,
        };
        let connector = Connector::new(connector, tls_config(needs_tls)?);
        Ok(Self(Arc::new(ClientState {
            http: HttpClient::new(connector, options.idle_connection),
            lost_after: options.lost_after,
            event_bytes_max: options.event_bytes_max,
        })))
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
        let sent = self.send_over(ConnectionChoice::Pooled, instance, request.into(), None);
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
        let header = credential.header(self).await?;
        let reply = self
            .send_as(sending, instance, outgoing, header.as_ref())
            .await?;
        if let (StatusCode::UNAUTHORIZED, Some(refused)) = (reply.status, &header)
            && let Some(renewed) = credential.renew(self, refused).await
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
        let sent = match self.send_to(sending, instance, request, memory).await {
            Err(SendError::Redirected {
                target: Some(uri), ..
            }) => {
                let request = HttpRequest {
                    uri: &uri,
                    ..request
                };
                Box::pin(self.send_to(sending, instance, request, memory)).await
            }
            sent => sent,
        };
        note_redirect(instance, &sent);
        sent
    }

    async fn send_to(
        &self,
        sending: Sending,
        instance: &Instance,
        request: HttpRequest<'_>,
        memory: Option<&Arc<MemoryShare>>,
    ) -> Result<Reply, SendError> {
        let choice = match sending {
            Sending::Pooled => ConnectionChoice::Pooled,
            Sending::Fresh => ConnectionChoice::Fresh,
            // A single refusal without retries starts no row of refusals: the next one must not count as a loss.
            Sending::Once => {
                return match self.request(request).await {
                    Ok(response) => self.received(instance, response, memory),
                    Err(error) => {
                        instance.contact.fail(FailureCause::from(&error));
                        Err(error)
                    }
                };
            }
        };
        self.send_over(choice, instance, request, memory).await
    }

    /// Closes the idle connections to an instance, and those in use after their reply. For a reply that answers another
    /// message than it was sent for: its connection is shifted by a response, and may have been given back with the
    /// reply's last byte, or carry the next request already.
    pub fn distrust_connections(&self, instance: &Instance) {
        self.distrust_connections_to(&instance.uri);
    }

    /// The same for a service that is no instance.
    pub fn distrust_connections_to(&self, uri: &Uri) {
        self.0.http.distrust(uri);
    }

    /// Sends a request to a service that is no instance, over a pooled connection and without retries.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_elsewhere(&self, request: &Request<Bytes>) -> Result<Reply, SendError> {
        self.request(request.into())
            .await
            .map(|response| self.reply(response, None))
    }

    async fn request(&self, request: HttpRequest<'_>) -> Result<Response<ResponseBody>, SendError> {
        let sent = self.0.http.send(request, ConnectionChoice::Pooled).await;
        sent.map_err(|error| match error {
            HttpError::Connect(error) if is_refused(&error) => SendError::Refused,
            HttpError::Connect(error) => SendError::Connect(error),
            HttpError::RoundTrip(error) => error.into(),
        })
    }

    async fn send_over(
        &self,
        choice: ConnectionChoice,
        instance: &Instance,
        request: HttpRequest<'_>,
        memory: Option<&Arc<MemoryShare>>,
    ) -> Result<Reply, SendError> {
        let error = loop {
            let began = Instant::now();
            let error = match self.0.http.send(request, choice).await {
                Ok(response) => return self.received(instance, response, memory),
                Err(HttpError::RoundTrip(error)) => break error.into(),
                Err(HttpError::Connect(error)) => error,
            };
            if !is_refused(&error) {
                break if instance.reach.unreached(began) >= UNREACHED_LOST_AFTER {
                    SendError::Unreachable(error)
                } else {
                    SendError::Connect(error)
                };
            }
            if self.is_lost(&instance.reach) {
                break SendError::Refused;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
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
        Ok(self.reply(response, memory))
    }

    fn reply(&self, response: Response<ResponseBody>, memory: Option<&Arc<MemoryShare>>) -> Reply {
        let broken = |error| ReplyError::broken(ReplyBroken(error));
        read_http(response, self.0.event_bytes_max, memory.cloned(), broken)
    }

    fn is_lost(&self, reach: &Reach) -> bool {
        reach.refused() >= self.0.lost_after
    }
}

/// Records a redirect that was not followed.
fn note_redirect(instance: &Instance, sent: &Result<Reply, SendError>) {
    if let Err(error @ SendError::Redirected { .. }) = sent {
        instance.contact.fail(FailureCause::from(error));
    }
}

/// The error for a response that sends the request elsewhere. It names no other host, whose address may be internal.
fn redirect(uri: &Uri, status: StatusCode, headers: &HeaderMap) -> Option<SendError> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = headers.get(LOCATION).filter(|_| is_redirect)?;
    let here = Url::parse(&uri.to_string()).ok();
    let to = here.as_ref().zip(location.to_str().ok());
    let to = to.and_then(|(here, location)| here.join(location).ok());
    let to = to.filter(|to| here.is_some_and(|here| here.origin() == to.origin()));
    let path = to.as_ref().map(|to| {
        let path = to.path();
        path.get(..REDIRECT_SHOWN_BYTES).unwrap_or(path)
    });
    let keeps_method = matches!(status.as_u16(), 307 | 308);
    Some(SendError::Redirected {
        status,
        to: path.unwrap_or("another host").into(),
        target: to
            .as_ref()
            .filter(|_| keeps_method)
            .and_then(|to| to[..Position::AfterQuery].parse().ok())
            .map(Box::new),
    })
}

/// Whether the connection was refused: on a live host, the sign that the process has ended.
pub fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(error.source(), |cause| cause.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|io| io.kind() == io::ErrorKind::ConnectionRefused)
}

/// The TLS configuration. Root certificates are read only if TLS is needed.
pub fn tls_config(needs_tls: bool) -> Result<rustls::ClientConfig, ClientError> {
    let mut roots = rustls::RootCertStore::empty();
    if needs_tls {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let missing = io::Error::new(io::ErrorKind::NotFound, "no usable root certificate");
            return Err(ClientError(missing));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError(io::Error::other(error)))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_redirect_names_the_path_and_no_other_host_and_is_followed_on_its_own() {
        let uri = Uri::from_static("http://a:8080/mcp");
        let followed = ["http://a:8080/mcp/", "http://a:8080/mcp/?token=b"].map(Some);
        for (status, location, expected, target) in [
            (307, Some("/mcp/"), Some("/mcp/"), followed[0]),
            (
                308,
                Some("http://a:8080/mcp/?token=b#c"),
                Some("/mcp/"),
                followed[1],
            ),
            (
                302,
                Some("https://login.internal/"),
                Some("another host"),
                None,
            ),
            (301, Some("http://a/mcp"), Some("another host"), None),
            (303, Some("mcp/"), Some("/mcp/"), None),
            (307, Some("//b/mcp"), Some("another host"), None),
            (307, None, None, None),
            (304, Some("/mcp/"), None, None),
            (201, Some("/mcp/"), None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(location) = location {
                headers.insert(LOCATION, location.parse().unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            let to = redirect(&uri, status, &headers).map(|error| match error {
                SendError::Redirected { to, target, .. } => (to, target),
                error => panic!("{error}"),
            });
            let (to, uri) = to.unzip();
            assert_eq!(to.as_deref(), expected, "{status} {location:?}");
            let uri = uri.flatten().map(|uri| uri.to_string());
            assert_eq!(uri.as_deref(), target, "{status} {location:?}");
        }
    }
}
