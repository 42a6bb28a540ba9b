//! An agent server's `initialize` result, and its one tool.

use std::sync::Arc;

use serde_json::{Value, json};

use super::agent_server::AgentServer;
use super::call::Call;
use crate::parent::PARENT_BYTES_MAX;
use crate::process::PROMPT_BYTES_MAX;
use mooring_protocol::{Revision, ToolServer};
use mooring_settings::AgentServerSettings;

impl ToolServer for AgentServer {
    type Call = Call;

    fn initialize(&self, revision: Revision) -> String {
        let id = self.id.as_str();
        json!({
            "protocolVersion": revision.as_str(),
            "capabilities": { "tools": {} },
            "serverInfo": {
                "name": "mooring",
                "title": format!("Command-line agent ({id})"),
                "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": format!(
                "The tool {id} gives a prompt to a command-line agent, which works by itself, and returns what it answers at \
                 the end. Name your own conversation in parentSessionId, and use the same name again: the agent then resumes \
                 it, also after a restart of this server, until it has not been used for {} s. Without a name each call \
                 is a new conversation. One call may take {} s; calls of one conversation run one after another.",
                self.settings.session_ttl.as_secs(),
                self.settings.timeout.as_secs(),
            ),
        })
        .to_string()
    }

    fn tools_json(&self) -> &str {
        &self.tools_json
    }

    fn call(self: &Arc<Self>, tool: &str, arguments: Option<Value>) -> Option<Call> {
        (tool == self.id.as_str()).then(|| Call::new(Arc::clone(self), arguments))
    }
}

/// The result of `tools/list`.
pub(super) fn tools_json(id: &str, settings: &AgentServerSettings) -> String {
    json!({ "tools": [{
        "name": id,
        "title": format!("Command-line agent ({id})"),
        "description": settings.description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "prompt": {
                    "type": "string",
                    "description": format!("What the agent is to do; at most {PROMPT_BYTES_MAX} bytes."),
                },
                "workFolder": {
                    "type": "string",
                    "description": "The directory in which the agent works, as an absolute path. Needed where it is to \
                                    read or write files of a project.",
                },
                "parentSessionId": {
                    "type": "string",
                    "minLength": 1,
                    "description": format!(
                        "The conversation to resume: any name of your own, at most {PARENT_BYTES_MAX} bytes. A new name begins \
                         a conversation, which later calls with the same name resume."
                    ),
                },
            },
            "required": ["prompt"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "result": { "type": ["string", "null"], "description": "What the agent answered." },
                "error": { "type": ["string", "null"], "description": "Why there is no answer, or how the run failed." },
                "parentSessionId": { "type": ["string", "null"] },
                "agentSessionId": {
                    "type": ["string", "null"],
                    "description": "The agent's own id of the conversation, if it gave one.",
                },
                "resumed": { "type": "boolean", "description": "Whether the agent resumed the conversation." },
                "startedFresh": {
                    "type": ["string", "null"],
                    "description": "Why the agent began a new conversation although one of this name existed.",
                },
                "exitCode": { "type": ["integer", "null"] },
                "durationMs": { "type": "integer" },
                "truncated": { "type": "boolean", "description": "Whether the answer was too long, and its end is missing." },
            },
            "required": [
                "result", "error", "parentSessionId", "agentSessionId", "resumed", "startedFresh", "exitCode",
                "durationMs", "truncated",
            ],
        },
        // It can do whatever the program can.
        "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true },
    }] })
    .to_string()
}
