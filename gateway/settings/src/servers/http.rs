//! A server of kind `http` or `sse`: where it runs, and how its sessions are kept. Those of kind `sse` are always kept,
//! by the worker that holds the event stream.

use http::header::AUTHORIZATION;

use super::headers::{self, UpstreamHeaders};
use super::instance::Instance;
use super::oauth::{OauthRows, OauthSettings};
use super::session_policy::{
    CONCURRENCY, Concurrency, Continuity, LOST_STATE_NOTICE, LostStateNotice, ON_UPSTREAM_LOSS,
    OnUpstreamLoss, parse_continuity,
};
use super::vault::{UserSecretSettings, VaultRows};
use crate::affinity::Affinity;
use crate::reader::Reader;
use crate::rows::{settings, words};
use crate::setting::{Disclosure, words};

settings! {
    /// One server of kind `http` or `sse`.
    pub struct HttpServerSettings(sessions: Affinity, kind_is_refused: bool) {
        /// Where the server runs: one URL for each of its equal instances; for the kind `sse` that of its event stream,
        /// such as http://127.0.0.1:3001/sse. Required for the kinds `http` and `sse`. The URLs are stored with
        /// sessions and written to the log, so they hold no secrets; write them alike at every gateway.
        pub instances: Vec<Instance> = List("servers.instances", 1024, 512,
            "http or https URLs of at most 128 bytes, without credentials and without a fragment, such as \
             http://127.0.0.1:9001/mcp").disclosure(Disclosure::Credentials)
            => |reader, row| match reader.is_written(row) || !kind_is_refused {
                true => reader.distinct(row, Instance::parse, "the server has no instance", "this instance"),
                // A server whose kind is refused is not also blamed for having no instances.
                false => Vec::new(),
            },
        /// Headers that every request to this server carries, such as its credentials. A value `env:NAME` is taken from
        /// the environment variable NAME. Values are never logged.
        pub headers: UpstreamHeaders = Map("servers.headers", 32,
            "a table of at most 32 header names, each with a text of at most 8192 printable characters or \"env:NAME\"; not \
             the headers of the connection and of MCP itself")
            .unset("none; a client's own credentials are never passed on") => headers::parse,
        /// Whether each request tells the server by a signed token whom it is for.
        pub forward_identity: bool => |reader| parse_forward_identity(reader, &headers),
        /// How the tokens of requests are fetched; none if none are needed.
        pub oauth: Option<OauthSettings>
            => |reader| OauthRows::parse(reader, &headers, forward_identity),
        /// How requests have the secret of their user; none where users store none.
        pub user_secret: Option<UserSecretSettings>
            => |reader| VaultRows::parse(reader, oauth.is_some(), forward_identity),
        /// In which era of MCP it serves clients.
        pub era: EraChoice => |reader| reader.read(&ERA),
        /// Whether its sessions keep their instance; the global switch is already applied. As a member of a group they
        /// always do.
        pub affinity: Affinity => |_| sessions,
        /// Whether tool calls of one session may run at the same time.
        pub concurrency: Concurrency => |reader| reader.read(&CONCURRENCY),
        /// What happens to a session whose instance or stream was lost.
        pub on_upstream_loss: OnUpstreamLoss => |reader| reader.read(&ON_UPSTREAM_LOSS),
        /// Where the first result of a tool after a loss reports that state is gone.
        pub lost_state_notice: LostStateNotice => |reader| reader.read(&LOST_STATE_NOTICE),
        /// Which requests without a session of their own share one.
        pub continuity: Continuity => |reader| parse_continuity(reader, sessions, era != EraChoice::Auto),
    }
}

settings! {
    /// The rows of servers of kind `http` alone.
    pub(super) const IDENTITY_ROWS {
        /// In which era of MCP this server serves clients without sessions (2026-07-28). Clients with sessions are served
        /// whatever this says, if the server serves them.
        ERA = Choice("servers.era", words::<EraChoice>),
        /// Whether each request carries the caller's identity: `Authorization` is a token (JWT) that the gateway signs
        /// with a key of `worker.fleet_keys_file`, with the user (`sub`), the teams, a digest of the session (`sid`)
        /// and the server's id (`aud`), valid for five minutes. `/.well-known/jwks.json` has the keys to verify it.
        FORWARD_IDENTITY = Switch("servers.forward_identity", false),
    }
}

words! {
    /// In which era of MCP a server serves clients without sessions.
    pub enum EraChoice {
        /// where its sessions are kept, such clients have to begin one; otherwise they are served as the server itself
        /// serves them, which is asked once, and again when its replies change
        Auto = "auto",
        /// such clients have to begin a session
        Legacy = "legacy",
        /// each request goes to any instance as it is, and state that the server keeps for a session is not there for it
        Modern = "modern",
    }
}

fn parse_forward_identity(reader: &mut Reader<'_>, headers: &UpstreamHeaders) -> bool {
    let forwards = reader.read(&FORWARD_IDENTITY);
    if forwards && headers.map().contains_key(AUTHORIZATION) {
        reader.refuse(
            &FORWARD_IDENTITY,
            "true",
            "servers.headers has an Authorization header, and a request has only one",
            "one of the two",
        );
    }
    forwards
}
