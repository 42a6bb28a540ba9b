//! A server of kind `agent`: the command-line agent that the gateway runs once for each call, where it works, how long it
//! may take, and how long its conversations can be taken up. A profile says most of it; every field wins over the profile.

mod command;
mod output;
mod output_rules;
mod profile;
mod template;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::stdio::{self, ChildVariables, variables};
use crate::paths::{ABSOLUTE_DIRECTORY, PATH_BYTES_MAX, absolute, home};
use crate::reader::{Reader, Reason, list};
use crate::rows::settings;
use crate::setting::{Text, Words};
use profile::Profile;

pub use output::{OutputForm, OutputRules, Results};
pub use output_rules::{Condition, Pointer};
pub(super) use profile::{PROFILE, ROWS};
pub use template::{CommandTemplate, TemplateError};

settings! {
    /// One server of kind `agent`.
    pub struct AgentServerSettings(profile: &'static Profile) {
        /// What is run, and how it resumes.
        pub template: CommandTemplate => |reader| command::parse(reader, profile),
        /// What its output says.
        pub rules: Arc<OutputRules> => |reader| Arc::new(OutputRules::parse(reader, profile)),
        /// Texts by which the agent reports that it does not know the session to resume. A run that fails and prints
        /// one of them, on stdout or stderr, is repeated once without a session, and the reply reports this.
        pub unknown_session: Vec<String> = List("servers.unknown_session", 16, 512, "texts of at most 512 bytes")
            .unset("the profile's, else none")
            => |reader, row| match reader.is_written(row) {
                true => reader.list(row, |text| Ok(text.to_owned())).unwrap_or_default(),
                false => profile.unknown_session.iter().copied().map(str::to_owned).collect(),
            },
        /// Whether the agent resumes a conversation only in the folder in which it last worked on it.
        pub is_bound_to_folder: bool => |_| profile.is_bound_to_folder,
        /// The description of the server's one tool, for clients and their models.
        pub description: String = Text("servers.description", 4096, "a text of at most 4096 bytes", None)
            .unset("a sentence that says which agent it is")
            => |reader, row| {
                let written = reader.text(row, |text| Ok(text.to_owned()));
                written.unwrap_or_else(|| profile.description.to_owned())
            },
        /// The directory in which the agent works where a call names none. A call may name directories within it.
        pub directory: PathBuf = Text("servers.directory", PATH_BYTES_MAX, ABSOLUTE_DIRECTORY, None)
            .unset("the home directory of the gateway's user, by HOME") => parse_directory,
        /// Further directories that a call may name as its `workFolder`, with everything in them.
        pub work_folders: Vec<PathBuf> =
            List("servers.work_folders", 64, PATH_BYTES_MAX, "absolute paths of directories")
            .unset("none: only `servers.directory` and what is in it") => list(parse_work_folder),
        /// Its whole environment: nothing else of the gateway's is passed on.
        pub variables: ChildVariables => variables::parse,
        /// How long one run may take; then it and every process that it started are killed.
        pub timeout: Duration = Integer("servers.timeout_seconds", "seconds", 1800, 1..=86_400),
        /// Most bytes that one run may print; a run that prints more is ended, and the call fails.
        pub output_bytes_max: usize = Integer("servers.output_bytes_max", "bytes", 16_777_216, 1024..=67_108_864),
        /// Most runs at the same time in this worker.
        pub children_max: NonZeroUsize => |reader| reader.read(&stdio::CHILDREN_MAX),
        /// How long after its last call a conversation can be resumed.
        pub session_ttl: Duration = Integer("servers.session_ttl_seconds", "seconds", 86_400, 1..=2_592_000),
        /// Maximum stored conversations of one principal, over all agent servers; the largest value of any of them
        /// applies. A further one replaces the least recently used one.
        pub sessions_max: u64 = Integer("servers.sessions_max", "conversations", 1000, 1..=1_000_000),
    }
}

/// Whether an agent is known by this name.
pub(super) fn is_profile(name: &str) -> bool {
    <&Profile>::OTHERS.iter().any(|(known, ..)| *known == name)
}

pub(super) fn parse(reader: &mut Reader<'_>) -> AgentServerSettings {
    let profile = reader.read(&PROFILE);
    AgentServerSettings::read(reader, profile)
}

/// The stand-in for a directory that was refused is an empty path.
fn parse_directory(reader: &mut Reader<'_>, row: &'static Text) -> PathBuf {
    let written = reader.text(row, stdio::parse_directory);
    let directory = written.or_else(|| home(reader.environment));
    if directory.is_none() && !reader.was_refused(row) {
        let reason = "it is missing, and HOME is not an absolute path";
        reader.refuse(row, "", reason, row.shape);
    }
    directory.unwrap_or_default()
}

fn parse_work_folder(text: &str) -> Result<PathBuf, Reason> {
    if absolute(text)?.parent().is_none() {
        return Err("it is the root directory, and would allow every other".to_owned());
    }
    stdio::parse_directory(text)
}
