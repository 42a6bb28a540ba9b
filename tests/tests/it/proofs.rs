//! Tokens that are bound to a key (DPoP, RFC 9449), from a real identity provider: a stolen token, or a proof that was seen
//! once, is worth nothing, at whichever gateway.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Request;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::identity_provider::IdentityProvider;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::{increment, initialize_params, kept, sharing};
use crate::tenants::requests::{Asked, Ids, requests, routes};

const RESOURCE: &str = "http://127.0.0.1:1/mcp";
/// Whose key tokens are bound to.
const HOLDER: &str = "laptop";

/// Two gateways that share their state, and what they trust.
struct Arrangement {
    provider: IdentityProvider,
    gateways: [Gateway; 2],
    client: HttpClient,
    _fixture: Fixture,
    _home: TempDir,
}

impl Arrangement {
    /// `more` are lines of `[auth]`.
    async fn start(more: &str) -> anyhow::Result<Self> {
        let provider = IdentityProvider::start().await?;
        let fixture = Fixture::start("one").await?;
        let home = TempDir::new()?;
        let settings = kept(&[fixture.url()])
            .more_toml(&format!("{}{more}", provider.toml()))
            .env("MOORING_LISTEN_REFUSALS_PER_PEER_PER_SECOND", "0");
        let (one, two) = tokio::try_join!(
            sharing("proofs-1", &settings, home.path()),
            sharing("proofs-2", &settings, home.path())
        )?;
        Ok(Self {
            provider,
            gateways: [one, two],
            client: HttpClient::default(),
            _fixture: fixture,
            _home: home,
        })
    }

    async fn bound_token(&self) -> anyhow::Result<String> {
        let provider = &self.provider;
        provider.bound_token("ada", RESOURCE, "read", HOLDER).await
    }

    /// A proof for a POST at the first gateway.
    async fn proof(&self, token: &str, header: Value, changes: Value) -> anyhow::Result<String> {
        self.proof_of(HOLDER, token, header, changes).await
    }

    async fn proof_of(
        &self,
        holder: &str,
        token: &str,
        header: Value,
        changes: Value,
    ) -> anyhow::Result<String> {
        let mut claims = json!({"htm": "POST", "htu": self.gateways[0].mcp_url("tools")});
        let fields = claims.as_object_mut().context("claims")?;
        fields.extend(changes.as_object().context("changes")?.clone());
        let provider = &self.provider;
        provider.prove(holder, Some(token), &header, &claims).await
    }

    /// `initialize` at one of the gateways.
    async fn initialize(
        &self,
        gateway: usize,
        authorization: &str,
        proofs: &[&str],
    ) -> anyhow::Result<Reply> {
        let params = initialize_params();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        self.post(gateway, authorization, proofs, None, body.to_string())
            .await
    }

