//! What is started for a session: a program, where, with which environment and within which limits.
//!
//! Invariant: a child sees the variables that were configured, and nothing else of the gateway's environment. No shell
//! reads a command.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use mooring_settings::INHERITED_DEFAULT;

/// What is the gateway's own is never inherited, whoever asks for it: these hold its secrets. It can be set by value.
const OWN_PREFIX: &str = "MOORING_";
/// Likewise.
const OWN_NAMES: [&str; 1] = ["REDIS_URL"];
/// A value that begins so is a function that a shell exported: not a value to anybody else.
const SHELL_FUNCTION: &str = "()";

/// How the child of one session is started.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// The program: a path, or a name that is looked for in the child's own `PATH`.
    pub program: String,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Where it starts; unset, where the gateway was started.
    pub directory: Option<PathBuf>,
    /// What it finds in its environment.
    pub environment: Environment,
    /// What goes through its pipes.
    pub traffic: Traffic,
    /// What it may use, and how long its end may take.
    pub limits: ChildLimits,
}

/// What goes through a child's pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Messages both ways, one a line; what is no JSON is dropped. A child that closes its output is no server any more.
    Messages,
    /// Its output alone: every line as it was printed, whatever it is. Its standard input is at its end from the start,
    /// and it may go on when it has closed its output.
    Output,
}

/// Limits of one child and of the pipes to it.
#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// What the kernel holds each of its processes to.
    pub process: ProcessLimits,
    /// Longest message, or line of output, that is taken from it, in bytes; a longer one ends it.
    pub message_bytes_max: usize,
    /// Most messages that wait in each direction.
    pub messages_waiting_max: usize,
    /// Longest wait until its process exists; what it then takes until it answers is not counted here.
    pub start_within: Duration,
    /// How long it has to end by itself after its input was closed, before SIGTERM.
    pub stop_grace: Duration,
    /// How long it has after SIGTERM, before SIGKILL.
    pub terminate_grace: Duration,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            process: ProcessLimits::default(),
            message_bytes_max: 16 * 1024 * 1024,
            messages_waiting_max: 16,
            start_within: Duration::from_secs(30),
            stop_grace: Duration::from_secs(2),
            terminate_grace: Duration::from_secs(2),
        }
    }
}

/// What the kernel holds each process of a child to. An unset limit is inherited from the gateway; one that the gateway
/// is itself held to is not exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Address space of one process, in bytes. Not for runtimes that reserve much more than they use, as V8 does.
    pub address_space_bytes: Option<u64>,
}

/// What a child finds in its environment.
#[derive(Clone)]
pub struct Environment {
    /// Names of the gateway's own variables that are passed on where they are set.
    pub inherited: Vec<String>,
    /// Names and values; they go before what is inherited.
    pub set: Vec<(String, String)>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            inherited: INHERITED_DEFAULT.map(str::to_owned).to_vec(),
            set: Vec::new(),
        }
    }
}

/// Values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.set.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("Environment")
            .field("inherited", &self.inherited)
            .field("set", &names)
            .finish()
    }
}

impl Environment {
    /// All variables of a child, where the gateway's own are what `own` says. A value that is not UTF-8 is not
    /// inherited.
    pub(super) fn resolve(&self, own: impl Fn(&str) -> Option<OsString>) -> Vec<(String, String)> {
        let inherited = self.inherited.iter().filter_map(|name| {
            if is_gateways_own(name) {
                return None;
            }
            let value = own(name)?.into_string().ok()?;
            (!value.starts_with(SHELL_FUNCTION)).then(|| (name.clone(), value))
        });
        // The later of two wins where they are set one after the other.
        inherited.chain(self.set.iter().cloned()).collect()
    }
}

fn is_gateways_own(name: &str) -> bool {
    name.starts_with(OWN_PREFIX) || OWN_NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn own(name: &str) -> Option<OsString> {
        let value = match name {
            "PATH" => "/bin",
            "FUNCTION" => "() { :; }",
            "MOORING_KEYRING" | "REDIS_URL" => "secret",
            _ => return None,
        };
        Some(value.into())
    }

    #[test]
    fn what_is_set_goes_before_what_is_inherited() {
        let environment = Environment {
            inherited: vec!["PATH".into(), "HOME".into(), "FUNCTION".into()],
            set: vec![("PATH".into(), "/usr/bin".into())],
        };
        let resolved = environment.resolve(own);
        assert_eq!(resolved.len(), 2);
        assert_eq!(resolved.last().unwrap().1, "/usr/bin");
    }

    #[test]
    fn the_gateways_own_variables_are_never_inherited() {
        let environment = Environment {
            inherited: vec!["MOORING_KEYRING".into(), "REDIS_URL".into()],
            set: vec![("REDIS_URL".into(), "redis://other".into())],
        };
        assert_eq!(
            environment.resolve(own),
            [("REDIS_URL".to_owned(), "redis://other".to_owned())]
        );
    }

    #[test]
    fn no_value_is_shown() {
        let environment = Environment {
            inherited: Vec::new(),
            set: vec![("TOKEN".into(), "very secret".into())],
        };
        let shown = format!("{environment:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("very secret"));
    }
}
