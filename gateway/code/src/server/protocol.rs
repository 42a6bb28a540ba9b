//! The MCP description of a code server, and the dispatch of calls to its tools.

use std::sync::Arc;

use mooring_sandbox::Tier;
use serde_json::Value;

use super::answer::{ToolAnswer, ToolRefusal};
use super::code_server::{CallContext, CodeServer};
use super::directories::{DirectoryWords, tools_sentence};
use super::tools;
use crate::records::SecurityEvent;
use mooring_protocol::arguments::Arguments;
use mooring_protocol::{Revision, ToolServer};
use mooring_settings::{CodeTool, Language, NetworkPolicy};

/// Where code finds its directories in the degraded tier. Relative paths and variables are the same in both.
const PLACES_DEGRADED: &str = " In shell_exec the directories stand elsewhere: code starts in its scratch directory, the \
    others are ../results, ../tools and ../skills, and MOORING_SCRATCH, MOORING_RESULTS, MOORING_TOOLS, MOORING_SKILLS \
    and TMPDIR name them; the fs_ tools keep the names above.";

/// The description of network access, if the policy allows it.
const NETWORK_PUBLIC: &str = "of the network there is what the proxy in HTTP_PROXY reaches (public addresses over HTTP and HTTPS)";

/// A tool call that can be made.
pub struct Call {
    server: Arc<CodeServer>,
    tool: CodeTool,
    arguments: Option<Value>,
}

impl ToolServer for CodeServer {
    type Call = Call;

    fn tools_json(&self) -> &str {
        &self.tools_json
    }

    fn call(self: &Arc<Self>, tool: &str, arguments: Option<Value>) -> Option<Call> {
        Some(Call {
            server: Arc::clone(self),
            tool: tools::named(tool, &self.settings)?,
            arguments,
        })
    }

    fn initialize(&self, revision: Revision) -> String {
        serde_json::json!({
            "protocolVersion": revision.as_str(),
            "capabilities": { "tools": {} },
            "serverInfo": {
                "name": "mooring",
                "title": format!("Mooring code sandbox ({})", self.id),
                "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": self.instructions(),
        })
        .to_string()
    }
}

impl CodeServer {
    /// How an agent is to use the sandbox.
    fn instructions(&self) -> String {
        const MIB: u64 = 1024 * 1024;
        let limits = &self.policy.limits;
        let offer = &self.offer;
        let usual = match offer.default {
            Language::Python => "Python",
            Language::TypeScript => "TypeScript",
        };
        let line = match offer.shell_tools.is_empty() {
            true => "",
            false => ", or one line of simple commands such as `ls -la | head`",
        };
        let imports: Vec<_> = [
            (
                Language::Python,
                "`from tools.github import create_issue` in Python",
            ),
            (
                Language::TypeScript,
                "`import { create_issue } from \"tools/github/mod.ts\"` in TypeScript",
            ),
        ]
        .into_iter()
        .filter_map(|(language, import)| offer.has(language).then_some(import))
        .collect();
        let sessions = match imports.len() {
            2 => {
                " Each language has a session with files of its own; JavaScript shares TypeScript's."
            }
            _ => "",
        };
        let network = match self.policy.network {
            NetworkPolicy::None => "there is no network",
            NetworkPolicy::PublicHttp { .. } => NETWORK_PUBLIC,
        };
        let places = match self.services.sandbox() {
            Ok(sandbox) if sandbox.tier() == Tier::Degraded => PLACES_DEGRADED,
            _ => "",
        };
        format!(
            "A sandbox for code, with files that stay between calls. shell_exec runs {} \
             (default: {usual}){line}. Print what you want \
             to see. {}{} Everything else of the file system is \
             read-only or absent, {network}, and neither variables nor processes outlive a \
             call.{sessions}{places} A session ends, with its files, {} s after its last use. One \
             run may take {} ms, {} ms of processor time, {} MiB of memory, {} processes; a file {} MiB, all files {} \
             MiB; {} runs a minute.",
            offer.in_words(),
            DirectoryWords::of(&limits.access).sentence(),
            tools_sentence(&limits.access, &imports.join(" and ")),
            self.policy.session_ttl.as_secs(),
            limits.wall_time.as_millis(),
            limits.cpu_time.as_millis(),
            limits.memory_bytes / MIB,
            limits.processes,
            limits.file_bytes / MIB,
            limits.disk_bytes / MIB,
            self.policy.runs_per_minute,
        )
    }
}

impl Call {
    /// Makes the call; its `result`, as JSON text.
    pub async fn make(self, context: CallContext) -> String {
        let Self {
            server,
            tool,
            arguments,
        } = self;
        let form = server.settings.answer;
        let arguments = match Arguments::new(arguments) {
            Ok(arguments) => arguments,
            Err(error) if tool == CodeTool::ShellExec => {
                return tools::shell_exec::refused(&server, error).into_result(form);
            }
            Err(error) => return ToolAnswer::refused(error).into_result(form),
        };
        let answered = match tool {
            CodeTool::ShellExec => Ok(tools::shell_exec::call(&server, &context, arguments).await),
            CodeTool::FsBrowse => tools::fs_browse::call(&server, &context, arguments).await,
            CodeTool::FsRead => tools::fs_read::call(&server, &context, arguments).await,
            CodeTool::FsWrite => tools::fs_write::call(&server, &context, arguments).await,
            CodeTool::ToolSearch => tools::tool_search::call(&server, &context, arguments).await,
        };
        let refusal = match answered {
            Ok(answer) => return answer.into_result(form),
            Err(refusal) => refusal,
        };
        let ToolRefusal { message, violation } = refusal;
        if let Some(event) = violation {
            let message = format!("{}: {}", tools::name(tool), event.message);
            let event = SecurityEvent { message, ..event };
            server.note_event(&context.caller.principal, event).await;
        }
        ToolAnswer::refused(message).into_result(form)
    }
}