    async fn post(
        &self,
        gateway: usize,
        authorization: &str,
        proofs: &[&str],
        session: Option<&str>,
        body: String,
    ) -> anyhow::Result<Reply> {
        let mut request = Request::post(self.gateways[gateway].mcp_url("tools"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", authorization);
        for proof in proofs {
            request = request.header("dpop", *proof);
        }
        if let Some(id) = session {
            request = request.header("mcp-session-id", id);
        }
        self.client.send(request.body(Bytes::from(body))?).await
    }
}

fn challenge(reply: &Reply) -> &str {
    reply.header("www-authenticate").unwrap_or_default()
}

#[tokio::test]
async fn a_proof_is_for_one_key_token_method_and_place() -> anyhow::Result<()> {
    let set = Arrangement::start("").await?;
    let (token, other) = tokio::try_join!(set.bound_token(), set.bound_token())?;
    let scheme = format!("DPoP {token}");
    let none = || json!({});
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let at = |seconds: i64| json!({"iat": now.as_secs().cast_signed() + seconds});
    let url = set.gateways[0].mcp_url("tools");
    let bearer = format!("Bearer {token}");
    let refused = [
        (
            set.proof_of("thief", &token, none(), none()).await?,
            "another key than the token's",
        ),
        (
            set.proof(&other, none(), none()).await?,
            "for another token",
        ),
        (
            set.proof(&token, none(), json!({"ath": null})).await?,
            "not a signed JWT",
        ),
        (
            set.proof(&token, none(), json!({"htm": "GET"})).await?,
            "another method",
        ),
        (
            set.proof(
                &token,
                none(),
                json!({"htu": set.gateways[1].mcp_url("tools")}),
            )
            .await?,
            "another URL",
        ),
        (
            set.proof(&token, none(), at(-300)).await?,
            "not made just now",
        ),
        (
            set.proof(&token, none(), at(300)).await?,
            "not made just now",
        ),
        (
            set.proof(&token, json!({"typ": "JWT"}), none()).await?,
            "not a signed JWT",
        ),
        (
            set.proof(&token, json!({"alg": "none"}), none()).await?,
            "algorithm is not allowed",
        ),
        (
            set.proof(&token, json!({"alg": "HS256"}), none()).await?,
            "algorithm is not allowed",
        ),
        (
            set.proof(&token, json!({"alg": "ES384"}), none()).await?,
            "no public key for its algorithm",
        ),
        (
            set.proof(&token, json!({"crit": ["x"]}), none()).await?,
            "critical extension",
        ),
        ("x".repeat(9_000), "longer than"),
    ];
    for (proof, description) in &refused {
        let reply = set.initialize(0, &scheme, &[proof]).await?;
        let challenge = challenge(&reply);
        ensure!(
            reply.status == 401
                && challenge.starts_with("DPoP resource_metadata=")
                && challenge.contains(r#"error="invalid_dpop_proof""#)
                && challenge.contains(description)
                && challenge.contains("ES256"),
            "{description}: {} {challenge}",
            reply.status
        );
    }
    for (authorization, proofs, code) in [
        (&scheme, 0, "invalid_dpop_proof"),
        (&scheme, 2, "invalid_dpop_proof"),
        (&bearer, 1, "invalid_token"),
        (&bearer, 0, "invalid_token"),
    ] {
        let mut sent = Vec::new();
        for _ in 0..proofs {
            sent.push(set.proof(&token, none(), none()).await?);
        }
        let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
        let reply = set.initialize(0, authorization, &sent).await?;
        let challenge = challenge(&reply);
        ensure!(
            reply.status == 401 && challenge.starts_with("DPoP ") && challenge.contains(code),
            "{authorization}: {} {challenge}",
            reply.status
        );
    }
    // The same place, as others write it.
    let written = url.replace("http://127", "HTTP://127") + "?query#fragment";
    let written = written.replace("/tools/", "/%74ools/");
    let proof = set.proof(&token, none(), json!({"htu": written})).await?;
    ensure!(set.initialize(0, &scheme, &[&proof]).await?.status == 200);
    // A token that is bound to no key goes on as before.
    let plain = set.provider.token("ada", RESOURCE, "read").await?;
    ensure!(
        set.initialize(0, &format!("Bearer {plain}"), &[])
            .await?
            .status
            == 200
    );
    let proof = set.proof(&plain, none(), none()).await?;
    let reply = set
        .initialize(0, &format!("DPoP {plain}"), &[&proof])
        .await?;
    ensure!(reply.status == 401 && challenge(&reply).contains("not bound"));
    Ok(())
}

#[tokio::test]
async fn a_proof_is_accepted_once_by_all_gateways_together() -> anyhow::Result<()> {
    // Every gateway is at the same address for its clients.
    let set = Arrangement::start("[listen]\npublic_url = \"https://gateway.example\"\n").await?;
    let token = set.bound_token().await?;
    let scheme = format!("DPoP {token}");
    let proof = async || {
        let htu = json!({"htu": "https://gateway.example/servers/tools/mcp"});
        set.proof(&token, json!({}), htu).await
    };
    let first = proof().await?;
    let opened = set.initialize(0, &scheme, &[&first]).await?;
    ensure!(opened.status == 200);
    let id = opened
        .header("mcp-session-id")
        .context("a session")?
        .to_owned();
    for gateway in [0, 1] {
        let replayed = set.initialize(gateway, &scheme, &[&first]).await?;
        let challenge = challenge(&replayed);
        ensure!(
            replayed.status == 401 && challenge.contains("used before"),
            "gateway {gateway}: {} {challenge}",
            replayed.status
        );
    }
    // The session goes on with another proof, with a renewed token, and with one of another key.
    let renewed = set.provider.bound_token("ada", RESOURCE, "read", "phone");
    let renewed = renewed.await?;
    let htu = json!({"htu": "https://gateway.example/servers/tools/mcp"});
    let of_phone = set.proof_of("phone", &renewed, json!({}), htu).await?;
    for (number, scheme, proof) in [
        ("1", scheme.clone(), proof().await?),
        ("2", format!("DPoP {renewed}"), of_phone),
    ] {
        let proofs = [&*proof];
        let reply = set.post(1, &scheme, &proofs, Some(&id), increment(number));
        let reply = reply.await?;
        let (status, text) = (reply.status, reply.text().await?);
        ensure!(
            status == 200 && text.contains("count"),
            "{number}: {status} {text}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn proofs_can_be_required() -> anyhow::Result<()> {
    let set = Arrangement::start("dpop_required = true\n").await?;
    let plain = set.provider.token("ada", RESOURCE, "read").await?;
    let reply = set.initialize(0, &format!("Bearer {plain}"), &[]).await?;
    ensure!(reply.status == 401 && challenge(&reply).starts_with("DPoP "));
    let token = set.bound_token().await?;
    let proof = set.proof(&token, json!({}), json!({})).await?;
    let reply = set
        .initialize(0, &format!("DPoP {token}"), &[&proof])
        .await?;
    ensure!(reply.status == 200);
    let url = set.gateways[0].url("/.well-known/oauth-protected-resource/servers/tools/mcp");
    let metadata = set.client.get(&url).await?.json().await?;
    ensure!(
        metadata["dpop_bound_access_tokens_required"] == true,
        "{metadata}"
    );
    let algorithms = &metadata["dpop_signing_alg_values_supported"];
    ensure!(
        algorithms
            .as_array()
            .is_some_and(|list| list.contains(&json!("ES256"))),
        "{metadata}"
    );
    Ok(())
}

#[tokio::test]
async fn every_route_that_knows_its_caller_demands_the_proof() -> anyhow::Result<()> {
    let set = Arrangement::start("").await?;
    let token = set.bound_token().await?;
    let (bound, bearer) = (format!("DPoP {token}"), format!("Bearer {token}"));
    let id = || "a".to_owned();
    let ids = Ids {
        server: "tools".to_owned(),
        legacy: id(),
        run: id(),
        skill: id(),
        skill_id: id(),
        approval: id(),
        ..Ids::default()
    };
    // For the MCP endpoint, and for none of these requests.
    let other = set
        .proof(&token, json!({}), json!({"htm": "PATCH"}))
        .await?;
    for route in routes() {
        let asked = requests(route, &ids, &Ids::default());
        for asked in asked.with_context(|| format!("no request is known for {route}"))? {
            let Asked { method, path, .. } = &asked;
            if is_for_everybody(path) {
                continue;
            }
            for (authorization, proof) in [(&bound, None), (&bearer, None), (&bound, Some(&other))]
            {
                let mut request = Request::builder()
                    .method(method)
                    .uri(set.gateways[0].url(path))
                    .header("accept", "application/json, text/event-stream")
                    .header("content-type", "application/json")
                    .header("authorization", authorization);
                if let Some(session) = &asked.session {
                    request = request.header("mcp-session-id", session);
                }
                if let Some(proof) = proof {
                    request = request.header("dpop", proof);
                }
                let body = asked.body.as_ref().map(Value::to_string);
                let body = Bytes::from(body.unwrap_or_default());
                let reply = set.client.send(request.body(body)?).await?;
                ensure!(
                    reply.status == 401 && challenge(&reply).starts_with("DPoP "),
                    "{method} {path}: {} {}",
                    reply.status,
                    challenge(&reply)
                );
            }
        }
    }
    Ok(())
}

fn is_for_everybody(path: &str) -> bool {
    ["/healthz", "/readyz", "/metrics", "/top", "/openapi.json"].contains(&path)
        || path.starts_with("/.well-known/")
}
