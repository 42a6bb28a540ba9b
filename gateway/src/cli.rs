//! The command line: `mooring serve` (also plain `mooring`), `mooring config ...`, `mooring doctor`, the commands that
//! query a running gateway, `mooring sessions`, which works on the store, and `mooring keys`, on a file. Flags are settings: an invalid flag has
//! the same exit code as an invalid file.

mod fleet;
mod governance;
mod keys;
mod operators;
mod sessions;
mod stdio;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::fleet::{
    ActArguments, ServersArguments, ServersCommand, WorkersArguments, WorkersCommand,
};
pub use self::governance::{
    CallerArguments, ClientArguments, EventsArguments, EventsCommand, RunsArguments, RunsCommand,
    SkillsArguments, SkillsCommand,
};
pub use self::keys::{CreateKeyArguments, KeysArguments, KeysCommand};
pub use self::operators::{DigestArguments, ReloadArguments, TopArguments, WhoamiArguments};
pub use self::sessions::{
    OwnerArguments, SessionKind, SessionsArguments, SessionsCommand, StoreArguments,
};
pub use self::stdio::StdioArguments;
use mooring_identity::Identity;
use mooring_session::names::Principal;
use mooring_settings::Flags;

/// Exit code after a clean stop.
pub const EXIT_CLEAN: u8 = 0;
/// Exit code for every failure without its own code, such as a port in use.
pub const EXIT_FAILURE: u8 = 1;
/// Exit code for invalid settings and flags (`EX_USAGE` of sysexits.h).
pub const EXIT_BAD_SETTINGS: u8 = 64;
/// Exit code for a missing service, such as a Redis without the module (`EX_UNAVAILABLE`).
pub const EXIT_SERVICE_MISSING: u8 = 69;

const EXAMPLES: &str = "\
Examples:
  mooring
      serves a sandbox that runs code, at http://127.0.0.1:4444/mcp; nothing else is needed
  mooring --server tools=http://127.0.0.1:9001/mcp
      serves one MCP server at http://127.0.0.1:4444/mcp, sessions in a local file
  mooring --server 'memory=npx -y @modelcontextprotocol/server-memory'
      serves a program that speaks MCP over standard input and output
  mooring serve --config mooring.toml --store redis://127.0.0.1:6379
      serves what the file says; sessions in a Redis that gateways share
  mooring stdio --server tools=http://127.0.0.1:9001/mcp
      serves the same to the client that starts it; started anew, it finds its session again
  mooring config check --config mooring.toml
      says what is wrong with a file and starts nothing; with --as user=ada,team=red also what ada may use
  mooring doctor --config mooring.toml
      tries everything that the file names, and says what is wrong and what to do
  mooring config reference
      explains every setting
  mooring runs list --status failed
      lists what failed at a running gateway; skills and events likewise
  mooring top --gateway http://10.0.0.1:4444 --gateway http://10.0.0.2:4444
      shows which users and sessions send most; mooring digest NAME says which user is which
  mooring reload --gateway http://10.0.0.1:4444
      makes a running gateway read its settings again; SIGHUP does the same
  mooring sessions search user:ada state:any
      finds sessions of a running fleet; workers and servers show its gateways and servers
  mooring keys create --user ada --team dev --note 'build server'
      makes an API key, and prints it
  mooring sessions import --server claude
      takes the sessions of agents that claude-code-mcp kept in its file; another file can be named

Exit codes:
  0   clean stop (SIGTERM, SIGINT)
  1   any other failure, such as a port in use, a refusal of the gateway that is asked,
      or a replay that is not the same
  64  bad settings or flags; every problem is named
  69  a service is missing, such as a Redis without the mooring module, or the gateway
      that is asked; or `mooring doctor` found a problem";

/// An MCP gateway whose sessions survive the loss of any gateway.
#[derive(Debug, Parser)]
#[command(
    name = "mooring",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// The subcommand; `serve` if there is none.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of `serve`, for plain `mooring`.
    #[command(flatten)]
    pub serve: ServeArguments,
}

