//! Credentials that users store: what is read, and what is refused.

#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use super::refused::check_refused;
use super::*;

const VAULT: &str = "vault = { header = \"Authorization\", prefix = \"Bearer \" }\n";
const AUTH: &str = "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n";
const REST: &str = "[vault]\nkeys_file = \"/run/keys\"\n\
                    [auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n";

#[test]
fn the_header_and_what_it_begins_with_are_read() {
    let headers = "headers = { Authorization = \"Bearer of-the-gateway\" }\n";
    let settings = settings(&format!("{ONE_SERVER}{VAULT}{headers}{REST}"), &[]);
    let secret = settings.servers[0].user_secret().unwrap();
    assert_eq!(secret.header, http::header::AUTHORIZATION);
    assert_eq!(secret.prefix, "Bearer ");
    let file = settings.vault.keys_file.unwrap();
    assert_eq!(file.to_str(), Some("/run/keys"));
}

#[test]
fn a_vault_that_cannot_work_is_refused() {
    #[track_caller]
    fn check(server: &str, rest: &str, parts: &[&str]) {
        check_refused(&format!("{ONE_SERVER}{server}\n{rest}"), &[], parts);
    }
    check(
        VAULT,
        AUTH,
        &["vault.keys_file", "are encrypted with its keys"],
    );
    check(
        VAULT,
        "[vault]\nkeys_file = \"/run/keys\"\n",
        &["auth.mode", "all users are one"],
    );
    check(
        "vault = { prefix = \"Bearer \" }",
        REST,
        &["vault.header", "it is missing"],
    );
    check(
        "vault = { header = \"mcp-session-id\" }",
        REST,
        &["vault.header", "the gateway's own"],
    );
    check(
        &format!("{VAULT}forward_identity = true"),
        REST,
        &["vault.header", "servers.forward_identity is set"],
    );
    check(
        &format!(
            "{VAULT}oauth = {{ token_url = \"https://login.example/\", client_id = \"a\", \
             client_secret_file = \"/b\" }}"
        ),
        REST,
        &["vault.header", "servers.oauth is set"],
    );
}
