//! Servers of kind `sse`: those of HTTP+SSE, as they were before Streamable HTTP.

use super::refused::check_refused;
use super::*;

#[track_caller]
fn sse<'a>(settings: &'a Settings, id: &str) -> &'a HttpServerSettings {
    match &settings.server(id).unwrap().kind {
        ServerKind::Sse(sse) => sse,
        other => panic!("{id} is of kind {}", other.name()),
    }
}

#[test]
fn a_whole_server_is_read() {
    let file = r#"
[[servers]]
id = "old"
kind = "sse"
instances = ["http://127.0.0.1:3001/sse", "http://127.0.0.1:3002/sse"]
affinity = "inherit"
concurrency = "parallel"
on_upstream_loss = "fail"
headers = { Authorization = "env:OLD_TOKEN" }
"#;
    let settings = settings(file, &[("OLD_TOKEN", "Bearer s3cret")]);
    assert!(settings.needs_peers());
    let old = sse(&settings, "old");
    let names: Vec<&str> = old.instances.iter().map(Instance::name).collect();
    assert_eq!(
        names,
        ["http://127.0.0.1:3001/sse", "http://127.0.0.1:3002/sse"]
    );
    assert_eq!(old.concurrency, Concurrency::Parallel);
    assert_eq!(old.on_upstream_loss, OnUpstreamLoss::Fail);
    assert_eq!(
        old.headers.map().get("authorization").unwrap(),
        "Bearer s3cret"
    );
    assert!(!format!("{settings:?}").contains("s3cret"));
}

#[test]
fn a_flag_may_say_where_it_is() {
    let file = "[[servers]]\nid = \"old\"\nkind = \"sse\"\n";
    let given = server_flags(&["old=http://a/sse"]);
    let settings = load(file, &[], &given).unwrap().settings;
    let old = sse(&settings, "old");
    assert_eq!(old.instances.len(), 1);
    assert_eq!(old.concurrency, Concurrency::Serial);
    assert_eq!(old.on_upstream_loss, OnUpstreamLoss::Reinitialize);
}

#[test]
fn bad_servers_are_refused() {
    #[track_caller]
    fn check(fields: &str, parts: &[&str]) {
        let file = format!("[[servers]]\nid = \"old\"\nkind = \"sse\"\n{fields}");
        check_refused(&file, &[], parts);
    }
    let instances = "instances = [\"http://a/sse\"]";
    check("", &["servers[0].instances", "it is missing"]);
    check(
        &format!("{instances}\naffinity = \"off\""),
        &[
            "servers[0].affinity = \"off\"",
            "a session of kind \"sse\" lives in one connection",
        ],
    );
    check(
        &format!("{instances}\ncwd = \"/data\""),
        &["servers[0].cwd", "only a server of kind \"stdio\""],
    );
}
