//! `fs_read {path, language?}`: one text file, whole.

use mooring_sandbox::tree::{self, VirtualPath};
use mooring_session::names::Principal;
use serde_json::{Value, json};

use super::super::CodeServer;
use super::super::answer::ToolAnswer;
use super::super::arguments::{ArgumentError, Arguments};
use crate::code::place::Language;
use crate::settings::CodeToolSettings;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct FsRead {
    path: String,
    language: Option<Language>,
}

impl FsRead {
    fn read(mut arguments: Arguments) -> Result<Self, ArgumentError> {
        let path = arguments.text("path", usize::MAX)?;
        let language = arguments.language()?;
        arguments.finish()?;
        Ok(Self { path, language })
    }
}

/// Reads.
pub(in crate::code::server) async fn call(
    server: &CodeServer,
    principal: &Principal,
    arguments: Arguments,
) -> ToolAnswer {
    let request = match FsRead::read(arguments) {
        Ok(request) => request,
        Err(error) => return ToolAnswer::refused(error),
    };
    let path = match VirtualPath::parse(&request.path) {
        Ok(path) => path,
        Err(error) => return ToolAnswer::refused(error),
    };
    let shown = path.to_string();
    let bytes_max = server.settings.read_bytes_max;
    let content = server
        .with_view(principal, request.language, move |view| {
            tree::read(view, &path, bytes_max)
        })
        .await;
    let content = match content {
        Ok(content) => content,
        Err(error) => return ToolAnswer::refused(error),
    };
    let size_bytes = content.bytes.len();
    match String::from_utf8(content.bytes) {
        Ok(text) => ToolAnswer::done(json!({
            "path": shown,
            "content": text,
            "size_bytes": size_bytes,
            "modified_at": content.modified_at_ms,
        })),
        Err(error) => ToolAnswer::refused(format_args!(
            "{shown}: not UTF-8 text, from byte {} on; read it with shell_exec",
            error.utf8_error().valid_up_to()
        )),
    }
}

pub(super) fn definition(settings: &CodeToolSettings) -> Value {
    json!({
        "name": "fs_read",
        "title": "Read a file",
        "description": format!(
            "Reads one UTF-8 text file of /tools, /skills, /scratch or /results, whole; at most {} bytes.",
            settings.read_bytes_max
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "An absolute path of a file." },
                "language": super::language_schema(),
            },
            "required": ["path"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "content": { "type": "string" },
                "size_bytes": { "type": "integer", "minimum": 0 },
                "modified_at": super::modified_at_schema(),
                "error": { "type": "string", "description": "Why nothing is read." },
            },
        },
        "annotations": {
            "readOnlyHint": true,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        },
    })
}
