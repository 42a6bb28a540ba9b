//! The inputs of a tree, and its files.

use serde::Serialize;

use super::tool::MountedTool;
use mooring_settings::{Language, StubFormat};

/// The version of the catalog's and the schema's format.
pub const SCHEMA_VERSION: &str = "2026-02-01";

/// One file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StubFile {
    /// Its path in the tree: at most two names and one `/`, none of them `.` or `..`.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl StubFile {
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// A file with a value as JSON that people read too.
    pub(super) fn json(
        path: impl Into<String>,
        value: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        Ok(Self::new(path, text))
    }
}

/// The inputs of a tree.
#[derive(Clone, Copy, Debug)]
pub struct ToolTree<'a> {
    /// The server of kind `code` whose sessions see it.
    pub server: &'a str,
    /// The language that the stubs are for.
    pub language: Language,
    /// The format of the stubs.
    pub format: StubFormat,
    /// The tools, in any order.
    pub tools: &'a [MountedTool],
    /// The moment that is written down as that of the making.
    pub generated_at: &'a str,
}
