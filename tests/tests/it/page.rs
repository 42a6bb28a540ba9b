//! The operators' page in a browser: headless Chromium at a live fleet, each workflow once, axe clean in both themes, and no
//! error of a script, the console or the content security policy.
//!
//! `MOORING_PAGE_IMAGES=docs/images cargo test --workspace --test it page::` makes the pictures of the guide anew.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::script::run_client_for;
use mooring_tests::session::{McpSession, Opening};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where pictures of the pages go, if they are wanted.
const IMAGES: &str = "MOORING_PAGE_IMAGES";
/// An output, a description and a reason that would run as a script if a page did not escape them.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// What the browser has found.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    violations: Vec<Value>,
    problems: Vec<String>,
    checked: Vec<String>,
}

/// Two gateways with a server of two instances and one of code, whose callers have API keys.
struct PageFleet {
    gateways: Vec<Gateway>,
    home: TempDir,
    client: HttpClient,
    _fixtures: Vec<Fixture>,
    _redis: Redis,
    _keys: FleetKeys,
}

impl PageFleet {
    async fn start() -> anyhow::Result<Self> {
        let (redis, keys, home) = (Redis::start().await?, FleetKeys::new()?, TempDir::new()?);
        let fixtures = vec![Fixture::start("one").await?, Fixture::start("two").await?];
        let instances: Vec<String> = fixtures.iter().map(Fixture::url).collect();
        let file = home.path().join("keys.json");
        make_key(&file, "nobody", &[])?;
        let toml = format!(
            "[store]\nurl = {:?}\n[affinity]\nenabled = true\n[worker]\n{}\n\
             [auth]\nmode = \"api-key\"\napi_keys_file = {:?}\n\
             [[servers]]\nid = \"tools\"\ninstances = {instances:?}\n\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\nskills_require_approval = true\n",
            redis.url(),
            keys.toml(),
            file.display().to_string(),
        );
        let volume = home.path().join("code");
        let settings =
            Settings::toml(toml).env("MOORING_CODE_BASE_DIR", &volume.display().to_string());
        Ok(Self {
            gateways: Gateway::fleet(2, &settings).await?,
            home,
            client: HttpClient::new(Duration::from_secs(90)),
            _fixtures: fixtures,
            _redis: redis,
            _keys: keys,
        })
    }

    /// A new key, which every gateway knows.
    async fn key(&self, user: &str, roles: &[&str]) -> anyhow::Result<String> {
        let key = make_key(&self.home.path().join("keys.json"), user, roles)?;
        for gateway in &self.gateways {
            let url = gateway.url("/whoami");
            mooring_tests::wait::until_true(
                "the key is known",
                Duration::from_secs(30),
                async || {
                    let request = Request::get(&url).header("x-api-key", &key);
                    Ok(self.client.send(request.body(Bytes::new())?).await?.status == 200)
                },
            )
            .await?;
        }
        Ok(key)
    }

    async fn open(&self, key: &str, server: &str) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| gateway.mcp_url(server))
            .collect();
        let opening = Opening::default().header("x-api-key", key)?;
        McpSession::open_with(&self.client, &endpoints, opening).await
    }

    /// A new version of a skill, which waits for approval.
    async fn create_skill(&self, key: &str, name: &str) -> anyhow::Result<()> {
        let skill = json!({"name": name, "source_code": "def greet():\n    return 'hello'\n", "description": HOSTILE});
        let request = Request::post(self.gateways[0].url("/servers/sandbox/skills"))
            .header("x-api-key", key)
            .header("content-type", "application/json");
        let reply = self
            .client
            .send(request.body(Bytes::from(skill.to_string()))?)
            .await?;
        let status = reply.status;
        ensure!(status == 201, "a skill: {status}: {}", reply.text().await?);
        Ok(())
    }

    /// Takes these steps in a browser.
    async fn browse(&self, steps: Value) -> anyhow::Result<Report> {
        browse(&self.gateways, &self.home, steps).await
    }
}

pub(crate) async fn browse(
    gateways: &[Gateway],
    home: &TempDir,
    steps: Value,
) -> anyhow::Result<Report> {
    let gateways: Vec<String> = gateways.iter().map(|gateway| gateway.url("")).collect();
    let file = home.path().join("steps.json");
    std::fs::write(
        &file,
        json!({"gateways": gateways, "steps": steps}).to_string(),
    )?;
    let file = file.display().to_string();
    let mut arguments = vec!["--steps", &file];
    let images =
        std::env::var_os(IMAGES).map(|folder| paths::workspace().join(PathBuf::from(folder)));
    let images = images.map(|folder| folder.display().to_string());
    if let Some(images) = &images {
        arguments.extend(["--images", images]);
    }
    run_client_for("page.mjs", &arguments).await
}

