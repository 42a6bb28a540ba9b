//! A server of kind `http`: where it runs, and how its sessions are kept.

use super::super::affinity::Affinity;
use super::super::reader::Reader;
use super::super::source::Environment;
use super::headers::{self, UpstreamHeaders};
use super::instance::{self, Instance};
use super::kept::{self, Concurrency, OnUpstreamLoss};

/// One server of kind `http`.
#[derive(Debug, Clone)]
pub struct HttpServerSettings {
    /// Where it runs: 1 to 1024 distinct instances, in the order written.
    pub instances: Vec<Instance>,
    /// Whether its sessions keep their instance; the global switch is already applied. As a member of a group they
    /// always do.
    pub affinity: Affinity,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens to a session whose instance was lost.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Headers that every request to it carries.
    pub headers: UpstreamHeaders,
}

/// A server whose kind is refused is not also blamed for having no instances.
pub(super) fn parse(
    reader: &mut Reader<'_>,
    environment: &Environment,
    standard: Affinity,
    kind_is_refused: bool,
) -> HttpServerSettings {
    HttpServerSettings {
        instances: instance::parse_all(reader, kind_is_refused),
        affinity: kept::parse_affinity(reader, standard),
        concurrency: reader.choice(&kept::CONCURRENCY),
        on_upstream_loss: reader.choice(&kept::ON_UPSTREAM_LOSS),
        headers: headers::parse(reader, environment),
    }
}
