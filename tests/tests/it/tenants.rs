//! Two teams, at one gateway and at two of a fleet: whatever one does there, and whichever of its ids the other learns,
//! the other sees no more than of ids that never existed, and the gateway asks the store the same, so that the time tells
//! nothing either. Every route is asked; one that is missing here fails the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::{AUDIENCE, IdentityProvider};
use mooring_tests::legacy::LegacySession;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

/// The sources that have the gateway's routes.
const ROUTERS: [&str; 2] = [
    include_str!("../../../gateway/src/http/mod.rs"),
    include_str!("../../../gateway/src/http/governance/mod.rs"),
];

const ADA: Caller = Caller {
    user: "ada@vermilion.example",
    team: "team-vermilion",
};
const BOB: Caller = Caller {
    user: "bob@cobalt.example",
    team: "team-cobalt",
};
/// The server that only Ada's team may use, and the id of none.
const HERS: &str = "herserver";
const NO_SERVER: &str = "noserver7";
/// The server that users store credentials for.
const KEYED: &str = "keyed";
/// In every argument, program, file, skill and name of Ada's.
const MARKER: &str = "zqxmark";
/// Servers that both teams use.
const SHARED: [&str; 4] = ["shared", "piped", "workshop", "all"];
/// How long a stream is read that may never have an event.
const STREAM_READ_FOR: Duration = Duration::from_millis(60);

/// How often the store's commands of two requests are compared. What ends later than its request, such as a stream before
/// it, may count among them once.
const COMPARISONS_MAX: usize = 4;
/// How often a stream is asked for while the one before is open.
const STREAM_ATTEMPTS_MAX: usize = 200;

#[derive(Clone, Copy)]
struct Caller {
    user: &'static str,
    team: &'static str,
}

/// How callers are known.
enum Authentication {
    TrustedHeader,
    /// By tokens of one provider: Ada's and Bob's.
    Jwt {
        provider: Box<IdentityProvider>,
        tokens: [String; 2],
    },
}

impl Authentication {
    async fn by_tokens() -> anyhow::Result<Self> {
        let provider = Box::new(IdentityProvider::start().await?);
        let token = async |caller: Caller| {
            let claims = json!({"sub": caller.user, "groups": [caller.team]});
            provider.sign(&json!({}), &claims, "key").await
        };
        let tokens = [token(ADA).await?, token(BOB).await?];
        Ok(Self::Jwt { provider, tokens })
    }

    /// The lines of `[auth]` but its grants.
    fn toml(&self) -> String {
        match self {
            Self::TrustedHeader => {
                "mode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]".to_owned()
            }
            Self::Jwt { provider, .. } => format!(
                "mode = \"jwt\"\nissuer = {:?}\naudiences = [{AUDIENCE:?}]",
                provider.issuer()
            ),
        }
    }

    fn headers(&self, caller: Caller) -> Vec<(&'static str, String)> {
        match self {
            Self::TrustedHeader => vec![
                ("x-mooring-user", caller.user.to_owned()),
                ("x-mooring-teams", caller.team.to_owned()),
            ],
            Self::Jwt { tokens, .. } => {
                let [ada, bob] = tokens;
                let token = if caller.user == ADA.user { ada } else { bob };
                vec![("authorization", format!("Bearer {token}"))]
            }
        }
    }

    fn opening(&self, caller: Caller) -> anyhow::Result<Opening> {
        let mut headers = self.headers(caller).into_iter();
        headers.try_fold(Opening::default(), |opening, (name, value)| {
            opening.header(name, &value)
        })
    }
}

/// What a request may name of somebody.
#[derive(Clone, Default)]
struct Ids {
    user: String,
    team: String,
    server: String,
    /// By server.
    sessions: BTreeMap<String, String>,
    /// The last event of a call's stream, by server.
    events: BTreeMap<String, String>,
    /// Of an open stream of HTTP+SSE, at `shared`.
    legacy: String,
    run: String,
    skill: String,
    skill_id: String,
    approval: String,
}

