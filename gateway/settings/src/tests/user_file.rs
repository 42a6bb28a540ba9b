//! The user's own settings file: where it is looked for, and what goes before it.

use std::fs;
use std::path::Path;

use super::*;

const SETTINGS: &str = "[[servers]]\nid = \"own\"\ninstances = [\"http://127.0.0.1:9001/mcp\"]\n";

/// Writes the user's own file into a directory for settings.
fn write(config_home: &Path, text: &str) {
    let directory = config_home.join("mooring");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("mooring.toml"), text).unwrap();
}

fn load_of(variables: &[(&str, &Path)], flags: &Flags) -> Result<Vec<String>, SettingsError> {
    let environment = variables.iter().copied().collect();
    let servers = Settings::load(&environment, flags)?.settings.servers;
    Ok(servers.iter().map(|server| server.id.to_string()).collect())
}

#[test]
fn it_is_read_where_no_other_file_is_named() {
    let (home, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let variables = [("HOME", home.path()), ("XDG_CONFIG_HOME", config.path())];
    let none = Flags::default();
    let without = load_of(&variables, &none).unwrap();
    assert_eq!(
        without,
        load_of(&[("HOME", home.path())], &none).unwrap(),
        "no file, no server"
    );
    write(config.path(), SETTINGS);
    assert_eq!(load_of(&variables, &none).unwrap(), ["own"]);
    assert_eq!(
        load_of(&[("HOME", home.path())], &none).unwrap(),
        without,
        "another home"
    );
    write(
        &home.path().join(".config"),
        &SETTINGS.replace("own", "at-home"),
    );
    assert_eq!(
        load_of(&[("HOME", home.path())], &none).unwrap(),
        ["at-home"]
    );
    assert_eq!(load_of(&variables, &none).unwrap(), ["own"]);
}

#[test]
fn a_relative_directory_counts_as_unset() {
    let home = tempfile::tempdir().unwrap();
    write(&home.path().join(".config"), SETTINGS);
    for relative in ["", ".", "config", "../config"] {
        let variables = [
            ("HOME", home.path()),
            ("XDG_CONFIG_HOME", Path::new(relative)),
        ];
        assert_eq!(
            load_of(&variables, &Flags::default()).unwrap(),
            ["own"],
            "{relative:?}"
        );
    }
}

#[test]
fn a_file_that_is_named_goes_before_it_whole() {
    let config = tempfile::tempdir().unwrap();
    write(config.path(), SETTINGS);
    let named = config.path().join("named.toml");
    fs::write(&named, SETTINGS.replace("own", "named")).unwrap();
    let by_flag = Flags {
        config: Some(named.clone()),
        ..Flags::default()
    };
    let home = ("HOME", config.path());
    let variables = [home, ("XDG_CONFIG_HOME", config.path())];
    assert_eq!(load_of(&variables, &by_flag).unwrap(), ["named"]);
    let variables = [
        home,
        ("XDG_CONFIG_HOME", config.path()),
        ("MOORING_CONFIG", &named),
    ];
    assert_eq!(load_of(&variables, &Flags::default()).unwrap(), ["named"]);
}

#[test]
fn what_is_wrong_with_it_is_said_with_its_place() {
    let config = tempfile::tempdir().unwrap();
    let variables = [("HOME", config.path()), ("XDG_CONFIG_HOME", config.path())];
    write(config.path(), "[nonsense]\n");
    let error = load_of(&variables, &Flags::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("mooring.toml, line 1"), "{error}");
    fs::remove_file(config.path().join("mooring/mooring.toml")).unwrap();
    fs::create_dir(config.path().join("mooring/mooring.toml")).unwrap();
    let error = load_of(&variables, &Flags::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is a directory"), "{error}");
}
