//! Sign-ins at an OpenID provider in this process: what a browser is sent with, and which ID tokens complete them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mooring_settings::SignInProvider;
use serde_json::{Value, json};

use super::requests::{Issuer, LATER};
use super::{Signer, settings};
use crate::{IdentityError, OpenIdClient, OpenIdError, TokenError};

const REDIRECT: &str = "https://gateway.example/ui/sign-in/callback";
const CLIENT: &str = "page";

/// A provider whose token endpoint answers with this ID token.
async fn provider(signer: &Signer, id_token: Arc<Mutex<String>>) -> (Issuer, OpenIdClient) {
    let keys = json!({"keys": [signer.public]}).to_string();
    let issuer = Issuer::start(move |own, path| match path {
        "/keys" => Some(keys.clone()),
        "/token" => Some(json!({"id_token": *id_token.lock().unwrap()}).to_string()),
        "/.well-known/openid-configuration" => Some(
            json!({"issuer": own, "jwks_uri": format!("{own}/keys"), "token_endpoint": format!("{own}/token"),
                "authorization_endpoint": format!("{own}/authorize?tenant=1")})
            .to_string(),
        ),
        _ => None,
    })
    .await;
    let mut id_tokens = settings();
    id_tokens.issuer = issuer.url.clone();
    id_tokens.audiences = vec![CLIENT.to_owned()];
    let client = OpenIdClient::new(SignInProvider {
        client_id: CLIENT.to_owned(),
        client_secret_file: None,
        scopes: vec!["openid".to_owned(), "email".to_owned()],
        id_tokens,
    });
    (issuer, client.unwrap())
}

#[tokio::test]
async fn a_sign_in_is_completed_by_an_id_token_of_its_own() {
    let (signer, id_token) = (Signer::new("key"), Arc::new(Mutex::default()));
    let (issuer, client) = provider(&signer, Arc::clone(&id_token)).await;
    let (url, flow) = client.begin(REDIRECT).await.unwrap();
    let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
    for (name, value) in [
        ("tenant", "1"),
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", REDIRECT),
        ("scope", "openid email"),
        ("state", &flow.state),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(query[name], value, "{name}");
    }
    assert_eq!(query["code_challenge"].len(), 43, "a SHA-256");
    let (_, other) = client.begin(REDIRECT).await.unwrap();
    assert_ne!(flow, other);

    let claims = json!({"iss": issuer.url, "aud": CLIENT, "sub": "ada", "exp": LATER, "nonce": query["nonce"]});
    let complete = async |changes: Value| {
        let mut claims = claims.clone();
        let fields = claims.as_object_mut().unwrap();
        fields.extend(changes.as_object().unwrap().clone());
        *id_token.lock().unwrap() = signer.token(&claims);
        client.complete(&flow, "code", REDIRECT).await
    };
    let signed_in = complete(json!({"groups": ["dev"]})).await.unwrap();
    assert_eq!(signed_in.principal.as_str(), "ada");
    assert_eq!(*signed_in.teams, ["dev".to_owned()]);
    for nonce in [json!("another"), Value::Null] {
        let refused = complete(json!({"nonce": nonce})).await;
        assert!(matches!(refused, Err(OpenIdError::Nonce)), "{refused:?}");
    }
    for (changes, expected) in [
        (json!({"aud": "another"}), TokenError::WrongAudience),
        (
            json!({"iss": "https://another.example"}),
            TokenError::WrongIssuer,
        ),
        (json!({"exp": 1}), TokenError::Expired),
    ] {
        match complete(changes).await {
            Err(OpenIdError::IdToken(IdentityError::Token(error))) => assert_eq!(error, expected),
            other => panic!("{other:?}"),
        }
    }
    *id_token.lock().unwrap() = Signer::new("key").token(&claims);
    let forged = client.complete(&flow, "code", REDIRECT).await;
    assert!(matches!(forged, Err(OpenIdError::IdToken(_))), "{forged:?}");
}
