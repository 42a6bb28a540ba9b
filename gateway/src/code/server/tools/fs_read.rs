//! `fs_read {path, language?}`: one text file, whole.

use std::sync::Arc;

use mooring_sandbox::tree::{self, FileContent, SessionDirectory, VirtualPath};
use serde_json::{Value, json};

use super::super::answer::ToolAnswer;
use super::super::failure::Failure;
use super::super::{CallContext, CodeServer};
use crate::code::place::Language;
use crate::code::tokens::Tokenizer;
use crate::mcp::arguments::{ArgumentError, Arguments};
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
        let language = super::language(&mut arguments)?;
        arguments.finish()?;
        Ok(Self { path, language })
    }
}

/// Reads.
pub(in crate::code::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
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
    let opening = server.tokenizer_opening();
    let content = server
        .with_view(context, request.language, move |opened| {
            let content = tree::read(&opened.view, &path, bytes_max)?;
            read_as_text(content, opening, &opened.directory)
        })
        .await;
    let content = match content {
        Ok(content) => content,
        Err(error) => return ToolAnswer::refused(error),
    };
    match content.text {
        Ok(text) => ToolAnswer::done(json!({
            "path": shown,
            "content": text,
            "size_bytes": content.size_bytes,
            "modified_at": content.modified_at_ms,
        })),
        Err(valid_up_to) => ToolAnswer::refused(format_args!(
            "{shown}: not UTF-8 text, from byte {valid_up_to} on; read it with shell_exec"
        )),
    }
}

/// A file as it is told.
struct Told {
    /// Its text, or up to where it is one.
    text: Result<String, usize>,
    size_bytes: usize,
    modified_at_ms: i64,
}

/// Its text, without what is personal where the policy says so: code can have written anything.
fn read_as_text(
    content: FileContent,
    opening: Option<impl FnOnce(&SessionDirectory) -> Result<Arc<Tokenizer>, Failure>>,
    session: &SessionDirectory,
) -> Result<Told, Failure> {
    let size_bytes = content.bytes.len();
    let text = match (String::from_utf8(content.bytes), opening) {
        (Ok(text), Some(opening)) => Ok(opening(session)?.hide_text(&text)?),
        (Ok(text), None) => Ok(text),
        (Err(error), _) => Err(error.utf8_error().valid_up_to()),
    };
    Ok(Told {
        text,
        size_bytes,
        modified_at_ms: content.modified_at_ms,
    })
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
