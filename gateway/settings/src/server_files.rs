//! Servers that are written beside the settings file: in a directory of files, and as JSON in the environment or kept in
//! the store.
//!
//! Invariant: they have the fields of `[[servers]]`, and the same limits. Files are read in the order of their names, and
//! an id that is in two places is refused with both.

use std::path::{Path, PathBuf};

use super::file::FileTables;
use super::paths::absolute;
use super::problem::SettingsError;
use super::reader::Reader;
use super::servers::{SERVERS_DIR, SERVERS_MAX};
use super::source::{Environment, Flags, Layers};
use super::unknown::SERVERS_JSON_VARIABLE;
use super::value::Value;

/// The directory beside the settings file.
const STANDARD_NAME: &str = "servers.d";
/// The ending of the files that are read.
const ENDING: &str = "toml";

/// The files of the directory that `default.servers_dir` names, else of `servers.d` beside the settings file, if that is
/// there.
pub(super) fn read_directory(
    file: &FileTables,
    environment: &Environment,
    flags: &Flags,
    errors: &mut SettingsError,
) -> Vec<FileTables> {
    let layers = Layers {
        flags,
        environment,
        file,
    };
    let mut reader = Reader::new(&layers, environment, errors);
    let named = reader.text(&SERVERS_DIR, absolute);
    let is_named = reader.is_written(&SERVERS_DIR);
    let directory = match (named, is_named) {
        (Some(directory), _) => directory,
        (None, true) => return Vec::new(),
        (None, false) => match file.directory().map(|home| home.join(STANDARD_NAME)) {
            Some(standard) if standard.is_dir() => standard,
            _ => return Vec::new(),
        },
    };
    match list_files(&directory) {
        Ok(paths) => (paths.iter())
            .map(|path| FileTables::read_servers(path, errors))
            .collect(),
        Err(reason) => {
            let value = format!("{:?}", directory.display().to_string());
            let allowed = format!("a directory of at most {SERVERS_MAX} files that can be read");
            errors.refuse(SERVERS_DIR.about.key, "", value, reason, allowed);
            Vec::new()
        }
    }
}

/// The files to read, by their names. Hidden ones are not read: editors and mounted volumes leave such.
fn list_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(directory).map_err(|error| format!("cannot open it: {error}"))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot read it: {error}"))?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && path.extension().is_some_and(|ending| ending == ENDING) {
            paths.push(path);
        }
    }
    if paths.len() > SERVERS_MAX {
        return Err(format!("it has {} files", paths.len()));
    }
    paths.sort();
    Ok(paths)
}

/// The servers in `MOORING_SERVERS_JSON`.
pub(super) fn of_environment(
    environment: &Environment,
    errors: &mut SettingsError,
) -> Option<FileTables> {
    match environment.get(SERVERS_JSON_VARIABLE)? {
        Value::Word(text) => Some(FileTables::parse_json(SERVERS_JSON_VARIABLE, &text, errors)),
        _ => {
            let allowed = "a JSON list of servers";
            errors.refuse(
                SERVERS_JSON_VARIABLE,
                "environment",
                "",
                "it is not UTF-8",
                allowed,
            );
            None
        }
    }
}
