//! The commands over the sessions of the store that the settings name: `mooring sessions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Sessions.
#[derive(Debug, Clone, Args)]
pub struct SessionsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: SessionsCommand,
    /// Which store.
    #[command(flatten)]
    pub store: StoreArguments,
}

/// Which store is meant: that of the settings.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreArguments {
    /// The settings file (TOML) [default: as for serve]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where sessions live: embedded, or a Redis URL [default: as the settings say]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
}

/// Whose sessions at which server of kind agent.
#[derive(Debug, Clone, Default, Args)]
pub struct OwnerArguments {
    /// The server of kind agent [default: the only one of the settings]
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Whose sessions they are [default: local]
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
}

/// What to do with sessions.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// Take the agents' sessions of a sessions.json; what cannot be taken is named on standard error
    Import {
        /// The file; - reads standard input
        file: PathBuf,
        /// Whose they become.
        #[command(flatten)]
        owner: OwnerArguments,
        /// Take the file's session also where the store has one that was used later
        #[arg(long)]
        overwrite: bool,
    },
    /// Write the agents' sessions as a sessions.json
    Export {
        /// The file; - writes standard output
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Whose are written.
        #[command(flatten)]
        owner: OwnerArguments,
    },
    /// List the sessions that are active, last used first
    List {
        /// Only those of this principal
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
        /// Only those at this server
        #[arg(long, value_name = "ID")]
        server: Option<String>,
        /// Only those of this kind
        #[arg(long, value_name = "KIND")]
        kind: Option<SessionKind>,
        /// At most so many
        #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what the store knows of a session
    Show {
        /// As `list` shows it: its digest or the beginning of that, or its place
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session, whatever it does
    End {
        /// As `list` shows it: its digest or the beginning of that, or its place
        session: String,
    },
}

/// What a session is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionKind {
    /// An MCP client.
    Mcp,
    /// Code of a user, in one language.
    Code,
    /// An agent that is a program.
    Agent,
}