impl Ids {
    /// Well-formed ids of nothing.
    fn made_up(&self) -> Self {
        let all = |ids: &BTreeMap<String, String>| {
            let changed = ids.iter().map(|(server, id)| {
                let server = if server == HERS { NO_SERVER } else { server };
                (server.to_owned(), changed(id))
            });
            changed.collect()
        };
        Self {
            user: "ida@vermilion.invalid".to_owned(),
            team: "team-of-nobody".to_owned(),
            server: NO_SERVER.to_owned(),
            sessions: all(&self.sessions),
            events: all(&self.events),
            legacy: changed(&self.legacy),
            run: changed(&self.run),
            skill: "no_such_skill".to_owned(),
            skill_id: changed(&self.skill_id),
            approval: changed(&self.approval),
        }
    }

    /// Every id, longest first.
    fn texts(&self) -> Vec<&str> {
        let plain = [
            &self.user,
            &self.team,
            &self.server,
            &self.legacy,
            &self.run,
            &self.skill,
            &self.skill_id,
            &self.approval,
        ];
        let maps = self.sessions.values().chain(self.events.values());
        let mut texts: Vec<&str> = plain.into_iter().chain(maps).map(String::as_str).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts
    }
}

/// Another id of the same form: one digit or letter near its end is the next one. So the time at the start of a run's id,
/// by which lists are cut, stays, and so does the number behind an event's stream.
fn changed(id: &str) -> String {
    let (id, number) = match id.rsplit_once(':') {
        Some((stream, number)) => (stream, format!(":{number}")),
        None => (id, String::new()),
    };
    // Each is followed by one of the same alphabet, of hexadecimal digits or of ULIDs.
    let has_next = |character: char| matches!(character, '0'..='8' | 'a'..='e' | 'A'..='G' | 'P'..='S' | 'V'..='Y');
    let mut characters: Vec<char> = id.chars().collect();
    if let Some(character) = characters
        .iter_mut()
        .rev()
        .find(|character| has_next(**character))
    {
        *character = char::from_u32(u32::from(*character) + 1).unwrap_or('0');
    }
    characters.into_iter().collect::<String>() + &number
}

/// One request of the walk.
struct Asked {
    method: Method,
    path: String,
    session: Option<String>,
    event: Option<String>,
    body: Option<Value>,
}

impl Asked {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            session: None,
            event: None,
            body: None,
        }
    }

    fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    fn post(path: impl Into<String>, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Method::POST, path)
        }
    }

    fn put(path: impl Into<String>, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Method::PUT, path)
        }
    }

    fn at(self, session: &str) -> Self {
        Self {
            session: Some(session.to_owned()),
            ..self
        }
    }

    fn after(self, event: &str) -> Self {
        Self {
            event: Some(event.to_owned()),
            ..self
        }
    }
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// Requests to the MCP endpoint of a server with a session and an event of `ids`, and with the caller's own session.
fn of_endpoint(path: &str, server: &str, ids: &Ids, own: &Ids) -> Vec<Asked> {
    let call = message("tools/call", json!({"name": "increment", "arguments": {}}));
    let mut asked = Vec::new();
    if server == ids.server {
        let params = Opening::default().initialize_params();
        asked.push(Asked::post(path, message("initialize", params)));
        asked.push(Asked::post(path, call.clone()));
        asked.push(Asked::get(path));
    }
    // Also a session of another server, and of the other transport.
    for session in ids.sessions.values().chain([&ids.legacy]) {
        asked.push(Asked::post(path, message("tools/list", json!({}))).at(session));
        asked.push(Asked::post(path, call.clone()).at(session));
        asked.push(Asked::get(path).at(session));
        asked.push(Asked::new(Method::DELETE, path).at(session));
    }
    for event in ids.events.values() {
        asked.extend(
            own.sessions
                .get(server)
                .map(|own| Asked::get(path).at(own).after(event)),
        );
        let session = ids.sessions.get(server);
        asked.extend(session.map(|session| Asked::get(path).at(session).after(event)));
    }
    asked
}

