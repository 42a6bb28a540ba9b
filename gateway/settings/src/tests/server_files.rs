//! Servers beside the settings file: in a directory, and as JSON in the environment.

use std::fs;

use super::*;

/// The ids of the servers of a settings file beside these files, or every problem.
fn ids_with(
    main: &str,
    files: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Result<Vec<String>, String> {
    let home = tempfile::TempDir::new().unwrap();
    let path = home.path().join("mooring.toml");
    fs::write(&path, main).unwrap();
    fs::create_dir(home.path().join("servers.d")).unwrap();
    for (name, text) in files {
        fs::write(home.path().join("servers.d").join(name), text).unwrap();
    }
    let variables = [("HOME", "/home/ada")].iter().chain(variables);
    let environment = variables.copied().collect();
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    match Settings::load(&environment, &flags) {
        Ok(loaded) => {
            let ids = loaded.settings.servers.into_iter();
            Ok(ids.map(|server| server.id.as_str().to_owned()).collect())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn server(id: &str) -> String {
    format!("id = {id:?}\ninstances = [\"http://127.0.0.1:9001/mcp\"]\n")
}

#[test]
fn files_of_the_directory_add_servers_in_the_order_of_their_names() {
    let several = format!("[[servers]]\n{}[[servers]]\n{}", server("c"), server("d"));
    let (one, hidden) = (server("b"), server("hidden"));
    let files = [
        ("20-several.toml", &*several),
        ("10-one.toml", &one),
        (".hidden.toml", &hidden),
        ("readme.txt", "not read"),
    ];
    let json = r#"[{"id": "j", "kind": "http", "instances": ["http://127.0.0.1:9/mcp"], "headers": {"x-a": "1"},
        "tags": ["t"], "oauth": null}]"#;
    let main = format!("[[servers]]\n{}", server("a"));
    let ids = ids_with(&main, &files, &[("MOORING_SERVERS_JSON", json)]);
    assert_eq!(ids.unwrap(), ["a", "j", "b", "c", "d"]);
}

/// A gateway without settings serves its sandbox, also when an operator adds a server.
#[test]
fn added_servers_do_not_take_the_place_of_the_standard_one() {
    let added = r#"[{"id": "late", "instances": ["http://127.0.0.1:9/mcp"]}]"#;
    let environment = [("HOME", "/home/ada")].into_iter().collect();
    let flags = Flags::default();
    let loaded = Settings::load_with(&environment, &flags, Some(("added", added))).unwrap();
    let ids = loaded.settings.servers.iter();
    let ids: Vec<&str> = ids.map(|server| server.id.as_str()).collect();
    assert_eq!(ids, ["sandbox", "late"]);
    let bad = r#"[{"id": "late"}]"#;
    let error = Settings::load_with(&environment, &flags, Some(("added", bad))).unwrap_err();
    assert!(error.to_string().contains("added, server 1"), "{error}");
}

#[test]
fn an_id_in_two_places_is_refused_with_both() {
    let main = format!("[[servers]]\n{}", server("a"));
    let again = server("a");
    let error = ids_with(&main, &[("more.toml", &again)], &[]).unwrap_err();
    for part in [
        "more.toml, line 1",
        "mooring.toml, line 2",
        "another server has this id",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let json = r#"[{"id": "x", "instances": ["http://127.0.0.1:9/mcp"]},
        {"id": "a", "instances": ["http://127.0.0.1:9/mcp"]}]"#;
    let error = ids_with(&main, &[], &[("MOORING_SERVERS_JSON", json)]).unwrap_err();
    assert!(error.contains("MOORING_SERVERS_JSON, server 2"), "{error}");
}

#[test]
fn what_is_no_server_is_refused_with_its_place() {
    let bad = "[listen]\naddress = \"127.0.0.1:1\"\n[[servers]]\nid = \"a\"\n";
    let error = ids_with("", &[("bad.toml", bad)], &[]).unwrap_err();
    for part in ["listen", "bad.toml, line 1", "in a file of servers"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    for json in ["7", "{", "[7]", r#"[{"id": "a", "instnces": []}]"#] {
        let error = ids_with("", &[], &[("MOORING_SERVERS_JSON", json)]).unwrap_err();
        assert!(error.contains("MOORING_SERVERS_JSON"), "{json}: {error}");
    }
    let missing = [("MOORING_DEFAULT_SERVERS_DIR", "/nowhere/servers")];
    let error = ids_with("", &[], &missing).unwrap_err();
    assert!(error.contains("/nowhere/servers"), "{error}");
}
