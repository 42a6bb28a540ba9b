//! The whole parser from texts to types: defaults, precedence, servers and the seeds' names. What is refused,
//! and in which words, stands beside it, and so do the settings of code execution.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod access;
mod agent;
mod changes;
mod code;
mod code_governed;
mod code_refused;
mod foreign;
mod group;
mod hooks;
mod oauth;
mod peers;
mod refused;
mod server_files;
mod sse;
mod stdio;
mod ui;
mod user_file;
mod vault;

use std::time::Duration;

use super::*;

const ONE_SERVER: &str =
    "[[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9001/mcp\"]\n";

fn load(
    file: &str,
    variables: &[(&str, &str)],
    flags: &Flags,
) -> Result<LoadedSettings, SettingsError> {
    let mut errors = SettingsError::default();
    let file = FileTables::parse("m.toml".to_owned(), file, &mut errors);
    let home = [("HOME", "/home/ada")];
    let environment = home.iter().chain(variables).copied().collect();
    parse(&file, &[], &environment, flags, errors)
}

#[track_caller]
fn settings(file: &str, variables: &[(&str, &str)]) -> Settings {
    match load(file, variables, &Flags::default()) {
        Ok(loaded) => loaded.settings,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn http<'a>(settings: &'a Settings, id: &str) -> &'a HttpServerSettings {
    match &settings.server(id).unwrap().kind {
        ServerKind::Http(http) => http,
        other => panic!("{id} is of kind {}", other.name()),
    }
}

fn server_flags(servers: &[&str]) -> Flags {
    Flags {
        servers: servers.iter().map(ToString::to_string).collect(),
        ..Flags::default()
    }
}

#[test]
fn nothing_configured_is_the_documented_default() {
    let loaded = load("", &[], &Flags::default()).unwrap();
    let settings = loaded.settings;
    assert_eq!(settings.listen.address.to_string(), "127.0.0.1:4444");
    assert_eq!(settings.listen.body_bytes_max, 4 * 1024 * 1024);
    assert_eq!(
        settings.store.location,
        StoreLocation::Embedded {
            path: "/home/ada/.local/state/mooring/sessions.db".into()
        }
    );
    assert_eq!(settings.store.on_unavailable, OnUnavailable::Fallback);
    assert_eq!(settings.store.key_prefix, "mcpgw:");
    assert_eq!(settings.affinity.default_affinity, Affinity::ByServer);
    assert_eq!(settings.affinity.session_ttl, Duration::from_secs(3600));
    assert_eq!(settings.affinity.sessions_max, None, "no cap");
    assert_eq!(settings.affinity.reap_interval, Duration::from_secs(10));
    assert_eq!(settings.affinity.turn_wait_max, Duration::from_secs(60));
    assert_eq!(settings.worker.name, WorkerName::HostAndPort);
    assert_eq!(settings.worker.beat_ttl, Duration::from_millis(1500));
    assert_eq!(settings.worker.stop_patience, Duration::from_secs(10));
    let upstream = &settings.upstream;
    assert_eq!(upstream.lost_after, Duration::from_millis(600));
    assert_eq!(upstream.client_answer_timeout, Duration::from_secs(300));
    assert_eq!(upstream.event_log_events_max, 100);
    assert_eq!(upstream.event_log_bytes_max, 1024 * 1024);
    assert!(!settings.needs_peers());
    assert!(matches!(settings.auth, AuthSettings::None));
    assert_eq!(settings.log.level, LogLevel::Info);
    let ids: Vec<&str> = settings
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["sandbox"]);
    assert_eq!(settings.default_server.unwrap().as_str(), "sandbox");
    assert!(loaded.remarks.is_empty(), "{:?}", loaded.remarks);
}

#[test]
fn flag_wins_over_variable_over_seed_name_over_file() {
    #[track_caller]
    fn check(flag: Option<&str>, variables: &[(&str, &str)], expected: &str) {
        let file = "[store]\nurl = \"redis://file\"";
        let flags = Flags {
            store: flag.map(str::to_owned),
            ..Flags::default()
        };
        let loaded = load(file, variables, &flags).unwrap();
        let StoreLocation::Redis(url) = loaded.settings.store.location else {
            panic!("embedded");
        };
        assert_eq!(url.secret(), expected);
    }
    let own = ("MOORING_STORE_URL", "redis://own");
    let contextforge = ("REDIS_URL", "redis://contextforge");
    check(Some("redis://flag"), &[own, contextforge], "redis://flag");
    check(None, &[own, contextforge], "redis://own");
    check(None, &[contextforge], "redis://contextforge");
    check(None, &[], "redis://file");
    check(None, &[("MOORING_STORE_URL", "")], "redis://file");
}

#[test]
fn a_contextforge_environment_file_works() {
    let variables = [
        ("MCPGATEWAY_SESSION_AFFINITY_ENABLED", "True"),
        ("MCPGATEWAY_SESSION_AFFINITY_TTL", "300"),
        ("REDIS_URL", "redis://localhost:6379/0"),
        ("CODE_EXECUTION_ENABLED", "true"),
        ("CODE_EXECUTION_RUST_ACCELERATION_ENABLED", "true"),
    ];
    let loaded = load(ONE_SERVER, &variables, &Flags::default()).unwrap();
    assert_eq!(loaded.settings.affinity.default_affinity, Affinity::On);
    assert_eq!(
        loaded.settings.affinity.session_ttl,
        Duration::from_secs(300)
    );
    let remarks = loaded.remarks.join("\n");
    assert!(
        remarks.contains("RUST_ACCELERATION_ENABLED has no effect"),
        "{remarks}"
    );
}