/// Requests with these ids to the route, as its source has it; none for a route that is not known here.
fn requests(route: &str, ids: &Ids, own: &Ids) -> Option<Vec<Asked>> {
    let Ids {
        user,
        team,
        server,
        run,
        skill,
        skill_id,
        approval,
        ..
    } = ids;
    let of_code = |path: &str| {
        [server, "workshop"].map(|server| Asked::get(format!("/servers/{server}/{path}")))
    };
    let decided = |path: &str| {
        let path = |server: &str| format!("/servers/{server}/skills/{path}");
        [server, "workshop"].map(|server| Asked::post(path(server), json!({})))
    };
    Some(match route {
        r#""/mcp""# => of_endpoint("/mcp", "shared", ids, own),
        r#""/servers/{id}/mcp""# => SHARED
            .into_iter()
            .chain([server.as_str()])
            .flat_map(|server| of_endpoint(&format!("/servers/{server}/mcp"), server, ids, own))
            .collect(),
        r#""/sse""# => vec![Asked::get("/sse"), Asked::get("/sse").at(&ids.legacy)],
        r#""/servers/{id}/sse""# => vec![Asked::get(format!("/servers/{server}/sse"))],
        r#""/messages""# => (ids.sessions.values().chain([&ids.legacy]))
            .map(|id| format!("/messages?sessionId={id}"))
            .map(|path| Asked::post(path, message("ping", json!({}))))
            .collect(),
        r#""/servers/{id}/messages""# => ["shared", "all", server]
            .map(|server| format!("/servers/{server}/messages?sessionId={}", ids.legacy))
            .map(|path| Asked::post(path, message("ping", json!({}))))
            .into(),
        "challenge::METADATA_PATH" => {
            vec![Asked::get("/.well-known/oauth-protected-resource")]
        }
        r#"&format!("{}/{{*path}}""# => vec![Asked::get(format!(
            "/.well-known/oauth-protected-resource/servers/{server}/mcp"
        ))],
        r#""/servers/{id}/code/runs""# => [
            "",
            "?limit=500",
            &format!("?before={run}"),
            &format!("?user={user}"),
        ]
        .into_iter()
        .flat_map(|query| of_code(&format!("code/runs{query}")))
        .collect(),
        r#""/servers/{id}/code/runs/{run}""# => of_code(&format!("code/runs/{run}")).into(),
        r#""/servers/{id}/code/runs/{run}/replay""# => [server, "workshop"]
            .map(|server| format!("/servers/{server}/code/runs/{run}/replay"))
            .map(|path| Asked::post(path, json!({})))
            .into(),
        r#""/servers/{id}/code/sessions""# => ["", &format!("?user={user}")]
            .into_iter()
            .flat_map(|query| of_code(&format!("code/sessions{query}")))
            .collect(),
        r#""/servers/{id}/code/security-events""# => ["", &format!("?user={user}")]
            .into_iter()
            .flat_map(|query| of_code(&format!("code/security-events{query}")))
            .collect(),
        r#""/servers/{id}/skills""# => {
            // Not asked: the version of a new skill with another team's name, which goes on from theirs. docs/governance.md
            // says so: versions are counted per name and server.
            let scopes = [format!("team:{team}"), format!("user:{user}")];
            let made = scopes.map(|scope| {
                let skill = json!({"name": "mine", "source_code": "x = 1\n", "scope": scope});
                Asked::post("/servers/workshop/skills", skill)
            });
            let lists = ["".to_owned(), format!("?name={skill}")];
            let lists = lists
                .iter()
                .flat_map(|query| of_code(&format!("skills{query}")));
            lists.chain(made).collect()
        }
        r#""/servers/{id}/skills/{skill}""# => [
            skill.clone(),
            format!("{skill}?version=1"),
            skill_id.clone(),
        ]
        .iter()
        .flat_map(|named| of_code(&format!("skills/{named}")))
        .collect(),
        r#""/servers/{id}/skills/{skill}/revoke""# => [skill, skill_id]
            .into_iter()
            .flat_map(|named| decided(&format!("{named}/revoke")))
            .collect(),
        r#""/servers/{id}/skills/approvals""# => of_code("skills/approvals").into(),
        r#""/servers/{id}/skills/approvals/{approval}/approve""# => {
            decided(&format!("approvals/{approval}/approve")).into()
        }
        r#""/servers/{id}/skills/approvals/{approval}/reject""# => {
            decided(&format!("approvals/{approval}/reject")).into()
        }
        r#""/credentials""# => vec![
            Asked::get("/credentials"),
            Asked::get(format!("/credentials?user={user}")),
            Asked::new(Method::DELETE, format!("/credentials?user={user}")),
        ],
        r#""/servers/{id}/credential""# => {
            let path = |server: &str| format!("/servers/{server}/credential");
            vec![
                Asked::put(path(server), json!({"secret": "mine"})),
                Asked::new(Method::DELETE, path(server)),
                // Where somebody else has stored one.
                Asked::new(Method::DELETE, path(KEYED)),
            ]
        }
        r#""/healthz""# => vec![Asked::get("/healthz")],
        r#""/readyz""# => vec![Asked::get("/readyz")],
        r#""/metrics""# => vec![Asked::get("/metrics")],
        r#""/.well-known/jwks.json""# => vec![Asked::get("/.well-known/jwks.json")],
        _ => return None,
    })
}

