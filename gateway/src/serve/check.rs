//! What is looked at before anything is opened, by `serve`, `config check` and `doctor` alike: the files and programs that
//! the settings name.
//!
//! Invariant: nothing is made, started or sent.

use std::path::Path;

use rustix::fs::{Access, access};
use serde::Serialize;

use super::{ServeError, application, servers};
use mooring_code::tokens::TokenKey;
use mooring_peers::fleet::KeyRing;
use mooring_settings::{FleetKeysFile, ServerKind, Settings};
use mooring_upstream::stdio::StartError;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// It is as it should be.
    Ok,
    /// Something will not work, and the rest will.
    Warning,
    /// The gateway cannot serve.
    Problem,
}

impl CheckOutcome {
    /// The word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct SettingsCheck {
    /// A setting, or `server ID`.
    pub subject: String,
    /// How it went.
    pub outcome: CheckOutcome,
    /// What was found, without secrets.
    pub detail: String,
    /// What to do; none where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl SettingsCheck {
    /// All is well.
    pub(super) fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            outcome: CheckOutcome::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    /// Something is wrong.
    pub(super) fn wrong(
        outcome: CheckOutcome,
        subject: impl Into<String>,
        detail: impl Into<String>,
        advice: &str,
    ) -> Self {
        Self {
            subject: subject.into(),
            outcome,
            detail: detail.into(),
            advice: (!advice.is_empty()).then(|| advice.to_owned()),
        }
    }
}

/// Looks at every file and program that the settings name.
#[must_use]
pub fn check_files(settings: &Settings) -> Vec<SettingsCheck> {
    let mut checks = Vec::new();
    checks.extend(fleet_keys(settings));
    checks.extend(tokens_key(settings));
    checks.extend(base_dir(settings));
    if let Err(error) = application::client(settings) {
        checks.push(SettingsCheck::wrong(
            CheckOutcome::Problem,
            "root certificates",
            error.to_string(),
            "install ca-certificates, or name a file of certificates in SSL_CERT_FILE",
        ));
    }
    checks.extend(programs(settings));
    checks
}

/// The first problem, as `serve` refuses to start with it.
///
/// # Errors
/// [`ServeError::Unavailable`].
pub fn refuse_problems(checks: &[SettingsCheck]) -> Result<(), ServeError> {
    let is_problem = |check: &&SettingsCheck| check.outcome == CheckOutcome::Problem;
    match checks.iter().find(is_problem) {
        None => Ok(()),
        Some(check) => Err(ServeError::Unavailable {
            service: check.subject.clone(),
            reason: match &check.advice {
                Some(advice) => format!("{}; {advice}", check.detail),
                None => check.detail.clone(),
            },
        }),
    }
}

/// A file beside the store is made where it is missing.
fn fleet_keys(settings: &Settings) -> Option<SettingsCheck> {
    const SUBJECT: &str = "worker.fleet_keys_file";
    let path = match &settings.worker.peers.fleet_keys_file {
        Some(FleetKeysFile::BesideStore(path)) if !path.exists() => return None,
        Some(FleetKeysFile::Given(path) | FleetKeysFile::BesideStore(path)) => path,
        None => return None,
    };
    Some(key_file(SUBJECT, path, KeyRing::read(path).map(drop)))
}

fn tokens_key(settings: &Settings) -> Option<SettingsCheck> {
    let path = settings.code.as_ref()?.tokens_key_file.as_ref()?;
    let read = TokenKey::read(path).map(drop);
    Some(key_file("code.tokens_key_file", path, read))
}

fn key_file<E: std::error::Error>(
    subject: &'static str,
    path: &Path,
    read: Result<(), E>,
) -> SettingsCheck {
    match read {
        Ok(()) => SettingsCheck::ok(subject, format!("{} can be read", path.display())),
        Err(error) => {
            let detail = with_sources(&error);
            SettingsCheck::wrong(CheckOutcome::Problem, subject, detail, "")
        }
    }
}

/// An error with every cause.
fn with_sources(error: &dyn std::error::Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Where other servers are served, code that cannot be run harms none of them.
fn base_dir(settings: &Settings) -> Option<SettingsCheck> {
    let code = settings.code.as_ref()?;
    let path = &code.base_dir;
    // The directory is made where it is missing: what matters is the one in which that is done.
    let there = path.ancestors().find(|path| path.exists())?;
    let subject = "code.base_dir";
    let reason = match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        _ if !there.is_dir() => "not a directory".to_owned(),
        // Its file system takes no directory from anybody, root included.
        _ if there.starts_with("/proc") || there.starts_with("/sys") => "not a disk".to_owned(),
        Ok(()) => {
            return Some(SettingsCheck::ok(
                subject,
                format!("{} can be written", path.display()),
            ));
        }
        Err(error) => error.to_string(),
    };
    let is_code = |kind: &ServerKind| matches!(kind, ServerKind::Code(_));
    let outcome = match settings.servers.iter().all(|server| is_code(&server.kind)) {
        true => CheckOutcome::Problem,
        false => CheckOutcome::Warning,
    };
    Some(SettingsCheck::wrong(
        outcome,
        subject,
        format!(
            "{} cannot be written: {}: {reason}",
            path.display(),
            there.display()
        ),
        "make it, owned by the gateway's user, or name another directory",
    ))
}

/// The programs of servers of the kinds `stdio` and `agent` that cannot be started now.
fn programs(settings: &Settings) -> impl Iterator<Item = SettingsCheck> {
    servers::programs(settings).map(|(id, found)| {
        let subject = format!("server {id}");
        match found {
            Ok(()) => SettingsCheck::ok(subject, "its program is installed"),
            Err(failure) => SettingsCheck::wrong(
                CheckOutcome::Warning,
                subject,
                StartError::from(failure).for_caller(),
                "install it, name it by its absolute path, or add its directory to the gateway's PATH",
            ),
        }
    })
}
