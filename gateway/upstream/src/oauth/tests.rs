//! Callers' tokens against an authorization server in this process: how often it is asked, and what callers get.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use futures_util::future::join_all;
use http::StatusCode;
use mooring_settings::ClientAuthentication;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{advance, pause, resume};

use super::endpoint::{EXCHANGES_MAX, FetchedToken, RENEW_PAUSE, SECRET_READ_EVERY};
use super::exchanged::{SHARED_FOR, TOKENS_MAX};
use super::*;
use crate::{HttpClientOptions, SilenceLimits, tls_config};

const HOUR: Duration = Duration::from_secs(3600);

/// What the authorization server does: its status, the seconds that its tokens are valid, and how often it was asked.
#[derive(Clone)]
struct Behavior {
    status: StatusCode,
    error: &'static str,
    valid_seconds: u64,
    asked: usize,
}

struct Arrangement {
    behavior: Arc<Mutex<Behavior>>,
    /// The authorization server answers while it is not locked.
    gate: Arc<tokio::sync::Mutex<()>>,
    tokens: Arc<OauthTokens>,
    client: HttpClient,
    secret: TempDir,
}

type Server = (Arc<Mutex<Behavior>>, Arc<tokio::sync::Mutex<()>>);

async fn answer(State((behavior, gate)): State<Server>) -> (StatusCode, String) {
    let Behavior {
        status,
        error,
        valid_seconds,
        asked,
    } = {
        let mut behavior = behavior.lock().unwrap();
        behavior.asked += 1;
        behavior.clone()
    };
    drop(gate.lock().await);
    let text = match status {
        StatusCode::OK => format!(
            r#"{{"access_token":"{asked}","token_type":"Bearer","expires_in":{valid_seconds}}}"#
        ),
        _ => format!(r#"{{"error":"{error}"}}"#),
    };
    (status, text)
}

fn write_secret(directory: &Path, secret: &str) {
    let path = directory.join("secret");
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

impl Arrangement {
    async fn start() -> Self {
        let behavior = Arc::new(Mutex::new(Behavior {
            status: StatusCode::OK,
            error: "",
            valid_seconds: 24 * 3600,
            asked: 0,
        }));
        let gate = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/token", post(answer))
            .with_state((Arc::clone(&behavior), Arc::clone(&gate)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let secret = TempDir::new().unwrap();
        write_secret(secret.path(), "one");
        let settings = OauthSettings {
            grant: TokenGrant::TokenExchange,
            token_url: format!("http://{address}/token").parse().unwrap(),
            client_id: "gateway".to_owned(),
            client_secret_file: secret.path().join("secret"),
            authentication: ClientAuthentication::Basic,
            scopes: Vec::new(),
            resource: None,
            audience: None,
        };
        let options = HttpClientOptions {
            connect_timeout: Duration::from_secs(1),
            idle_connection: Duration::from_secs(1),
            silence: SilenceLimits::default(),
            event_bytes_max: 1024,
        };
        let server = ServerName::parse(b"tools").unwrap();
        Self {
            behavior,
            gate,
            tokens: Arc::new(OauthTokens::new(server, settings)),
            client: HttpClient::new(options, tls_config(false).unwrap()),
            secret,
        }
    }

    fn behave(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.behavior.lock().unwrap());
    }

    fn asked(&self) -> usize {
        self.behavior.lock().unwrap().asked
    }

    fn request(&self, token: Option<&Arc<AccessToken>>, method: &Method) -> RequestToken {
        let principal = Principal::parse(b"ada").unwrap();
        let caller = Caller {
            token,
            ..Caller::of(&principal)
        };
        self.tokens.for_caller(&caller, method)
    }

    async fn get(&self, token: &Arc<AccessToken>) -> Result<HeaderValue, TokenExchangeError> {
        let request = self.request(Some(token), &Method::POST);
        Ok(request.authorization(&self.client).await?.unwrap())
    }

    async fn renew(&self, token: &Arc<AccessToken>, refused: &HeaderValue) -> Option<HeaderValue> {
        let request = self.request(Some(token), &Method::POST);
        request.renew(&self.client, refused).await
    }
}

/// Starts this renewal, and gives it up while the authorization server answers it.
async fn give_up(set: &Arrangement, renewal: impl Future<Output = Option<HeaderValue>>) {
    let held = set.gate.lock().await;
    let asked = set.asked();
    let is_asked = async {
        while set.asked() == asked {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = renewal => unreachable!("the server has not answered"),
        () = is_asked => {}
    }
    drop(held);
}

/// A caller's token, valid for an hour.
fn token(number: u8) -> Arc<AccessToken> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let expires_at = (now + HOUR).as_secs();
    Arc::new(AccessToken::new("a.b.c", [number; 32], expires_at))
}

/// Moves the clock. It runs on its own otherwise, because the server is asked over real connections.
async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

#[tokio::test]
async fn a_token_is_exchanged_once_until_it_or_the_callers_own_ends() {
    let set = Arrangement::start().await;
    let (ada, bob) = (token(1), token(2));
    let waiting = join_all((0..20).map(|_| set.get(&ada))).await;
    assert_eq!(set.asked(), 1);
    let first = set.get(&ada).await.unwrap();
    assert!(waiting.iter().all(|got| got.as_ref() == Ok(&first)));
    assert!(first.is_sensitive());
    assert_ne!(set.get(&bob).await.unwrap(), first);
    assert_eq!(set.asked(), 2);

    pass(HOUR - Duration::from_secs(10)).await;
    assert_eq!(set.get(&ada).await.unwrap(), first);
    pass(Duration::from_secs(10)).await;
    assert_ne!(
        set.get(&ada).await.unwrap(),
        first,
        "it was for an hour, not a day"
    );
    assert_eq!(set.asked(), 3);

    let expired = Arc::new(AccessToken::new("a.b.c", [3; 32], 1));
    assert_eq!(set.get(&expired).await, Err(TokenExchangeError::Expired));
    assert_eq!(set.asked(), 3);
}

#[tokio::test]
async fn a_failure_answers_for_a_while_and_a_valid_token_survives_a_silent_server() {
    let set = Arrangement::start().await;
    let (ada, bob) = (token(1), token(2));
    set.behave(|server| server.valid_seconds = 1000);
    let first = set.get(&ada).await.unwrap();
    set.behave(|server| server.status = StatusCode::SERVICE_UNAVAILABLE);
    pass(Duration::from_secs(900)).await;
    assert_eq!(set.get(&ada).await.unwrap(), first, "sent on");
    let asked = set.asked();
    pass(Duration::from_secs(40)).await;
    assert_eq!(set.get(&ada).await.unwrap(), first);
    assert_eq!(set.asked(), asked, "asked again after half of what remains");
    assert_eq!(set.get(&bob).await, Err(TokenExchangeError::Unavailable));
    pass(Duration::from_secs(61)).await;
    assert_eq!(set.get(&ada).await, Err(TokenExchangeError::Unavailable));

    for (error, expected) in [
        (
            "invalid_target",
            TokenExchangeError::Refused("invalid_target".into()),
        ),
        (
            "invalid_client",
            TokenExchangeError::GatewayRefused("invalid_client".into()),
        ),
    ] {
        set.behave(|server| (server.status, server.error) = (StatusCode::BAD_REQUEST, error));
        pass(SHARED_FOR).await;
        let asked = set.asked();
        for _ in 0..3 {
            assert_eq!(set.get(&ada).await.as_ref(), Err(&expected));
        }
        assert_eq!(set.asked(), asked + 1, "{error}");
    }
}

#[tokio::test]
async fn few_callers_tokens_are_asked_for_at_once() {
    let set = Arc::new(Arrangement::start().await);
    let closed = set.gate.lock().await;
    let requests: Vec<_> = (0..20)
        .map(|number| {
            let set = Arc::clone(&set);
            tokio::spawn(async move { set.get(&token(number)).await })
        })
        .collect();
    while set.asked() < EXCHANGES_MAX {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(set.asked(), EXCHANGES_MAX);
    drop(closed);
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_eq!(set.asked(), 20);
}

#[tokio::test]
async fn a_refused_token_is_replaced_once_in_a_while() {
    let set = Arrangement::start().await;
    let ada = token(1);
    let first = set.get(&ada).await.unwrap();
    let renewed = join_all((0..5).map(|_| set.renew(&ada, &first))).await;
    let second = set.get(&ada).await.unwrap();
    assert!(second != first && renewed.iter().all(|got| got.as_ref() == Some(&second)));
    assert_eq!(set.asked(), 2);
    assert_eq!(set.renew(&ada, &second).await, None);
    assert_eq!((set.get(&ada).await, set.asked()), (Ok(second.clone()), 2));
    pass(RENEW_PAUSE).await;
    assert!(set.renew(&ada, &second).await.is_some());
    assert_eq!(set.asked(), 3);
}

#[tokio::test]
async fn waiting_requests_share_a_token_that_is_hardly_valid() {
    let set = Arrangement::start().await;
    set.behave(|server| server.valid_seconds = 0);
    let ada = token(1);
    let waiting = join_all((0..20).map(|_| set.get(&ada))).await;
    let first = set.get(&ada).await.unwrap();
    assert_eq!(set.asked(), 1);
    assert!(waiting.iter().all(|got| got.as_ref() == Ok(&first)));
    pass(SHARED_FOR).await;
    assert_ne!(set.get(&ada).await.unwrap(), first);
}

#[tokio::test]
async fn a_request_that_is_given_up_takes_no_token_from_the_others() {
    let set = Arrangement::start().await;
    let ada = token(1);
    let refused = set.get(&ada).await.unwrap();
    give_up(&set, set.renew(&ada, &refused)).await;
    assert!(set.renew(&ada, &refused).await.is_some());

    let gateway = Principal::gateway();
    let own = set.tokens.for_caller(&Caller::of(&gateway), &Method::POST);
    give_up(&set, own.renew(&set.client, &refused)).await;
    assert!(own.renew(&set.client, &refused).await.is_some());
}

#[tokio::test]
async fn another_secret_cuts_the_tokens_of_the_one_before() {
    let set = Arrangement::start().await;
    let ada = token(1);
    let first = set.get(&ada).await.unwrap();
    write_secret(set.secret.path(), "one\n");
    set.tokens.endpoint.read_generation().await;
    assert_eq!(set.get(&ada).await.unwrap(), first, "the same secret");
    write_secret(set.secret.path(), "two");
    set.tokens.endpoint.read_generation().await;
    assert_ne!(set.get(&ada).await.unwrap(), first);
}

#[tokio::test]
async fn a_token_of_an_earlier_secret_replaces_none_of_a_later_one() {
    let own = OwnToken::default();
    for (generation, expected) in [(2, "2"), (1, "2"), (2, "2"), (3, "3")] {
        own.replace(FetchedToken {
            authorization: HeaderValue::from(generation),
            valid: HOUR,
            generation,
        });
        assert_eq!(own.authorization().unwrap(), expected);
    }
}

/// The secret is replaced while a token is fetched with the one before.
#[tokio::test]
async fn a_token_of_an_earlier_secret_is_soon_replaced() {
    let set = Arrangement::start().await;
    let held = set.gate.lock().await;
    let replaced = async {
        while set.asked() == 0 {
            tokio::task::yield_now().await;
        }
        write_secret(set.secret.path(), "two");
        // As another fetch does.
        set.tokens.endpoint.read_generation().await;
        drop(held);
        while set.tokens.own.authorization().is_none() {
            tokio::task::yield_now().await;
        }
        for _ in 0..200 {
            pass(SECRET_READ_EVERY).await;
            if set.asked() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("no other token is fetched");
    };
    tokio::select! {
        () = set.tokens.keep_current(&set.client, || ()) => {}
        () = replaced => {}
    }
}

#[tokio::test]
async fn only_what_has_no_caller_has_the_gateways_token() {
    let set = Arrangement::start().await;
    let own = async |request: RequestToken| request.authorization(&set.client).await;
    assert_eq!(own(set.request(None, &Method::DELETE)).await, Ok(None));
    let gateway = Principal::gateway();
    let of_gateway = set.tokens.for_caller(&Caller::of(&gateway), &Method::POST);
    assert_eq!(own(of_gateway).await, Ok(None), "none was fetched yet");
    let unknown = own(set.request(None, &Method::POST)).await;
    assert_eq!(unknown, Err(TokenExchangeError::NoToken));
    assert_eq!(set.asked(), 0);
}

#[test]
fn tokens_are_bounded() {
    let tokens = ExchangedTokens::default();
    for number in 0..3 * TOKENS_MAX {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        drop(tokens.slot(&digest));
    }
    assert!((TOKENS_MAX / 2..=TOKENS_MAX).contains(&tokens.len()));
}

#[test]
fn a_token_in_use_is_not_forgotten_for_others() {
    let tokens = ExchangedTokens::default();
    let digest = |number: usize| {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    };
    let known = tokens.slot(&digest(0));
    for number in 1..3 * TOKENS_MAX {
        drop(tokens.slot(&digest(number)));
        if number % 1000 == 0 {
            assert!(Arc::ptr_eq(&known, &tokens.slot(&digest(0))), "{number}");
        }
    }
}
