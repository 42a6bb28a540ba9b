//! A server of kind `sse`: HTTP+SSE of 2024-11-05, where a session is one open event stream. Its sessions are always
//! kept, by the worker that holds the stream.

use super::super::reader::Reader;
use super::super::source::Environment;
use super::headers::{self, UpstreamHeaders};
use super::instance::{self, Instance};
use super::kept::{self, Concurrency, OnUpstreamLoss};
use super::kinds;

/// One server of kind `sse`.
#[derive(Debug, Clone)]
pub struct SseServerSettings {
    /// Where its event streams are opened: 1 to 1024 distinct instances, in the order written.
    pub instances: Vec<Instance>,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens to a session whose stream was lost.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Headers that every request to it carries, that for the stream included.
    pub headers: UpstreamHeaders,
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> SseServerSettings {
    kept::refuse_affinity_off(reader, kinds::SSE);
    SseServerSettings {
        instances: instance::parse_all(reader, false),
        concurrency: reader.choice(&kept::CONCURRENCY),
        on_upstream_loss: reader.choice(&kept::ON_UPSTREAM_LOSS),
        headers: headers::parse(reader, environment),
    }
}
