//! The commands over the file of API keys: `mooring keys`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use mooring_identity::NewApiKey;

/// API keys.
#[derive(Debug, Clone, Args)]
pub struct KeysArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: KeysCommand,
    /// The settings file (TOML) [default: as for serve]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file of API keys; made if it is not there [default: auth.api_keys_file of the settings]
    #[arg(long, global = true, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The subcommands of `keys`.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Make a key and print it; it is shown only this once
    Create(CreateKeyArguments),
    /// List the keys; none can be used from what is shown
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key: gateways refuse it two seconds later
    Revoke {
        /// The key's id, as `list` shows it
        id: String,
    },
}

/// The key to make.
#[derive(Debug, Clone, Args)]
pub struct CreateKeyArguments {
    /// Whose key it is; a user may have several
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// A team of the user; may be repeated
    #[arg(long = "team", value_name = "NAME")]
    pub teams: Vec<String>,
    /// A role of the user; may be repeated
    #[arg(long = "role", value_name = "NAME")]
    pub roles: Vec<String>,
    /// A scope that rules may ask for; may be repeated
    #[arg(long = "scope", value_name = "NAME")]
    pub scopes: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// How many days it is valid
    #[arg(long, value_name = "NUMBER", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

impl From<CreateKeyArguments> for NewApiKey {
    fn from(arguments: CreateKeyArguments) -> Self {
        Self {
            user: arguments.user,
            teams: arguments.teams,
            roles: arguments.roles,
            scopes: arguments.scopes,
            note: arguments.note,
            lifetime: Duration::from_secs(u64::from(arguments.days) * 86_400),
        }
    }
}
