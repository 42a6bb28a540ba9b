//! What is mounted in a session: the tools that the server's rules include, and the skills that its user may see.
//!
//! Invariant: it follows from the lists of other servers, the rules, the skills and the caller alone, so every gateway
//! mounts the same, and makes nothing again while nothing has changed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use super::failure::Failure;
use super::{CallContext, CodeServer};
use crate::calls::Upstreams;
use crate::catalog::{CatalogNeed, ListedTool, ServerTools};
use crate::skills::{SkillSet, SkillSource, Viewer};
use crate::volume::{MountManifest, MountedSkill, MountedTool};
use mooring_settings::{Language, StubFormat};

/// Most variants of one server that are remembered: one for each language and set of skills in use.
const REMEMBERED_MAX: usize = 32;
/// Most memory that the tools of the remembered variants take. The one that was used last is remembered always.
const REMEMBERED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Recently mounted content by its inputs, in order of last use.
#[derive(Debug, Default)]
pub(super) struct MountedCache(Mutex<VecDeque<MountCacheEntry>>);

#[derive(Debug)]
struct MountCacheEntry {
    of: MountInputs,
    mounted: MountManifest,
    memory_bytes: usize,
}

/// Everything that determines a mount manifest: the key of the cache.
#[derive(Clone, Debug)]
struct MountInputs {
    language: Language,
    tools: Vec<ServerTools>,
    /// The tools that the caller may not use, by the places of their server and their own.
    denied: Vec<(usize, usize)>,
    /// The digest of the skills.
    skills: Box<str>,
}

impl MountInputs {
    /// Whether it is the same, by identity: a list that was read again without a change is the same list.
    fn is(&self, other: &Self) -> bool {
        self.language == other.language
            && self.skills == other.skills
            && self.denied == other.denied
            && self.tools.len() == other.tools.len()
            && (self.tools.iter().zip(&other.tools))
                .all(|(a, b)| a.server == b.server && Arc::ptr_eq(&a.tools, &b.tools))
    }

    fn memory_bytes(&self) -> usize {
        let tools = self.tools.iter().flat_map(|server| server.tools.iter());
        tools.map(ListedTool::memory_bytes).sum()
    }
}

impl MountedCache {
    fn find(&self, inputs: &MountInputs) -> Option<MountManifest> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = remembered.iter().position(|one| one.of.is(inputs))?;
        let found = remembered.remove(at)?;
        let mounted = found.mounted.clone();
        remembered.push_back(found);
        Some(mounted)
    }

    fn note(&self, inputs: MountInputs, mounted: MountManifest) {
        let memory_bytes = inputs.memory_bytes();
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may have made the same meanwhile.
        remembered.retain(|one| !one.of.is(&inputs));
        let mut all_bytes: usize = remembered.iter().map(|one| one.memory_bytes).sum();
        while remembered.len() >= REMEMBERED_MAX
            || all_bytes.saturating_add(memory_bytes) > REMEMBERED_BYTES_MAX
        {
            let Some(oldest) = remembered.pop_front() else {
                break;
            };
            all_bytes = all_bytes.saturating_sub(oldest.memory_bytes);
        }
        remembered.push_back(MountCacheEntry {
            of: inputs,
            mounted,
            memory_bytes,
        });
    }
}

impl CodeServer {
    /// The mount manifest for this caller, cached while its inputs are unchanged.
    pub(super) async fn resolve_manifest(
        &self,
        context: &CallContext,
        language: Language,
        need: CatalogNeed,
    ) -> Result<MountManifest, Failure> {
        let skills = self.skills(context).await?;
        let tools = self.list_tools(context, need).await;
        let inputs = MountInputs {
            language,
            denied: denied(&tools, context.upstreams.as_ref()),
            tools,
            skills: skills.digest().into(),
        };
        if let Some(mounted) = self.mounted.find(&inputs) {
            return Ok(mounted);
        }
        let (id, format) = (self.id.clone(), self.format_in(language));
        let tools = self.chosen(&inputs);
        let skills = mounted_skills(skills).await?;
        // Other requests are served meanwhile: it reads all schemas.
        let made = spawn_blocking(move || MountManifest::new(&id, language, format, tools, skills));
        let mounted = made.await??;
        self.mounted.note(inputs, mounted.clone());
        Ok(mounted)
    }

    /// Lists the tools of the servers whose tools may be mounted. Other servers are not queried.
    async fn list_tools(&self, context: &CallContext, need: CatalogNeed) -> Vec<ServerTools> {
        let may_call = self.policy.calls.are_allowed;
        let catalog = &self.services.catalog;
        catalog
            .tools(&context.upstreams, need, |server| {
                may_call && self.mounts.mounts_of(server)
            })
            .await
    }

