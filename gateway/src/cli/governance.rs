//! The commands that query a running gateway: `mooring runs`, `mooring skills` and `mooring events`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The gateway to query, the code server, and the caller's identity.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArguments {
    /// The gateway and the caller.
    #[command(flatten)]
    pub caller: CallerArguments,
    /// The code server [default: the only one of the settings; without settings, sandbox]
    #[arg(long, global = true, value_name = "ID")]
    pub server: Option<String>,
    /// The settings file (TOML); else the one that MOORING_CONFIG names, else mooring/mooring.toml in XDG_CONFIG_HOME
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The gateway to query, the caller's identity, and the form of the answer.
#[derive(Debug, Clone, Default, Args)]
pub struct CallerArguments {
    /// The gateway; with it, no settings are read unless --config names them [default: where listen.address says]
    #[arg(long, global = true, value_name = "URL")]
    pub gateway: Option<String>,
    /// The caller's user name, where the gateway trusts identity headers from this machine
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// The caller's teams, separated by commas
    #[arg(long, global = true, value_name = "TEAM[,TEAM]")]
    pub teams: Option<String>,
    /// The caller's roles, separated by commas
    #[arg(long, global = true, value_name = "ROLE[,ROLE]")]
    pub roles: Option<String>,
    /// The file with the caller's access token, where the gateway takes tokens; else the variable MOORING_TOKEN has it
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The caller's certificate and those that lead to its authority, in PEM, where the gateway asks for certificates
    #[arg(long, global = true, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// The certificate's private key, in PEM; only its owner may be able to read the file
    #[arg(long, global = true, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// Print the gateway's JSON response unchanged
    #[arg(long, global = true)]
    pub json: bool,
}

/// Recorded runs.
#[derive(Debug, Clone, Args)]
pub struct RunsArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: RunsCommand,
    /// The gateway to query.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The subcommands of `runs`.
#[derive(Debug, Clone, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List {
        /// At most this many, from 1 to 500 [default: 50]
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Only runs that are running, completed, failed, timed_out, blocked, killed or lost
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only runs of this user
        #[arg(long, value_name = "USER")]
        of: Option<String>,
        /// Only runs older than this one
        #[arg(long, value_name = "RUN")]
        before: Option<String>,
    },
    /// Show everything that is recorded of a run
    Show {
        /// The run's id
        run: String,
    },
    /// Replay a recorded run; exit code 1 if the result differs
    Replay {
        /// The run's id
        run: String,
        /// Call the tools again, with their side effects; otherwise the recorded replies are used
        #[arg(long)]
        live: bool,
    },
}

/// Skills.
#[derive(Debug, Clone, Args)]
pub struct SkillsArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: SkillsCommand,
    /// The gateway to query.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The subcommands of `skills`.
#[derive(Debug, Clone, Subcommand)]
pub enum SkillsCommand {
    /// List skills and their versions
    List {
        /// Only versions that are pending, approved, rejected or revoked
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only versions of this skill
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Create a skill, or a new version of one
    Create {
        /// The name by which code imports it
        name: String,
        /// The file with its source; - reads standard input
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// python, typescript or javascript [default: from the file name's extension]
        #[arg(long, value_name = "LANGUAGE")]
        language: Option<String>,
        /// A description of what it does
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The scope that sees it: server, team:<id> or user:<email> [default: the server's]
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
    /// Approve a pending skill
    Approve {
        /// The approval's id, as `list` shows it
        approval: String,
    },
    /// Reject a pending skill, permanently
    Reject {
        /// The approval's id, as `list` shows it
        approval: String,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Revoke an approved version, permanently
    Revoke {
        /// The version's id, as `list` shows it
        skill: String,
    },
}

/// Security events.
#[derive(Debug, Clone, Args)]
pub struct EventsArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: EventsCommand,
    /// The gateway to query.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The subcommands of `events`.
#[derive(Debug, Clone, Subcommand)]
pub enum EventsCommand {
    /// List security events, newest first
    List {
        /// At most this many, from 1 to 1000 [default: 100]
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Only events of this user
        #[arg(long, value_name = "USER")]
        of: Option<String>,
        /// Only events of this kind, such as policy_block or tool_call_error
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Only events of this last period, such as 30m, 12h or 7d
        #[arg(long, value_name = "DURATION")]
        since: Option<String>,
    },
}
