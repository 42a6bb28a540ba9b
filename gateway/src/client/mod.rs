//! The commands that query a running gateway over its REST interface.
//!
//! Invariant: text printed for people contains no control characters except line feeds and tabs. Names, messages and
//! output of runs are untrusted and must not control the terminal.

mod act;
mod events;
mod gateway;
mod output;
mod progress;
mod reload;
mod runs;
mod servers;
mod sessions;
mod skills;
pub(crate) mod table;
mod target;
mod top;
mod whoami;
mod workers;

use serde_json::{Value, json};

use self::gateway::Gateway;
pub use self::output::{ClientError, CommandOutput};
use self::target::GatewayTarget;
use crate::cli::{
    ActArguments, CallerArguments, ClientArguments, EventsArguments, ReloadArguments,
    RunsArguments, ServersArguments, SessionsArguments, SessionsCommand, SkillsArguments,
    TopArguments, WhoamiArguments, WorkersArguments,
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
    /// `mooring workers`
    Workers(WorkersArguments),
    /// `mooring servers`
    Servers(ServersArguments),
    /// `mooring sessions search`
    SearchSessions {
        /// What to look for.
        words: Vec<String>,
        /// Most sessions that are listed.
        limit: u32,
        /// The gateway to query.
        client: ClientArguments,
    },
    /// `mooring sessions move`
    MoveSession {
        /// The session.
        session: String,
        /// The server, the instance and whether it is forced, as the gateway takes them.
        body: Value,
        /// How it is confirmed.
        act: ActArguments,
        /// The gateway to query.
        client: ClientArguments,
    },
    /// `mooring sessions end-matching`
    EndSessions {
        /// Which sessions.
        words: Vec<String>,
        /// How it is confirmed.
        act: ActArguments,
        /// The gateway to query.
        client: ClientArguments,
    },
}

impl ClientCommand {
    /// The command on sessions, if it is over a gateway.
    ///
    /// # Errors
    /// The arguments of a command on the store.
    pub fn of_sessions(arguments: SessionsArguments) -> Result<Self, Box<SessionsArguments>> {
        let client = |caller: CallerArguments| ClientArguments {
            caller,
            config: arguments.store.config.clone(),
            ..ClientArguments::default()
        };
        match arguments.command {
            SessionsCommand::Search {
                words,
                limit,
                caller,
            } => Ok(Self::SearchSessions {
                words,
                limit,
                client: client(caller),
            }),
            SessionsCommand::Move {
                session,
                server,
                to,
                force,
                act,
                caller,
            } => Ok(Self::MoveSession {
                session,
                body: json!({"server": server, "to": to, "force": force}),
                act,
                client: client(caller),
            }),
            SessionsCommand::EndMatching { words, act, caller } => Ok(Self::EndSessions {
                words,
                act,
                client: client(caller),
            }),
            command => Err(Box::new(SessionsArguments {
                command,
                ..arguments
            })),
        }
    }
}

/// Runs the command against the gateway.
///
/// # Errors
/// See [`ClientError`].
pub async fn run(command: ClientCommand) -> Result<CommandOutput, ClientError> {
    match command {
        ClientCommand::Runs(RunsArguments { command, client }) => {
            runs::run(&gateway(&client)?, command, client.caller.json).await
        }
        ClientCommand::Skills(SkillsArguments { command, client }) => {
            skills::run(&gateway(&client)?, command, client.caller.json).await
        }
        ClientCommand::Events(EventsArguments { command, client }) => {
            events::run(&gateway(&client)?, command, client.caller.json).await
        }
        ClientCommand::Top(arguments) => top::run(&arguments).await,
        ClientCommand::Whoami(WhoamiArguments { client }) => {
            whoami::run(&any_gateway(&client)?, client.caller.json).await
        }
        ClientCommand::Workers(WorkersArguments { command, client }) => {
            workers::run(&any_gateway(&client)?, command, client.caller.json).await
        }
        ClientCommand::Servers(ServersArguments { command, client }) => {
            servers::run(&any_gateway(&client)?, command, client.caller.json).await
        }
        ClientCommand::SearchSessions {
            words,
            limit,
            client,
        } => sessions::search(&any_gateway(&client)?, &words, limit, client.caller.json).await,
        ClientCommand::MoveSession {
            session,
            body,
            act,
            client,
        } => {
            let path = ["sessions", &session, "move"];
            let gateway = any_gateway(&client)?;
            act::perform(&gateway, &path, &body, &act, client.caller.json).await
        }
        ClientCommand::EndSessions { words, act, client } => {
            sessions::end(&any_gateway(&client)?, &words, &act, client.caller.json).await
        }
        ClientCommand::Reload(ReloadArguments { client }) => {
            reload::run(&any_gateway(&client)?, client.caller.json).await
        }
    }
}

/// A gateway, whose servers do not matter.
fn any_gateway(arguments: &ClientArguments) -> Result<Gateway, ClientError> {
    Gateway::new(GatewayTarget::find(arguments)?)
}

fn gateway(arguments: &ClientArguments) -> Result<Gateway, ClientError> {
    Gateway::new(GatewayTarget::find_code_server(arguments)?)
}

#[cfg(test)]
mod tests;
