//! The operators' page: its defaults, its OpenID provider, and what cannot work.

use super::refused::check_refused;
use super::*;

const KEYS: &str = "[auth]\nmode = \"api-key\"\napi_keys_file = \"/run/keys\"\nroles_claim = \"realm_access.roles\"\n";
const PROVIDER: &str =
    "[ui]\noidc_issuer = \"https://login.example/realm\"\noidc_client_id = \"page\"\n";

#[test]
fn claims_of_id_tokens_mean_what_those_of_access_tokens_mean() {
    let standard = settings(ONE_SERVER, &[]).ui;
    assert!(standard.is_enabled);
    assert!(standard.sign_in_provider.is_none());
    let scopes = "oidc_scopes = [\"openid\", \"groups\"]\n";
    let settings = settings(&format!("{ONE_SERVER}{KEYS}{PROVIDER}{scopes}"), &[]);
    let provider = settings.ui.sign_in_provider.unwrap();
    assert_eq!(provider.client_id, "page");
    assert_eq!(provider.client_secret_file, None);
    assert_eq!(provider.scopes, ["openid", "groups"]);
    let tokens = provider.id_tokens;
    assert_eq!(tokens.issuer, "https://login.example/realm");
    assert_eq!(tokens.audiences, ["page"]);
    assert_eq!(tokens.roles_claim, "realm_access.roles");
    let is_symmetric = |algorithm: &SigningAlgorithm| algorithm.is_symmetric();
    assert!(!tokens.algorithms.iter().any(is_symmetric));
}

#[test]
fn a_provider_that_cannot_work_is_refused() {
    #[track_caller]
    fn check(auth: &str, ui: &str, parts: &[&str]) {
        check_refused(&format!("{ONE_SERVER}{auth}{ui}"), &[], parts);
    }
    check(
        "",
        PROVIDER,
        &["ui.oidc_issuer", "everybody is the same user"],
    );
    check(
        KEYS,
        "[ui]\noidc_client_id = \"page\"\n",
        &["ui.oidc_issuer", "it is missing"],
    );
    check(
        KEYS,
        "[ui]\noidc_issuer = \"https://login.example\"\n",
        &["ui.oidc_client_id", "it is missing"],
    );
    check(
        KEYS,
        "[ui]\noidc_issuer = \"http://login.example\"\noidc_client_id = \"page\"\n",
        &["ui.oidc_issuer", "could be replaced"],
    );
}
