//! `fs_read {path, language?}`: one file of text, whole, or one image.

use std::sync::Arc;

use mooring_sandbox::tree::{self, FileContent, SessionDirectory, VirtualPath};
use serde_json::{Value, json};

use super::super::answer::{ToolAnswer, ToolRefusal};
use super::super::failure::Failure;
use super::super::{CallContext, CodeServer};
use super::catalog_need;
use crate::tokens::Tokenizer;
use mooring_protocol::arguments::{ArgumentError, Arguments};
use mooring_settings::{CodeToolSettings, Language};

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
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    arguments: Arguments,
) -> Result<ToolAnswer, ToolRefusal> {
    let request = FsRead::read(arguments)?;
    let path = VirtualPath::parse(&request.path)?;
    let (shown, need) = (path.to_string(), catalog_need(&path));
    let bytes_max = server.settings.read_bytes_max;
    let opening = server.tokenizer_opening();
    let content = server
        .with_view(context, request.language, need, move |opened| {
            let content = tree::read(&opened.view, &path, bytes_max)?;
            read_content(content, opening, &opened.directory)
        })
        .await?;
    let mut about = json!({
        "path": shown,
        "size_bytes": content.size_bytes,
        "modified_at": content.modified_at_ms,
    });
    Ok(match content.form {
        FileForm::Text(text) => {
            if let Some(about) = about.as_object_mut() {
                about.insert("content".to_owned(), text.as_str().into());
            }
            ToolAnswer::done(about).with_text(text)
        }
        FileForm::Image(mime_type, bytes) => ToolAnswer::done(about).with_image(mime_type, bytes),
        FileForm::Other { valid_up_to, what } => {
            return Err(ToolRefusal::new(format!(
                "{shown}: not UTF-8 text from byte {valid_up_to} on{what}; read it with code, such as open({shown:?}, \"rb\")"
            )));
        }
    })
}

/// A file that was read.
struct FileAnswer {
    form: FileForm,
    size_bytes: usize,
    modified_at_ms: i64,
}

/// What a file turned out to be.
enum FileForm {
    Text(String),
    /// An image that hosts show, and its media type.
    Image(&'static str, Vec<u8>),
    /// Neither.
    Other {
        /// Up to where it is text.
        valid_up_to: usize,
        /// What it looks like, after a comma; or nothing.
        what: &'static str,
    },
}

/// Its text, without what is personal where the policy says so: code can have written anything. An image is answered only
/// where nothing personal has to be found in it.
fn read_content(
    content: FileContent,
    opening: Option<impl FnOnce(&SessionDirectory) -> Result<Arc<Tokenizer>, Failure>>,
    session: &SessionDirectory,
) -> Result<FileAnswer, Failure> {
    let size_bytes = content.bytes.len();
    let form = match (String::from_utf8(content.bytes), opening) {
        (Ok(text), Some(opening)) => FileForm::Text(opening(session)?.hide_text(&text)?),
        (Ok(text), None) => FileForm::Text(text),
        (Err(error), opening) => {
            let valid_up_to = error.utf8_error().valid_up_to();
            let bytes = error.into_bytes();
            match (binary_kind(&bytes), opening) {
                (Some(BinaryKind::Image(mime_type)), None) => FileForm::Image(mime_type, bytes),
                (Some(BinaryKind::Image(_)), Some(_)) => FileForm::Other {
                    valid_up_to,
                    what: ", but an image, in which personal data could not be replaced",
                },
                (Some(BinaryKind::Other(what)), _) => FileForm::Other { valid_up_to, what },
                (None, _) => FileForm::Other {
                    valid_up_to,
                    what: "",
                },
            }
        }
    };
    Ok(FileAnswer {
        form,
        size_bytes,
        modified_at_ms: content.modified_at_ms,
    })
}

/// What the first bytes of a file say that it is.
#[derive(Clone, Copy)]
enum BinaryKind {
    /// An image of this media type.
    Image(&'static str),
    /// Something else, in words after a comma.
    Other(&'static str),
}

fn binary_kind(bytes: &[u8]) -> Option<BinaryKind> {
    use BinaryKind::{Image, Other};
    let kinds: [(&[u8], BinaryKind); 6] = [
        (b"\x89PNG\r\n\x1a\n", Image("image/png")),
        (b"\xff\xd8\xff", Image("image/jpeg")),
        (b"GIF8", Image("image/gif")),
        (b"PK\x03\x04", Other(", but a ZIP archive")),
        (b"\x1f\x8b", Other(", but gzip data")),
        (b"%PDF-", Other(", but a PDF document")),
    ];
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some(Image("image/webp"));
    }
    let found = kinds.iter().find(|(magic, _)| bytes.starts_with(magic));
    found.map(|(_, kind)| *kind)
}

pub(super) fn definition(settings: &CodeToolSettings) -> Value {
    json!({
        "name": "fs_read",
        "title": "Read a file",
        "description": format!(
            "Reads a text file, or shows a PNG, JPEG, GIF or WebP image; at most {} bytes.",
            settings.read_bytes_max
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
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
                "size_bytes": { "type": "integer" },
                "modified_at": { "type": "integer" },
                "error": { "type": "string" },
            },
        },
        "annotations": super::reading(),
    })
}
