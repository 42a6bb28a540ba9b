//! The names of attributes: those of the OpenTelemetry conventions for MCP, and the gateway's own, which begin with
//! `mooring.`.

/// The method of a message.
pub const MCP_METHOD_NAME: &str = "mcp.method.name";
/// The digest of the session's id, as in the log: ids are secrets.
pub const MCP_SESSION_ID: &str = "mcp.session.id";
/// The revision of MCP.
pub const MCP_PROTOCOL_VERSION: &str = "mcp.protocol.version";
/// The sender's id of a request.
pub const JSONRPC_REQUEST_ID: &str = "jsonrpc.request.id";
/// The tool that a call names.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// The prompt that a request names.
pub const PROMPT_NAME: &str = "gen_ai.prompt.name";
/// [`EXECUTE_TOOL`] for calls of tools; not set otherwise.
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// The operation of a call of a tool.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// The operation of a run of an agent.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// What an operation failed with: an error code, `tool_error`, an HTTP status or a word of the metrics.
pub const ERROR_TYPE: &str = "error.type";
/// The code of a JSON-RPC error.
pub const STATUS_CODE: &str = "rpc.response.status_code";
/// `tcp`, or `pipe` for standard input and output.
pub const NETWORK_TRANSPORT: &str = "network.transport";
/// `http`.
pub const NETWORK_PROTOCOL_NAME: &str = "network.protocol.name";
/// The version of HTTP.
pub const NETWORK_PROTOCOL_VERSION: &str = "network.protocol.version";
/// The host that a request goes to.
pub const SERVER_ADDRESS: &str = "server.address";
/// Its port.
pub const SERVER_PORT: &str = "server.port";
/// The store: `redis`, or `sqlite` for the embedded one.
pub const DB_SYSTEM_NAME: &str = "db.system.name";
/// The command to the store.
pub const DB_OPERATION_NAME: &str = "db.operation.name";

/// The configured server that a message is for.
pub const SERVER: &str = "mooring.server";
/// The gateway's id of a request, as in the log.
pub const REQUEST_ID: &str = "mooring.request.id";
/// The gateway that a message is forwarded to.
pub const WORKER: &str = "mooring.worker";
/// The epoch of a binding.
pub const EPOCH: &str = "mooring.binding.epoch";
/// The epoch of the lost binding.
pub const EPOCH_FROM: &str = "mooring.rebind.epoch_from";
/// The epoch of the binding that took its place.
pub const EPOCH_TO: &str = "mooring.rebind.epoch_to";
/// Why a binding was lost.
pub const REBIND_REASON: &str = "mooring.rebind.reason";
/// The language that code runs in.
pub const CODE_LANGUAGE: &str = "mooring.code.language";
/// The program that runs it.
pub const CODE_RUNTIME: &str = "mooring.code.runtime";
/// The id of a run, by which its record is found.
pub const CODE_RUN_ID: &str = "mooring.code.run_id";
