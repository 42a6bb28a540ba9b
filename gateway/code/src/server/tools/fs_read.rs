//! `fs_read {path, encoding?, offset?, language?}`: one file of text, one image, or any file for the host; whole, or a part.

use std::sync::Arc;

use mooring_sandbox::tree::{self, FileContent, SessionDirectory, VirtualPath};
use serde_json::{Value, json};

use super::arguments::{self, FileEncoding, catalog_need};
use crate::server::answer::{ToolAnswer, ToolRefusal};
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::failure::Failure;
use crate::server::offer::LanguageOffer;
use crate::tokens::Tokenizer;
use mooring_protocol::arguments::Arguments;
use mooring_settings::CodeToolSettings;

/// What a JSON number can say exactly.
const OFFSET_MAX: u64 = 9_007_199_254_740_991;
/// The longest character of UTF-8, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// Reads.
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    mut arguments: Arguments,
) -> Result<ToolAnswer, ToolRefusal> {
    let path = arguments.text("path", usize::MAX)?;
    let encoding = arguments::encoding(&mut arguments)?;
    // Where the part begins that is asked for; the whole file otherwise.
    let offset = arguments.number_if_given("offset", 0..=OFFSET_MAX)?;
    let language = arguments::language(&mut arguments)?;
    arguments.finish()?;
    let path = VirtualPath::parse(&path)?;
    let (shown, need) = (path.to_string(), catalog_need(&path));
    let bytes_max = server.settings.read_bytes_max;
    let access = server.policy.limits.access.clone();
    let opening = server.tokenizer_opening();
    if opening.is_some() && offset.is_some() {
        return Err(ToolRefusal::new(
            "personal data is replaced in files, so they are read whole: leave `offset` out",
        ));
    }
    let content = server
        .with_view(context, language, need, move |opened| {
            let content = match offset {
                Some(offset) => tree::read_part(&opened.view, &path, offset, bytes_max, &access)?,
                None => tree::read(&opened.view, &path, bytes_max, &access)?,
            };
            read_content(content, encoding, opening, &opened.directory)
        })
        .await?;
    let mut about = json!({
        "path": shown,
        "size_bytes": content.size_bytes,
        "modified_at": content.modified_at_ms,
    });
    if let (Some(offset), Some(about)) = (offset, about.as_object_mut()) {
        let next = offset.saturating_add(content.part_bytes);
        if next < content.size_bytes {
            about.insert("next_offset".to_owned(), next.into());
        }
    }
    Ok(match content.form {
        FileForm::Text(text) => {
            if let Some(about) = about.as_object_mut() {
                about.insert("content".to_owned(), text.as_str().into());
            }
            ToolAnswer::done(about).with_text(text)
        }
        FileForm::Image(mime_type, bytes) => ToolAnswer::done(about).with_image(mime_type, bytes),
        FileForm::File(bytes) => {
            let mime_type = mime_type(&shown, &bytes);
            if let Some(about) = about.as_object_mut() {
                about.insert("mime_type".to_owned(), mime_type.into());
            }
            ToolAnswer::done(about).with_file(shown, mime_type, bytes)
        }
        FileForm::Other { valid_up_to, what } => {
            return Err(ToolRefusal::new(format!(
                "{shown}: not UTF-8 text from byte {valid_up_to} on{what}; read it with code, such as open({shown:?}, \"rb\"), or \
                 get it as a file with encoding \"base64\""
            )));
        }
        FileForm::Personal => {
            return Err(ToolRefusal::new(format!(
                "{shown}: personal data is replaced in files, and cannot be in base64; read it with code, such as \
                 open({shown:?}, \"rb\")"
            )));
        }
    })
}

/// A file that was read.
struct FileAnswer {
    form: FileForm,
    size_bytes: u64,
    /// How many bytes of it the answer has.
    part_bytes: u64,
    modified_at_ms: i64,
}

