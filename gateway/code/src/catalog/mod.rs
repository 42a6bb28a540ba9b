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
mod listing;
mod source;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mooring_session::names::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::listing::list as list_tools;
use self::source::Source;
use super::calls::Upstreams;

/// One tool, as its server lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedTool {
    /// Its name.
    pub(crate) name: String,
    /// Its name for people.
    pub(crate) title: Option<String>,
    /// What it does.
    pub(crate) description: String,
    /// Its tags: the server's and its own, sorted, without duplicates.
    pub(crate) tags: Vec<String>,
    /// The JSON schema of its arguments.
    pub(crate) input_schema: Value,
    /// Its output schema, if it has one.
    pub(crate) output_schema: Option<Value>,
    /// Its server's annotations of its behavior.
    pub(crate) annotations: Option<Value>,
}

impl ListedTool {
    /// About how many bytes of memory it takes. A parsed schema takes many times its text: `[1,1]` a value for each two
    /// bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = [
            Some(&self.name),
            self.title.as_ref(),
            Some(&self.description),
        ];
        let words: usize = words.into_iter().flatten().map(String::len).sum();
        let tags: usize = self.tags.iter().map(|tag| VALUE_BYTES + tag.len()).sum();
        let schemas = [
            Some(&self.input_schema),
            self.output_schema.as_ref(),
            self.annotations.as_ref(),
        ];
        let schemas: usize = schemas.into_iter().flatten().map(value_bytes).sum();
        VALUE_BYTES + words + tags + schemas
    }
}

/// The memory of one JSON value or key in addition to its text.
const VALUE_BYTES: usize = 64;

/// JSON is parsed no deeper than 128 levels.
fn value_bytes(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| VALUE_BYTES + key.len() + value_bytes(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inside
}

/// The tools of one server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerTools {
    /// The server's id.
    pub(crate) server: ServerName,
    /// Its tools, in its own order.
    pub(crate) tools: Arc<[ListedTool]>,
}

/// A server whose tools may be mounted.
#[derive(Clone, Debug)]
pub struct MountableServer {
    /// Its id.
    pub id: ServerName,
    /// The tags that all its tools inherit.
    pub tags: Vec<String>,
    /// Whether the gateway has to start a program to ask it.
    pub is_program: bool,
}

/// The purpose for which a call needs the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogNeed {
    /// It uses the tools: the first list of a server is waited for.
    Tools,
    /// It uses other files of the session: what is known suffices.
    Files,
}

/// The lists of all servers.
#[derive(Debug, Default)]
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
        let sources = servers
            .into_iter()
            .map(|server| Arc::new(Source::new(server, base_dir, ttl, answer_timeout)))
            .collect();
        Self { sources }
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