    /// The skills that who asks may see at this moment.
    async fn skills(&self, context: &CallContext) -> Result<SkillSet, Failure> {
        let skills = self.services.storage()?.skills.clone();
        let viewer = Viewer {
            principal: context.caller.principal.as_str().to_owned(),
            teams: context.caller.teams.to_vec(),
        };
        let id = self.id.clone();
        Ok(spawn_blocking(move || skills.visible(&id, &viewer)).await??)
    }

    /// Stubs are for the code that runs in the session; a description for people and programs is the same for all.
    fn format_in(&self, language: Language) -> StubFormat {
        match self.stub_format {
            StubFormat::Json => StubFormat::Json,
            StubFormat::Python | StubFormat::TypeScript => StubFormat::of(language),
        }
    }

    /// The tools that the rules mount and the caller may use.
    fn chosen(&self, inputs: &MountInputs) -> Vec<MountedTool> {
        let tools = inputs.tools.iter().enumerate().flat_map(|(place, server)| {
            let id = server.server.as_str();
            (server.tools.iter().enumerate())
                .filter(move |(at, tool)| {
                    self.mounts.mounts(id, &tool.name, &tool.tags)
                        && inputs.denied.binary_search(&(place, *at)).is_err()
                })
                .map(move |(_, tool)| mounted_tool(id, tool))
        });
        tools.collect()
    }
}

/// The tools that the caller may not use, by the places of their server and their own.
fn denied(servers: &[ServerTools], upstreams: &dyn Upstreams) -> Vec<(usize, usize)> {
    let tools = servers.iter().enumerate().flat_map(|(place, server)| {
        let id = server.server.as_str();
        (server.tools.iter().enumerate())
            .filter(move |(_, tool)| !upstreams.may_call(id, &tool.name))
            .map(move |(at, _)| (place, at))
    });
    tools.collect()
}

fn mounted_tool(server: &str, tool: &ListedTool) -> MountedTool {
    MountedTool {
        id: format!("{server}__{}", tool.name),
        name: tool.name.clone(),
        original_name: tool.name.clone(),
        server: server.to_owned(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        tags: tool.tags.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
        annotations: tool.annotations.clone(),
    }
}

/// Each skill as a file of its own, whichever its language.
async fn mounted_skills(skills: SkillSet) -> Result<Vec<MountedSkill>, Failure> {
    let sources = spawn_blocking(move || skills.sources()).await??;
    let mounted = sources
        .into_iter()
        .map(|SkillSource { skill, source }| MountedSkill {
            name: format!("{}.{}", skill.name, skill.extension()),
            source,
        });
    Ok(mounted.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_session::names::ServerName;
    use serde_json::json;

    /// The memory for a server whose list changes is bounded by the list's size, not by the number of changes.
    #[test]
    fn a_changing_list_does_not_grow_what_is_remembered() {
        let cache = MountedCache::default();
        let server = ServerName::parse(b"tools").unwrap();
        let list = |bytes: usize| {
            let tool = ListedTool {
                name: "a".to_owned(),
                title: None,
                description: "x".repeat(bytes),
                tags: Vec::new(),
                input_schema: json!({}),
                output_schema: None,
                annotations: None,
            };
            MountInputs {
                language: Language::Python,
                tools: vec![ServerTools {
                    server: server.clone(),
                    tools: [tool].into(),
                }],
                denied: Vec::new(),
                skills: "".into(),
            }
        };
        let remembered = || cache.0.lock().unwrap().len();
        let mounted = MountManifest::none(&server, Language::Python).unwrap();
        let of = list(REMEMBERED_BYTES_MAX / 3);
        cache.note(of.clone(), mounted.clone());
        for _ in 0..5 {
            cache.note(list(REMEMBERED_BYTES_MAX / 3), mounted.clone());
        }
        assert_eq!(remembered(), 2, "a third one would be over the limit");
        assert!(cache.find(&of).is_none(), "the oldest is forgotten");
        cache.note(list(REMEMBERED_BYTES_MAX * 2), mounted.clone());
        assert_eq!(
            remembered(),
            1,
            "the last one is remembered however large it is"
        );
        for _ in 0..REMEMBERED_MAX * 2 {
            cache.note(list(1), mounted.clone());
        }
        assert_eq!(remembered(), REMEMBERED_MAX);
    }
}
