//! Client credentials of a server: what is read, and what is refused.

#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use super::refused::check_refused;
use super::*;

const OAUTH: &str = "oauth = { token_url = \"https://login.example/token\", client_id = \"gateway\", \
                     client_secret_file = \"/run/secret\" }\n";

#[test]
fn client_credentials_are_read() {
    let settings = settings(&format!("{ONE_SERVER}{OAUTH}"), &[]);
    let credentials = settings.servers[0].oauth().unwrap();
    assert_eq!(
        credentials.token_url.as_str(),
        "https://login.example/token"
    );
    assert_eq!(credentials.authentication, ClientAuthentication::Basic);
    assert!(credentials.scopes.is_empty() && credentials.resource.is_none());
    assert_eq!(credentials.grant, TokenGrant::ClientCredentials);
}

#[test]
fn tokens_are_exchanged_where_callers_have_tokens() {
    let exchange = OAUTH.replace(" }", ", grant = \"token-exchange\", audience = \"tools\" }");
    let server = format!("{ONE_SERVER}{exchange}");
    check_refused(&server, &[], &["auth.mode", "who have none", "\"jwt\""]);
    let tokens =
        "[auth]\nmode = \"jwt\"\nissuer = \"https://login.example\"\naudiences = [\"mooring\"]\n";
    let settings = settings(&format!("{server}{tokens}"), &[]);
    assert!(settings.exchanges_tokens());
    let oauth = settings.servers[0].oauth().unwrap();
    assert_eq!(oauth.audience.as_deref(), Some("tools"));
}

#[test]
fn credentials_that_cannot_work_are_refused() {
    #[track_caller]
    fn check(server: &str, parts: &[&str]) {
        check_refused(&format!("{ONE_SERVER}{server}\n"), &[], parts);
    }
    check(
        "oauth = { token_url = \"https://login.example/token\", client_secret_file = \"/run/secret\" }",
        &["oauth.client_id", "it is missing"],
    );
    check(
        "oauth = { client_id = \"gateway\", client_secret_file = \"/run/secret\" }",
        &["oauth.token_url", "it is missing"],
    );
    check(
        "oauth = { token_url = \"http://login.example/token\", client_id = \"a\", client_secret_file = \"/b\" }",
        &["oauth.token_url", "could be replaced"],
    );
    check(
        "oauth = { token_url = \"https://login.example/\", client_id = \"a b\", client_secret_file = \"/b\" }",
        &["oauth.client_id", "it has a space"],
    );
    check(
        &format!("{OAUTH}headers = {{ Authorization = \"Bearer x\" }}"),
        &["oauth.token_url", "has an Authorization header"],
    );
    check(
        &format!("{OAUTH}forward_identity = true"),
        &["oauth.token_url", "servers.forward_identity is set"],
    );
}
