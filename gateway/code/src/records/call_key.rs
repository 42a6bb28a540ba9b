//! By what a call is found in a record: server, tool and arguments, whatever the order of the arguments' members.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::calls::NestedCall;
use mooring_secrets::digest;

/// The same value with members in the order of their names, whatever order the map of this build keeps.
#[derive(Serialize)]
#[serde(untagged)]
enum Canonical<'a> {
    Object(BTreeMap<&'a str, Canonical<'a>>),
    Array(Vec<Canonical<'a>>),
    Other(&'a Value),
}

impl<'a> Canonical<'a> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Object(members) => Self::object(members),
            Value::Array(items) => Self::Array(items.iter().map(Self::of).collect()),
            other => Self::Other(other),
        }
    }

    fn object(members: &'a Map<String, Value>) -> Self {
        let member = |(name, value): (&'a String, &'a Value)| (name.as_str(), Self::of(value));
        Self::Object(members.iter().map(member).collect())
    }
}

/// The SHA-256 of server, tool and canonical arguments, in hexadecimal digits.
///
/// Nesting is as deep as the bridge admits, well within a thread's stack.
pub(crate) fn key(call: &NestedCall) -> String {
    let material = (
        &*call.server,
        &*call.tool,
        Canonical::object(&call.arguments),
    );
    // Strings, numbers and maps of them can always be written.
    digest::hex(&serde_json::to_vec(&material).unwrap_or_default())
}
