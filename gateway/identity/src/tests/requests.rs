//! Requests against keys that change: in a file, and at an issuer in this process.

use std::future::Future as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, StatusCode};
use mooring_settings::AuthSettings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Signer, claims, settings, with};
use crate::key_source::KeySet;
use crate::token::VerifiedToken;
use crate::{
    ApiKeyFile, Authentication, Authenticator, Identity, IdentityError, NewApiKey, Peer, TokenError,
};

const PEER: Peer = Peer::at(SocketAddr::V4(SocketAddrV4::new(
    Ipv4Addr::LOCALHOST,
    4_000,
)));
/// After the time of these tests, which is that of the machine.
pub(super) const LATER: u64 = 4_102_444_800;

fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        AUTHORIZATION,
        HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
    );
    headers
}

async fn user_of(authenticator: &Authenticator, token: &str) -> Result<String, IdentityError> {
    match authenticator.identify(&PEER, &bearer(token), None).await? {
        Authentication::Complete(identity) => Ok(identity.principal.as_str().to_owned()),
        Authentication::NeedsProof(token) => panic!("{token:?}"),
    }
}

fn token_of(signer: &Signer) -> String {
    signer.token(&with("exp", LATER))
}

fn write_keys(path: &Path, signers: &[&Signer]) {
    let keys: Vec<&Value> = signers.iter().map(|signer| &signer.public).collect();
    std::fs::write(path, json!({"keys": keys}).to_string()).unwrap();
}

/// One with the keys of this file.
fn of_file(path: &Path) -> Authenticator {
    let mut tokens = settings();
    tokens.jwks_file = Some(path.to_owned());
    authenticator(tokens)
}

fn authenticator(tokens: mooring_settings::TokenSettings) -> Authenticator {
    let trusted_peers = Vec::new();
    Authenticator::new(AuthSettings::Jwt {
        tokens,
        trusted_peers,
    })
    .unwrap()
}

#[tokio::test]
async fn a_request_has_one_token_in_one_header() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let signer = Signer::new("key");
    write_keys(&file, &[&signer]);
    let authenticator = of_file(&file);
    authenticator.read_keys().await;
    let token = token_of(&signer);
    let check = async |values: &[&str], query: Option<&str>| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        authenticator
            .identify(&PEER, &headers, query)
            .await
            .map(|_| ())
    };
    let value = format!("Bearer {token}");
    assert_eq!(check(&[&value], None).await, Ok(()));
    assert_eq!(check(&[&value], Some("sessionId=1")).await, Ok(()));
    assert_eq!(check(&[&format!("bearer  {token}")], None).await, Ok(()));
    let missing = Err(IdentityError::TokenMissing);
    assert_eq!(check(&[], None).await, missing);
    assert_eq!(check(&["Basic YTpi"], None).await, missing);
    assert_eq!(check(&["Bearer"], None).await, missing);
    assert_eq!(
        check(&["Bearer x"], None).await,
        Err(TokenError::Malformed.into())
    );
    assert_eq!(
        check(&[&value, &value], None).await,
        Err(IdentityError::SeveralCredentials)
    );
    let query = format!("a=b&access_token={token}");
    assert_eq!(
        check(&[&value], Some(&query)).await,
        Err(IdentityError::TokenInQuery)
    );
    assert_eq!(
        check(&[], Some("access%5Ftoken=x")).await,
        Err(IdentityError::TokenInQuery)
    );
}

#[tokio::test]
async fn a_token_in_the_query_is_refused_beside_a_valid_api_key() {
    let home = TempDir::new().unwrap();
    let keys_file = home.path().join("keys.json");
    let new = NewApiKey {
        user: "ada".to_owned(),
        teams: Vec::new(),
        roles: Vec::new(),
        scopes: Vec::new(),
        note: None,
        lifetime: Duration::from_secs(60),
    };
    let key = ApiKeyFile::create(&keys_file, &new, crate::now()).unwrap();
    let trusted_peers = Vec::new();
    let authenticator = Authenticator::new(AuthSettings::ApiKey {
        keys_file,
        trusted_peers,
    })
    .unwrap();
    authenticator.read_keys().await;
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_str(&key).unwrap());
    for headers in [headers, bearer(&key)] {
        let check = async |query| {
            let identified = authenticator.identify(&PEER, &headers, Some(query)).await;
            identified.map(|_| ())
        };
        assert_eq!(check("sessionId=1").await, Ok(()));
        let refused = check("a=b&access_token=x").await;
        assert_eq!(refused, Err(IdentityError::TokenInQuery));
    }
}

