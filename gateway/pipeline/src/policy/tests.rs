//! Decisions over settings as an operator writes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use mooring_session::names::Principal;
use mooring_settings::{Environment, Flags};

use super::*;

const SETTINGS: &str = r#"
[auth]
mode = "trusted-header"
trusted_peers = ["127.0.0.1"]
grants = [
    { teams = ["ops"], rights = ["servers.use", "servers.read"] },
    { users = ["root@*"], rights = ["admin"] },
]

[[servers]]
id = "open"
instances = ["http://127.0.0.1:9001/mcp"]

[[servers]]
id = "everybody"
instances = ["http://127.0.0.1:9001/mcp"]
allow = [{}]

[[servers]]
id = "nobody"
instances = ["http://127.0.0.1:9001/mcp"]
allow = []

[[servers]]
id = "tracker"
instances = ["http://127.0.0.1:9001/mcp"]
allow = [
    { teams = ["dev"], roles = ["lead"] },
    { teams = ["dev"], tools = ["get_*", "list_*"], deny_tools = ["get_secret"] },
    { users = ["bot"], scopes = ["tracker.read", "tracker.write"] },
]

[[servers]]
id = "sandbox"
kind = "code"

[[servers]]
id = "claude"
kind = "agent"
profile = "claude"
allow = [{ users = ["ada"] }]

[[servers]]
id = "ops"
kind = "admin"

[[servers]]
id = "calm"
kind = "admin"
allow = [{ teams = ["dev"], tools = ["sessions_*"] }]

[[servers]]
id = "all"
kind = "group"
members = ["tracker", "sandbox"]
"#;

fn policy(text: &str) -> AccessPolicy {
    AccessPolicy::of(&settings(text))
}

fn settings(text: &str) -> Settings {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mooring.toml");
    std::fs::write(&path, text).unwrap();
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let environment = Environment::from_iter([("HOME", directory.path())]);
    Settings::load(&environment, &flags).unwrap().settings
}

/// `user`, or `user team:T role:R scope:S`.
fn caller(text: &str) -> Identity {
    let mut words = text.split(' ');
    let mut teams = Vec::new();
    let mut identity = Identity::of(Principal::parse(words.next().unwrap().as_bytes()).unwrap());
    for word in words {
        let (field, name) = word.split_once(':').unwrap();
        let names = match field {
            "team" => &mut teams,
            "role" => &mut identity.roles,
            _ => &mut identity.scopes,
        };
        names.push(name.to_owned());
    }
    identity.teams = teams.into();
    identity
}

#[test]
fn a_server_is_used_by_a_rule_or_a_right() {
    let policy = policy(SETTINGS);
    #[track_caller]
    fn check(policy: &AccessPolicy, who: &str, server: &str, expected: (bool, Basis)) {
        let caller = caller(who);
        let decision = policy.decide(&caller, server);
        let may = !matches!(decision.access, Access::Denied(_));
        assert_eq!((may, decision.basis), expected, "{who} at {server}");
        assert_eq!(policy.may_use(&caller, server), may);
    }
    for (who, server, expected) in [
        ("ada", "open", (false, Basis::Right)),
        ("ada team:ops", "open", (true, Basis::Right)),
        ("ada role:servers.use", "open", (true, Basis::Right)),
        ("root@corp", "open", (true, Basis::Right)),
        ("ada", "everybody", (true, Basis::Rule(0))),
        ("root@corp", "nobody", (false, Basis::NoRuleFits)),
        ("ada", "tracker", (false, Basis::NoRuleFits)),
        ("ada team:dev", "tracker", (true, Basis::Rule(1))),
        ("ada team:dev role:lead", "tracker", (true, Basis::Rule(0))),
        ("ada role:lead", "tracker", (false, Basis::NoRuleFits)),
        (
            "bot scope:tracker.read scope:tracker.write",
            "tracker",
            (true, Basis::Rule(2)),
        ),
        (
            "bot scope:tracker.read",
            "tracker",
            (false, Basis::NoRuleFits),
        ),
        ("root@corp role:admin", "sandbox", (false, Basis::NoRules)),
        ("ada", "claude", (true, Basis::Rule(0))),
        ("bob role:admin", "claude", (false, Basis::NoRuleFits)),
        ("ada role:fleet.read", "ops", (true, Basis::OperatorRight)),
        ("ada role:servers.use", "ops", (false, Basis::OperatorRight)),
        ("ada team:dev", "calm", (false, Basis::OperatorRight)),
        ("ada role:admin", "calm", (false, Basis::NoRuleFits)),
        ("ada team:dev role:admin", "calm", (true, Basis::Rule(0))),
        ("ada team:dev", "all", (true, Basis::Members)),
        ("ada", "all", (false, Basis::Members)),
        ("root@corp", "unknown", (false, Basis::NoServer)),
    ] {
        check(&policy, who, server, expected);
    }
}

