//! `tool_search {query, detail?, limit?, language?}`: finds mounted tools without reading through `/tools`.

use serde_json::{Value, json};

use super::arguments;
use crate::catalog::CatalogNeed;
use crate::server::answer::{ToolAnswer, ToolRefusal};
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::offer::LanguageOffer;
use mooring_protocol::arguments::Arguments;
use mooring_settings::Language;
use mooring_stubs::search::{Detail, SearchResults, search};

/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1024;
/// Most tools in an answer where the call sets no limit.
const LIMIT_DEFAULT: u64 = 10;
/// Most tools that a call may ask for.
const LIMIT_MAX: u64 = 100;

/// Searches.
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    mut arguments: Arguments,
) -> Result<ToolAnswer, ToolRefusal> {
    let query = arguments.text("query", QUERY_BYTES_MAX)?;
    let parse = |word: &str| word.parse().ok();
    let detail: Option<Detail> =
        arguments.choice_if_given("detail", parse, "name, summary or schema")?;
    let limit = arguments.number_if_given("limit", 1..=LIMIT_MAX)?;
    let language = arguments::language(&mut arguments)?;
    arguments.finish()?;
    let language = server.language_or_default(language);
    let mounted = server
        .resolve_manifest(context, language, CatalogNeed::Tools)
        .await;
    let mounted = mounted.inspect_err(|failure| failure.log(server.id.as_str()))?;
    let detail = detail.unwrap_or_default();
    let limit = usize::try_from(limit.unwrap_or(LIMIT_DEFAULT)).unwrap_or(usize::MAX);
    let found = search(&mounted.tools, &query, detail, limit);
    Ok(answer(found, detail, language))
}

/// A server that fails is left alone for a while, and its tools are then there.
const NO_TOOLS: &str = "No tools are available. If there should be some, their servers have not answered yet: try again in a minute.";

/// What was found; where that is nothing, the servers that there are, so that the next query can name one.
fn answer(found: SearchResults, detail: Detail, language: Language) -> ToolAnswer {
    let is_truncated = found.entries.len() < found.total;
    let mut text = match (detail, found.entries.is_empty()) {
        (_, true) => match found.servers.join(", ") {
            none if none.is_empty() => NO_TOOLS.to_owned(),
            servers => format!("No tool fits. There are tools of: {servers}."),
        },
        (Detail::Schema, false) => Value::from(found.entries.as_slice()).to_string(),
        (Detail::Name | Detail::Summary, false) => {
            let lines: Vec<String> = (found.entries.iter())
                .map(|entry| line(entry, language))
                .collect();
            lines.join("\n")
        }
    };
    if is_truncated {
        text.push_str(&format!(
            "\n[{} more fit]",
            found.total - found.entries.len()
        ));
    }
    let mut content = json!({
        "tools": found.entries,
        "total": found.total,
        "truncated": is_truncated,
    });
    if let (0, Some(content)) = (found.total, content.as_object_mut()) {
        content.insert("servers".to_owned(), found.servers.into());
    }
    ToolAnswer::done(content).with_text(text)
}

/// How a tool is imported and called, and what it does.
fn line(entry: &Value, language: Language) -> String {
    let of = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let (import, call, comment) = match language {
        Language::Python => (of("python"), of("python_call"), "#"),
        Language::TypeScript => (of("typescript"), of("typescript_call"), "//"),
    };
    match (call, of("summary")) {
        ("", _) => import.to_owned(),
        (call, "") => format!("{import}  {comment} {call}"),
        (call, summary) => format!("{import}  {comment} {call}: {summary}"),
    }
}

pub(super) fn definition(offer: &LanguageOffer) -> Value {
    json!({
        "name": "tool_search",
        "title": "Find tools",
        "description": "Finds tools of other servers that code in shell_exec can call, by words of their names, descriptions, \
                        tags and parameters, and says how each is imported and called.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "A few words; an empty query finds every tool." },
                "detail": {
                    "type": "string",
                    "enum": ["name", "summary", "schema"],
                    "description": "How much of each; schema has the types of its parameters. Default: summary.",
                },
                "limit": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT },
                "language": arguments::language_schema(offer),
            },
            "required": ["query"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "tools": { "type": "array", "items": { "type": "object" } },
                "servers": { "type": "array", "items": { "type": "string" } },
                "total": { "type": "integer" },
                "truncated": { "type": "boolean" },
                "error": { "type": "string" },
            },
        },
        "annotations": arguments::reading(),
    })
}
