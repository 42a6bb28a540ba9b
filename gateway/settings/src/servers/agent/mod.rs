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

use super::super::paths::absolute;
use super::super::reader::{Reader, Reason};
use super::super::setting::{Disclosure, Integer, List, Setting, SettingInfo, Text};
use super::super::source::Environment;
use super::super::state_home::home;
use super::stdio::{self, ChildVariables, variables};

pub use output_rules::{
    Condition, ConditionError, OutputForm, OutputRules, Pointer, PointerError, Results,
};
pub(super) use profile::PROFILE;
pub use template::{CommandTemplate, TemplateError};

/// What the tool is, where nobody describes it.
const DESCRIPTION_STANDARD: &str = "Gives a prompt to a command-line agent and returns its answer.";

const UNKNOWN_SESSION: List = List {
    about: SettingInfo::new(
        "servers.unknown_session",
        "Texts by which the agent says that it does not know the session that it is to resume. A run that fails and \
         prints one of them, on either stream, is begun afresh, once, and the reply says so.",
    )
    .unset("the profile's, else none"),
    shape: "texts of at most 512 bytes",
    items_max: 16,
    item_bytes_max: 512,
    disclosure: Disclosure::Open,
};

const DESCRIPTION: Text = Text {
    about: SettingInfo::new(
        "servers.description",
        "What clients and their models are told of the server's one tool.",
    )
    .unset("a sentence that says which agent it is"),
    default: None,
    shape: "a text of at most 4096 bytes",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

const DIRECTORY: Text = Text {
    about: SettingInfo::new(
        "servers.directory",
        "The directory in which the agent works where a call names none. A call may name directories within it.",
    )
    .unset("the home directory of the gateway's user, by HOME"),
    default: None,
    shape: "an absolute path of a directory",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

const WORK_FOLDERS: List = List {
    about: SettingInfo::new(
        "servers.work_folders",
        "Further directories that a call may name as its `workFolder`, with everything in them.",
    )
    .unset("none: only `servers.directory` and what is in it"),
    shape: "absolute paths of directories",
    items_max: 64,
    item_bytes_max: 4096,
    disclosure: Disclosure::Open,
};

const TIMEOUT_SECONDS: Integer = Integer {
    about: SettingInfo::new(
        "servers.timeout_seconds",
        "How long one run may take; then it and every process that it started are killed.",
    ),
    unit: "seconds",
    default: 1800,
    least: 1,
    most: 86_400,
};

const OUTPUT_BYTES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "servers.output_bytes_max",
        "Most bytes that one run may print; a run that prints more is ended, and the call fails.",
    ),
    unit: "bytes",
    default: 16_777_216,
    least: 1024,
    most: 67_108_864,
};

const SESSION_TTL_SECONDS: Integer = Integer {
    about: SettingInfo::new(
        "servers.session_ttl_seconds",
        "How long after its last call a conversation can be taken up.",
    ),
    unit: "seconds",
    default: 86_400,
    least: 1,
    most: 2_592_000,
};

const SESSIONS_MAX: Integer = Integer {
    about: SettingInfo::new(
        "servers.sessions_max",
        "Most conversations of one principal that can be taken up, at all agent servers together: the largest \
         number that one of them has counts. One more makes the server forget the one that was not used for longest.",
    ),
    unit: "conversations",
    default: 1000,
    least: 1,
    most: 1_000_000,
};

/// The fields that only a server of kind `agent` has.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Choice(&PROFILE),
    Setting::List(&command::RESUME),
    Setting::Choice(&output::OUTPUT),
    Setting::Text(&output::SESSION_POINTER),
    Setting::Text(&output::RESULT_POINTER),
    Setting::List(&output::RESULT_WHERE),
    Setting::Choice(&output::RESULTS),
    Setting::Text(&output::ERROR_POINTER),
    Setting::Text(&output::PROGRESS_POINTER),
    Setting::List(&output::PROGRESS_WHERE),
    Setting::List(&UNKNOWN_SESSION),
    Setting::Text(&DESCRIPTION),
    Setting::Text(&DIRECTORY),
    Setting::List(&WORK_FOLDERS),
    Setting::Integer(&TIMEOUT_SECONDS),
    Setting::Integer(&OUTPUT_BYTES_MAX),
    Setting::Integer(&SESSION_TTL_SECONDS),
    Setting::Integer(&SESSIONS_MAX),
];

