//! The files of the two trees, as text.

use serde::Serialize;
use serde_json::json;

use super::moment::rfc3339;
use super::mounted::{Mounted, MountedTool};

/// The version of the catalog's and the schema's format.
pub(super) const SCHEMA_VERSION: &str = "2026-02-01";
/// What Python code may import.
pub(super) const RUNTIME_PYTHON: &str = include_str!("runtime.py");
/// What TypeScript code may import.
pub(super) const RUNTIME_TYPESCRIPT: &str = include_str!("runtime.ts");

/// Where a session's trees are mounted.
const ROOTS: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];

/// One file to be written.
pub(super) struct File {
    /// One path component.
    pub(super) name: String,
    /// All of it.
    pub(super) text: String,
}

#[derive(Serialize)]
struct Catalog<'a> {
    generated_at: String,
    schema_version: &'a str,
    server_id: &'a str,
    tool_count: usize,
    tools: &'a [MountedTool],
}

/// The files of `/tools`.
pub(super) fn tools(mounted: &Mounted, now_ms: u64) -> Result<Vec<File>, serde_json::Error> {
    let catalog = Catalog {
        generated_at: rfc3339(now_ms),
        schema_version: SCHEMA_VERSION,
        server_id: mounted.server().as_str(),
        tool_count: mounted.tools().len(),
        tools: mounted.tools(),
    };
    let schema = json!({
        "version": SCHEMA_VERSION,
        "roots": ROOTS,
        "stub_language": mounted.language().as_str(),
    });
    let file = |name: &str, text: String| File {
        name: name.to_owned(),
        text,
    };
    Ok(vec![
        file(
            "_catalog.json",
            line(serde_json::to_string_pretty(&catalog)?),
        ),
        file("_schema.json", line(serde_json::to_string_pretty(&schema)?)),
        file("_runtime.py", RUNTIME_PYTHON.to_owned()),
        file("_runtime.ts", RUNTIME_TYPESCRIPT.to_owned()),
    ])
}

/// The files of `/skills`.
pub(super) fn skills(mounted: &Mounted) -> Vec<File> {
    let file = |skill: &super::MountedSkill| File {
        name: skill.name.clone(),
        text: skill.source.clone(),
    };
    mounted.skills().iter().map(file).collect()
}

fn line(mut text: String) -> String {
    text.push('\n');
    text
}
