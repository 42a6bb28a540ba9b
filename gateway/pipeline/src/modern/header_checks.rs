//! What a request without a session has to say, and that its headers say the same (MCP 2026-07-28, transports, "Server
//! Validation").
//!
//! Invariant: a proxy that routes by a header sees what the server acts on. The arguments that a tool's schema mirrors are left
//! to its server, which has the schema: an intermediary forwards such headers unchanged ("Server Behavior for Custom
//! Headers").

use http::HeaderValue;

use crate::request::MirroredFields;
use mooring_protocol::modern::{
    check_bound_fields, declares_capabilities, decode_mirrored, mirrored_name,
};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Revision, VersionError};

/// Checks a request.
///
/// # Errors
/// The error that refuses it.
pub(crate) fn check(
    mirrored: &MirroredFields,
    message: &Message<'_>,
) -> Result<(), ErrorBody<'static>> {
    let Some(revision) = message.params.modern_version() else {
        let detail = "_meta needs io.modelcontextprotocol/protocolVersion, a string";
        return Err(ErrorBody::new(ErrorKind::InvalidParams).detail(detail));
    };
    agree(
        "MCP-Protocol-Version",
        mirrored.revision.as_ref(),
        &revision,
    )?;
    if revision != Revision::MODERN.as_str() {
        let error = VersionError::Unsupported(revision.clone().into_owned());
        return Err(ErrorBody::new(ErrorKind::UnsupportedVersion)
            .detail(error)
            .data_json(VersionError::data_without_session(&revision)));
    }
    let method = message.method_name().unwrap_or_default();
    agree("Mcp-Method", mirrored.method.as_ref(), method)?;
    match mirrored_name(message) {
        None => {}
        Some(Some(name)) => agree("Mcp-Name", mirrored.name.as_ref(), &name)?,
        Some(None) => {
            let detail = "params needs a string that Mcp-Name repeats: `name`, `uri` or `taskId`";
            return Err(ErrorBody::new(ErrorKind::InvalidParams).detail(detail));
        }
    }
    if !declares_capabilities(message) {
        let detail = "_meta needs io.modelcontextprotocol/clientCapabilities, an object";
        return Err(ErrorBody::new(ErrorKind::InvalidParams).detail(detail));
    }
    check_bound_fields(message)
        .map_err(|cause| ErrorBody::new(ErrorKind::InvalidParams).detail(cause))
}

/// Whether the header repeats this field.
fn agree(header: &str, value: Option<&HeaderValue>, field: &str) -> Result<(), ErrorBody<'static>> {
    let refuse = |problem: &str| {
        let detail = format!("the header {header} {problem}");
        Err(ErrorBody::new(ErrorKind::HeaderMismatch).detail(detail))
    };
    let Some(value) = value else {
        return refuse("is missing");
    };
    match decode_mirrored(value.as_bytes()) {
        None => refuse("is malformed"),
        Some(text) if text == field => Ok(()),
        Some(_) => refuse("is not what the message says"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_protocol::Sender;

    use super::*;

    fn checked(headers: [Option<&'static str>; 3], method: &str, params: &str) -> Option<i32> {
        let [revision, method_header, name] =
            headers.map(|value| value.map(HeaderValue::from_static));
        let mirrored = MirroredFields {
            revision,
            method: method_header,
            name,
        };
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
        let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
        check(&mirrored, &message)
            .err()
            .map(|error| error.kind().code())
    }

    #[test]
    fn headers_have_to_say_what_the_message_says() {
        const NOW: Option<&str> = Some("2026-07-28");
        const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let list = Some("tools/list");
        let call = Some("tools/call");
        let named = format!(r#""name":"a b",{META}"#);
        let twice = format!(r#""requestState":"a","requestState":"b",{named}"#);
        for (headers, method, params, code) in [
            ([NOW, list, None], "tools/list", META, None),
            ([NOW, list, Some("any")], "tools/list", META, None),
            ([None, list, None], "tools/list", META, Some(-32020)),
            (
                [Some("2025-11-25"), list, None],
                "tools/list",
                META,
                Some(-32020),
            ),
            ([NOW, None, None], "tools/list", META, Some(-32020)),
            (
                [NOW, Some("Tools/List"), None],
                "tools/list",
                META,
                Some(-32020),
            ),
            ([NOW, call, None], "tools/list", META, Some(-32020)),
            ([NOW, call, Some("a b")], "tools/call", &named, None),
            (
                [NOW, call, Some("=?base64?YSBi?=")],
                "tools/call",
                &named,
                None,
            ),
            (
                [NOW, call, Some("=?base64?YSB?=")],
                "tools/call",
                &named,
                Some(-32020),
            ),
            ([NOW, call, Some("b")], "tools/call", &named, Some(-32020)),
            ([NOW, call, None], "tools/call", &named, Some(-32020)),
            ([NOW, call, Some("a")], "tools/call", META, Some(-32602)),
            ([NOW, list, None], "tools/list", "", Some(-32602)),
            ([NOW, call, Some("a b")], "tools/call", &twice, Some(-32602)),
            (
                [NOW, list, None],
                "tools/list",
                r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
                Some(-32602),
            ),
            (
                [Some("1900-01-01"), list, None],
                "tools/list",
                r#""_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}"#,
                Some(-32022),
            ),
        ] {
            assert_eq!(
                checked(headers, method, params),
                code,
                "{headers:?} {method} {params}"
            );
        }
    }
}
