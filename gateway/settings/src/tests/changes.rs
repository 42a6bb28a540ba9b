//! What a reload takes from new settings, and what it names.

use super::*;

fn changes(before: &str, after: &str) -> (Settings, SettingsChanges) {
    settings(before, &[]).take_changes(settings(after, &[]))
}

#[test]
fn servers_are_compared_by_everything_that_defines_them() {
    let server = |id: &str, more: &str| {
        format!("[[servers]]\nid = {id:?}\ninstances = [\"http://127.0.0.1:9001/mcp\"]\n{more}\n")
    };
    let before = server("same", "")
        + &server("secret", "headers = { x-key = \"one\" }")
        + &server("gone", "");
    let after = server("new", "")
        + &server("secret", "headers = { x-key = \"two\" }")
        + &server("same", "");
    let (taken, changes) = changes(&before, &after);
    let ids = |ids: &[ServerId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(ids(&changes.servers_added), ["new"]);
    assert_eq!(ids(&changes.servers_changed), ["secret"]);
    assert_eq!(ids(&changes.servers_removed), ["gone"]);
    assert!(changes.applied.is_empty() && changes.needs_restart.is_empty());
    assert_eq!(taken.servers.len(), 3);
    let (_, none) = settings(&before, &[]).take_changes(settings(&before, &[]));
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn what_can_change_is_applied_and_the_rest_is_named() {
    let after = "[listen]\naddress = \"127.0.0.1:5\"\nrequests_per_user_per_minute = 5\n\
                 [store]\nkey_prefix = \"other:\"\n[log]\nlevel = \"warn\"\nformat = \"json\"\n\
                 [affinity]\nmax_sessions_per_principal = 3\nttl_seconds = 60\n";
    let (taken, changes) = changes("", after);
    assert_eq!(
        changes.applied,
        [
            "listen.requests_per_user_per_minute",
            "affinity.max_sessions_per_principal",
            "log.level"
        ]
    );
    assert_eq!(
        changes.needs_restart,
        [
            "listen.address",
            "store.key_prefix",
            "affinity.ttl_seconds",
            "log.format"
        ]
    );
    assert_eq!(taken.log.level, LogLevel::Warn);
    assert_eq!(taken.store.key_prefix, "mcpgw:");
    let (_, again) = taken.take_changes(settings(after, &[]));
    assert_eq!(again.applied, [""; 0], "applied once");
    assert_eq!(again.needs_restart.len(), 4);
}

#[test]
fn the_only_server_stays_the_default_one_when_another_comes() {
    let server =
        |id: &str| format!("[[servers]]\nid = {id:?}\ninstances = [\"http://127.0.0.1:9/mcp\"]\n");
    let (taken, differences) = changes(&server("a"), &(server("a") + &server("b")));
    assert_eq!(
        taken.default_server.as_ref().map(ServerId::as_str),
        Some("a")
    );
    assert!(differences.applied.is_empty() && differences.needs_restart.is_empty());
    let (taken, _) = taken.take_changes(settings(&(server("b") + &server("c")), &[]));
    assert_eq!(taken.default_server, None, "it is not served any more");
}

/// A listener that was checked for authenticated callers must not become open by a reload.
#[test]
fn another_way_of_authentication_needs_a_restart() {
    let by_header = "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"10.0.0.1\"]\n";
    let (taken, changes) = changes(by_header, "");
    assert!(matches!(taken.auth, AuthSettings::TrustedHeader(_)));
    assert_eq!(changes.needs_restart, ["auth"]);
}
