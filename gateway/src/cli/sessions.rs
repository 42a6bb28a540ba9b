//! The commands over the sessions of the store that the settings name: `mooring sessions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ActArguments, CallerArguments};

/// Sessions.
#[derive(Debug, Clone, Args)]
pub struct SessionsArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: SessionsCommand,
    /// The store.
    #[command(flatten)]
    pub store: StoreArguments,
}

/// The store to open: the one of the settings.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreArguments {
    /// The settings file (TOML) [default: as for serve]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where sessions live: embedded, or a Redis URL [default: as the settings say]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
}

/// The server of kind agent, and the owner of the sessions.
#[derive(Debug, Clone, Default, Args)]
pub struct OwnerArguments {
    /// The server of kind agent [default: the only one of the settings]
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// The owner of the sessions [default: local]
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
}

/// The subcommands of `sessions`.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// Import agents' sessions from a sessions.json; entries that cannot be imported are listed on standard error
    Import {
        /// The file; - reads standard input [default: ~/.config/claude-code-mcp/sessions.json]
        file: Option<PathBuf>,
        /// The owner of the imported sessions.
        #[command(flatten)]
        owner: OwnerArguments,
        /// Replace a session also where the store's was used later
        #[arg(long)]
        overwrite: bool,
    },
    /// Export the agents' sessions as a sessions.json
    Export {
        /// The file; - writes standard output
        #[arg(default_value = "-")]
        file: PathBuf,
        /// The owner of the exported sessions.
        #[command(flatten)]
        owner: OwnerArguments,
    },
    /// List active sessions, most recently used first
    List {
        /// Only sessions of this principal
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
        /// Only sessions at this server
        #[arg(long, value_name = "ID")]
        server: Option<String>,
        /// Only sessions of this kind
        #[arg(long, value_name = "KIND")]
        kind: Option<SessionKind>,
        /// At most this many
        #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what the store has recorded of a session
    Show {
        /// As `list` shows it: its digest or a prefix of that, or its place
        session: String,
        /// Also what has happened to it; with the whole digest also of a session that the store has forgotten
        #[arg(long)]
        history: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show why calls of a session wait: who has the turn, who waits for it, and what else blocks it
    Why {
        /// As `list` shows it: its digest or a prefix of that, or its place
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session, also while it is in use
    End {
        /// As `list` shows it: its digest or a prefix of that, or its place
        session: String,
    },
    /// Find sessions over a running gateway, by words in their names and states, or the first digits
    Search {
        /// Words; user:, server:, instance:, owner:, state:, kind:, label: and epoch: before one look in that field only
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        /// At most this many
        #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// The gateway and the caller.
        #[command(flatten)]
        caller: CallerArguments,
    },
    /// Move a session to another instance of a server, over a running gateway
    Move {
        /// As `search` shows it: its digest, or four or more of its first digits
        session: String,
        /// The server; needed where the session is bound at several
        #[arg(long, value_name = "ID")]
        server: Option<String>,
        /// The instance to move to [default: another one that is not parked]
        #[arg(long, value_name = "URL")]
        to: Option<String>,
        /// Do not wait for a call that runs, which may be cut off
        #[arg(long)]
        force: bool,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
        /// The gateway and the caller.
        #[command(flatten)]
        caller: CallerArguments,
    },
    /// End all active sessions that `search` finds with these words, over a running gateway
    EndMatching {
        /// As for `search`; at least one
        #[arg(value_name = "WORD", required = true)]
        words: Vec<String>,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
        /// The gateway and the caller.
        #[command(flatten)]
        caller: CallerArguments,
    },
}

/// The kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionKind {
    /// Of an MCP client.
    Mcp,
    /// Of code: one user, one language.
    Code,
    /// Of a command-line agent.
    Agent,
}
