//! The store, server and owner that a command works on.

use mooring_session::names::{Principal, ServerName};

use super::outcome::SessionsError;
use super::policy::{self, Policy};
use crate::cli::{OwnerArguments, StoreArguments};
use crate::logs;
use mooring_settings::{Environment, Flags, LogLevel, LogSettings, Settings};
use mooring_store::{self as store, Store, StoreOptions, StorePlace, WhenAway};

/// The settings that name the store.
#[derive(Debug)]
pub(super) struct StoreTarget {
    settings: Settings,
}

/// The owner and server of sessions, and that server's session policy.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) server: ServerName,
    pub(super) principal: Principal,
    pub(super) policy: Policy,
}

impl StoreTarget {
    /// Loads the settings, with the flags applied.
    pub(super) fn load(arguments: &StoreArguments) -> Result<Self, SessionsError> {
        let flags = Flags {
            config: arguments.config.clone(),
            store: arguments.store.clone(),
            ..Flags::default()
        };
        let settings = Settings::load(&Environment::of_process(), &flags)?.settings;
        // Logs of the store are shown to the user. Logging may have been started before.
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

    /// Opens the store. An unreachable store is an error whatever the settings say: sessions kept in memory instead
    /// would end with this process.
    pub(super) async fn open(&self) -> Result<Store, SessionsError> {
        let mut options = StoreOptions::of(&self.settings.store, &self.settings.affinity);
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

    /// Fails unless everything so far is in the store and not only in this process's memory.
    pub(super) fn check(&self, store: &Store) -> Result<(), SessionsError> {
        if store.is_degraded() {
            return Err(SessionsError::Unwritable {
                location: self.settings.store.location.to_string(),
            });
        }
        Ok(())
    }

    /// The owner and server that the arguments select.
    pub(super) fn owner(&self, arguments: &OwnerArguments) -> Result<Owner, SessionsError> {
        let server = self.server(arguments.server.as_deref())?;
        let policy = Policy::of(&self.settings, server)?;
        let principal = match arguments.principal.as_deref() {
            Some(principal) => principal_name(principal)?,
            None => Principal::local(),
        };
        Ok(Owner {
            server: server_name(server)?,
            principal,
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
