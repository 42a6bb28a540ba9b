//! The mounted tools, as JSON for programs and as lines for `grep`.

use serde::Serialize;
use serde_json::json;

use super::function::{Function, Package};
use super::tool::MountedTool;
use super::tree::{SCHEMA_VERSION, StubFile, ToolTree};
use super::{describe, limits, text};
use mooring_settings::StubFormat;

/// Where a session's trees are mounted.
const ROOTS: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];

#[derive(Serialize)]
struct Catalog<'a> {
    generated_at: &'a str,
    schema_version: &'a str,
    server_id: &'a str,
    tool_count: usize,
    tools: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    tool: &'a MountedTool,
    /// The name of its server's package in code.
    package: &'a str,
    /// The name of its function in code.
    function: &'a str,
    /// Its file in `/tools`.
    path: String,
}

/// Everything about every tool.
pub(super) fn catalog(
    tree: &ToolTree<'_>,
    packages: &[Package<'_>],
) -> Result<StubFile, serde_json::Error> {
    let tools: Vec<Entry<'_>> = packages
        .iter()
        .flat_map(|package| {
            package
                .tools
                .iter()
                .map(move |function| (package, function))
        })
        .map(|(package, function)| Entry {
            tool: function.tool,
            package: &package.name,
            function: &function.name,
            path: path(package, function, tree.format),
        })
        .collect();
    let catalog = Catalog {
        generated_at: tree.generated_at,
        schema_version: SCHEMA_VERSION,
        server_id: tree.server,
        tool_count: tools.len(),
        tools,
    };
    StubFile::json("_catalog.json", &catalog)
}

/// The schema of the tree.
pub(super) fn schema(tree: &ToolTree<'_>) -> Result<StubFile, serde_json::Error> {
    let schema = json!({
        "version": SCHEMA_VERSION,
        "roots": ROOTS,
        "stub_language": tree.language.as_str(),
        "stub_format": format_word(tree.format),
    });
    StubFile::json("_schema.json", &schema)
}

/// One server. Whether it can be reached is not known here: a tree is shared, and outlives the moment.
pub(super) fn meta(
    package: &Package<'_>,
    tree: &ToolTree<'_>,
) -> Result<StubFile, serde_json::Error> {
    let tools: Vec<_> = package
        .tools
        .iter()
        .map(|function| {
            json!({
                "name": function.tool.original_name,
                "function": function.name,
                "summary": describe::summary(function.tool),
                "path": path(package, function, tree.format),
            })
        })
        .collect();
    let meta = json!({
        "server": package.server,
        "package": package.name,
        "tool_count": tools.len(),
        "auth_status": "unknown",
        "health": "unknown",
        "generated_at": tree.generated_at,
        "tools": tools,
    });
    let path = format!("{}/_meta.json", package.name);
    StubFile::json(path, &meta)
}

/// One tool, to be read and not to be called.
pub(super) fn description(
    package: &Package<'_>,
    function: &Function<'_>,
) -> Result<StubFile, serde_json::Error> {
    let path = path(package, function, StubFormat::Json);
    StubFile::json(path, function.tool)
}

/// `path:words`, one line for each tool, as `grep` would print it.
pub(super) fn search_index(packages: &[Package<'_>], format: StubFormat) -> StubFile {
    let mut index = String::new();
    for package in packages {
        for function in &package.tools {
            let tool = function.tool;
            let mut words = vec![
                tool.original_name.as_str(),
                tool.title.as_deref().unwrap_or_default(),
                &tool.description,
            ];
            words.extend(tool.tags.iter().map(String::as_str));
            words.extend(describe::property_names(&tool.input_schema));
            let words = text::line(&words.join(" "), limits::DESCRIPTION_CHARS_MAX);
            index.push_str(&path(package, function, format));
            index.push(':');
            index.push_str(&words);
            index.push('\n');
        }
    }
    StubFile::new(".search_index", index)
}

fn path(package: &Package<'_>, function: &Function<'_>, format: StubFormat) -> String {
    let extension = match format {
        StubFormat::Python => "py",
        StubFormat::TypeScript => "ts",
        StubFormat::Json => "json",
    };
    format!("{}/{}.{extension}", package.name, function.name)
}

/// The word of the settings.
pub fn format_word(format: StubFormat) -> &'static str {
    match format {
        StubFormat::Python => "python",
        StubFormat::TypeScript => "typescript",
        StubFormat::Json => "json",
    }
}
