//! Servers that are called with the credential that each user has stored at the gateway.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::redis::Redis;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The server that the stored tokens are for.
const RESOURCE: &str = "https://tools.example/";
const PAGE: &str = "https://gateway.example/credentials?from=client";
/// How long another gateway may use a credential that was replaced, a key file may go unread, or an upstream session may
/// go on that is to be deleted.
const DONE_WITHIN: Duration = Duration::from_secs(30);
/// The code of the error that says that the user has stored nothing.
const MISSING: i64 = -32018;
const ELICITATION: i64 = -32042;

/// Two gateways before a server that admits the tokens of its users alone, which its journal names.
struct Arrangement {
    provider: IdentityProvider,
    gateways: Vec<Gateway>,
    client: HttpClient,
    journal: PathBuf,
    keys: PathBuf,
    instances: Vec<Server>,
    redis: Redis,
    _volume: CodeVolume,
    _directory: TempDir,
}

impl Arrangement {
    async fn start() -> anyhow::Result<Self> {
        let provider = IdentityProvider::start().await?;
        let issuer = provider.issuer();
        let directory = TempDir::with_prefix("mooring-vault-")?;
        let file = |name: &str| directory.path().join(name);
        let (issuer_keys, journal, keys) = (file("issuer"), file("journal"), file("keys"));
        std::fs::write(&issuer_keys, format!("{issuer}/jwks"))?;
        write_keys(&keys, "1")?;
        let arguments = [
            "--issuer",
            &issuer,
            "--algorithm",
            "RS256",
            "--audience",
            RESOURCE,
        ];
        let instances = vec![
            Server::verifying_tokens_of(&issuer_keys, &journal, &arguments).await?,
            Server::verifying_tokens_of(&issuer_keys, &journal, &arguments).await?,
        ];
        // Without the requests that found them started.
        std::fs::write(&journal, "")?;
        let urls: Vec<String> = instances.iter().map(Server::url).collect();
        let of_gateway = provider.token("gateway", RESOURCE, "read").await?;
        let (redis, volume) = (Redis::start().await?, CodeVolume::new()?);
        let mut servers = String::new();
        for (id, affinity) in [("tools", "on"), ("pooled", "off")] {
            servers.push_str(&format!(
                "[[servers]]\nid = {id:?}\ninstances = {urls:?}\naffinity = {affinity:?}\n\
                 headers = {{ Authorization = \"Bearer {of_gateway}\" }}\n\
                 vault = {{ header = \"authorization\", prefix = \"Bearer \" }}\n",
            ));
        }
        let settings = Settings::toml(format!(
            "[store]\nurl = {:?}\n[vault]\nkeys_file = {:?}\n{servers}\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n",
            redis.url(),
            keys.display().to_string(),
        ))
        .users_by_header()
        .env(
            "MOORING_CODE_BASE_DIR",
            &volume.path().display().to_string(),
        );
        Ok(Self {
            gateways: Gateway::fleet(2, &settings).await?,
            provider,
            client: HttpClient::default(),
            journal,
            keys,
            instances,
            redis,
            _volume: volume,
            _directory: directory,
        })
    }

    fn gateway(&self, index: usize) -> anyhow::Result<&Gateway> {
        self.gateways.get(index).context("a gateway")
    }

    /// A token of the server for this subject.
    async fn token(&self, subject: &str) -> anyhow::Result<String> {
        self.provider.token(subject, RESOURCE, "read").await
    }

    /// Stores a token of this subject for `tools` and `pooled`, at the first gateway.
    async fn store(&self, user: &str, subject: &str) -> anyhow::Result<String> {
        let token = self.token(subject).await?;
        for server in ["tools", "pooled"] {
            let stored = put(self.gateway(0)?, server, user, &token).await?;
            assert_eq!(stored.status, StatusCode::OK);
        }
        Ok(token)
    }

    async fn open(&self, server: &str, user: &str) -> anyhow::Result<McpSession> {
        open(self.gateway(0)?, server, user).await
    }

