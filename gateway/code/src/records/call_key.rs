//! By what a call is found in a record: server, tool and arguments, whatever the order of the arguments' members.

use crate::calls::NestedCall;
use mooring_secrets::digest;

/// The SHA-256 of server, tool and arguments, in hexadecimal digits. A JSON map keeps its members in the order of their
/// names.
///
/// Nesting is as deep as the bridge admits, well within a thread's stack.
pub(crate) fn key(call: &NestedCall) -> String {
    let material = (&*call.server, &*call.tool, &call.arguments);
    // Strings, numbers and maps of them can always be written.
    digest::hex(&serde_json::to_vec(&material).unwrap_or_default())
}
