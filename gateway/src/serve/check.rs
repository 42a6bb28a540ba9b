//! Checks by `serve`, `config check` and `doctor` before anything is opened: the files and programs that the settings
//! name.
//!
//! Invariant: the checks create, start and send nothing.

use std::path::Path;

use rustix::fs::{Access, access};
use serde::Serialize;

use super::listener_tls::read_config;
use super::{ServeError, application, servers};
use mooring_code::tokens::TokenKey;
use mooring_identity::ApiKeyFile;
use mooring_peers::fleet::KeyRing;
use mooring_secrets::file as secret_file;
use mooring_settings::{AuthSettings, FleetKeysFile, ServerKind, Settings, StoreLocation};
use mooring_store::check_certificates;
use mooring_upstream::stdio::StartError;
use mooring_upstream::with_causes;

/// Largest file of a client secret.
const SECRET_BYTES_MAX: u64 = 4096;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// No problem.
    Ok,
    /// Something will not work; the rest will.
    Warning,
    /// The gateway cannot serve.
    Problem,
}

impl CheckOutcome {
    /// As printed for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// A check and its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct SettingsCheck {
    /// The setting, or `server ID`.
    pub subject: String,
    /// The outcome.
    pub outcome: CheckOutcome,
    /// Details, without secrets.
    pub detail: String,
    /// How to fix it; none if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl SettingsCheck {
    /// A passed check.
    pub(super) fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            outcome: CheckOutcome::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    /// A failed check.
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

/// Checks every file and program that the settings name.
#[must_use]
pub fn check_files(settings: &Settings) -> Vec<SettingsCheck> {
    let mut checks = Vec::new();
    checks.extend(fleet_keys(settings));
    checks.extend(tokens_key(settings));
    checks.extend(vault_keys(settings));
    checks.extend(api_keys(settings));
    checks.extend(client_secrets(settings));
    checks.extend(listener_tls(settings));
    checks.extend(store_tls(settings));
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

/// Fails with all problems, each of which keeps `serve` from starting.
///
/// # Errors
/// [`ServeError::Unavailable`].
pub fn refuse_problems(checks: &[SettingsCheck]) -> Result<(), ServeError> {
    let is_problem = |check: &&SettingsCheck| check.outcome == CheckOutcome::Problem;
    let refusal = |check: &SettingsCheck| ServeError::Unavailable {
        service: check.subject.clone(),
        reason: match &check.advice {
            Some(advice) => format!("{}; {advice}", check.detail),
            None => check.detail.clone(),
        },
    };
    let mut refusals = checks.iter().filter(is_problem).map(refusal);
    let Some(mut first) = refusals.next() else {
        return Ok(());
    };
    if let ServeError::Unavailable { reason, .. } = &mut first {
        for other in refusals {
            reason.push_str(&format!("\n{other}"));
        }
    }
    Err(first)
}

/// A key file beside the store is generated if it is missing.
fn fleet_keys(settings: &Settings) -> Option<SettingsCheck> {
    const SUBJECT: &str = "worker.fleet_keys_file";
    let path = match &settings.worker.peers.fleet_keys_file {
        Some(FleetKeysFile::BesideStore(path)) if !path.exists() => return None,
        Some(FleetKeysFile::Given(path) | FleetKeysFile::BesideStore(path)) => path,
        None => return None,
    };
    Some(key_file(SUBJECT, path, KeyRing::read(path).map(drop)))
}

fn client_secrets(settings: &Settings) -> impl Iterator<Item = SettingsCheck> {
    settings.servers.iter().filter_map(|server| {
        let path = &server.oauth()?.client_secret_file;
        let subject = format!("servers.oauth.client_secret_file of {}", server.id);
        let read = secret_file::read(path, SECRET_BYTES_MAX);
        Some(match read {
            Ok(_) => readable(subject, path, format!("{} can be read", path.display())),
            Err(error) => {
                let advice = "without it the server gets requests without a token";
                SettingsCheck::wrong(CheckOutcome::Warning, subject, with_causes(&error), advice)
            }
        })
    })
}

/// The file may be made later; until then, callers get 503.
fn api_keys(settings: &Settings) -> Option<SettingsCheck> {
    const SUBJECT: &str = "auth.api_keys_file";
    let AuthSettings::ApiKey { keys_file, .. } = &settings.auth else {
        return None;
    };
    Some(match ApiKeyFile::read(keys_file) {
        Ok(file) => readable(
            SUBJECT,
            keys_file,
            format!("it has {} keys", file.keys().len()),
        ),
        Err(error) => {
            let advice = "`mooring keys create` makes the file";
            SettingsCheck::wrong(CheckOutcome::Warning, SUBJECT, with_causes(&error), advice)
        }
    })
}

fn store_tls(settings: &Settings) -> Option<SettingsCheck> {
    let StoreLocation::Redis(url) = &settings.store.location else {
        return None;
    };
    Some(match check_certificates(url.tls_files()?) {
        Ok(()) => SettingsCheck::ok("store.tls", "the certificates for Redis can be used"),
        Err(problem) => SettingsCheck::wrong(CheckOutcome::Problem, "store.tls", problem, ""),
    })
}

fn listener_tls(settings: &Settings) -> Option<SettingsCheck> {
    let tls = settings.listen.tls.as_ref()?;
    Some(match read_config(tls, true) {
        Ok(_) => SettingsCheck::ok("listen.tls", "the certificates and keys can be used"),
        Err(error) => {
            let detail = with_causes(&error);
            SettingsCheck::wrong(CheckOutcome::Problem, "listen.tls", detail, "")
        }
    })
}

fn tokens_key(settings: &Settings) -> Option<SettingsCheck> {
    let path = settings.code.as_ref()?.tokens_key_file.as_ref()?;
    let read = TokenKey::read(path).map(drop);
    Some(key_file("code.tokens_key_file", path, read))
}

fn vault_keys(settings: &Settings) -> Option<SettingsCheck> {
    let path = settings.vault.keys_file.as_ref()?;
    Some(key_file(
        "vault.keys_file",
        path,
        KeyRing::read(path).map(drop),
    ))
}

/// A file of secrets that can be read. Root accepts files of every owner, so the report names the owner.
fn readable(subject: impl Into<String>, path: &Path, detail: String) -> SettingsCheck {
    match secret_file::owner_below_root(path) {
        None => SettingsCheck::ok(subject, detail),
        Some(owner) => SettingsCheck::wrong(
            CheckOutcome::Warning,
            subject,
            format!("{detail}, and belongs to the user {owner}, who can change it"),
            "a gateway that runs as that user may use it; for one that runs as root, make it root's",
        ),
    }
}

fn key_file<E: std::error::Error>(
    subject: &'static str,
    path: &Path,
    read: Result<(), E>,
) -> SettingsCheck {
    match read {
        Ok(()) => readable(subject, path, format!("{} can be read", path.display())),
        Err(error) => {
            let detail = with_causes(&error);
            SettingsCheck::wrong(CheckOutcome::Problem, subject, detail, "")
        }
    }
}

/// If other servers are configured too, code that cannot run does not affect them.
fn base_dir(settings: &Settings) -> Option<SettingsCheck> {
    let code = settings.code.as_ref()?;
    let path = &code.base_dir;
    // A missing directory is created, so the nearest existing parent has to be writable.
    let existing = path.ancestors().find(|path| path.exists())?;
    let subject = "code.base_dir";
    let reason = match access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        _ if !existing.is_dir() => "not a directory".to_owned(),
        // Not even root can create directories in these file systems.
        _ if existing.starts_with("/proc") || existing.starts_with("/sys") => {
            "not a disk".to_owned()
        }
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
            existing.display()
        ),
        "make it, owned by the gateway's user, or name another directory",
    ))
}

/// The programs of servers of the kinds `stdio` and `agent` that cannot be started.
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