/// The first argument of every `.route(` of the gateway.
fn routes() -> Vec<&'static str> {
    let calls = ROUTERS
        .iter()
        .flat_map(|source| source.split(".route(").skip(1));
    calls
        .filter_map(|call| Some(call.split_once(',')?.0.trim()))
        .collect()
}

/// An answer without what may differ: the date, and the ids of the request.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    /// None for a stream of events, whose events may arrive later than they are read here.
    body: Option<String>,
}

/// How often each command to the store was run for requests.
type StoreCommands = BTreeMap<String, u64>;

struct Scene {
    /// Ada uses the first, Bob the last.
    gateways: Vec<Gateway>,
    client: HttpClient,
    authentication: Authentication,
    _fixture: Fixture,
    _volume: CodeVolume,
    _keys: FleetKeys,
    _redis: Option<Redis>,
}

impl Scene {
    /// One gateway with the embedded store, or two that share a Redis.
    async fn start(is_fleet: bool, authentication: Authentication) -> anyhow::Result<Self> {
        let fixture = Fixture::start("one").await?;
        let (volume, keys) = (CodeVolume::new()?, FleetKeys::new()?);
        let (ada, bob) = (ADA.team, BOB.team);
        let both = format!("allow = [{{ teams = [{ada:?}, {bob:?}] }}]");
        let (url, auth) = (fixture.url(), authentication.toml());
        let command = stdio_command("piped", None, &[])?;
        let keys_file = text_of(&keys.path());
        let toml = format!(
            r#"
            default.server = "shared"
            vault.keys_file = {keys_file:?}
            [auth]
            {auth}
            grants = [{{ teams = [{ada:?}, {bob:?}], rights = ["skills.create", "skills.approve", "skills.revoke"] }}]
            [[servers]]
            id = "{HERS}"
            instances = [{url:?}]
            allow = [{{ teams = [{ada:?}] }}]
            [[servers]]
            id = "hisserver"
            instances = [{url:?}]
            allow = [{{ teams = [{bob:?}] }}]
            [[servers]]
            id = "shared"
            instances = [{url:?}]
            {both}
            [[servers]]
            id = "{KEYED}"
            instances = [{url:?}]
            vault = {{ header = "x-tools-key" }}
            {both}
            [[servers]]
            id = "piped"
            kind = "stdio"
            command = {command:?}
            {both}
            [[servers]]
            id = "workshop"
            kind = "code"
            skills_require_approval = true
            {both}
            [[servers]]
            id = "all"
            kind = "group"
            members = ["{HERS}", "hisserver", "shared", "piped", "workshop"]
            "#
        );
        let settings = Settings::toml(toml)
            .env("MOORING_AFFINITY_ENABLED", "true")
            .env("MOORING_LOG_LEVEL", "debug")
            .env("MOORING_WORKER_FLEET_KEYS_FILE", &text_of(&keys.path()))
            .env("MOORING_CODE_BASE_DIR", &text_of(volume.path()));
        let (redis, gateways) = if is_fleet {
            let redis = Redis::start().await?;
            let settings = settings.env("MOORING_STORE_URL", &redis.url());
            (Some(redis), Gateway::fleet(2, &settings).await?)
        } else {
            (None, vec![Gateway::start("tenants", settings).await?])
        };
        Ok(Self {
            gateways,
            client: HttpClient::default(),
            authentication,
            _fixture: fixture,
            _volume: volume,
            _keys: keys,
            _redis: redis,
        })
    }