/// A new key of `mooring keys create`.
fn make_key(file: &Path, user: &str, roles: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(paths::binary("mooring")?);
    command.args(["keys", "create", "--user", user]);
    for role in roles {
        command.args(["--role", role]);
    }
    let output = command.arg("--file").arg(file).env_clear().output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

pub(crate) fn check(report: &Report, pages: &[&str]) {
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert_eq!(report.checked, pages);
}

/// These steps, one a line in the tests.
fn steps<const COUNT: usize>(steps: [Value; COUNT]) -> Vec<Value> {
    steps.into()
}

pub(crate) fn open(path: &str) -> Value {
    json!({"open": path})
}

pub(crate) fn see(text: &str) -> Value {
    json!({"see": text})
}

pub(crate) fn look(name: &str) -> Value {
    json!({"check": name})
}

/// The same, with a picture for the guide.
pub(crate) fn look_and_picture(name: &str, theme: &str) -> Value {
    json!({"check": name, "picture": theme})
}

pub(crate) fn press_button(name: &str) -> Value {
    json!({"click": name})
}

pub(crate) fn follow_link(name: &str) -> Value {
    json!({"click": name, "role": "link"})
}

fn fill(label: &str, text: &str) -> Value {
    json!({"fill": label, "with": text})
}

fn at(path: &str) -> Value {
    json!({"at": path})
}

/// Nobody is known without a sign-in, and a wrong key is none. The other gateway knows the person, too.
fn sign_in_steps(key: &str) -> Vec<Value> {
    steps([
        open("/ui/fleet"),
        at("/ui/sign-in"),
        look("sign-in"),
        fill("API key", "mk_0_wrong"),
        press_button("Sign in"),
        see("the API key is not known"),
        fill("API key", key),
        press_button("Sign in"),
        at("/ui/fleet"),
        see("gateway-2"),
        look_and_picture("fleet", "light"),
        json!({"open": "/ui/sessions", "gateway": 1}),
        see("tools"),
        look_and_picture("sessions", "dark"),
    ])
}

/// The search finds while somebody types; a session is looked at, and ended.
fn session_steps() -> Vec<Value> {
    steps([
        fill("Search", "nobody has this"),
        see("No session was found."),
        fill("Search", "server:tools"),
        see("End all that match"),
        open("/ui/sessions?text=server%3Atools"),
        json!({"follow": "#results tbody a"}),
        see("Where its calls go"),
        look_and_picture("session", "light"),
        follow_link("End this session"),
        see("If you confirm"),
        look("end"),
        press_button("End the session"),
        see("The session has ended."),
    ])
}

/// A server is parked, and a gateway drained.
fn fleet_steps() -> Vec<Value> {
    steps([
        open("/ui/servers"),
        follow_link("tools"),
        see("Instances"),
        look("server"),
        follow_link("Park"),
        fill("Why (others see it)", HOSTILE),
        press_button("Park"),
        see("it gets nothing new"),
        open("/ui/servers/tools"),
        see("Unpark"),
        open("/ui/fleet"),
        follow_link("Drain"),
        press_button("Drain the gateway"),
        see("The gateway drains"),
        open("/ui/fleet"),
        see("Undrain"),
    ])
}

/// A run is replayed, a skill approved and revoked, and an event shown as it happens.
fn code_steps(user: &str) -> Vec<Value> {
    let blocked = json!({"code": "import os\nos.system('x')", "language": "python"});
    let call =
        json!({"server": "sandbox", "key": user, "tool": "shell_exec", "arguments": blocked});
    steps([
        open("/ui/runs"),
        json!({"follow": "tbody a"}),
        see("Output"),
        look("run"),
        json!({"expand": "Replay"}),
        press_button("Replay"),
        see("The replay is the same"),
        look("replay"),
        open("/ui/skills"),
        follow_link("greeting"),
        look("skill"),
        json!({"expand": "Approve"}),
        press_button("Approve"),
        see("The version is approved."),
        json!({"expand": "Revoke"}),
        press_button("Revoke"),
        see("The version is revoked."),
        open("/ui/events?kind=policy_block"),
        see("No events."),
        json!({"call": call}),
        see("os.system"),
        look("events"),
    ])
}

/// The rights of another user are explained, and a call is tried with its bytes.
fn call_steps() -> Vec<Value> {
    steps([
        open("/ui/rights?user=bob&roles=servers.use"),
        see("without rules it needs the right servers.use"),
        look("rights"),
        open("/ui/call"),
        json!({"choose": "Server", "option": "sandbox"}),
        press_button("List its tools"),
        json!({"choose": "Tool", "option": "shell_exec"}),
        press_button("Show its schema"),
        fill(
            "Arguments (JSON)",
            r#"{"code": "print(6 * 7)", "language": "python"}"#,
        ),
        press_button("Call"),
        see("The tool has answered."),
        see("POST /servers/sandbox/mcp HTTP/1.1"),
        look_and_picture("call", "dark"),
    ])
}

/// The page is used by keys alone, and left.
fn key_steps() -> Vec<Value> {
    let press = |key: &str| json!({"press": key});
    steps([
        press("?"),
        see("Light or dark"),
        press("Escape"),
        press("g"),
        press("v"),
        at("/ui/servers"),
        press_button("Sign out"),
        at("/ui/sign-in"),
        open("/ui/fleet"),
        at("/ui/sign-in"),
    ])
}

#[tokio::test]
async fn a_person_does_each_workflow_with_a_browser() -> anyhow::Result<()> {
    let fleet = PageFleet::start().await?;
    let admin = fleet.key("ada@example.org", &["admin"]).await?;
    let user = fleet.key("bob@example.org", &["servers.use"]).await?;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = fleet.open(&user, "tools").await?;
        session.increment().await?;
        sessions.push(session);
    }
    let mut coder = fleet.open(&user, "sandbox").await?;
    let code = format!("print({HOSTILE:?})");
    coder
        .call("shell_exec", json!({"code": code, "language": "python"}))
        .await?;
    fleet.create_skill(&admin, "greeting").await?;

    let steps = [
        sign_in_steps(&admin),
        session_steps(),
        fleet_steps(),
        code_steps(&user),
        call_steps(),
        key_steps(),
    ];
    let report = fleet.browse(steps.concat().into());
    let pages = [
        "sign-in", "fleet", "sessions", "session", "end", "server", "run", "replay", "skill",
        "events", "rights", "call",
    ];
    check(&report.await?, &pages);
    Ok(())
}

