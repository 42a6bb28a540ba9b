//! The commands over the admin API of a running gateway: `mooring workers` and `mooring servers`.

use clap::{Args, Subcommand};

use super::ClientArguments;

/// How an act is confirmed.
#[derive(Debug, Clone, Default, Args)]
pub struct ActArguments {
    /// Do it without asking; needed where there is no terminal
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Only show what it would do
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
}

/// Gateways.
#[derive(Debug, Clone, Args)]
pub struct WorkersArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: WorkersCommand,
    /// The gateway to query.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The subcommands of `workers`.
#[derive(Debug, Clone, Subcommand)]
pub enum WorkersCommand {
    /// List the gateways of the fleet
    List,
    /// Drain a gateway: balancers send it no new clients, and it owns no new connections
    Drain {
        /// Its id, for this boot of it, or its name, for every boot
        worker: String,
        /// Why, for others who see it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// Show the connections that it still owns, until there are none
        #[arg(long)]
        wait: bool,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
    },
    /// Let a gateway take new work again
    Undrain {
        /// The id or name by which it was drained
        worker: String,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
    },
}

/// Servers.
#[derive(Debug, Clone, Args)]
pub struct ServersArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ServersCommand,
    /// The gateway to query.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The subcommands of `servers`.
#[derive(Debug, Clone, Subcommand)]
pub enum ServersCommand {
    /// List the servers of a gateway with their health and sessions
    List,
    /// Show a server with its instances
    Show {
        /// Its id
        id: String,
    },
    /// Give a server, or one of its instances, no new sessions; those that are on it stay
    Park {
        /// Its id
        id: String,
        /// The instance, as `show` names it [default: the whole server]
        #[arg(long, value_name = "URL")]
        instance: Option<String>,
        /// Why, for others who see it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
    },
    /// Give a parked server or instance new sessions again
    Unpark {
        /// Its id
        id: String,
        /// The instance, as `show` names it [default: the whole server]
        #[arg(long, value_name = "URL")]
        instance: Option<String>,
        /// How it is confirmed.
        #[command(flatten)]
        act: ActArguments,
    },
}
