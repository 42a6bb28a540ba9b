//! Rules and grants: what is read, from the file and from the environment, and what is refused.

#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use super::refused::check_refused;
use super::*;

const PROXY: &str = "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"10.0.0.1\"]\n";

#[test]
fn rules_and_grants_are_read() {
    let file = format!(
        "{PROXY}grants = [{{ teams = [\"ops\"], rights = [\"admin\", \"servers.use\"] }}]\n{ONE_SERVER}\
         allow = [{{}}, {{ users = [\"ada\"], tools = [\"get_*\"], deny_tools = [\"get_x\"] }}]\n"
    );
    let settings = settings(&file, &[]);
    let rules = settings.servers[0].allow.as_ref().unwrap();
    assert_eq!(rules.len(), 2);
    assert!(rules[0].callers.users.is_empty() && rules[0].tools.tools.is_empty());
    assert!(rules[1].callers.users.matches("ada") && rules[1].tools.deny_tools.matches("get_x"));
    assert_eq!(settings.grants[0].rights, [Right::Admin, Right::ServersUse]);
}

#[test]
fn grants_in_the_environment_are_json() {
    let file = format!("{PROXY}{ONE_SERVER}");
    let grants = r#"[{"users": ["ada", "b*"], "rights": ["servers.read"]}]"#;
    let settings = settings(&file, &[("MOORING_AUTH_GRANTS", grants)]);
    assert!(settings.grants[0].callers.users.matches("bob"));
    assert_eq!(settings.grants[0].rights, [Right::ServersRead]);
}

#[test]
fn what_no_rule_can_mean_is_refused() {
    #[track_caller]
    fn check(rule: &str, parts: &[&str]) {
        check_refused(&format!("{PROXY}{ONE_SERVER}allow = {rule}\n"), &[], parts);
    }
    check(
        "{ users = [\"ada\"] }",
        &["servers[0].allow", "it is not a list of tables"],
    );
    check(
        "[\"ada\"]",
        &["servers[0].allow", "it is not a list of tables"],
    );
    check(
        "[{ users = [] }]",
        &["servers[0].allow[0].users", "an empty list fits nothing"],
    );
    check(
        "[{ scopes = [] }]",
        &["servers[0].allow[0].scopes", "an empty list fits nothing"],
    );
    check(
        "[{}, { user = [\"ada\"] }]",
        &["servers[0].allow[1].user", "did you mean \"users\"?"],
    );
    check(
        "[{ users = \"ada\" }]",
        &["servers[0].allow[0].users", "it is a text, not a list"],
    );
    check(
        "[{ scopes = [\"a b\"] }]",
        &["servers[0].allow[0].scopes", "characters that no scope has"],
    );
    check(
        "[{ rights = [\"admin\"] }]",
        &["servers[0].allow[0].rights", "there is no such key"],
    );
    let many = vec!["{}"; 65].join(", ");
    check(
        &format!("[{many}]"),
        &["servers[0].allow", "it has 65 tables, more than 64"],
    );
    let grant = |grant: &str| format!("{PROXY}grants = [{grant}]\n{ONE_SERVER}");
    check_refused(
        &grant("{ users = [\"ada\"] }"),
        &[],
        &["auth.grants[0].rights", "it is missing"],
    );
    check_refused(
        &grant("{ rights = [\"root\"] }"),
        &[],
        &["auth.grants[0].rights", "root", "servers.use"],
    );
    let variables = [("MOORING_AUTH_GRANTS", "ada")];
    check_refused(
        &format!("{PROXY}{ONE_SERVER}"),
        &variables,
        &["MOORING_AUTH_GRANTS", "it is not a list of tables"],
    );
}

#[test]
fn rules_without_effect_and_servers_that_nobody_may_use_are_remarked() {
    let remarks = |file: &str| {
        let loaded = load(file, &[("HOME", "/home/ada")], &Flags::default()).unwrap();
        loaded.remarks.join("\n")
    };
    let open = remarks(&format!("{ONE_SERVER}allow = [{{}}]\n"));
    assert!(
        open.contains("servers.allow of server \"tools\" has no effect"),
        "{open}"
    );
    let closed = remarks(&format!(
        "{PROXY}[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n"
    ));
    assert!(
        closed.contains("no caller may use server \"sandbox\""),
        "{closed}"
    );
    let ruled = remarks(&format!(
        "{PROXY}[[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n"
    ));
    assert!(!ruled.contains("sandbox"), "{ruled}");
}

#[test]
fn an_identity_is_forwarded_by_servers_of_http_with_the_fleets_keys() {
    let forwarding = format!("{ONE_SERVER}forward_identity = true\n");
    assert!(settings(&forwarding, &[]).forwards_identity());
    let check = |more: &str, variables: &[(&str, &str)], parts: &[&str]| {
        check_refused(&format!("{forwarding}{more}"), variables, parts);
    };
    check(
        "headers = { Authorization = \"Bearer x\" }\n",
        &[],
        &["servers[0].forward_identity", "a request has only one"],
    );
    check(
        "kind = \"sse\"\n",
        &[],
        &[
            "servers[0].forward_identity",
            "only a server of kind \"http\" has this field",
        ],
    );
    check(
        "",
        &[("MOORING_STORE_URL", "redis://127.0.0.1:6379")],
        &[
            "worker.fleet_keys_file",
            "gets identity tokens (forward_identity)",
        ],
    );
}
