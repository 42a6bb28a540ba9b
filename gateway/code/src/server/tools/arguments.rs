//! Arguments that several tools take, and their schemas.

use mooring_sandbox::tree::{Mount, VirtualPath};
use serde_json::{Value, json};

use crate::catalog::CatalogNeed;
use crate::server::offer::LanguageOffer;
use mooring_protocol::arguments::{ArgumentError, Arguments};
use mooring_settings::Language;

/// The argument `language`.
pub(super) fn language(arguments: &mut Arguments) -> Result<Option<Language>, ArgumentError> {
    const ALLOWED: &str = "\"python\", \"typescript\" and \"javascript\"";
    arguments.choice_if_given("language", Language::parse, ALLOWED)
}

/// The argument of the file tools that selects the session by its language.
pub(super) fn language_schema(offer: &LanguageOffer) -> Value {
    json!({ "type": "string", "enum": offer.names, "description": "Whose files; see shell_exec." })
}

/// How `content` holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEncoding {
    Text,
    Base64,
}

/// The argument of the file tools that selects how they hold a file.
pub(super) fn encoding(arguments: &mut Arguments) -> Result<Option<FileEncoding>, ArgumentError> {
    let parse = |name: &str| match name {
        "text" => Some(FileEncoding::Text),
        "base64" => Some(FileEncoding::Base64),
        _ => None,
    };
    arguments.choice_if_given("encoding", parse, "\"text\" and \"base64\"")
}

pub(super) fn encoding_schema() -> Value {
    json!({ "type": "string", "enum": ["text", "base64"] })
}

/// What looking at this path needs of the lists of tools.
pub(super) fn catalog_need(path: &VirtualPath) -> CatalogNeed {
    match path.mount() {
        Some(Mount::Tools) => CatalogNeed::Tools,
        _ => CatalogNeed::Files,
    }
}

/// What a tool does that only reads.
pub(super) fn reading() -> Value {
    json!({ "readOnlyHint": true, "openWorldHint": false })
}