    /// The same session at the other gateway.
    fn at_other_gateway(&self, session: &McpSession, server: &str) -> anyhow::Result<McpSession> {
        Ok(session.fork(&self.client, &[self.gateway(1)?.mcp_url(server)]))
    }

    fn journal(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.journal)?)
    }

    /// The keys of stored credentials.
    fn stored_keys(&self) -> anyhow::Result<Vec<String>> {
        let found = self.redis.cli(&["--scan", "--pattern", "*sealed:*"])?;
        Ok(found.lines().map(str::to_owned).collect())
    }
}

/// A file with these keys, each of one digit.
fn write_keys(path: &PathBuf, digits: &str) -> anyhow::Result<()> {
    let lines = digits.chars().map(|digit| digit.to_string().repeat(64));
    let text: Vec<String> = lines.collect();
    let new = path.with_extension("new");
    std::fs::write(&new, text.join("\n"))?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    Ok(std::fs::rename(new, path)?)
}

fn opening(user: &str) -> anyhow::Result<Opening> {
    Opening::default()
        .header("x-mooring-user", user)?
        // A client's own token, which is not the gateway's to give away.
        .header("authorization", "Bearer of-the-client")
}

async fn open(gateway: &Gateway, server: &str, user: &str) -> anyhow::Result<McpSession> {
    let endpoints = [gateway.mcp_url(server)];
    McpSession::open_with(&HttpClient::default(), &endpoints, opening(user)?).await
}

async fn ask(
    gateway: &Gateway,
    method: Method,
    path: &str,
    user: &str,
    body: &str,
) -> anyhow::Result<Reply> {
    let request = Request::builder()
        .method(method)
        .uri(gateway.url(path))
        .header("content-type", "application/json")
        .header("x-mooring-user", user)
        .body(Bytes::from(body.to_owned()))?;
    HttpClient::default().send(request).await
}

async fn put(gateway: &Gateway, server: &str, user: &str, secret: &str) -> anyhow::Result<Reply> {
    let path = format!("/servers/{server}/credential");
    let body = json!({"secret": secret}).to_string();
    ask(gateway, Method::PUT, &path, user, &body).await
}

/// What the user has stored: the servers, and whether there is something.
async fn listed(gateway: &Gateway, user: &str) -> anyhow::Result<Vec<(String, bool)>> {
    let reply = ask(gateway, Method::GET, "/credentials", user, "").await?;
    assert_eq!(reply.status, StatusCode::OK);
    let list = reply.json().await?;
    let list = list["credentials"].as_array().context("a list")?;
    let shown = list.iter().map(|entry| {
        let server = entry["server"].as_str().context("a server")?;
        Ok((server.to_owned(), entry["stored_at"].is_string()))
    });
    shown.collect()
}

/// The response to an `initialize` of a client with these capabilities.
async fn initialize(
    gateway: &Gateway,
    server: &str,
    user: &str,
    capabilities: Value,
) -> anyhow::Result<Value> {
    let opening = Opening {
        capabilities,
        ..Opening::default()
    };
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": opening.initialize_params()});
    let request = Request::post(gateway.mcp_url(server))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("x-mooring-user", user)
        .body(Bytes::from(message.to_string()))?;
    let reply = HttpClient::default().send(request).await?;
    assert_eq!(reply.status, StatusCode::OK);
    reply.json().await
}

/// Whom the server takes the request for.
async fn subject(session: &mut McpSession, tool: &str) -> anyhow::Result<String> {
    let result = session.call(tool, json!({})).await?;
    let subject = result["structuredContent"]["sub"].as_str();
    Ok(subject.with_context(|| result.to_string())?.to_owned())
}

/// The code of the error that a call gets; 0 if it gets none.
async fn error_code(session: &mut McpSession) -> anyhow::Result<i64> {
    let params = json!({"name": "whoami", "arguments": {}});
    let exchange = session.request("tools/call", params).await?;
    Ok(exchange.response["error"]["code"].as_i64().unwrap_or(0))
}