/// Whether an agent is known by this name.
pub(super) fn is_profile(name: &str) -> bool {
    PROFILE.others.iter().any(|known| known.name == name)
}

/// One server of kind `agent`.
#[derive(Debug, Clone)]
pub struct AgentServerSettings {
    /// What is run, and how it resumes.
    pub template: CommandTemplate,
    /// What its output says.
    pub rules: Arc<OutputRules>,
    /// Texts of a run that does not know the session it is to resume.
    pub unknown_session: Vec<String>,
    /// Whether the agent resumes a conversation only in the folder in which it last worked on it.
    pub is_bound_to_folder: bool,
    /// What clients are told of the tool.
    pub description: String,
    /// Where it works when a call does not say. May not exist.
    pub directory: PathBuf,
    /// Where else it may. May not exist.
    pub work_folders: Vec<PathBuf>,
    /// Its whole environment: nothing else of the gateway's is passed on.
    pub variables: ChildVariables,
    /// Longest time of one run.
    pub timeout: Duration,
    /// Most bytes that one run may print.
    pub output_bytes_max: usize,
    /// Most runs at the same time in this worker.
    pub children_max: NonZeroUsize,
    /// How long after its last call a conversation can be taken up.
    pub session_ttl: Duration,
    /// Most conversations of one principal that can be taken up.
    pub sessions_max: u64,
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> AgentServerSettings {
    let profile = reader.choice(&PROFILE);
    let unknown_session = if reader.is_written(&UNKNOWN_SESSION.about) {
        let written = reader.list(&UNKNOWN_SESSION, |text| Ok(text.to_owned()));
        written.unwrap_or_default()
    } else {
        let texts = profile.map(|profile| profile.unknown_session);
        texts
            .unwrap_or_default()
            .iter()
            .copied()
            .map(str::to_owned)
            .collect()
    };
    let described = reader.text(&DESCRIPTION, |text| Ok(text.to_owned()));
    AgentServerSettings {
        template: command::parse(reader, profile),
        rules: Arc::new(output::parse(reader, profile)),
        unknown_session,
        is_bound_to_folder: profile.is_some_and(|profile| profile.is_bound_to_folder),
        description: described.unwrap_or_else(|| {
            let standard = profile.map_or(DESCRIPTION_STANDARD, |profile| profile.description);
            standard.to_owned()
        }),
        directory: parse_directory(reader, environment),
        work_folders: reader
            .list(&WORK_FOLDERS, parse_work_folder)
            .unwrap_or_default(),
        variables: variables::parse(reader, environment),
        timeout: Duration::from_secs(reader.integer(&TIMEOUT_SECONDS)),
        output_bytes_max: usize::try_from(reader.integer(&OUTPUT_BYTES_MAX)).unwrap_or(usize::MAX),
        children_max: stdio::parse_children_max(reader),
        session_ttl: Duration::from_secs(reader.integer(&SESSION_TTL_SECONDS)),
        sessions_max: reader.integer(&SESSIONS_MAX),
    }
}

/// The stand-in for a directory that was refused is an empty path.
fn parse_directory(reader: &mut Reader<'_>, environment: &Environment) -> PathBuf {
    let written = reader.text(&DIRECTORY, stdio::parse_directory);
    let Some(directory) = written.or_else(|| home(environment)) else {
        if !reader.was_refused(&DIRECTORY.about) {
            reader.refuse(
                &DIRECTORY.about,
                String::new(),
                "it is missing, and HOME is not an absolute path".to_owned(),
                DIRECTORY.shape.to_owned(),
            );
        }
        return PathBuf::new();
    };
    directory
}

fn parse_work_folder(text: &str) -> Result<PathBuf, Reason> {
    if absolute(text)?.parent().is_none() {
        return Err("it is the root directory, and would allow every other".to_owned());
    }
    stdio::parse_directory(text)
}
