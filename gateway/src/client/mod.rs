//! The commands that query a running gateway over its REST interface.
//!
//! Invariant: text printed for people contains no control characters except line feeds and tabs. Names, messages and
//! output of runs are untrusted and must not control the terminal.

mod events;
mod gateway;
mod output;
mod reload;
mod runs;
mod skills;
pub(crate) mod table;
mod target;
mod top;
mod whoami;

use self::gateway::Gateway;
pub use self::output::{ClientError, CommandOutput};
use self::target::GatewayTarget;
use crate::cli::{
    ClientArguments, EventsArguments, ReloadArguments, RunsArguments, SkillsArguments,
    TopArguments, WhoamiArguments,
};

/// A command that queries a gateway.
#[derive(Debug, Clone)]
pub enum ClientCommand {
    /// `mooring runs`
    Runs(RunsArguments),
    /// `mooring skills`
    Skills(SkillsArguments),
    /// `mooring events`
    Events(EventsArguments),
    /// `mooring top`
    Top(TopArguments),
    /// `mooring whoami`
    Whoami(WhoamiArguments),
    /// `mooring reload`
    Reload(ReloadArguments),
}

/// Runs the command against the gateway.
///
/// # Errors
/// See [`ClientError`].
pub async fn run(command: ClientCommand) -> Result<CommandOutput, ClientError> {
    match command {
        ClientCommand::Runs(RunsArguments { command, client }) => {
            runs::run(&gateway(&client)?, command, client.json).await
        }
        ClientCommand::Skills(SkillsArguments { command, client }) => {
            skills::run(&gateway(&client)?, command, client.json).await
        }
        ClientCommand::Events(EventsArguments { command, client }) => {
            events::run(&gateway(&client)?, command, client.json).await
        }
        ClientCommand::Top(arguments) => top::run(&arguments).await,
        ClientCommand::Whoami(WhoamiArguments { client }) => {
            let gateway = Gateway::new(GatewayTarget::find(&client)?)?;
            whoami::run(&gateway, client.json).await
        }
        ClientCommand::Reload(ReloadArguments { client }) => {
            let gateway = Gateway::new(GatewayTarget::find(&client)?)?;
            reload::run(&gateway, client.json).await
        }
    }
}

fn gateway(arguments: &ClientArguments) -> Result<Gateway, ClientError> {
    Gateway::new(GatewayTarget::find_code_server(arguments)?)
}

#[cfg(test)]
mod tests;