#[tokio::test]
async fn every_request_has_the_credential_of_its_own_user() -> anyhow::Result<()> {
    let mut set = Arrangement::start().await?;
    let refused = initialize(set.gateway(0)?, "tools", "ada", json!({})).await?;
    assert_eq!(refused["error"]["code"], MISSING, "{refused}");

    let tokens = [
        set.store("ada", "ada").await?,
        set.store("bob", "bob").await?,
    ];
    let (mut ada, mut bob) = (
        set.open("tools", "ada").await?,
        set.open("tools", "bob").await?,
    );
    let mut pooled = [
        set.open("pooled", "ada").await?,
        set.open("pooled", "bob").await?,
    ];
    for _ in 0..3 {
        assert_eq!(subject(&mut ada, "whoami").await?, "ada");
        assert_eq!(subject(&mut bob, "whoami").await?, "bob");
        for (session, expected) in pooled.iter_mut().zip(["ada", "bob"]) {
            assert_eq!(subject(session, "whoami").await?, expected);
        }
    }
    let mut grouped = set.open("all", "bob").await?;
    assert_eq!(subject(&mut grouped, "tools__whoami").await?, "bob");
    let mut coder = set.open("sandbox", "ada").await?;
    let code = "import tools\nprint(tools.call('tools', 'whoami', {})['sub'])";
    let arguments = json!({"code": code, "language": "python"});
    let ran = whole_answer(&coder.call("shell_exec", arguments).await?)?;
    assert_eq!(ran["output"], "ada\n", "{ran}");

    // Another gateway reads what is stored, also for the handshakes at another instance.
    let first = set.gateways.first_mut().context("a gateway")?;
    let mut logs = first.process().log_text();
    first.process().kill_now()?;
    let (mut ada, mut bob) = (
        set.at_other_gateway(&ada, "tools")?,
        set.at_other_gateway(&bob, "tools")?,
    );
    assert_eq!(subject(&mut ada, "whoami").await?, "ada");
    assert_eq!(subject(&mut bob, "whoami").await?, "bob");
    let lost = set.instances.first_mut().context("an instance")?;
    lost.process().kill_now()?;
    for (session, expected) in [(&mut ada, "ada"), (&mut bob, "bob")] {
        assert_eq!(subject(session, "whoami").await?, expected);
    }
    for session in [&mut ada, &mut bob] {
        assert_eq!(session.delete().await?.status, 204);
    }
    for user in ["ada", "bob"] {
        wait::until_true("the deletion upstream", DONE_WITHIN, async || {
            Ok(set.journal()?.contains(&format!("DELETE 200 {user}")))
        })
        .await?;
    }
    let journal = set.journal()?;
    ensure!(
        !journal.contains(" -\n"),
        "a request with another credential: {journal}"
    );

    let second = set.gateways.get_mut(1).context("a gateway")?;
    logs.push_str(&second.process().log_text());
    let metrics = second.metrics().await?;
    set.redis.cli(&["SAVE"])?;
    let dump = std::fs::read(set.redis.directory().join("dump.rdb"))?;
    for token in &tokens {
        ensure!(!logs.contains(token.as_str()), "{logs}");
        ensure!(!metrics.contains(token.as_str()), "{metrics}");
        // A part, because the dump may be compressed.
        let part = token.as_bytes().rchunks(16).next().context("a token")?;
        ensure!(!dump.windows(part.len()).any(|found| found == part));
    }
    let keys = set.stored_keys()?;
    assert_eq!(keys.len(), 4, "{keys:?}");
    // `ada` could be among the digits of a digest.
    let named = keys.iter().filter(|key| key.contains("bob"));
    assert_eq!(named.count(), 0, "{keys:?}");
    Ok(())
}

