//! The files of the two trees, as text.

use super::manifest::MountManifest;
use crate::stubs::{self, StubFile, ToolTree};
use mooring_store::rfc3339;

/// The files of `/tools`.
pub(super) fn tools(
    mounted: &MountManifest,
    now_ms: u64,
) -> Result<Vec<StubFile>, serde_json::Error> {
    stubs::tools(&ToolTree {
        server: mounted.server().as_str(),
        language: mounted.language(),
        format: mounted.format(),
        tools: mounted.tools(),
        generated_at: &rfc3339(now_ms),
    })
}

/// The files of `/skills`.
pub(super) fn skills(mounted: &MountManifest) -> Result<Vec<StubFile>, serde_json::Error> {
    let skills = mounted.skills().iter();
    let skills: Vec<(&str, &str)> = skills
        .map(|skill| (skill.name.as_str(), skill.source.as_str()))
        .collect();
    stubs::skills(&skills)
}