#[test]
fn tools_are_those_of_any_rule_that_fits() {
    let policy = policy(SETTINGS);
    let may = |who: &str, tool: &str| policy.may_call(&caller(who), "tracker", tool);
    assert!(may("ada team:dev", "get_issue"));
    assert!(may("ada team:dev", "list_"));
    assert!(!may("ada team:dev", "delete_issue"));
    assert!(!may("ada team:dev", "get_secret"));
    assert!(
        may("ada team:dev role:lead", "get_secret"),
        "another rule lets it in"
    );
    assert!(!may("ada", "get_issue"));
}

#[test]
fn missing_scopes_are_named_where_nothing_else_is_missing() {
    let policy = policy(SETTINGS);
    let missing = |who: &str, server: &str| match policy.decide(&caller(who), server).access {
        Access::Denied(scopes) => scopes.to_vec(),
        _ => panic!("{who} may use {server}"),
    };
    assert_eq!(missing("bot", "tracker"), ["tracker.read", "tracker.write"]);
    assert_eq!(missing("bot", "all"), ["tracker.read", "tracker.write"]);
    assert!(missing("ada", "tracker").is_empty());
}

#[test]
fn rights_come_from_roles_and_grants_and_an_admin_has_all() {
    let policy = policy(SETTINGS);
    for right in Right::VARIANTS {
        let has = |who: &str| policy.has_right(&caller(who), *right);
        assert!(!has("ada"));
        assert!(!has("ada team:admin role:viewer"), "a team is no role");
        assert!(has("ada role:viewer role:admin"));
        assert!(has("root@corp"));
        assert!(has(&format!("ada role:{}", right.name())));
        let is_granted = matches!(right, Right::ServersUse | Right::ServersRead);
        assert_eq!(has("ada team:ops"), is_granted, "{}", right.name());
        assert!(AccessPolicy::open().has_right(&caller("ada"), *right));
    }
    assert!(!policy.has_right(&caller("ada role:skills.create"), Right::Admin));
}

#[test]
fn without_authentication_everything_is_open() {
    let text = SETTINGS.replace("trusted-header", "none");
    let policy = policy(&text.replace(r#"trusted_peers = ["127.0.0.1"]"#, ""));
    let local = Identity::of(Principal::local());
    for server in ["open", "nobody", "sandbox", "claude", "all"] {
        assert!(
            policy.may_call(&local, server, "delete_everything"),
            "{server}"
        );
    }
}

#[test]
fn an_explanation_names_what_decided() {
    let text = explain(&settings(SETTINGS), &caller("ada team:dev"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "server open (http): may not use it: without rules it needs the right servers.use",
            "server everybody (http): may use it: servers.allow[0] fits",
            "server nobody (http): may not use it: no rule of servers.allow fits",
            "server tracker (http): may use get_*, list_* but not get_secret: servers.allow[1] fits",
            "server sandbox (code): may not use it: it needs servers.allow and has none",
            "server claude (agent): may use it: servers.allow[0] fits",
            "server ops (admin): may not use it: a server of kind admin needs a right beyond servers.use",
            "server calm (admin): may not use it: a server of kind admin needs a right beyond servers.use",
            "server all (group): may use it: a group follows its members",
            "rights: none",
        ]
    );
}
