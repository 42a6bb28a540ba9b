//! The body of what an upstream answers, wherever it comes from: an instance over HTTP, or a connection that lives in
//! this worker or another.
//!
//! Invariant: a body that ends without an error is whole.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

/// The answer of an upstream: its head, and a body that may still arrive.
pub type Reply = http::Response<Body>;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection to an instance broke.
    #[error("the connection to the instance broke")]
    Http(#[from] hyper::Error),
    /// The connection to another gateway broke.
    #[error("the reply of another worker broke off")]
    Peer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection that a worker holds to the server ended.
    #[error("the connection to the server ended: {0}")]
    Connection(Box<str>),
}

/// A body from any of the places that upstream answers come from.
pub struct Body(Source);

enum Source {
    Http(Incoming),
    Made(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError> + Send>>),
}

impl Body {
    /// A body that is made in this process.
    #[must_use]
    pub fn made(
        body: impl http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
    ) -> Self {
        Self(Source::Made(Box::pin(body)))
    }

    /// A body that is whole from the start.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        use http_body_util::{BodyExt, Full};
        Self::made(Full::new(bytes).map_err(|never| match never {}))
    }
}

impl From<Incoming> for Body {
    fn from(body: Incoming) -> Self {
        Self(Source::Http(body))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Source::Http(_) => "Body(http)",
            Source::Made(_) => "Body(made)",
        })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Source::Http(body) => Pin::new(body).poll_frame(context).map_err(BodyError::Http),
            Source::Made(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http(body) => body.is_end_stream(),
            Source::Made(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http(body) => body.size_hint(),
            Source::Made(body) => body.size_hint(),
        }
    }
}