#[tokio::test]
async fn the_page_works_without_scripts() -> anyhow::Result<()> {
    let fleet = PageFleet::start().await?;
    let admin = fleet.key("ada@example.org", &["admin"]).await?;
    let mut session = fleet.open(&admin, "tools").await?;
    session.increment().await?;
    let steps = steps([
        json!({"scripts": false}),
        open("/ui/sessions"),
        fill("API key", &admin),
        press_button("Sign in"),
        at("/ui/sessions"),
        fill("Search", "user:ada@example.org"),
        press_button("Search"),
        json!({"follow": "#results tbody a"}),
        see("Where its calls go"),
        follow_link("End this session"),
        press_button("End the session"),
        see("The session has ended."),
        open("/ui/fleet"),
        see("gateway-1"),
    ]);
    let report = fleet.browse(steps.into());
    check(&report.await?, &[]);
    assert_eq!(
        session
            .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
            .await?
            .status,
        404
    );
    Ok(())
}

/// The provider is on another site than the gateway, as it is outside of tests: `localhost` and 127.0.0.1.
#[tokio::test]
async fn a_person_signs_in_with_an_account_at_a_provider() -> anyhow::Result<()> {
    let (provider, home, redis, keys) = (
        IdentityProvider::start().await?,
        TempDir::new()?,
        Redis::start().await?,
        FleetKeys::new()?,
    );
    let secret = home.path().join("secret");
    std::fs::write(&secret, "secret\n")?;
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
    let toml = format!(
        "[store]\nurl = {:?}\n[worker]\n{}\n{}grants = [{{ teams = [\"dev\"], rights = [\"admin\"] }}]\n\
         [ui]\noidc_issuer = {:?}\noidc_client_id = \"page\"\noidc_client_secret_file = {:?}\n",
        redis.url(),
        keys.toml(),
        provider.auth_toml(),
        provider.issuer(),
        secret.display().to_string(),
    );
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let urls: Vec<String> = gateways
        .iter()
        .map(|gateway| format!("http://localhost:{}", gateway.port()))
        .collect();
    let redirects: Vec<String> = urls
        .iter()
        .map(|url| format!("{url}/ui/sign-in/callback"))
        .collect();
    provider.allow_redirects(&redirects).await?;
    let sign_in_as = |user: &str| {
        steps([
            follow_link("Sign in with 127.0.0.1"),
            fill("User", user),
            press_button("Continue"),
        ])
    };
    let steps = [
        steps([open("/ui/servers"), at("/ui/sign-in")]),
        sign_in_as("ada"),
        // The other gateway knows her, too; one without the team sees nothing.
        steps([
            at("/ui/servers"),
            see("ada"),
            json!({"open": "/ui/servers", "gateway": 1}),
            at("/ui/servers"),
            see("ada"),
            press_button("Sign out"),
            at("/ui/sign-in"),
            json!({"forget": true}),
            open("/ui/sign-in"),
        ]),
        sign_in_as("bob"),
        // An answer that belongs to no sign-in of this browser signs nobody in.
        steps([
            see("no right to see this page"),
            open("/ui/sign-in/callback?code=x&state=y"),
            see("begun in another browser"),
        ]),
    ]
    .concat();
    let file = home.path().join("steps.json");
    std::fs::write(&file, json!({"gateways": urls, "steps": steps}).to_string())?;
    let report: Report =
        run_client_for("page.mjs", &["--steps", &file.display().to_string()]).await?;
    check(&report, &[]);
    Ok(())
}
