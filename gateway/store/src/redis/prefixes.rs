//! Checks that the module indexes this gateway's keys: its `mooring.prefixes` has to cover `store.key_prefix`.
//!
//! Records under other keys are stored and routed, but not counted, listed or cleaned up. Invariant: if the server does
//! not let this client read the setting, the check passes.

use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::command_connection::CommandConnection;
use super::reply::{Fields, text};
use crate::error::OpenError;

const SETTING: &str = "mooring.prefixes";

/// Keys that the server does not index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotCovered {
    /// Their prefix.
    pub(super) head: String,
    /// The prefixes that the server indexes.
    pub(super) prefixes: String,
}

impl NotCovered {
    /// The store at this address cannot be opened for this reason.
    pub(super) fn at(&self, address: &str) -> OpenError {
        let Self { head, prefixes } = self;
        let text = format!(
            "redis at {address} has no index for keys that start with {head}: its mooring.prefixes is {prefixes:?}; add \
             store.key_prefix to it, with CONFIG SET or where the module is loaded, or sessions would neither be counted \
             nor cleaned up"
        );
        OpenError::Redis(text.into())
    }
}

/// The first of `heads` that the server's prefixes do not cover.
pub(super) async fn not_covering(
    connection: &CommandConnection,
    heads: &[String],
    at_most: Duration,
) -> Option<NotCovered> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(SETTING);
    let answer = timeout(at_most, connection.send(&command)).await;
    let prefixes = match answer {
        Ok(Ok(value)) => read(value),
        _ => None,
    };
    let Some(prefixes) = prefixes else {
        tracing::info!(
            "mooring.prefixes could not be read: not checked whether it covers store.key_prefix"
        );
        return None;
    };
    let head = heads.iter().find(|head| !covers(&prefixes, head))?.clone();
    Some(NotCovered { head, prefixes })
}

fn read(value: Value) -> Option<String> {
    if matches!(value, Value::ServerError(_)) {
        return None;
    }
    let prefixes = Fields::of(value).ok()?.take(SETTING)?;
    text(&prefixes).map(str::to_owned)
}

fn covers(prefixes: &str, head: &str) -> bool {
    prefixes
        .split_ascii_whitespace()
        .any(|prefix| head.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_what_starts_with_it() {
        let head = "mcpgw:session_affinity:";
        for covering in ["mcpgw:", "a: mcpgw:", "mcpgw:session_affinity:", "m"] {
            assert!(covers(covering, head), "{covering}");
        }
        for other in ["", "mcpgw:code:", "mcpgw:session_affinity:x", "cpgw:"] {
            assert!(!covers(other, head), "{other}");
        }
    }

    #[test]
    fn what_is_no_list_of_prefixes_says_nothing() {
        let of = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let listed = Value::Array(vec![of(SETTING), of("mcpgw:")]);
        assert_eq!(read(listed).as_deref(), Some("mcpgw:"));
        for other in [Value::Array(Vec::new()), Value::Okay, Value::Nil] {
            assert_eq!(read(other), None);
        }
    }
}