#[test]
fn a_server_decides_about_affinity_unless_something_is_written() {
    let check = |file: &str, variables: &[(&str, &str)], affinity| {
        let settings = settings(&format!("{ONE_SERVER}{file}"), variables);
        assert_eq!(
            http(&settings, "tools").affinity,
            affinity,
            "{file} {variables:?}"
        );
    };
    let contextforge = "MCPGATEWAY_SESSION_AFFINITY_ENABLED";
    check("", &[], Affinity::ByServer);
    check("affinity = \"inherit\"\n", &[], Affinity::ByServer);
    check("", &[(contextforge, "")], Affinity::ByServer);
    check("", &[(contextforge, "false")], Affinity::Off);
    check("", &[("MOORING_AFFINITY_ENABLED", "true")], Affinity::On);
    check(
        "affinity = \"on\"\n",
        &[(contextforge, "false")],
        Affinity::On,
    );
    check("affinity = \"off\"\n", &[], Affinity::Off);
}

#[test]
fn requests_without_a_session_share_one_only_where_sessions_are_kept() {
    let fields = |fields: &str| format!("{ONE_SERVER}{fields}");
    let settings = settings(&fields("continuity = \"principal\"\n"), &[]);
    assert_eq!(http(&settings, "tools").continuity, Continuity::Principal);
    for (other, reason) in [
        ("affinity = \"off\"", "no sessions of this server are kept"),
        ("era = \"legacy\"", "servers.era"),
        ("era = \"modern\"", "servers.era"),
    ] {
        let file = fields(&format!("{other}\ncontinuity = \"header\"\n"));
        refused::check_refused(&file, &[], &["].continuity", "\"header\"", reason]);
    }
}

#[test]
fn every_default_of_the_example_is_accepted_as_it_stands() {
    let text = generate::environment_example();
    let variables: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#MOORING_"))
        .filter_map(|line| line.split_once('='))
        .filter(|(name, value)| {
            !["CONFIG", "SERVERS", "SERVERS_JSON"].contains(name) && !value.is_empty()
        })
        .collect();
    let names: Vec<String> = variables
        .iter()
        .map(|(name, _)| format!("MOORING_{name}"))
        .collect();
    let given: Vec<(&str, &str)> = names
        .iter()
        .zip(&variables)
        .map(|(name, (_, value))| (name.as_str(), *value))
        .collect();
    assert!(given.len() > 15);
    let (all, none) = (settings("", &given), settings("", &[]));
    assert_eq!(format!("{all:?}"), format!("{none:?}"));
}

#[test]
fn a_whole_server_is_read() {
    let file = r#"
[affinity]
enabled = true
[[servers]]
id = "tools"
kind = "http"
instances = ["http://127.0.0.1:9001/mcp", "http://127.0.0.1:9002/mcp"]
affinity = "off"
concurrency = "parallel"
on_upstream_loss = "fail"
headers = { Authorization = "env:TOOLS_TOKEN", X-Tenant = "blue" }
[[servers]]
id = "other"
instances = ["http://127.0.0.1:9003/mcp"]
"#;
    let settings = settings(file, &[("TOOLS_TOKEN", "Bearer s3cret")]);
    let tools = http(&settings, "tools");
    assert_eq!(tools.instances.len(), 2);
    assert_eq!(tools.affinity, Affinity::Off);
    assert_eq!(tools.concurrency, Concurrency::Parallel);
    assert_eq!(tools.on_upstream_loss, OnUpstreamLoss::Fail);
    assert_eq!(
        tools.headers.map().get("authorization").unwrap(),
        "Bearer s3cret"
    );
    assert_eq!(tools.headers.map().get("x-tenant").unwrap(), "blue");
    assert!(!format!("{settings:?}").contains("s3cret"));
    assert_eq!(http(&settings, "other").affinity, Affinity::On);
    assert_eq!(settings.default_server, None, "two servers and none named");
}

#[test]
fn servers_of_flags() {
    let file = format!("{ONE_SERVER}affinity = \"on\"\n");
    let given = server_flags(&["tools=http://b/,http://c/?x=1", "more=http://d/"]);
    let loaded = load(&file, &[], &given).unwrap();
    let tools = http(&loaded.settings, "tools");
    let names: Vec<&str> = tools.instances.iter().map(Instance::name).collect();
    assert_eq!(names, ["http://b/", "http://c/?x=1"], "the flag wins");
    assert_eq!(tools.affinity, Affinity::On, "the file says the rest");
    assert!(loaded.settings.server("more").is_some());

    let only = load("", &[], &server_flags(&["tools=http://b/"]))
        .unwrap()
        .settings;
    assert_eq!(only.default_server.unwrap().as_str(), "tools");
}
