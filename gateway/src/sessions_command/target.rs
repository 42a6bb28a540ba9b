//! Which store, which server and whose sessions a command is about.

use std::time::Duration;

use mooring_session::names::{Principal, ServerName};

use super::SessionsError;
use super::policy::{self, Policy};
use crate::cli::{OwnerArguments, StoreArguments};
use crate::identity::LOCAL_PRINCIPAL;
use crate::logs;
use mooring_settings::{Environment, Flags, LogLevel, LogSettings, Settings};
use mooring_store::{self as store, Store, StoreOptions, StorePlace, WhenAway};

/// How long the initialize params of clients would be kept. These commands keep none.
const NO_PARAMS: Duration = Duration::from_secs(1);

/// The settings of the gateways whose sessions are meant.
#[derive(Debug)]
pub(super) struct StoreTarget {
    settings: Settings,
}

/// Whose sessions at which server, and what that server says of them.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) server: ServerName,
    pub(super) principal: Principal,
    pub(super) policy: Policy,
}

impl StoreTarget {
    /// What the flags and the settings say.
    pub(super) fn load(arguments: &StoreArguments) -> Result<Self, SessionsError> {
        let flags = Flags {
            config: arguments.config.clone(),
            store: arguments.store.clone(),
            ..Flags::default()
        };
        let settings = Settings::load(&Environment::of_process(), &flags)?.settings;
        // What the store has to say of its state is for whoever gave the command. It may have been started before.
        let _ = logs::start(&LogSettings {
            level: LogLevel::Warn,
            ..settings.log.clone()
        });
        Ok(Self { settings })
    }

    #[cfg(test)]
    pub(super) fn of(settings: Settings) -> Self {
        Self { settings }
    }

    /// Opens the store. One that cannot be reached is an error, whatever the settings say: what memory took in its place
    /// would be gone with this process.
    pub(super) async fn open(&self) -> Result<Store, SessionsError> {
        let mut options = StoreOptions::of(&self.settings.store, NO_PARAMS);
        if let StorePlace::Redis { when_away, .. } = &mut options.place {
            *when_away = WhenAway::Fail;
        }
        let store = store::open_with(&options)
            .await
            .map_err(|source| SessionsError::Open {
                location: self.settings.store.location.to_string(),
                source,
            })?;
        self.check(&store)?;
        Ok(store)
    }

    /// Whether what was done so far is in the store, and not in the memory of this process.
    pub(super) fn check(&self, store: &Store) -> Result<(), SessionsError> {
        if store.is_degraded() {
            return Err(SessionsError::Unwritable {
                location: self.settings.store.location.to_string(),
            });
        }
        Ok(())
    }

    /// What every key of the store starts with.
    pub(super) fn key_prefix(&self) -> &str {
        &self.settings.store.key_prefix
    }

    /// Whose sessions at which server are meant.
    pub(super) fn owner(&self, arguments: &OwnerArguments) -> Result<Owner, SessionsError> {
        let server = self.server(arguments.server.as_deref())?;
        let policy = Policy::of(&self.settings, server)?;
        let principal = arguments.principal.as_deref().unwrap_or(LOCAL_PRINCIPAL);
        Ok(Owner {
            server: server_name(server)?,
            principal: principal_name(principal)?,
            policy,
        })
    }

    fn server<'a>(&'a self, named: Option<&'a str>) -> Result<&'a str, SessionsError> {
        if let Some(named) = named {
            return Ok(named);
        }
        match *policy::agents(&self.settings) {
            [id] => Ok(id),
            [] => Err(SessionsError::Flag(
                "the settings have no server of kind agent".to_owned(),
            )),
            ref several => Err(SessionsError::Flag(format!(
                "name one of the servers of kind agent with --server: {}",
                several.join(", ")
            ))),
        }
    }
}

/// The value of `--principal`.
pub(super) fn principal_name(text: &str) -> Result<Principal, SessionsError> {
    Principal::parse(text.as_bytes()).map_err(|source| SessionsError::Name {
        flag: "principal",
        source,
    })
}

/// The value of `--server`.
pub(super) fn server_name(text: &str) -> Result<ServerName, SessionsError> {
    ServerName::parse(text.as_bytes()).map_err(|source| SessionsError::Name {
        flag: "server",
        source,
    })
}
