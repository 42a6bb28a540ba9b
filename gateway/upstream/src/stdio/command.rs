//! What to start for a session: program, directory, environment and limits.
//!
//! Invariant: a child gets the configured variables and nothing else of the gateway's environment. Commands never go
//! through a shell.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use mooring_settings::INHERITED_DEFAULT;

/// The prefix of the gateway's own variables. They may contain secrets and are never inherited, even if listed; they
/// can be set by value.
const OWN_PREFIX: &str = "MOORING_";
/// Other variables of the gateway that may contain secrets.
const OWN_NAMES: [&str; 1] = ["REDIS_URL"];
/// The prefix of shell functions that bash exports, which only bash can use.
const SHELL_FUNCTION: &str = "()";

/// How to start the child of a session.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// The program: a path, or a name to find in the child's `PATH`.
    pub program: String,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// The working directory; unset means the gateway's.
    pub directory: Option<PathBuf>,
    /// Its environment variables.
    pub environment: Environment,
    /// What its pipes carry.
    pub traffic: Traffic,
    /// Its resource limits and shutdown times.
    pub limits: ChildLimits,
}

/// What a child's pipes carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Messages in both directions, one per line; lines that are not JSON are dropped. A child that closes its stdout
    /// counts as ended.
    Messages,
    /// Only output, every line as printed. stdin is closed from the start, and the child may continue after closing its
    /// stdout.
    Output,
}

/// Limits of a child and its pipes.
#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// Kernel limits of each of its processes.
    pub process: ProcessLimits,
    /// Longest message or line of output, in bytes; a longer one ends the child.
    pub message_bytes_max: usize,
    /// Most messages queued in each direction.
    pub messages_waiting_max: usize,
    /// Time limit for its process to start. The time until it answers is not included.
    pub start_within: Duration,
    /// Grace between closing its stdin and SIGTERM.
    pub stop_grace: Duration,
    /// Grace between SIGTERM and SIGKILL.
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

/// Kernel limits of each process of a child. An unset limit is inherited from the gateway, and the gateway's hard
/// limits are never exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Address space of a process, in bytes. Not suitable for runtimes such as V8 that reserve far more than they use.
    pub address_space_bytes: Option<u64>,
}

/// A child's environment variables.
#[derive(Clone)]
pub struct Environment {
    /// Names of the gateway's variables that the child inherits if they are set.
    pub inherited: Vec<String>,
    /// Names and values, which take precedence over inherited ones.
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

/// Values may be secrets and are not shown.
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
    /// All variables of a child; `own` reads the gateway's environment. Values that are not UTF-8 are not inherited.
    pub(super) fn resolve(&self, own: impl Fn(&str) -> Option<OsString>) -> Vec<(String, String)> {
        let inherited = self.inherited.iter().filter_map(|name| {
            if is_gateways_own(name) {
                return None;
            }
            let value = own(name)?.into_string().ok()?;
            (!value.starts_with(SHELL_FUNCTION)).then(|| (name.clone(), value))
        });
        // The later of two equal names wins when the variables are set.
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
    fn set_variables_override_inherited_ones() {
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
    fn values_are_not_shown() {
        let environment = Environment {
            inherited: Vec::new(),
            set: vec![("TOKEN".into(), "very secret".into())],
        };
        let shown = format!("{environment:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("very secret"));
    }
}
