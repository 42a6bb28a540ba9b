//! One connection of a program to the proxy: one request, and the tunnel that may follow it.
//!
//! Invariant: everything of a connection ends with the future that serves it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::egress::{Destination, EgressError, EgressStream};
use super::refusal::{RefusalReason, RefusedRequest};
use super::shared::Shared;
use mooring_usage::for_same_user;

/// For the head of a request to be there.
const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Longest head, of a request and of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The answer to a program: the destination's, or a line of the proxy's own.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Headers that are for one connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The same, of old clients.
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The tunnel or connection that outlives the response head.
#[derive(Default)]
struct ConnectionTasks {
    /// The two ends of a tunnel.
    tunnel: Option<(OnUpgrade, EgressStream)>,
    /// Drives the connection to the destination.
    remote: Option<AbortOnDropHandle<()>>,
}

/// Serves one connection to its end.
pub(super) async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let beside = Mutex::new(ConnectionTasks::default());
    let service = service_fn(|request| {
        let (shared, beside) = (&shared, &beside);
        async move { Ok::<_, Infallible>(answer(request, shared, beside).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "sandbox connection failed");
    }
    let tunnel = lock(&beside).tunnel.take();
    if let Some((upgrade, mut remote)) = tunnel
        && let Ok(client) = upgrade.await
    {
        let mut client = TokioIo::new(client);
        let idle = remote.idle();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut remote) => {}
            () = idle => {}
        }
    }
}

fn lock(beside: &Mutex<ConnectionTasks>) -> std::sync::MutexGuard<'_, ConnectionTasks> {
    beside.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The response to the program.
async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    beside: &Mutex<ConnectionTasks>,
) -> Answer {
    let requested = request.uri().to_string();
    let answered = if request.method() == Method::CONNECT {
        tunnel(request, shared, beside).await
    } else {
        forward(request, shared, beside).await
    };
    answered.unwrap_or_else(|error| {
        let status = match &error {
            EgressError::Refused(why) => {
                shared.note_refusal(RefusedRequest::new(&requested, *why));
                StatusCode::FORBIDDEN
            }
            EgressError::Lookup { .. } | EgressError::Connect { .. } => StatusCode::BAD_GATEWAY,
        };
        line(status, &error)
    })
}

/// `CONNECT host:port`.
async fn tunnel(
    request: Request<Incoming>,
    shared: &Shared,
    beside: &Mutex<ConnectionTasks>,
) -> Result<Answer, EgressError> {
    let authority = request
        .uri()
        .authority()
        .ok_or(RefusalReason::Destination)?;
    let remote = Destination::new(authority, None)?.connect(shared).await?;
    lock(beside).tunnel = Some((hyper::upgrade::on(request), remote));
    Ok(Response::new(Either::Right(Full::default())))
}

/// `GET http://host/path`, and likewise with every other method.
async fn forward(
    mut request: Request<Incoming>,
    shared: &Shared,
    beside: &Mutex<ConnectionTasks>,
) -> Result<Answer, EgressError> {
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or(RefusalReason::Destination)?;
    if uri.scheme() != Some(&http::uri::Scheme::HTTP) {
        return Err(RefusalReason::Scheme.into());
    }
    let destination = Destination::new(authority, Some(80))?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| RefusalReason::Destination)?;
    let remote = destination.connect(shared).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    strip(request.headers_mut());
    // What the address says, whatever the header did.
    request.headers_mut().insert(header::HOST, host);
    let lost = |source: hyper::Error| EgressError::Connect {
        host: authority.host().to_owned(),
        source: std::io::Error::other(source),
    };
    let idle = remote.idle();
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(remote))
        .await
        .map_err(lost)?;
    let driver = tokio::spawn(for_same_user(async move {
        tokio::select! {
            // The reader of the response sees the error.
            _ = connection => {}
            () = idle => {}
        }
    }));
    lock(beside).remote = Some(AbortOnDropHandle::new(driver));
    let mut response = sender.send_request(request).await.map_err(lost)?;
    strip(response.headers_mut());
    Ok(response.map(Either::Left))
}

/// Takes away what is for the other connection.
fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP).chain([&PROXY_CONNECTION]) {
        headers.remove(name);
    }
}

/// An answer of the proxy's own.
fn line(status: StatusCode, error: &EgressError) -> Answer {
    let body = Full::from(format!("mooring: {error}\n"));
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
