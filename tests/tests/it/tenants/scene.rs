//! The gateways, what a caller does at them, and what they answer to the other one.

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
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use serde_json::{Value, json};

use super::callers::{ADA, Authentication, BOB, Caller};
use super::requests::{Asked, Ids, message};
use super::{HERS, KEYED, MARKER, SHARED};

/// How long a stream is read that may never have an event.
const STREAM_READ_FOR: Duration = Duration::from_millis(60);

/// How often the store's commands of two requests are compared. What ends later than its request, such as a stream before
/// it, may count among them once.
const COMPARISONS_MAX: usize = 4;
/// How often a stream is asked for while the one before is open.
const STREAM_ATTEMPTS_MAX: usize = 200;

/// An answer without what may differ: the date, and the ids of the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// None for a stream of events, whose events may arrive later than they are read here.
    pub(super) body: Option<String>,
}

/// How often each command to the store was run for requests.
type StoreCommands = BTreeMap<String, u64>;

pub(super) struct Scene {
    /// Ada uses the first, Bob the last.
    pub(super) gateways: Vec<Gateway>,
    pub(super) client: HttpClient,
    pub(super) authentication: Authentication,
    _fixture: Fixture,
    _volume: CodeVolume,
    _keys: FleetKeys,
    _redis: Option<Redis>,
}

impl Scene {
    /// One gateway with the embedded store, or two that share a Redis.
    pub(super) async fn start(
        is_fleet: bool,
        authentication: Authentication,
    ) -> anyhow::Result<Self> {
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

    pub(super) fn gateway(&self, caller: Caller) -> anyhow::Result<&Gateway> {
        let gateway = match caller.user == ADA.user {
            true => self.gateways.first(),
            false => self.gateways.last(),
        };
        gateway.context("a gateway")
    }

    /// What Bob's gateway has asked the store for requests.
    pub(super) async fn store_commands(&self) -> anyhow::Result<StoreCommands> {
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
    pub(super) async fn costs_the_same(&self, one: &Asked, other: &Asked) -> anyhow::Result<bool> {
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

    pub(super) async fn session(&self, caller: Caller, server: &str) -> anyhow::Result<McpSession> {
        let endpoints = [self.gateway(caller)?.mcp_url(server)];
        McpSession::open_with(
            &self.client,
            &endpoints,
            self.authentication.opening(caller)?,
        )
        .await
    }

    pub(super) async fn send(&self, caller: Caller, asked: &Asked) -> anyhow::Result<Reply> {
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

    pub(super) async fn json(&self, caller: Caller, asked: Asked) -> anyhow::Result<Value> {
        let reply = self.send(caller, &asked).await?;
        let status = reply.status;
        let body = reply.json().await?;
        ensure!(status.is_success(), "{}: {status}: {body}", asked.path);
        Ok(body)
    }

    /// What the caller does at every server, with this marker in whatever can have one, and the ids that come of it. The
    /// sessions stay open.
    pub(super) async fn live(
        &self,
        caller: Caller,
        server: &str,
        marker: &str,
    ) -> anyhow::Result<Ids> {
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
    pub(super) async fn lists_have_ones_own(
        &self,
        caller: Caller,
        ids: &Ids,
    ) -> anyhow::Result<()> {
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
    pub(super) async fn still_has(
        &self,
        caller: Caller,
        ids: &Ids,
        marker: &str,
    ) -> anyhow::Result<()> {
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
    pub(super) async fn answer(&self, asked: &Asked, ids: &Ids) -> anyhow::Result<Answer> {
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
            .filter(|(name, _)| {
                !["date", "content-length", "x-request-id"].contains(&name.as_str())
            })
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
        let is_probe = matches!(asked.path.as_str(), "/readyz" | "/metrics" | "/top");
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
pub(super) fn more(before: &StoreCommands, after: &StoreCommands) -> StoreCommands {
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
