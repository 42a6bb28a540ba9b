//! The commands for incidents, `mooring top`, `mooring whoami` and `mooring digest`, and `mooring reload`.

use std::path::PathBuf;

use clap::Args;

use super::ClientArguments;

/// Who sends most.
#[derive(Debug, Clone, Args)]
pub struct TopArguments {
    /// A gateway; repeated, their figures are added up [default: where listen.address says]
    #[arg(long = "gateway", value_name = "URL")]
    pub gateways: Vec<String>,
    /// Most users and sessions that are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub limit: usize,
    /// The latest refusals of this user instead, and why; `mooring digest` prints a user's digest
    #[arg(long, value_name = "DIGEST")]
    pub user: Option<String>,
    /// The settings file, for the address
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Who a caller is.
#[derive(Debug, Clone, Args)]
pub struct WhoamiArguments {
    /// The gateway, and the caller's identity.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// Read the settings again.
#[derive(Debug, Clone, Args)]
pub struct ReloadArguments {
    /// The gateway, and the caller's identity.
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The digest of a user in logs.
#[derive(Debug, Clone, Args)]
pub struct DigestArguments {
    /// The user's name, as the gateways know it
    #[arg(value_name = "USER")]
    pub user: String,
    /// The settings file, which names the fleet's keys
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
