//! One server as the settings describe it.

use super::agent::AgentServerSettings;
use super::group::GroupServerSettings;
use super::http::HttpServerSettings;
use super::kinds;
use super::oauth::{OauthSettings, TokenGrant};
use super::server_id::ServerId;
use super::stdio::StdioServerSettings;
use super::vault::UserSecretSettings;
use crate::access::AccessRule;
use crate::code::CodeServerSettings;

/// What a server is, with what only such a server has.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerKind {
    /// MCP over Streamable HTTP, somewhere else.
    Http(HttpServerSettings),
    /// Run by the gateway itself.
    Code(CodeServerSettings),
    /// A process of this worker for each session.
    Stdio(StdioServerSettings),
    /// MCP over HTTP+SSE of 2024-11-05, somewhere else.
    Sse(HttpServerSettings),
    /// Several of the others behind one endpoint.
    Group(GroupServerSettings),
    /// A program that this worker runs once for each call.
    Agent(AgentServerSettings),
    /// The functions for operators, as tools.
    Admin,
}

impl ServerKind {
    /// The word of `servers.kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => kinds::HTTP,
            Self::Code(_) => kinds::CODE,
            Self::Stdio(_) => kinds::STDIO,
            Self::Sse(_) => kinds::SSE,
            Self::Group(_) => kinds::GROUP,
            Self::Agent(_) => kinds::AGENT,
            Self::Admin => kinds::ADMIN,
        }
    }

    /// Whether its sessions live in a connection that one worker holds, so that the others forward to that worker. A
    /// group has none of its own: its members say it for themselves.
    pub fn lives_in_one_worker(&self) -> bool {
        match self {
            Self::Stdio(_) | Self::Sse(_) => true,
            Self::Http(_) | Self::Code(_) | Self::Group(_) | Self::Agent(_) | Self::Admin => false,
        }
    }
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSettings {
    /// Its name.
    pub id: ServerId,
    /// What it is.
    pub kind: ServerKind,
    /// The words that it and its tools go by, at most 64.
    pub tags: Vec<String>,
    /// Who may use it; none where it has no rules of its own.
    pub allow: Option<Vec<AccessRule>>,
}

impl ServerSettings {
    /// Whether the server gets signed tokens with the caller's identity.
    pub fn forwards_identity(&self) -> bool {
        matches!(&self.kind, ServerKind::Http(http) if http.forward_identity)
    }

    /// How the tokens of requests to the server are fetched; none if none are needed.
    pub fn oauth(&self) -> Option<&OauthSettings> {
        match &self.kind {
            ServerKind::Http(http) => http.oauth.as_ref(),
            _ => None,
        }
    }

    /// How requests to the server have the secrets of their users; none where users store none.
    pub fn user_secret(&self) -> Option<&UserSecretSettings> {
        match &self.kind {
            ServerKind::Http(http) => http.user_secret.as_ref(),
            _ => None,
        }
    }

    /// Whether the server gets tokens in exchange for those of its callers.
    pub fn exchanges_tokens(&self) -> bool {
        self.oauth()
            .is_some_and(|oauth| oauth.grant == TokenGrant::TokenExchange)
    }
}
