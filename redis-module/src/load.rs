//! The load of the module: what is registered with the server, in which order.

use std::ffi::CStr;

use crate::commands;
use crate::ffi::loading::{LoadError, Loading};
use crate::ffi::{Arguments, Level, Text};
use crate::module::Module;
use crate::settings;

/// Why the module was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Server(#[from] LoadError),
    #[error(transparent)]
    Arguments(#[from] settings::SettingError),
    #[error(
        "this server has no command {0:?}, by which replicas and the append-only file follow the module: \
         remove its rename-command"
    )]
    MissingEffect(&'static CStr),
}

/// Registers the module with a server: settings, commands, INFO.
pub(crate) fn load(loading: &Loading<'_>, arguments: Arguments<'_>) -> Result<(), StartError> {
    if let Some(command) = loading.context().missing_effect() {
        return Err(StartError::MissingEffect(command));
    }
    settings::take_arguments((0..).map_while(|n| arguments.get(n)).map(Text::as_bytes))?;
    for setting in settings::SETTINGS {
        loading.register_setting(setting)?;
    }
    loading.register_text_setting(&settings::prefixes::SETTING)?;
    loading.register_switch(&settings::QUIESCE)?;
    loading.read_settings()?;
    settings::QUIESCE.set(false);
    loading.set_options();
    Module::install();
    for category in [c"session", c"worker"] {
        loading.add_acl_category(category);
    }
    for command in commands::TABLE {
        loading.register_command(command)?;
    }
    loading.register_report()?;
    loading.subscribe()?;
    Module::begin(loading.context());
    warn_of_wide_hashes(loading);
    Ok(())
}

/// The longest value of all but unusual records: that of a binding. If the server converts hashes with such values into
/// tables, a session takes 1.4 times the memory.
const LISTPACK_VALUE_BYTES_WANTED: u64 = 512;

fn warn_of_wide_hashes(loading: &Loading<'_>) {
    let context = loading.context();
    let value = context.server_setting(c"hash-max-listpack-value");
    let bytes = value
        .and_then(|value| String::from_utf8(value).ok())
        .and_then(|value| value.parse::<u64>().ok());
    if let Some(bytes) = bytes.filter(|bytes| *bytes < LISTPACK_VALUE_BYTES_WANTED) {
        let line = format!(
            "hash-max-listpack-value is {bytes}: sessions with longer values take 1.4 times the memory; \
             {LISTPACK_VALUE_BYTES_WANTED} is required"
        );
        context.log(Level::Warning, &line);
    }
}
