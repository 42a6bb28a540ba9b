//! The catalog: the tools of other servers that are mounted, as their servers list them.
//!
//! One gateway of the fleet asks a server, as a client of its own, and writes the answer to the volume; the others read it
//! there. What is older than `code.catalog_ttl_seconds`, or than an hour where a program has to be started to ask, is asked
//! for again while it is still used. A server that does not
//! answer keeps the tools it had.
//!
//! Invariants: no call waits for a server if there is an earlier list of it, or if it recently failed to answer; while
//! the volume is available, all gateways of a fleet see the same lists.

mod file;
mod listed_tool;
mod listing;
mod source;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

pub(crate) use self::listed_tool::ServerTools;
pub use self::listed_tool::{ListedTool, MountableServer};
pub use self::listing::list as list_tools;
pub(crate) use self::source::CatalogNeed;
use self::source::Source;
use super::calls::Upstreams;

/// The lists of all servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    sources: Vec<Arc<Source>>,
}

impl Catalog {
    /// The catalog of these servers, shared below `base_dir` if the volume can be used. A list is cached for `ttl`. A
    /// server has `answer_timeout` to list its tools; a program, at least the time that it may take to start.
    pub(crate) fn new(
        servers: Vec<MountableServer>,
        base_dir: Option<&Path>,
        ttl: Duration,
        answer_timeout: Duration,
    ) -> Self {
        Self::default().with_servers(servers, base_dir, ttl, answer_timeout)
    }

    /// The catalog of these servers. What is known of one that was in this catalog stays known.
    pub(crate) fn with_servers(
        &self,
        servers: Vec<MountableServer>,
        base_dir: Option<&Path>,
        ttl: Duration,
        answer_timeout: Duration,
    ) -> Self {
        let source = |server| {
            let mut present = self.sources.iter();
            match present.find(|source| source.is_of(&server)) {
                Some(present) => Arc::clone(present),
                None => Arc::new(Source::new(server, base_dir, ttl, answer_timeout)),
            }
        };
        Self {
            sources: servers.into_iter().map(source).collect(),
        }
    }

    /// The lists of all wanted servers; unknown ones are requested. An unavailable server is skipped.
    pub(crate) async fn tools(
        &self,
        upstreams: &Arc<dyn Upstreams>,
        need: CatalogNeed,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<ServerTools> {
        let wanted = (self.sources.iter()).filter(|source| is_wanted(source.server()));
        let asking = wanted.map(|source| source.tools(upstreams, need));
        join_all(asking).await.into_iter().flatten().collect()
    }
}
