//! `fs_browse {path?, include_hidden?, max_entries?, language?}`: lists one directory.

use mooring_sandbox::tree::{self, BrowseOptions, Entry, FileKind, Hidden, Listing, VirtualPath};
use serde_json::{Value, json};

use super::arguments::{self, catalog_need};
use crate::server::answer::{ToolAnswer, ToolRefusal};
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::directories::DirectoryWords;
use crate::server::offer::LanguageOffer;
use mooring_protocol::arguments::Arguments;
use mooring_settings::{CodePolicy, CodeToolSettings};

/// What is listed unless the call says otherwise.
const PATH_DEFAULT: &str = "/tools";

/// Lists.
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    mut arguments: Arguments,
) -> Result<ToolAnswer, ToolRefusal> {
    let settings = &server.settings;
    let most = u64::try_from(settings.browse_entries_max).unwrap_or(u64::MAX);
    let path = arguments.text_if_given("path", usize::MAX)?;
    let hidden = match arguments.switch("include_hidden")? {
        true => Hidden::Listed,
        false => Hidden::LeftOut,
    };
    let entries_max = arguments
        .number_if_given("max_entries", 1..=most)?
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(settings.browse_entries_default);
    let language = arguments::language(&mut arguments)?;
    arguments.finish()?;
    let path = VirtualPath::parse(path.as_deref().unwrap_or(PATH_DEFAULT))?;
    let options = BrowseOptions {
        hidden,
        entries_max,
    };
    let (shown, need) = (path.to_string(), catalog_need(&path));
    let access = server.policy.limits.access.clone();
    let listing = server
        .with_view(context, language, need, move |opened| {
            Ok(tree::browse(&opened.view, &path, &options, &access)?)
        })
        .await?;
    Ok(ToolAnswer::done(answer(&shown, &listing)).with_text(text(&listing)))
}

/// One line for each entry: its name, with a slash behind that of a directory, and the length of a file.
fn text(listing: &Listing) -> String {
    let mut lines: Vec<String> = (listing.entries.iter())
        .map(|entry| match entry.kind {
            FileKind::File => format!("{} {}", entry.name, entry.size_bytes),
            FileKind::Directory => format!("{}/", entry.name),
            FileKind::Other => format!("{} (neither file nor directory)", entry.name),
        })
        .collect();
    if listing.is_truncated {
        lines.push("[there are more]".to_owned());
    }
    if lines.is_empty() {
        lines.push("(empty)".to_owned());
    }
    lines.join("\n")
}

fn answer(path: &str, listing: &Listing) -> Value {
    let beneath = if path == "/" { "" } else { path };
    let entry = |entry: &Entry| {
        json!({
            "name": entry.name,
            "path": format!("{beneath}/{}", entry.name),
            "type": entry.kind.as_str(),
            "size_bytes": entry.size_bytes,
            "modified_at": entry.modified_at_ms,
        })
    };
    json!({
        "path": path,
        "entries": listing.entries.iter().map(entry).collect::<Vec<_>>(),
        "truncated": listing.is_truncated,
    })
}

pub(super) fn definition(
    policy: &CodePolicy,
    settings: &CodeToolSettings,
    offer: &LanguageOffer,
) -> Value {
    let directories = DirectoryWords::of(&policy.limits.access);
    json!({
        "name": "fs_browse",
        "title": "Browse files",
        "description": format!("Lists a directory: {}.", directories.browsed()),
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string", "default": PATH_DEFAULT },
                "include_hidden": { "type": "boolean", "description": "Names that begin with a dot too." },
                "max_entries": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": settings.browse_entries_max,
                    "default": settings.browse_entries_default,
                },
                "language": arguments::language_schema(offer),
            },
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "entries": { "type": "array", "items": { "type": "object" } },
                "truncated": { "type": "boolean" },
                "error": { "type": "string" },
            },
        },
        "annotations": arguments::reading(),
    })
}
