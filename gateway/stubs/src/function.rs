//! The mounted tools as functions of packages, with the names that code has for both.

use std::collections::BTreeMap;

use super::names::{self, Role};
use super::tool::MountedTool;

/// The tools of one server.
#[derive(Debug)]
pub(super) struct Package<'a> {
    /// The server's id.
    pub(super) server: &'a str,
    /// The package's name.
    pub(super) name: String,
    /// In the order of their names.
    pub(super) tools: Vec<Function<'a>>,
}

/// One tool with the name of its function.
#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) tool: &'a MountedTool,
    pub(super) name: String,
}

/// The tools by their servers, with the names that code has for both.
pub(super) fn packages(tools: &[MountedTool]) -> Vec<Package<'_>> {
    let mut by_server: BTreeMap<&str, BTreeMap<&str, &MountedTool>> = BTreeMap::new();
    for tool in tools {
        let server = by_server.entry(&tool.server).or_default();
        // A server that names two tools alike has one of them called, whichever it is.
        server.entry(&tool.original_name).or_insert(tool);
    }
    let servers = names::identifiers(by_server.keys().copied(), Role::Server);
    by_server
        .iter()
        .map(|(server, tools)| {
            let names = names::identifiers(tools.keys().copied(), Role::Tool);
            let tools = tools.iter().map(|(original, tool)| Function {
                tool,
                name: names.get(original).cloned().unwrap_or_default(),
            });
            Package {
                server,
                name: servers.get(server).cloned().unwrap_or_default(),
                tools: tools.collect(),
            }
        })
        .collect()
}
