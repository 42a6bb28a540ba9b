//! MCP as a code server speaks it: what it answers at once, and which call takes its time.

use std::sync::Arc;

use mooring_sandbox::Tier;
use serde::Deserialize;
use serde_json::Value;

use super::answer::ToolAnswer;
use super::arguments::Arguments;
use super::{CallContext, CodeServer, tools};
use crate::code::place::Language;
use crate::mcp::{ErrorBody, ErrorKind, Message, Method, Revision};
use crate::settings::{CodeTool, NetworkPolicy};

/// Where code finds its directories in the degraded tier. Relative paths and variables are the same in both.
const PLACES_DEGRADED: &str = " In shell_exec the directories stand elsewhere: code starts in its scratch directory, the \
    others are ../results, ../tools and ../skills, and MOORING_SCRATCH, MOORING_RESULTS, MOORING_TOOLS, MOORING_SKILLS \
    and TMPDIR name them; the fs_ tools keep the names above.";

/// What of the network there is where the policy opens it.
const NETWORK_PUBLIC: &str = "of the network there is what the proxy in HTTP_PROXY reaches (public addresses over HTTP and HTTPS)";

/// What the client is to be answered.
pub(crate) enum Asked<'a> {
    /// This `result`, as JSON text.
    Result(String),
    /// This error.
    Error(ErrorBody<'a>),
    /// What this call comes to.
    Call(Call),
}

/// A tool call that can be made.
pub(crate) struct Call {
    server: Arc<CodeServer>,
    tool: CodeTool,
    arguments: Option<Value>,
}

/// The params of `tools/call`. Others than these are the protocol's, and mean nothing here.
#[derive(Deserialize)]
struct CallParams {
    #[serde(default)]
    arguments: Option<Value>,
}

/// The params of `tools/list`.
#[derive(Default, Deserialize)]
struct ListParams {
    #[serde(default)]
    cursor: Option<Value>,
}

impl CodeServer {
    /// What a request is answered with.
    pub(crate) fn asked<'a>(
        self: &Arc<Self>,
        message: &Message<'a>,
        revision: Revision,
    ) -> Asked<'a> {
        let error = |kind: ErrorKind| ErrorBody::new(kind).answering(message.id());
        match message.method() {
            Method::Initialize => Asked::Result(self.initialize(revision)),
            Method::Ping => Asked::Result("{}".to_owned()),
            Method::ToolsList => match params::<ListParams>(message) {
                Ok(ListParams { cursor: None }) => Asked::Result(self.tools_json.to_string()),
                // The list has one page, so no cursor was ever given.
                Ok(_) => Asked::Error(error(ErrorKind::ParamsRefused).detail("unknown cursor")),
                Err(cause) => Asked::Error(error(ErrorKind::ParamsRefused).detail(cause)),
            },
            Method::ToolsCall => match self.call(message) {
                Ok(call) => Asked::Call(call),
                Err(detail) => Asked::Error(error(ErrorKind::ParamsRefused).detail(detail)),
            },
            _ => Asked::Error(error(ErrorKind::MethodNotFound)),
        }
    }

    fn call(self: &Arc<Self>, message: &Message<'_>) -> Result<Call, String> {
        let name = message.params.name().ok_or("tools/call needs a name")?;
        let tool = tools::named(&name, &self.settings)
            .ok_or_else(|| format!("unknown tool {:?}", shortened(&name)))?;
        let params: CallParams = params(message).map_err(|cause| cause.to_string())?;
        Ok(Call {
            server: Arc::clone(self),
            tool,
            arguments: params.arguments,
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

    /// How an agent is to use the sandbox.
    fn instructions(&self) -> String {
        const MIB: u64 = 1024 * 1024;
        let limits = &self.policy.limits;
        let usual = match self.policy.language {
            Language::Python => "Python",
            Language::TypeScript => "TypeScript",
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
            "A sandbox for code, with files that stay between calls. shell_exec runs Python, TypeScript or JavaScript \
             (default: {usual}), or one line of simple commands such as `ls -la /results | head`. Print what you want \
             to see. Directories: /scratch for work and /results for what should be found later (both yours, read and \
             write), /tools and /skills (read-only). /tools has the tools of other servers as functions: find them by \
             tool_search or in /tools/_catalog.json, and call them from code, such as `from tools.github import \
             create_issue` in Python and `import {{ create_issue }} from \"tools/github/mod.ts\"` in TypeScript. What \
             they return need not be printed: filter and combine it there. Everything else of the file system is \
             read-only or absent, {network}, and neither variables nor processes outlive a call. Each language has a \
             session with files of its own; JavaScript shares TypeScript's.{places} A session ends, with its files, {} s after its last use. One \
             run may take {} ms, {} ms of processor time, {} MiB of memory, {} processes; a file {} MiB, all files {} \
             MiB; {} runs a minute.",
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
    pub(crate) async fn make(self, context: CallContext) -> String {
        let Self {
            server,
            tool,
            arguments,
        } = self;
        let arguments = match Arguments::new(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return ToolAnswer::refused(error).into_result(),
        };
        let answer = match tool {
            CodeTool::ShellExec => tools::shell_exec::call(&server, &context, arguments).await,
            CodeTool::FsBrowse => tools::fs_browse::call(&server, &context, arguments).await,
            CodeTool::FsRead => tools::fs_read::call(&server, &context, arguments).await,
            CodeTool::FsWrite => tools::fs_write::call(&server, &context, arguments).await,
            CodeTool::ToolSearch => tools::tool_search::call(&server, &context, arguments).await,
        };
        answer.into_result()
    }
}

/// The params of a request; none are as good as an empty object.
fn params<'a, T: Deserialize<'a>>(message: &Message<'a>) -> Result<T, serde_json::Error> {
    serde_json::from_str(message.raw_params().unwrap_or("{}"))
}

/// As much of a name as an error repeats.
fn shortened(name: &str) -> String {
    const CHARS_MAX: usize = 60;
    name.chars().take(CHARS_MAX).collect()
}