#[tokio::test]
async fn a_changed_credential_is_used_everywhere_and_a_deleted_one_nowhere() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    set.store("ada", "ada").await?;
    let mut ada = set.open("tools", "ada").await?;
    let mut pooled = set.open("pooled", "ada").await?;
    let mut elsewhere = set.at_other_gateway(&ada, "tools")?;
    for session in [&mut ada, &mut pooled, &mut elsewhere] {
        assert_eq!(subject(session, "whoami").await?, "ada");
    }
    let mut stream = ada.listen(None).await?;
    assert_eq!(stream.status, StatusCode::OK);

    set.store("ada", "bob").await?;
    assert_eq!(subject(&mut ada, "whoami").await?, "bob");
    wait::until_true("the new credential", DONE_WITHIN, async || {
        Ok(subject(&mut elsewhere, "whoami").await? == "bob")
    })
    .await?;
    let posts = |journal: String| journal.matches("POST 20").count();
    let before = posts(set.journal()?);
    assert_eq!(subject(&mut pooled, "whoami").await?, "bob");
    let handshake_and_call = posts(set.journal()?) - before;
    assert_eq!(
        handshake_and_call, 3,
        "no session of the first credential is used on"
    );
    let ended = async {
        while stream.next_event().await?.is_some() {}
        anyhow::Ok(())
    };
    tokio::time::timeout(DONE_WITHIN, ended)
        .await
        .context("the stream of the first credential goes on")??;

    // What is stored is its user's alone.
    let gateway = set.gateway(1)?;
    let both = |is_stored| ["pooled", "tools"].map(|server| (server.to_owned(), is_stored));
    assert_eq!(listed(gateway, "ada").await?, both(true));
    assert_eq!(listed(gateway, "bob").await?, both(false));
    let path = "/servers/tools/credential";
    let of_bob = ask(gateway, Method::DELETE, path, "bob", "").await?;
    assert_eq!(of_bob.status, StatusCode::NOT_FOUND);
    assert_eq!(
        of_bob.json().await?["error"]["code"],
        "credential_not_found"
    );
    let by_bob = ask(gateway, Method::DELETE, "/credentials?user=ada", "bob", "").await?;
    assert_eq!(by_bob.status, StatusCode::FORBIDDEN);
    assert_eq!(subject(&mut elsewhere, "whoami").await?, "bob");

    let deleted = ask(gateway, Method::DELETE, path, "ada", "").await?;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(error_code(&mut elsewhere).await?, MISSING);
    wait::until_true(
        "the deletion at the other gateway",
        DONE_WITHIN,
        async || Ok(error_code(&mut ada).await? == MISSING),
    )
    .await?;
    let listen = ada.listen(None).await?;
    assert_eq!(listen.status, StatusCode::FORBIDDEN);

    // What an administrator may do.
    let by_admin = Request::delete(gateway.url("/credentials?user=ada"))
        .header("x-mooring-user", "root")
        .header("x-mooring-roles", "admin")
        .body(Bytes::new())?;
    let by_admin = set.client.send(by_admin).await?;
    assert_eq!(by_admin.json().await?, json!({"deleted": true}));
    assert_eq!(listed(gateway, "ada").await?, both(false));
    assert_eq!(set.stored_keys()?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn only_its_own_keys_and_user_open_what_is_stored() -> anyhow::Result<()> {
    let mut set = Arrangement::start().await?;
    let gateway = set.gateway(0)?;
    let (of_ada, of_bob) = (set.token("ada").await?, set.token("bob").await?);
    assert_eq!(put(gateway, "tools", "ada", &of_ada).await?.status, 200);
    let ada_key = set.stored_keys()?.pop().context("a key")?;
    assert_eq!(put(gateway, "tools", "bob", &of_bob).await?.status, 200);
    let bob_key = set.stored_keys()?.into_iter().find(|key| *key != ada_key);
    let bob_key = bob_key.context("another key")?;
    let (mut ada, mut bob) = (
        set.open("tools", "ada").await?,
        set.open("tools", "bob").await?,
    );
    assert_eq!(subject(&mut bob, "whoami").await?, "bob");

    // Moved to another user's place, it is of no use there.
    set.redis.cli(&["COPY", &ada_key, &bob_key, "REPLACE"])?;
    wait::until_true("the refusal", DONE_WITHIN, async || {
        Ok(error_code(&mut bob).await? == MISSING)
    })
    .await?;
    assert_eq!(subject(&mut ada, "whoami").await?, "ada");
    ensure!(!set.journal()?.contains("401"), "a request went out");
    assert_eq!(put(gateway, "tools", "bob", &of_bob).await?.status, 200);
    assert_eq!(subject(&mut bob, "whoami").await?, "bob");

    // Both keys are used until what was stored with the old one has been stored again.
    write_keys(&set.keys, "21")?;
    for gateway in &mut set.gateways {
        let process = gateway.process();
        wait::until_true("the keys are read", DONE_WITHIN, async || {
            Ok(process.log_text().contains("other keys of the vault"))
        })
        .await?;
    }
    for (session, expected) in [(&mut ada, "ada"), (&mut bob, "bob")] {
        assert_eq!(subject(session, "whoami").await?, expected);
    }
    let gateway = set.gateway(0)?;
    assert_eq!(put(gateway, "tools", "ada", &of_ada).await?.status, 200);
    let keys = set.stored_keys()?;
    ensure!(
        !keys.contains(&ada_key) && keys.contains(&bob_key),
        "{keys:?}"
    );
    write_keys(&set.keys, "2")?;
    wait::until_true("the old key is gone", DONE_WITHIN, async || {
        Ok(error_code(&mut bob).await? == MISSING)
    })
    .await?;
    assert_eq!(subject(&mut ada, "whoami").await?, "ada");

    // Without the store there is none, whatever else is served.
    set.redis.stop_server().await?;
    let refused = put(set.gateway(0)?, "tools", "ada", &of_ada).await?;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let message = ada.request_body("tools/call", json!({"name": "whoami", "arguments": {}}));
    wait::until_true("the refusal", DONE_WITHIN, async || {
        let reply = ada.post(&message).await?;
        Ok(reply.status == StatusCode::SERVICE_UNAVAILABLE
            && reply.json().await?["error"]["code"] == -32008)
    })
    .await
}

#[tokio::test]
async fn a_client_that_opens_addresses_is_told_where_to_store_one() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-vault-")?;
    let keys = directory.path().join("keys");
    write_keys(&keys, "1")?;
    let fixture = Fixture::start("one").await?;
    let settings = Settings::toml(format!(
        "[vault]\nkeys_file = {:?}\npage_url = {PAGE:?}\n\
         [[servers]]\nid = \"tools\"\ninstances = [{:?}]\nvault = {{ header = \"x-tools-key\" }}\n\
         [[servers]]\nid = \"plain\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"plain\"]\n",
        keys.display().to_string(),
        fixture.url(),
        fixture.url(),
    ))
    .users_by_header();
    let mut gateway = Gateway::start("vault", settings).await?;
    let opens_addresses = json!({"elicitation": {"url": {}, "form": {}}});
    let check = |response: &Value| {
        let error = &response["error"];
        assert_eq!(error["code"], ELICITATION, "{response}");
        let asked = &error["data"]["elicitations"][0];
        assert_eq!(asked["mode"], "url");
        assert_eq!(asked["url"], format!("{PAGE}&server=tools"));
        ensure!(
            asked["elicitationId"].is_string() && asked["message"].is_string(),
            "{asked}"
        );
        anyhow::Ok(())
    };
    check(&initialize(&gateway, "tools", "ada", opens_addresses.clone()).await?)?;
    for others in [
        json!({}),
        json!({"elicitation": {}}),
        json!({"elicitation": {"form": {}}}),
    ] {
        let refused = initialize(&gateway, "tools", "ada", others).await?;
        assert_eq!(refused["error"]["code"], MISSING, "{refused}");
        let message = refused["error"]["message"].as_str().context("a message")?;
        ensure!(message.contains("/servers/{id}/credential"), "{message}");
    }

    // The group is there without this member, whose calls say what is missing.
    let opening = Opening {
        capabilities: opens_addresses,
        ..opening("ada")?
    };
    let client = HttpClient::default();
    let mut grouped =
        McpSession::open_with(&client, &[gateway.mcp_url("all")], opening.clone()).await?;
    let call = json!({"name": "tools__increment", "arguments": {}});
    check(&grouped.request("tools/call", call.clone()).await?.response)?;

    assert_eq!(
        put(&gateway, "tools", "ada", "it is mine").await?.status,
        200
    );
    let mut session = McpSession::open_with(&client, &[gateway.mcp_url("tools")], opening).await?;
    assert_eq!(session.increment().await?, 1);
    let answered = grouped.request("tools/call", call).await?.response;
    ensure!(answered["result"].is_object(), "{answered}");
    gateway.restart().await?;
    let mut session = session.fork(&client, &[gateway.mcp_url("tools")]);
    session.increment().await?;
    let path = "/servers/tools/credential";
    assert_eq!(
        ask(&gateway, Method::DELETE, path, "ada", "").await?.status,
        200
    );
    let params = json!({"name": "increment", "arguments": {}});
    check(&session.request("tools/call", params).await?.response)?;

    // What is refused, without repeating it.
    for (server, body, status, code) in [
        ("tools", r#""hunter2""#, 400, "invalid_body"),
        (
            "tools",
            r#"{"secret": 5, "b": "hunter2"}"#,
            400,
            "invalid_body",
        ),
        ("tools", r#"{"secret": ""}"#, 422, "credential_invalid"),
        (
            "tools",
            r#"{"secret": " hunter2"}"#,
            422,
            "credential_invalid",
        ),
        (
            "tools",
            r#"{"secret": "hunter2\r\nx: y"}"#,
            422,
            "credential_invalid",
        ),
        ("plain", r#"{"secret": "hunter2"}"#, 404, "server_not_found"),
        ("all", r#"{"secret": "hunter2"}"#, 404, "server_not_found"),
        (
            "unknown",
            r#"{"secret": "hunter2"}"#,
            404,
            "server_not_found",
        ),
    ] {
        let path = format!("/servers/{server}/credential");
        let reply = ask(&gateway, Method::PUT, &path, "ada", body).await?;
        assert_eq!(reply.status, status, "{body}");
        let text = reply.text().await?;
        ensure!(text.contains(code) && !text.contains("hunter2"), "{text}");
    }
    let long = "x".repeat(8 * 1024 + 1);
    assert_eq!(put(&gateway, "tools", "ada", &long).await?.status, 422);
    assert_eq!(
        put(&gateway, "tools", "ada", long.get(1..).context("one less")?)
            .await?
            .status,
        200
    );
    let log = gateway.process().log_text();
    ensure!(
        !log.contains("hunter2") && !log.contains("it is mine"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn keys_that_others_may_read_are_refused_at_the_start() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-vault-")?;
    let keys = directory.path().join("keys");
    let settings = Settings::toml(format!(
        "[vault]\nkeys_file = {:?}\n\
         [[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9/mcp\"]\n\
         vault = {{ header = \"x-tools-key\" }}\n",
        keys.display().to_string(),
    ))
    .users_by_header();
    let refused = async |why: &str| {
        let (status, output) = Gateway::refused(settings.clone()).await?;
        assert_eq!(status.code(), Some(69), "{output}");
        ensure!(
            output.contains("vault.keys_file") && output.contains(why),
            "{output}"
        );
        anyhow::Ok(())
    };
    refused("cannot open").await?;
    write_keys(&keys, "1")?;
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644))?;
    refused("only its owner may read it").await?;
    std::fs::write(&keys, "hunter2")?;
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600))?;
    refused("line 1").await
}
