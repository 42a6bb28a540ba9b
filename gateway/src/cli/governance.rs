//! The commands that ask a running gateway: `mooring runs`, `mooring skills` and `mooring events`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Which gateway is asked, about which server, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArguments {
    /// The gateway; with it, no settings are read unless --config names them [default: where listen.address says]
    #[arg(long, global = true, value_name = "URL")]
    pub gateway: Option<String>,
    /// The code server [default: the only one of the settings; without settings, sandbox]
    #[arg(long, global = true, value_name = "ID")]
    pub server: Option<String>,
    /// Who asks, where the gateway believes this machine's headers
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// The teams of who asks, separated by commas
    #[arg(long, global = true, value_name = "TEAM[,TEAM]")]
    pub teams: Option<String>,
    /// The roles of who asks, separated by commas
    #[arg(long, global = true, value_name = "ROLE[,ROLE]")]
    pub roles: Option<String>,
    /// The settings file (TOML); else the one that MOORING_CONFIG names, else mooring/mooring.toml in XDG_CONFIG_HOME
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the gateway's answer as it is
    #[arg(long, global = true)]
    pub json: bool,
}

/// Recorded runs.
#[derive(Debug, Clone, Args)]
pub struct RunsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: RunsCommand,
    /// Which gateway.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// What to do with runs.
#[derive(Debug, Clone, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List {
        /// At most so many, from 1 to 500 [default: 50]
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Only those that are running, completed, failed, timed_out, blocked, killed or lost
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only those of this user
        #[arg(long, value_name = "USER")]
        of: Option<String>,
        /// Only those older than this run
        #[arg(long, value_name = "RUN")]
        before: Option<String>,
    },
    /// Show all that is recorded of a run
    Show {
        /// The run's id
        run: String,
    },
    /// Run a recorded run again; exit code 1 where it is not the same
    Replay {
        /// The run's id
        run: String,
        /// Call the tools again, with all that this does; else the record answers
        #[arg(long)]
        live: bool,
    },
}

/// Skills.
#[derive(Debug, Clone, Args)]
pub struct SkillsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: SkillsCommand,
    /// Which gateway.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// What to do with skills.
#[derive(Debug, Clone, Subcommand)]
pub enum SkillsCommand {
    /// List skills and their versions
    List {
        /// Only those that are pending, approved, rejected or revoked
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only the versions of this one
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Make a skill, or a new version of one
    Create {
        /// The name by which code imports it
        name: String,
        /// Its source; - reads standard input
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// python, typescript or javascript [default: what the file's name ends with says]
        #[arg(long, value_name = "LANGUAGE")]
        language: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Who may see it: server, team:<id> or user:<email> [default: the server's]
        #[arg(long, value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Show a skill with its source
    Show {
        /// Its name
        name: String,
        /// The version [default: the newest]
        #[arg(long, value_name = "NUMBER")]
        version: Option<u32>,
    },
    /// Approve a skill that waits for it
    Approve {
        /// The approval's id, as `list` shows it
        approval: String,
    },
    /// Reject a skill that waits for approval, for good
    Reject {
        /// The approval's id, as `list` shows it
        approval: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Revoke an approved version, for good
    Revoke {
        /// The version's id, as `list` shows it
        skill: String,
    },
}

/// Security events.
#[derive(Debug, Clone, Args)]
pub struct EventsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: EventsCommand,
    /// Which gateway.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// What to do with events.
#[derive(Debug, Clone, Subcommand)]
pub enum EventsCommand {
    /// List security events, newest first
    List {
        /// At most so many, from 1 to 1000 [default: 100]
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Only those of this user
        #[arg(long, value_name = "USER")]
        of: Option<String>,
        /// Only those of this kind, such as policy_block or tool_call_error
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Only those of the last while, such as 30m, 12h or 7d
        #[arg(long, value_name = "WHILE")]
        since: Option<String>,
    },
}
