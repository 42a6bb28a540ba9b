//! `tool_search {query, detail?, limit?, language?}`: finds mounted tools without reading through `/tools`.

use serde_json::{Value, json};

use super::super::answer::ToolAnswer;
use super::super::{CallContext, CodeServer};
use crate::code::place::Language;
use crate::code::stubs::search::{Detail, Found, search};
use crate::mcp::arguments::{ArgumentError, Arguments};

/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1024;
/// Most tools that are told of where the call does not say.
const LIMIT_DEFAULT: u64 = 10;
/// Most tools that a call may ask for.
const LIMIT_MAX: u64 = 100;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct ToolSearch {
    query: String,
    detail: Detail,
    limit: usize,
    language: Option<Language>,
}

impl ToolSearch {
    fn read(mut arguments: Arguments) -> Result<Self, ArgumentError> {
        let query = arguments.text("query", QUERY_BYTES_MAX)?;
        let detail = match arguments.text_if_given("detail", QUERY_BYTES_MAX)? {
            None => Detail::default(),
            Some(word) => Detail::parse(&word).ok_or(ArgumentError::Choice {
                field: "detail",
                allowed: "name, summary or schema",
            })?,
        };
        let limit = arguments.number_if_given("limit", 1..=LIMIT_MAX)?;
        let language = super::language(&mut arguments)?;
        arguments.finish()?;
        Ok(Self {
            query,
            detail,
            limit: usize::try_from(limit.unwrap_or(LIMIT_DEFAULT)).unwrap_or(usize::MAX),
            language,
        })
    }
}

/// Searches.
pub(in crate::code::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    arguments: Arguments,
) -> ToolAnswer {
    let request = match ToolSearch::read(arguments) {
        Ok(request) => request,
        Err(error) => return ToolAnswer::refused(error),
    };
    let language = server.language_or_default(request.language);
    match server.mounted(context, language).await {
        Ok(mounted) => {
            let Found { entries, total } = search(
                mounted.tools(),
                &request.query,
                request.detail,
                request.limit,
            );
            let is_truncated = entries.len() < total;
            ToolAnswer::done(json!({
                "tools": entries,
                "total": total,
                "truncated": is_truncated,
            }))
        }
        Err(failure) => {
            failure.log(server.id.as_str());
            ToolAnswer::refused(failure)
        }
    }
}

pub(super) fn definition() -> Value {
    json!({
        "name": "tool_search",
        "title": "Find tools",
        "description": "Finds tools of other servers that code in shell_exec can call as functions, by words of their names, \
                        descriptions, tags and parameters. The answer says how each is imported.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "maxLength": QUERY_BYTES_MAX,
                    "description": "A few words; an empty query finds every tool.",
                },
                "detail": {
                    "type": "string",
                    "enum": ["name", "summary", "schema"],
                    "description": "How much is told of each. Default: summary.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LIMIT_MAX,
                    "description": format!("Most tools. Default: {LIMIT_DEFAULT}."),
                },
                "language": super::language_schema(),
            },
            "required": ["query"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "tools": { "type": "array", "items": { "type": "object" } },
                "total": { "type": "integer", "description": "How many tools fit." },
                "truncated": { "type": "boolean", "description": "Whether more fit than are told of." },
                "error": { "type": "string" },
            },
        },
        "annotations": {
            "readOnlyHint": true,
            "openWorldHint": false,
        },
    })
}
