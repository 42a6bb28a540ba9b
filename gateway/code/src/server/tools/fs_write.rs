//! `fs_write {path, content, encoding?, language?}`: one file, whole, where the policy allows it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mooring_sandbox::tree::VirtualPath;
use serde_json::{Value, json};

use super::arguments::{self, FileEncoding};
use crate::server::answer::{ToolAnswer, ToolRefusal};
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::directories::DirectoryWords;
use crate::server::offer::LanguageOffer;
use mooring_protocol::arguments::{ArgumentError, Arguments};
use mooring_settings::CodePolicy;

/// Writes.
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    mut arguments: Arguments,
) -> Result<ToolAnswer, ToolRefusal> {
    let path = arguments.text("path", usize::MAX)?;
    // Its limit is the file's, which is checked with the others.
    let content = arguments.text("content", usize::MAX)?;
    let content = match arguments::encoding(&mut arguments)? {
        None | Some(FileEncoding::Text) => content.into_bytes(),
        Some(FileEncoding::Base64) => {
            let decoded = BASE64_STANDARD.decode(content);
            decoded.map_err(|_| ArgumentError::Type {
                field: "content",
                expected: "base64, as `encoding` says",
                found: "other text",
            })?
        }
    };
    let language = arguments::language(&mut arguments)?;
    arguments.finish()?;
    let path = VirtualPath::parse(&path)?;
    let shown = path.to_string();
    let written = server.write(context, language, path, content).await?;
    let text = format!("wrote {} bytes to {shown}", written.size_bytes);
    let content = json!({
        "path": shown,
        "size_bytes": written.size_bytes,
        "modified_at": written.modified_at_ms,
    });
    Ok(ToolAnswer::done(content).with_text(text))
}

pub(super) fn definition(policy: &CodePolicy, offer: &LanguageOffer) -> Value {
    let where_to = match DirectoryWords::of(&policy.limits.access).written_to() {
        Some(directories) => format!("Writes a file beneath {directories}"),
        None => "Writes a file, which the policy of this server allows nowhere".to_owned(),
    };
    json!({
        "name": "fs_write",
        "title": "Write a file",
        "description": format!(
            "{where_to}, replaces one that is there, and makes missing directories. A \
             file may have {} bytes, all files together {}.",
            policy.limits.file_bytes, policy.limits.disk_bytes
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "content": { "type": "string" },
                "encoding": arguments::encoding_schema(),
                "language": arguments::language_schema(offer),
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "size_bytes": { "type": "integer" },
                "modified_at": { "type": "integer" },
                "error": { "type": "string" },
            },
        },
        "annotations": {
            "readOnlyHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        },
    })
}