impl Cli {
    /// The requested command.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve MCP until stopped (the default)
    #[command(after_help = EXAMPLES)]
    Serve(ServeArguments),
    /// Serve one client over standard input and output, and find its session again
    #[command(after_help = EXAMPLES)]
    Stdio(StdioArguments),
    /// Check and explain settings; starts nothing
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Try everything that the settings name, and report what is wrong and how to fix it
    Doctor(DoctorArguments),
    /// List, show and replay the recorded runs of a code server
    Runs(RunsArguments),
    /// Make, approve and revoke the skills of a code server
    Skills(SkillsArguments),
    /// List the security events of a code server
    Events(EventsArguments),
    /// List, search, show, explain, move and end sessions; import and export those of agents
    Sessions(SessionsArguments),
    /// List and drain the gateways of a fleet
    Workers(WorkersArguments),
    /// List, show and park servers
    Servers(ServersArguments),
    /// Show which users and sessions send most, in the last one to two minutes
    Top(TopArguments),
    /// Show whom a gateway takes a token, key, certificate or name for, and what that caller may use
    Whoami(WhoamiArguments),
    /// Make a running gateway read its settings again, and show what has changed
    Reload(ReloadArguments),
    /// Print the digest that identifies a user in logs and metrics
    Digest(DigestArguments),
    /// Make, list and revoke API keys
    Keys(KeysArguments),
    /// Print a completion script, such as for `source <(mooring completion bash)`
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The subcommands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings that `serve` would use, and name every problem
    Check(CheckArguments),
    /// Print every setting as an environment variable, as in .env.example
    Example,
    /// Print the JSON schema of the settings file
    Schema,
    /// Print the reference page of all settings
    Reference,
    /// Print the counterpart of each variable of a ContextForge environment
    Contextforge,
    /// Print the OpenAPI document of the REST interface, as /openapi.json
    Openapi,
    /// Print the reference page of the REST interface
    ApiReference,
    /// Print values.yaml of the Helm chart
    ChartValues,
    /// Print values.schema.json of the Helm chart
    ChartSchema,
}

/// The arguments of `mooring config check`.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArguments {
    /// The settings, as for `mooring serve`.
    #[command(flatten)]
    pub serve: ServeArguments,
    /// Also say what this caller may use, and by which rule: user=NAME,team=NAME,role=NAME,scope=NAME, where all but user
    /// may be repeated
    #[arg(long = "as", value_name = "CALLER", value_parser = parse_caller)]
    pub caller: Option<Identity>,
}

/// A caller as `--as` describes it.
fn parse_caller(text: &str) -> Result<Identity, String> {
    let (mut user, mut teams, mut roles, mut scopes) = (None, vec![], vec![], vec![]);
    for part in text.split(',') {
        let named = part
            .split_once('=')
            .map(|(key, name)| (key.trim(), name.trim()));
        match named {
            Some(("user", name)) if user.is_none() => {
                let principal = Principal::parse(name.as_bytes());
                user = Some(principal.map_err(|error| error.to_string())?);
            }
            Some(("user", _)) => return Err("one caller has one user".to_owned()),
            Some(("team", name)) => teams.push(name.to_owned()),
            Some(("role", name)) => roles.push(name.to_owned()),
            Some(("scope", name)) => scopes.push(name.to_owned()),
            _ => {
                return Err(format!(
                    "{part:?} is none of user=, team=, role= and scope="
                ));
            }
        }
    }
    Ok(Identity {
        principal: user.ok_or("it needs user=NAME")?,
        teams: teams.into(),
        roles,
        scopes,
        token: None,
    })
}

/// The flags of `mooring serve`. A flag wins over the environment and the file.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArguments {
    /// The settings file (TOML); else the one that MOORING_CONFIG names, else mooring/mooring.toml in XDG_CONFIG_HOME
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:4444]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where sessions live: embedded, or a Redis URL [default: embedded]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// A server: its instances, or the program to start (then in quotes); may be repeated. MOORING_SERVERS takes the
    /// same, one per line
    #[arg(long = "server", value_name = "ID=URL[,URL] | ID=PROGRAM...")]
    pub servers: Vec<String>,
}

/// The arguments of `mooring doctor`.
#[derive(Debug, Clone, Default, Args)]
pub struct DoctorArguments {
    /// The settings, as for `mooring serve`.
    #[command(flatten)]
    pub serve: ServeArguments,
    /// Print the checks as JSON
    #[arg(long)]
    pub json: bool,
}

impl From<ServeArguments> for Flags {
    fn from(arguments: ServeArguments) -> Self {
        Self {
            config: arguments.config,
            listen: arguments.listen,
            store: arguments.store,
            servers: arguments.servers,
            wanted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn plain_mooring_serves() {
        #[track_caller]
        fn check(words: &[&str]) {
            let cli = Cli::try_parse_from(words).unwrap();
            let Command::Serve(arguments) = cli.into_command() else {
                panic!("{words:?} does not serve");
            };
            let flags = Flags::from(arguments);
            assert_eq!(flags.config, Some(PathBuf::from("f.toml")));
            assert_eq!(flags.listen.as_deref(), Some("127.0.0.1:0"));
            assert_eq!(flags.servers, ["a=http://a/", "b=http://b/"]);
        }
        let flags = [
            "--config",
            "f.toml",
            "--listen",
            "127.0.0.1:0",
            "--server",
            "a=http://a/",
            "--server",
            "b=http://b/",
        ];
        check(&[&["mooring"], &flags[..]].concat());
        check(&[&["mooring", "serve"], &flags[..]].concat());
    }
}