    fn gateway(&self, caller: Caller) -> anyhow::Result<&Gateway> {
        let gateway = match caller.user == ADA.user {
            true => self.gateways.first(),
            false => self.gateways.last(),
        };
        gateway.context("a gateway")
    }

    /// What Bob's gateway has asked the store for requests.
    async fn store_commands(&self) -> anyhow::Result<StoreCommands> {
        let metrics = self.gateway(BOB)?.metrics().await?;
        let counts = metrics.lines().filter_map(|line| {
            let line = line.strip_prefix("mooring_store_duration_seconds_count{")?;
            let (labels, count) = line.split_once("} ")?;
            let of_requests = !labels.contains("WORKER.") && !labels.contains("SESSION.REAP");
            of_requests.then(|| Some((labels.to_owned(), count.parse().ok()?)))?
        });
        Ok(counts.collect())
    }

    /// Whether the gateway asks the store the same for both requests of Bob's.
    async fn costs_the_same(&self, one: &Asked, other: &Asked) -> anyhow::Result<bool> {
        for _ in 0..COMPARISONS_MAX {
            let before = self.store_commands().await?;
            self.send(BOB, one).await?.text().await?;
            let between = self.store_commands().await?;
            self.send(BOB, other).await?.text().await?;
            if more(&before, &between) == more(&between, &self.store_commands().await?) {
                return Ok(true);
            }
            tokio::time::sleep(STREAM_READ_FOR).await;
        }
        Ok(false)
    }

    async fn session(&self, caller: Caller, server: &str) -> anyhow::Result<McpSession> {
        let endpoints = [self.gateway(caller)?.mcp_url(server)];
        McpSession::open_with(
            &self.client,
            &endpoints,
            self.authentication.opening(caller)?,
        )
        .await
    }

