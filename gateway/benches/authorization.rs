//! What it costs a call to know its caller and what they may use, in CPU time: without authentication, by the headers of
//! a proxy, by a token that was verified before, and by a new one each time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::HeaderMap;
use mooring_identity::{Authentication, Authenticator, Peer};
use mooring_pipeline::policy::AccessPolicy;
use mooring_settings::{Environment, Flags, Settings};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Calls of each kind that are timed, in each of the rounds.
const CALLS: usize = 20_000;
/// New tokens, each of which is verified once.
const NEW_TOKENS: usize = 2_000;
const ROUNDS: usize = 5;

const RULES: &str = r#"
[[servers]]
id = "tools"
instances = ["http://127.0.0.1:9001/mcp"]
allow = [
    { teams = ["admins"] },
    { users = ["*@other.example"] },
    { roles = ["lead"], teams = ["qa"] },
    { teams = ["dev"], tools = ["get_*", "list_*"], deny_tools = ["get_secret"] },
]
"#;

fn main() {
    // `cargo test --benches` runs this file too; without `--bench` it measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let home = tempfile::tempdir().expect("a directory");
    let issuer = Issuer::new(home.path());
    println!("| caller | us of CPU a call |\n|---|---|");
    runtime.block_on(async {
        let none = Arrangement::new(home.path(), "[auth]\nmode = \"none\"\n").await;
        let header = Arrangement::new(
            home.path(),
            "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n",
        )
        .await;
        let jwt = Arrangement::new(home.path(), &issuer.settings).await;
        let mut proxied = HeaderMap::new();
        proxied.insert(
            "x-mooring-user",
            "ada@corp.example".parse().expect("a value"),
        );
        proxied.insert("x-mooring-teams", "red,dev".parse().expect("a value"));
        let known = issuer.request(0);
        for (name, arrangement, requests, calls) in [
            ("no authentication", &none, vec![HeaderMap::new()], CALLS),
            ("named by a proxy", &header, vec![proxied], CALLS),
            ("token verified before", &jwt, vec![known], CALLS),
        ] {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push(arrangement.cost_us(&requests, calls).await);
            }
            println!("| {name} | {:.2} |", median(rounds));
        }
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let first = 1 + round * NEW_TOKENS;
            let new: Vec<HeaderMap> = (first..first + NEW_TOKENS)
                .map(|number| issuer.request(number))
                .collect();
            rounds.push(jwt.cost_us(&new, NEW_TOKENS).await);
        }
        println!("| token verified now (ES256) | {:.2} |", median(rounds));
    });
}

struct Arrangement {
    authenticator: Authenticator,
    policy: AccessPolicy,
}

impl Arrangement {
    async fn new(home: &Path, auth: &str) -> Self {
        let file = home.join("mooring.toml");
        std::fs::write(&file, format!("{auth}{RULES}")).expect("settings");
        let flags = Flags {
            config: Some(file),
            ..Flags::default()
        };
        let environment = Environment::from_iter([("HOME", home)]);
        let settings = Settings::load(&environment, &flags)
            .expect("settings")
            .settings;
        let authenticator = Authenticator::new(settings.auth.clone()).expect("an authenticator");
        authenticator.read_keys().await;
        Self {
            policy: AccessPolicy::of(&settings),
            authenticator,
        }
    }

    /// The CPU time of one call: who it is from, whether they may use the server, and the tool.
    async fn cost_us(&self, requests: &[HeaderMap], calls: usize) -> f64 {
        let peer = Peer::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000)));
        let before = cpu_ns();
        for headers in requests.iter().cycle().take(calls) {
            let identified = self.authenticator.identify(&peer, headers, None).await;
            let caller = match identified {
                Ok(Authentication::Complete(caller)) => Some(caller),
                Ok(Authentication::NeedsProof(_)) | Err(_) => None,
            };
            let caller = caller.expect("a caller");
            assert!(black_box(self.policy.may_use(&caller, "tools")));
            assert!(black_box(self.policy.may_call(
                &caller,
                "tools",
                "get_issue"
            )));
        }
        (cpu_ns() - before) / 1000.0 / calls as f64
    }
}

/// Signs tokens.
struct Issuer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    settings: String,
}

impl Issuer {
    fn new(home: &Path) -> Self {
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
                .expect("a key");
        // An uncompressed point: 4, x, y.
        let point = &key.public_key().as_ref()[1..];
        let (x, y) = point.split_at(32);
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one",
            "x": BASE64.encode(x), "y": BASE64.encode(y)}]});
        let file = home.join("keys.json");
        std::fs::write(&file, keys.to_string()).expect("keys");
        Self {
            key,
            random,
            settings: format!(
                "[auth]\nmode = \"jwt\"\nissuer = \"https://issuer.example\"\naudiences = [\"gateway\"]\njwks_file = {file:?}\n"
            ),
        }
    }

    /// The headers of a request with a token of its own.
    fn request(&self, number: usize) -> HeaderMap {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time")
            .as_secs();
        let part = |value: serde_json::Value| BASE64.encode(value.to_string());
        let header = part(json!({"alg": "ES256", "typ": "at+jwt", "kid": "one"}));
        let claims = part(
            json!({"iss": "https://issuer.example", "aud": "gateway", "sub": "ada@corp.example",
            "groups": ["red", "dev"], "scope": "openid tools", "iat": now, "exp": now + 600, "jti": number}),
        );
        let signed = format!("{header}.{claims}");
        let signature = self
            .key
            .sign(&self.random, signed.as_bytes())
            .expect("a signature");
        let token = format!("Bearer {signed}.{}", BASE64.encode(signature.as_ref()));
        HeaderMap::from_iter([(http::header::AUTHORIZATION, token.parse().expect("a value"))])
    }
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The CPU time of this thread.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
