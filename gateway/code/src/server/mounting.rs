//! What is mounted in a session: the tools that the server's rules include, and the skills that its user may see.
//!
//! Invariant: it follows from the lists of other servers, the rules, the skills and the caller alone, so every gateway
//! mounts the same, and makes nothing again while nothing has changed.

use tokio::task::spawn_blocking;

use super::code_server::{CallContext, CodeServer};
use super::failure::Failure;
use super::mounted_cache::MountInputs;
use crate::calls::Upstreams;
use crate::catalog::{CatalogNeed, ListedTool, ServerTools};
use crate::skills::{SkillSet, SkillSource, Viewer};
use crate::volume::{MountManifest, MountedSkill};
use mooring_settings::{Language, StubFormat};
use mooring_stubs::MountedTool;

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