    async fn send(&self, caller: Caller, asked: &Asked) -> anyhow::Result<Reply> {
        let accept = match asked.method {
            Method::GET => "text/event-stream, application/json;q=0.5",
            _ => "application/json, text/event-stream",
        };
        let mut request = Request::builder()
            .method(asked.method.clone())
            .uri(self.gateway(caller)?.url(&asked.path))
            .header("accept", accept)
            .header("content-type", "application/json");
        for (name, value) in self.authentication.headers(caller) {
            request = request.header(name, value);
        }
        for (name, value) in [
            ("mcp-session-id", &asked.session),
            ("last-event-id", &asked.event),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let body = asked
            .body
            .as_ref()
            .map(Value::to_string)
            .unwrap_or_default();
        self.client.send(request.body(Bytes::from(body))?).await
    }

    async fn json(&self, caller: Caller, asked: Asked) -> anyhow::Result<Value> {
        let reply = self.send(caller, &asked).await?;
        let status = reply.status;
        let body = reply.json().await?;
        ensure!(status.is_success(), "{}: {status}: {body}", asked.path);
        Ok(body)
    }

    /// What the caller does at every server, with this marker in whatever can have one, and the ids that come of it. The
    /// sessions stay open.
    async fn live(&self, caller: Caller, server: &str, marker: &str) -> anyhow::Result<Ids> {
        let mut ids = Ids {
            user: caller.user.to_owned(),
            team: caller.team.to_owned(),
            server: server.to_owned(),
            ..Ids::default()
        };
        for server in SHARED.into_iter().chain([server]) {
            let mut session = self.session(caller, server).await?;
            let prefix = if server == "all" { "piped__" } else { "" };
            if server != "workshop" {
                let params = json!({
                    "name": format!("{prefix}progress"),
                    "arguments": {"n": 2, "step_ms": 0},
                    "_meta": {"progressToken": marker},
                });
                let call = session.request_body("tools/call", params);
                let mut stream = session.post(&call).await?;
                while let Some(event) = stream.next_event().await? {
                    if let Some(id) = event.id {
                        ids.events.entry(server.to_owned()).or_insert(id);
                    }
                    if event.data.contains("\"result\"") {
                        break;
                    }
                }
                let arguments = json!({"n": 1, "step_ms": 0, "text": marker});
                session.call(&format!("{prefix}log"), arguments).await?;
            }
            let id = session.id().context("a session id")?.to_owned();
            ids.sessions.insert(server.to_owned(), id);
        }
        let mut session = self.session(caller, "workshop").await?;
        let code = format!(
            "import tools\n\
             open('{marker}.txt', 'w').write('{marker}')\n\
             tools.call('{server}', 'log', {{'n': 1, 'step_ms': 0, 'text': '{marker}'}})\n\
             print('{marker}')\n"
        );
        let arguments = json!({"code": code, "language": "python"});
        let answer = whole_answer(&session.call("shell_exec", arguments).await?)?;
        ensure!(answer["output"].to_string().contains(marker), "{answer}");
        ids.run = text(&answer, "run_id")?;
        let blocked = format!("import os\nos.system('{marker}')");
        let arguments = json!({"code": blocked, "language": "python"});
        session.call("shell_exec", arguments).await?;
        ids.skill = format!("{marker}_skill");
        let skill = json!({
            "name": ids.skill,
            "source_code": format!("# {marker}\nx = '{marker}'\n"),
            "language": "python",
            "description": marker,
            "scope": format!("team:{}", caller.team),
        });
        let made = self
            .json(caller, Asked::post("/servers/workshop/skills", skill))
            .await?;
        ids.skill_id = text(&made, "id")?;
        ids.approval = text(&made, "approval_id")?;
        Ok(ids)
    }

    /// Every list has something of the caller's and nothing of anybody else's.
    async fn lists_have_ones_own(&self, caller: Caller, ids: &Ids) -> anyhow::Result<()> {
        for (path, list, owner) in [
            ("code/runs", "runs", "user_email"),
            ("code/sessions", "sessions", "user_email"),
            ("code/security-events", "events", "user_email"),
            ("skills", "skills", "owner_email"),
            ("skills/approvals", "approvals", "requested_by"),
        ] {
            let asked = Asked::get(format!("/servers/workshop/{path}"));
            let answer = self.json(caller, asked).await?;
            let entries = answer[list].as_array().context("a list")?;
            ensure!(!entries.is_empty(), "{path} of {}: {answer}", caller.user);
            for entry in entries {
                assert_eq!(entry[owner], caller.user, "{path}: {entry}");
            }
        }
        let mut group = self.session(caller, "all").await?;
        let tools = group
            .request("tools/list", json!({}))
            .await?
            .response
            .to_string();
        for server in [HERS, "hisserver"] {
            let is_own = server == ids.server;
            assert_eq!(
                tools.contains(server),
                is_own,
                "{server} for {}",
                caller.user
            );
        }
        let mut workshop = self.session(caller, "workshop").await?;
        let code = "import os\nprint(os.listdir('/tools'), os.listdir('/skills'), os.listdir('.'))";
        let arguments = json!({"code": code, "language": "python"});
        let answer = whole_answer(&workshop.call("shell_exec", arguments).await?)?;
        let output = text(&answer, "output")?;
        for server in [HERS, "hisserver"] {
            let is_own = server == ids.server;
            assert_eq!(
                output.contains(server),
                is_own,
                "{server} for {}: {output}",
                caller.user
            );
        }
        Ok(())
    }

    /// Nothing of the caller's was ended, decided or used up by others, and the ids are those of something.
    async fn still_has(&self, caller: Caller, ids: &Ids, marker: &str) -> anyhow::Result<()> {
        for (server, session) in &ids.sessions {
            let path = format!("/servers/{server}/mcp");
            let list = Asked::post(path, message("tools/list", json!({}))).at(session);
            let reply = self.send(caller, &list).await?;
            assert_eq!(reply.status, 200, "{server}");
        }
        for server in ["piped", "all"] {
            let event = ids.events.get(server).context("an event")?;
            let session = &ids.sessions[server];
            let asked = Asked::get(format!("/servers/{server}/mcp"))
                .at(session)
                .after(event);
            let mut resumed = self.send(caller, &asked).await?;
            let message = resumed.next_message().await?.context("a message")?;
            assert!(message.to_string().contains(marker), "{server}: {message}");
        }
        let run = format!("/servers/workshop/code/runs/{}", ids.run);
        let run = self.json(caller, Asked::get(run)).await?;
        assert!(run["code_body"].to_string().contains(marker), "{run}");
        let skills = self
            .json(caller, Asked::get("/servers/workshop/skills"))
            .await?;
        assert_eq!(skills["skills"][0]["status"], "pending", "{skills}");
        assert_eq!(skills["skills"][0]["id"], ids.skill_id.as_str(), "{skills}");
        let stored = self.json(caller, Asked::get("/credentials")).await?;
        assert!(
            stored["credentials"][0]["stored_at"].is_string(),
            "{stored}"
        );
        Ok(())
    }

    /// Sends a request as Bob. Fails if anything in the answer is Ada's.
    async fn answer(&self, asked: &Asked, ids: &Ids) -> anyhow::Result<Answer> {
        let mut reply = self.send(BOB, asked).await?;
        // A session has one stream, and the gateway may not have seen yet that the one before was closed.
        for _ in 0..STREAM_ATTEMPTS_MAX {
            if asked.method != Method::GET || reply.status != 409 {
                break;
            }
            tokio::time::sleep(STREAM_READ_FOR).await;
            reply = self.send(BOB, asked).await?;
        }
        let status = reply.status.as_u16();
        let mut headers: Vec<(String, String)> = (reply.headers.iter())
            .filter(|(name, _)| *name != "date" && *name != "content-length")
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        headers.sort();
        let is_stream = reply.is_event_stream();
        let body = if is_stream {
            let mut events = String::new();
            while let Ok(Ok(Some(event))) =
                tokio::time::timeout(STREAM_READ_FOR, reply.next_event()).await
            {
                events += &format!("{event:?}");
            }
            events
        } else {
            reply.text().await?
        };
        // What the request itself names may come back.
        let named = format!("{} {:?} {:?}", asked.path, asked.session, asked.event);
        let named = ids.texts().into_iter().filter(|id| named.contains(id));
        let whole = without(&format!("{headers:?} {body}"), named);
        // Probes show the servers' names to operators: docs/serving.md. The proxy that is trusted with users has to keep
        // them from clients.
        let is_probe = matches!(asked.path.as_str(), "/readyz" | "/metrics");
        let hidden = [ADA.user, "ada@", "vermilion", MARKER, HERS];
        for hidden in hidden.into_iter().filter(|name| !is_probe || *name != HERS) {
            ensure!(!whole.contains(hidden), "{hidden} in {status} {whole}");
        }
        Ok(Answer {
            status,
            headers,
            body: (!is_stream && !is_probe).then(|| without(&body, ids.texts().into_iter())),
        })
    }
}

/// What was run between the two.
fn more(before: &StoreCommands, after: &StoreCommands) -> StoreCommands {
    let more = after.iter().filter_map(|(command, count)| {
        let new = count - before.get(command).copied().unwrap_or_default();
        (new > 0).then(|| (command.clone(), new))
    });
    more.collect()
}

/// The text without these ids.
fn without<'ids>(text: &str, ids: impl Iterator<Item = &'ids str>) -> String {
    let ids = ids.filter(|id| !id.is_empty());
    ids.fold(text.to_owned(), |text, id| text.replace(id, "ID"))
}

