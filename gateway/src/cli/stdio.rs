//! The command line of `mooring stdio`.

use std::path::PathBuf;

use clap::Args;

use crate::serve::StdioOptions;
use mooring_pipeline::stdio::StdioSessionLifetime;
use mooring_settings::Flags;

/// The flags of `mooring stdio`.
#[derive(Debug, Clone, Args)]
pub struct StdioArguments {
    /// The server to serve: an id of the settings, an id with its URL, or an agent with a built-in profile (claude,
    /// codex, gemini, opencode)
    #[arg(long, value_name = "ID[=URL[,URL]]")]
    pub server: String,
    /// The settings file (TOML); else the one that MOORING_CONFIG names, else mooring/mooring.toml in XDG_CONFIG_HOME
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where sessions live: embedded, or a Redis URL [default: embedded]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// The client's principal: it sees this principal's sessions
    #[arg(long, value_name = "NAME", default_value = "local")]
    pub principal: String,
    /// The session to continue, for stateful servers
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = session_name)]
    pub session: String,
    /// Begin a session that ends with this process
    #[arg(long, conflicts_with = "session")]
    pub new_session: bool,
}

/// A name of 1 to 256 bytes without control characters.
fn session_name(text: &str) -> Result<String, &'static str> {
    const BYTES_MAX: usize = 256;
    let is_name = (1..=BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    is_name
        .then(|| text.to_owned())
        .ok_or("must be 1 to 256 bytes without control characters")
}

impl StdioArguments {
    /// Splits the flags into settings and the options of this command.
    #[must_use]
    pub fn split(self) -> (Flags, StdioOptions) {
        let (id, is_defined_here) = match self.server.split_once('=') {
            Some((id, _)) => (id.to_owned(), true),
            None => (self.server.clone(), false),
        };
        let flags = Flags {
            config: self.config,
            listen: None,
            store: self.store,
            servers: if is_defined_here {
                vec![self.server]
            } else {
                Vec::new()
            },
            wanted: Some(id.clone()),
        };
        let lifetime = if self.new_session {
            StdioSessionLifetime::Process
        } else {
            StdioSessionLifetime::Named(self.session.into())
        };
        let options = StdioOptions {
            server: id,
            principal: self.principal,
            lifetime,
        };
        (flags, options)
    }
}