#[tokio::test]
async fn an_identity_has_its_token_only_where_it_is_exchanged() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let signer = Signer::new("key");
    write_keys(&file, &[&signer]);
    let token = token_of(&signer);
    let headers = bearer(&token);
    for are_exchanged in [false, true] {
        let authenticator = of_file(&file).keeping_tokens(are_exchanged);
        authenticator.read_keys().await;
        for seen in ["first", "known"] {
            let identified = authenticator.identify(&PEER, &headers, None).await.unwrap();
            let Authentication::Complete(identity) = identified else {
                unreachable!("it is a bearer token");
            };
            let kept = identity.token.as_ref().map(|kept| kept.text());
            assert_eq!(kept, are_exchanged.then_some(&*token), "{seen}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_withdrawn_takes_its_tokens_along() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    write_keys(&file, &[&old]);
    let authenticator = of_file(&file);
    authenticator.read_keys().await;
    assert_eq!(
        user_of(&authenticator, &token_of(&old)).await,
        Ok("ada".to_owned())
    );
    write_keys(&file, &[&new]);
    let unknown = Err(TokenError::UnknownKey.into());
    assert_eq!(
        user_of(&authenticator, &token_of(&new)).await,
        unknown,
        "read a moment ago"
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(
        user_of(&authenticator, &token_of(&new)).await,
        Ok("ada".to_owned())
    );
    assert_eq!(
        user_of(&authenticator, &token_of(&old)).await,
        unknown,
        "known until now"
    );
    // What cannot be read, and a set that verifies nothing, change nothing.
    for document in ["{", r#"{"keys":[]}"#] {
        std::fs::write(&file, document).unwrap();
        authenticator.read_keys().await;
        assert_eq!(
            user_of(&authenticator, &token_of(&new)).await,
            Ok("ada".to_owned())
        );
        assert!(authenticator.keys_state().unwrap().1.failure.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn without_keys_tokens_are_neither_right_nor_wrong() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let signer = Signer::new("key");
    let authenticator = of_file(&file);
    authenticator.read_keys().await;
    let error = user_of(&authenticator, &token_of(&signer))
        .await
        .unwrap_err();
    assert_eq!(
        (error, error.status()),
        (
            IdentityError::KeysUnavailable,
            StatusCode::SERVICE_UNAVAILABLE
        )
    );
    assert_eq!(authenticator.keys_state().unwrap().1.keys, None);
    write_keys(&file, &[&signer]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(
        user_of(&authenticator, &token_of(&signer)).await,
        Ok("ada".to_owned())
    );
    assert_eq!(authenticator.keys_state().unwrap().1.keys, Some(1));
}

/// The keys are read when they are due: every 10 seconds, and after failures at growing intervals.
#[tokio::test(start_paused = true)]
async fn keys_are_kept_current() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let authenticator = of_file(&file);
    let keeping = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        write_keys(&file, &[&Signer::new("key")]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(
            authenticator.keys_state().unwrap().1.keys,
            Some(1),
            "one second after a failure"
        );
        write_keys(&file, &[&Signer::new("a"), &Signer::new("b")]);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(authenticator.keys_state().unwrap().1.keys, Some(1));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(authenticator.keys_state().unwrap().1.keys, Some(2));
    };
    tokio::select! {
        () = authenticator.keep_keys() => panic!("it ended"),
        () = keeping => {}
    }
}

/// What cannot be read any more is not believed for ever: one of the keys may have been withdrawn.
#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_read_again_are_used_up_to_their_age() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let signer = Signer::new("key");
    write_keys(&file, &[&signer]);
    let authenticator = of_file(&file);
    let token = token_of(&signer);
    assert_eq!(user_of(&authenticator, &token).await, Ok("ada".to_owned()));
    std::fs::remove_file(&file).unwrap();
    tokio::time::advance(settings().keys_max_age).await;
    assert_eq!(user_of(&authenticator, &token).await, Ok("ada".to_owned()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(
        user_of(&authenticator, &token).await,
        Err(IdentityError::KeysUnavailable)
    );
    assert_eq!(authenticator.keys_state().unwrap().1.keys, None);
    write_keys(&file, &[&signer]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(user_of(&authenticator, &token).await, Ok("ada".to_owned()));
}

#[test]
fn a_known_token_costs_nothing() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("keys.json");
    let signer = Signer::new("key");
    write_keys(&file, &[&signer]);
    let authenticator = of_file(&file);
    let headers = bearer(&token_of(&signer));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(authenticator.read_keys());
    let identify = || {
        let identified = pin!(authenticator.identify(&PEER, &headers, None))
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(identified, Poll::Ready(Ok(_))));
    };
    identify();
    let cost = allocation_counter::measure(identify);
    assert_eq!(cost.count_total, 0);
}

#[test]
fn known_tokens_are_bounded_and_end() {
    let set = KeySet::new(Vec::new());
    let token = Arc::new(VerifiedToken {
        identity: Arc::new(Identity::of(mooring_session::names::Principal::local())),
        accepted_until: 100,
        key: None,
        nonce: None,
    });
    let digest = |number: u64| {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    };
    for number in 0..25_000 {
        set.remember(digest(number), &token);
    }
    let known = (0..25_000).filter(|number| set.verified(&digest(*number), 99).is_some());
    assert_eq!(known.count(), 10_000);
    assert!(set.verified(&digest(24_999), 99).is_some());
    assert!(set.verified(&digest(24_999), 100).is_none());
}

/// An issuer that counts its requests.
pub(super) struct Issuer {
    pub(super) url: String,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    /// It gives each path its document, with a pause before.
    pub(super) async fn start(
        documents: impl Fn(&str, &str) -> Option<String> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let (counted, own_url) = (Arc::clone(&requests), url.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer = match documents(&own_url, path) {
                    Some(body) => format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    ),
                    None => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                };
                // The client may have stopped reading.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Whom this many requests with the token are from, which are made at the same time.
async fn users_at_once(
    authenticator: &Arc<Authenticator>,
    token: &str,
    count: usize,
) -> Vec<Result<String, IdentityError>> {
    let mut requests = JoinSet::new();
    for _ in 0..count {
        let (authenticator, token) = (Arc::clone(authenticator), token.to_owned());
        requests.spawn(async move { user_of(&authenticator, &token).await });
    }
    requests.join_all().await
}

#[tokio::test]
async fn requests_share_one_attempt() {
    let signer = Signer::new("key");
    let keys = json!({"keys": [signer.public]}).to_string();
    let issuer = Issuer::start(move |_, _| Some(keys.clone())).await;
    let mut tokens = settings();
    tokens.jwks_url = Some(format!("{}/keys", issuer.url).parse().unwrap());
    let authenticator = Arc::new(authenticator(tokens));
    for user in users_at_once(&authenticator, &token_of(&signer), 20).await {
        assert_eq!(user, Ok("ada".to_owned()));
    }
    assert_eq!(issuer.requests(), 1);
    for _ in 0..3 {
        let other = token_of(&Signer::new("other"));
        assert_eq!(
            user_of(&authenticator, &other).await,
            Err(TokenError::UnknownKey.into())
        );
    }
    assert_eq!(issuer.requests(), 1);
}

/// An attempt takes as long as the shortest time between two, which must not make each waiter begin its own.
#[tokio::test(start_paused = true)]
async fn requests_share_the_failure_of_a_silent_issuer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut tokens = settings();
    tokens.issuer = format!("http://{}", listener.local_addr().unwrap());
    let authenticator = Arc::new(authenticator(tokens));
    let token = token_of(&Signer::new("key"));
    let start = tokio::time::Instant::now();
    for refused in users_at_once(&authenticator, &token, 3).await {
        assert_eq!(refused, Err(IdentityError::KeysUnavailable));
    }
    assert_eq!(start.elapsed().as_secs(), 10, "two documents, once");
}

#[tokio::test]
async fn metadata_name_the_keys() {
    let signer = Signer::new("key");
    let check =
        async |metadata_path: &'static str, issuer_suffix: &'static str, jwks: &'static str| {
            let keys = json!({"keys": [signer.public]}).to_string();
            let issuer = Issuer::start(move |own, path| match path {
                "/keys" => Some(keys.clone()),
                _ if path == metadata_path => {
                    let jwks = jwks.replace("OWN", own);
                    Some(
                        json!({"issuer": format!("{own}{issuer_suffix}"), "jwks_uri": jwks})
                            .to_string(),
                    )
                }
                _ => None,
            })
            .await;
            let mut tokens = settings();
            tokens.issuer = format!("{}/realm", issuer.url);
            let mut claims = claims();
            claims["iss"] = tokens.issuer.clone().into();
            claims["exp"] = LATER.into();
            let authenticator = authenticator(tokens);
            authenticator.read_keys().await;
            user_of(&authenticator, &signer.token(&claims))
                .await
                .is_ok()
        };
    let (openid, oauth) = (
        "/realm/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/realm",
    );
    assert!(check(openid, "/realm", "OWN/keys").await);
    assert!(check(oauth, "/realm", "OWN/keys").await);
    assert!(
        !check(openid, "/other", "OWN/keys").await,
        "metadata of another issuer"
    );
    assert!(
        !check(openid, "/realm", "http://192.0.2.1/keys").await,
        "keys without TLS"
    );
    assert!(!check("/elsewhere", "/realm", "OWN/keys").await);
}

/// Some providers answer every path, so the second place is looked at where the first has something else.
#[tokio::test]
async fn what_are_no_metadata_do_not_hide_the_others() {
    let signer = Signer::new("key");
    let keys = json!({"keys": [signer.public]}).to_string();
    let issuer = Issuer::start(move |own, path| match path {
        "/keys" => Some(keys.clone()),
        "/.well-known/oauth-authorization-server" => {
            Some(json!({"issuer": own, "jwks_uri": format!("{own}/keys")}).to_string())
        }
        _ => Some("<html></html>".to_owned()),
    })
    .await;
    let mut tokens = settings();
    tokens.issuer = issuer.url.clone();
    let authenticator = authenticator(tokens);
    authenticator.read_keys().await;
    assert_eq!(authenticator.keys_state().unwrap().1.keys, Some(1));
}

#[tokio::test]
async fn a_document_that_is_too_large_is_not_read() {
    let issuer = Issuer::start(|_, _| Some("x".repeat(300 * 1024))).await;
    let mut tokens = settings();
    tokens.jwks_url = Some(issuer.url.parse().unwrap());
    let authenticator = authenticator(tokens);
    authenticator.read_keys().await;
    let failure = authenticator.keys_state().unwrap().1.failure.unwrap();
    assert!(failure.contains("the body could not be read"), "{failure}");
}

/// A failed attempt for a token with an unknown key is soon repeated, like any other, although the next one was not due
/// for minutes.
#[tokio::test]
async fn an_attempt_for_a_token_moves_the_next_one() {
    let (known, unknown) = (Signer::new("known"), Signer::new("unknown"));
    let keys = json!({"keys": [known.public]}).to_string();
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let issuer = Issuer::start(move |_, _| {
        let is_there = !away.load(Ordering::SeqCst);
        is_there.then(|| keys.clone())
    })
    .await;
    let mut tokens = settings();
    tokens.jwks_url = Some(issuer.url.parse().unwrap());
    let authenticator = authenticator(tokens);
    authenticator.read_keys().await;
    let keeping = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(100)).await;
        tokio::time::resume();
        is_away.store(true, Ordering::SeqCst);
        let refused = user_of(&authenticator, &token_of(&unknown)).await;
        assert_eq!(refused, Err(TokenError::UnknownKey.into()));
        assert!(authenticator.keys_state().unwrap().1.failure.is_some());
        is_away.store(false, Ordering::SeqCst);
        for _ in 0..200 {
            if authenticator.keys_state().unwrap().1.failure.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it is not repeated");
    };
    tokio::select! {
        () = authenticator.keep_keys() => panic!("it ended"),
        () = keeping => {}
    }
}
