//! Servers of kind `stdio`: what is started, with which environment and limits, and that nothing of it that may be a
//! secret is shown.

use super::refused::check_refused;
use super::*;

#[track_caller]
fn server(fields: &str, variables: &[(&str, &str)]) -> StdioServerSettings {
    let file = format!("[[servers]]\nid = \"files\"\nkind = \"stdio\"\n{fields}");
    match settings(&file, variables).server("files").unwrap().kind {
        ServerKind::Stdio(ref stdio) => stdio.clone(),
        ref other => panic!("it is of kind {}", other.name()),
    }
}

/// The variables with a value of their own, as `NAME=value`.
fn given(server: &StdioServerSettings) -> Vec<String> {
    server
        .variables
        .given()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[test]
fn a_command_is_all_that_a_server_needs() {
    let files = server("command = [\"npx\", \"-y\", \"server\"]", &[]);
    assert_eq!(files.command.program(), "npx");
    assert_eq!(files.command.arguments(), ["-y", "server"]);
    assert_eq!(files.directory, None);
    assert_eq!(files.children_max.get(), 32);
    assert_eq!(files.idle_timeout, Some(Duration::from_secs(600)));
    assert_eq!(files.start_timeout, Duration::from_secs(30));
    assert_eq!(files.stop_grace, Duration::from_secs(2));
    assert_eq!(files.open_files_max.unwrap().get(), 1024);
    assert_eq!(files.concurrency, Concurrency::Serial);
    assert_eq!(files.on_upstream_loss, OnUpstreamLoss::Reinitialize);
    assert!(given(&files).is_empty());
    let inherited = files.variables.inherited();
    assert!(inherited.contains(&"PATH".to_owned()), "{inherited:?}");
}

#[test]
fn a_whole_server_is_read() {
    let fields = r#"
command = ["/usr/bin/server"]
cwd = "/data"
env = { API_KEY = "env:FILES_KEY", MODE = "quiet", HOME = "/data", EMPTY = "" }
inherit_env = ["HTTPS_PROXY"]
children_max = 4096
idle_timeout_seconds = 0
start_timeout_ms = 100
stop_grace_ms = 0
open_files_max = 0
affinity = "on"
concurrency = "parallel"
on_upstream_loss = "fail"
"#;
    let files = server(fields, &[("FILES_KEY", "s3cret")]);
    assert_eq!(files.command.program(), "/usr/bin/server");
    assert!(files.command.arguments().is_empty());
    assert_eq!(files.directory, Some("/data".into()));
    assert_eq!(
        given(&files),
        ["API_KEY=s3cret", "EMPTY=", "HOME=/data", "MODE=quiet",]
    );
    assert_eq!(
        files.variables.inherited().last().unwrap(),
        "HTTPS_PROXY",
        "after those that every program gets"
    );
    assert_eq!(files.children_max.get(), 4096);
    assert_eq!(files.idle_timeout, None, "as long as its session lives");
    assert_eq!(files.start_timeout, Duration::from_millis(100));
    assert_eq!(files.stop_grace, Duration::ZERO);
    assert_eq!(files.open_files_max, None);
    assert_eq!(files.concurrency, Concurrency::Parallel);
    assert_eq!(files.on_upstream_loss, OnUpstreamLoss::Fail);
}

#[test]
fn nothing_that_may_be_a_secret_is_shown() {
    let fields = "command = [\"server\", \"--key=s3cret\"]\nenv = { KEY = \"s3cret\" }";
    let shown = format!("{:?}", server(fields, &[]));
    assert!(shown.contains("server") && shown.contains("KEY"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");

    let file = "[[servers]]\nid = \"files\"\nkind = \"stdio\"\ncommand = [\"server\", \"--key=s3cret\\u0000\"]\n\
                env = { KEY = \"s3cret\\u0000\", \"a-b\" = \"s3cret\" }";
    let error = load(file, &[], &Flags::default()).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.problems().len(), 3, "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn bad_servers_are_refused() {
    #[track_caller]
    fn check(fields: &str, parts: &[&str]) {
        let command = if fields.contains("command") {
            ""
        } else {
            "command = [\"server\"]\n"
        };
        let file = format!("[[servers]]\nid = \"files\"\nkind = \"stdio\"\n{command}{fields}");
        check_refused(&file, &[], parts);
    }
    check_refused(
        "[[servers]]\nid = \"files\"\nkind = \"stdio\"",
        &[],
        &[
            "servers[0].command",
            "it is missing",
            "the first the name of a program",
        ],
    );
    check("command = []", &["servers[0].command = []", "no program"]);
    check("command = 1", &["it is a number, not a list"]);
    check("command = [\"a\", 1]", &["= 1", "a number, not a text"]);
    check("command = [\"a\", \"\"]", &["an item is empty"]);
    check(
        "command = [\"./server\", \"x\"]",
        &["[\"./server\", ...]", "the program's path is relative"],
    );
    check(
        &format!("command = [\"a\", \"{}\"]", "x".repeat(4097)),
        &["the item has 4097 bytes, more than 4096"],
    );
    check(
        &format!("command = [{}]", "\"a\",".repeat(257)),
        &["257 items, more than 256"],
    );
    check("cwd = \"data\"", &["servers[0].cwd", "it is relative"]);
    check("env = { A = 1 }", &["the value of \"A\" is not a text"]);
    check(
        "env = { 1A = \"\" }",
        &["servers[0].env.1A", "cannot be the name"],
    );
    check(
        "env = { A = \"env:B\" }",
        &["servers[0].env.A", "\"B\" is not set"],
    );
    check(
        &format!("env = {{ A = \"{}\" }}", "x".repeat(32_769)),
        &["its value has 32769 bytes"],
    );
    check(
        "inherit_env = [\"A=B\"]",
        &["= \"A=B\"", "cannot be the name"],
    );
    for own in ["MOORING_STORE_URL", "REDIS_URL"] {
        check(
            &format!("inherit_env = [\"{own}\"]"),
            &["the gateway's own"],
        );
    }
    check("children_max = 0", &["processes from 1 to 4096"]);
    check("stop_grace_ms = 60_001", &["from 0 to 60000"]);
    check("start_timeout_ms = 99", &["from 100 to 600000"]);
    check("open_files_max = 1_048_577", &["files from 0 to 1048576"]);
    check(
        "affinity = \"off\"",
        &[
            "servers[0].affinity = \"off\"",
            "a session of kind \"stdio\" lives in one connection, so it is always kept",
            "allowed: \"inherit\" or \"on\"",
        ],
    );
    check(
        "headers = { A = \"b\" }",
        &[
            "servers[0].headers",
            "only a server of kind \"http\" or \"sse\" has this field",
        ],
    );
    check("comand = 1", &["did you mean \"command\"?"]);
    check_refused(
        "[[servers]]\nid = \"a\"\ninstances = [\"http://a/\"]\nchildren_max = 1",
        &[],
        &[
            "servers[0].children_max",
            "only a server of kind \"stdio\" or \"agent\" has this field",
        ],
    );
}