fn text(value: &Value, field: &str) -> anyhow::Result<String> {
    let text = value[field].as_str().map(str::to_owned);
    text.with_context(|| format!("{field} in {value}"))
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn what_is_anothers_is_answered_as_what_never_was() -> anyhow::Result<()> {
    ask_for_what_is_anothers(Scene::start(false, Authentication::TrustedHeader).await?).await
}

#[tokio::test]
async fn tokens_tell_no_more_than_headers() -> anyhow::Result<()> {
    let authentication = Authentication::by_tokens().await?;
    ask_for_what_is_anothers(Scene::start(false, authentication).await?).await
}

#[tokio::test]
async fn another_gateway_of_the_fleet_tells_no_more() -> anyhow::Result<()> {
    ask_for_what_is_anothers(Scene::start(true, Authentication::TrustedHeader).await?).await
}

async fn ask_for_what_is_anothers(mut scene: Scene) -> anyhow::Result<()> {
    let ada = scene.live(ADA, HERS, MARKER).await?;
    let opening = scene.authentication.opening(ADA)?;
    let older = scene.gateway(ADA)?.url("/servers/shared/sse");
    let mut older = LegacySession::open_with(&scene.client, &older, &opening).await?;
    let endpoint = older.connection().endpoint();
    let (_, id) = endpoint.split_once("sessionId=").context("a session id")?;
    let ada = Ids {
        legacy: id.to_owned(),
        ..ada
    };
    let bob = scene.live(BOB, "hisserver", "bobmark").await?;
    let secret = json!({"secret": MARKER});
    let stored = Asked::put(format!("/servers/{KEYED}/credential"), secret);
    scene.json(ADA, stored).await?;
    let nobody = ada.made_up();
    for (hers, made_up) in ada.texts().iter().zip(nobody.texts()) {
        assert_ne!(*hers, made_up);
    }

    let mut wrong = Vec::new();
    for route in routes() {
        let of = |ids| requests(route, ids, &bob);
        let (Some(of_ada), Some(of_nobody)) = (of(&ada), of(&nobody)) else {
            wrong.push(format!("no request is known for the route {route}"));
            continue;
        };
        assert_eq!(of_ada.len(), of_nobody.len(), "{route}");
        let mut before = scene.store_commands().await?;
        for (hers, made_up) in of_ada.iter().zip(&of_nobody) {
            let what = format!(
                "{} {} {:?} {:?}",
                hers.method, hers.path, hers.session, hers.event
            );
            let answers = async {
                let hers = scene.answer(hers, &ada).await?;
                let between = scene.store_commands().await?;
                anyhow::Ok((hers, between, scene.answer(made_up, &nobody).await?))
            };
            match answers.await {
                Err(error) => wrong.push(format!("{what}: {error:#}")),
                Ok((hers, _, made_up)) if hers != made_up => {
                    wrong.push(format!("{what}: {hers:?}, but {made_up:?}"));
                }
                Ok((answer, between, _)) => {
                    let after = scene.store_commands().await?;
                    let is_same = more(&before, &between) == more(&between, &after);
                    before = after;
                    // A stream's end costs commands, which come at any time.
                    let is_stream = answer.body.is_none();
                    if !is_same && !is_stream && !scene.costs_the_same(hers, made_up).await? {
                        wrong.push(format!("{what}: it costs other commands"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers: {wrong:#?}", wrong.len());

    scene.lists_have_ones_own(ADA, &ada).await?;
    scene.lists_have_ones_own(BOB, &bob).await?;
    scene.still_has(ADA, &ada, MARKER).await?;
    let ping = older.request("ping", json!({})).await?.response;
    assert_eq!(ping["result"], json!({}), "{ping}");

    let mut texts = Vec::new();
    for gateway in &mut scene.gateways {
        let log = gateway.process().log_text();
        assert!(log.contains("DEBUG"), "{log}");
        texts.extend([("metrics", gateway.metrics().await?), ("log", log)]);
    }
    let mut shown = Vec::new();
    for (place, text) in &texts {
        for ids in [&ada, &bob] {
            let names = [ids.user.as_str(), &ids.team, &ids.legacy, MARKER, "bobmark"];
            let hidden = ids.sessions.values().map(String::as_str).chain(names);
            for hidden in hidden.filter(|hidden| !hidden.is_empty()) {
                let lines = text.lines().filter(|line| line.contains(hidden));
                shown.extend(lines.map(|line| format!("{hidden} in {place}: {line}")));
            }
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
    Ok(())
}