/// What a file turned out to be.
enum FileForm {
    Text(String),
    /// An image that hosts show, and its media type.
    Image(&'static str, Vec<u8>),
    /// Any file, as base64.
    File(Vec<u8>),
    /// Neither.
    Other {
        /// Up to where it is text.
        valid_up_to: usize,
        /// What it looks like, after a comma; or nothing.
        what: &'static str,
    },
    /// Any file as base64, in which nothing personal can be found.
    Personal,
}

/// Its text, without what is personal where the policy says so: code can have written anything. An image and base64 are
/// answered only where nothing personal has to be found in them.
fn read_content(
    content: FileContent,
    encoding: Option<FileEncoding>,
    opening: Option<impl FnOnce(&SessionDirectory) -> Result<Arc<Tokenizer>, Failure>>,
    session: &SessionDirectory,
) -> Result<FileAnswer, Failure> {
    let FileContent {
        mut bytes,
        size_bytes,
        modified_at_ms,
    } = content;
    let is_part = (bytes.len() as u64) < size_bytes;
    if is_part && encoding != Some(FileEncoding::Base64) {
        cut_last_character(&mut bytes);
    }
    let part_bytes = bytes.len() as u64;
    let form = match (encoding, opening) {
        (Some(FileEncoding::Base64), None) => FileForm::File(bytes),
        (Some(FileEncoding::Base64), Some(_)) => FileForm::Personal,
        (None | Some(FileEncoding::Text), opening) => text_or_image(bytes, opening, session)?,
    };
    Ok(FileAnswer {
        form,
        size_bytes,
        part_bytes,
        modified_at_ms,
    })
}

/// Removes the beginning of a character at the end of a part of a text.
fn cut_last_character(bytes: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
        && bytes.len() - error.valid_up_to() < CHARACTER_BYTES_MAX
    {
        bytes.truncate(error.valid_up_to());
    }
}

fn text_or_image(
    bytes: Vec<u8>,
    opening: Option<impl FnOnce(&SessionDirectory) -> Result<Arc<Tokenizer>, Failure>>,
    session: &SessionDirectory,
) -> Result<FileForm, Failure> {
    Ok(match (String::from_utf8(bytes), opening) {
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
                (Some(BinaryKind::Other { what, .. }), _) => FileForm::Other { valid_up_to, what },
                (None, _) => FileForm::Other {
                    valid_up_to,
                    what: "",
                },
            }
        }
    })
}

/// The media type of a file, by its first bytes, and that of an Office document by its name: those are ZIP archives.
fn mime_type(path: &str, bytes: &[u8]) -> &'static str {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    match (binary_kind(bytes), extension) {
        (Some(BinaryKind::Other { mime_type: ZIP, .. }), "xlsx") => {
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        }
        (Some(BinaryKind::Other { mime_type: ZIP, .. }), "docx") => {
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        }
        (Some(BinaryKind::Other { mime_type: ZIP, .. }), "pptx") => {
            "application/vnd.openxmlformats-officedocument.presentationml.presentation"
        }
        (Some(BinaryKind::Image(mime_type) | BinaryKind::Other { mime_type, .. }), _) => mime_type,
        (None, _) if std::str::from_utf8(bytes).is_ok() => "text/plain",
        (None, _) => "application/octet-stream",
    }
}

const ZIP: &str = "application/zip";

/// What the first bytes of a file say that it is.
#[derive(Clone, Copy)]
enum BinaryKind {
    /// An image of this media type.
    Image(&'static str),
    /// Something else.
    Other {
        mime_type: &'static str,
        /// In words, after a comma.
        what: &'static str,
    },
}

fn binary_kind(bytes: &[u8]) -> Option<BinaryKind> {
    use BinaryKind::{Image, Other};
    let other = |mime_type, what| Other { mime_type, what };
    let kinds: [(&[u8], BinaryKind); 6] = [
        (b"\x89PNG\r\n\x1a\n", Image("image/png")),
        (b"\xff\xd8\xff", Image("image/jpeg")),
        (b"GIF8", Image("image/gif")),
        (b"PK\x03\x04", other(ZIP, ", but a ZIP archive")),
        (b"\x1f\x8b", other("application/gzip", ", but gzip data")),
        (b"%PDF-", other("application/pdf", ", but a PDF document")),
    ];
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some(Image("image/webp"));
    }
    let found = kinds.iter().find(|(magic, _)| bytes.starts_with(magic));
    found.map(|(_, kind)| *kind)
}

pub(super) fn definition(settings: &CodeToolSettings, offer: &LanguageOffer) -> Value {
    json!({
        "name": "fs_read",
        "title": "Read a file",
        "description": format!(
            "Reads a text file, or shows a PNG, JPEG, GIF or WebP image; at most {} bytes, more in parts from `offset` on. With \
             encoding base64 it hands out any file.",
            settings.read_bytes_max
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "encoding": arguments::encoding_schema(),
                "offset": { "type": "integer", "minimum": 0 },
                "language": arguments::language_schema(offer),
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
                "next_offset": { "type": "integer" },
                "mime_type": { "type": "string" },
                "error": { "type": "string" },
            },
        },
        "annotations": arguments::reading(),
    })
}
