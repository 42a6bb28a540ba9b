//! Who may use what: the table of docs/access.md, request by request and caller by caller, and what lists show.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::pages;
use mooring_tests::session::{McpSession, Opening, read_exchange};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/access.md");

/// The headers of each caller, by the names of the table's columns.
const CALLERS: [(&str, &[(&str, &str)]); 7] = [
    ("anonymous", &[]),
    ("guest", &[("x-mooring-user", "guest")]),
    (
        "dev",
        &[("x-mooring-user", "dev"), ("x-mooring-teams", "dev")],
    ),
    ("lead", &[("x-mooring-user", "lead@corp.example")]),
    (
        "staff",
        &[("x-mooring-user", "staff"), ("x-mooring-teams", "staff")],
    ),
    (
        "auditor",
        &[
            ("x-mooring-user", "auditor"),
            ("x-mooring-roles", "auditor"),
        ],
    ),
    (
        "admin",
        &[("x-mooring-user", "admin"), ("x-mooring-roles", "admin")],
    ),
];

/// A gateway with the settings of the page.
struct Arrangement {
    gateway: Gateway,
    client: HttpClient,
    /// A run of the caller *dev* in the sandbox.
    run_id: String,
    _fixture: Fixture,
    _volume: CodeVolume,
    _vault_keys: FleetKeys,
}

impl Arrangement {
    /// The settings of the page.
    fn settings() -> anyhow::Result<String> {
        let blocks = pages::blocks("docs/access.md", "toml")?;
        blocks.into_iter().next().context("settings")
    }

    async fn start() -> anyhow::Result<Self> {
        Self::start_with(Self::settings()?).await
    }

    async fn start_with(toml: String) -> anyhow::Result<Self> {
        let fixture = Fixture::start("one").await?;
        let command = stdio_command("files", None, &[])?;
        let keys = FleetKeys::new()?;
        let toml = toml
            .replace("http://127.0.0.1:9001/mcp", &fixture.url())
            .replace("http://127.0.0.1:9001/sse", &fixture.sse_url())
            .replace(r#"["fixture", "--stdio"]"#, &format!("{command:?}"))
            .replace(
                "/etc/mooring/vault-keys",
                &keys.path().display().to_string(),
            );
        let volume = CodeVolume::new()?;
        let settings = Settings::toml(toml)
            .env("MOORING_AFFINITY_ENABLED", "true")
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            );
        let mut arrangement = Self {
            gateway: Gateway::start("access", settings).await?,
            client: HttpClient::default(),
            run_id: String::new(),
            _fixture: fixture,
            _volume: volume,
            _vault_keys: keys,
        };
        let session = arrangement.session("sandbox", &headers_of("dev")?).await;
        let code = json!({"code": "print(1)", "language": "python"});
        let ran = session
            .context("a session")?
            .call("shell_exec", code)
            .await?;
        let run_id = whole_answer(&ran)?["run_id"].as_str().map(str::to_owned);
        arrangement.run_id = run_id.context("the run's id")?;
        Ok(arrangement)
    }

    /// What the request of this row answers to the caller: the status, or the code of a JSON-RPC error.
    async fn outcome(&self, row: &str, headers: &HeaderMap) -> anyhow::Result<i64> {
        let words: Vec<&str> = row.split(' ').map(|word| word.trim_matches('`')).collect();
        let reply = match words.as_slice() {
            ["initialize", "at", server] => self.initialize(server, headers).await?,
            ["call", tool, "at", server] => return self.call(server, tool, headers).await,
            [method @ ("GET" | "DELETE"), "of", "the", .., "at", server] => {
                self.of_session(method.parse()?, server, headers).await?
            }
            [method @ ("GET" | "POST" | "PUT" | "DELETE"), path] => {
                self.plain(method.parse()?, path, headers).await?
            }
            _ => bail!("no request is known for the row {row:?}"),
        };
        Ok(i64::from(reply.status.as_u16()))
    }

    async fn initialize(&self, server: &str, headers: &HeaderMap) -> anyhow::Result<Reply> {
        let params = Opening::default().initialize_params();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        self.post(server, &message, headers).await
    }

    async fn post(
        &self,
        server: &str,
        message: &Value,
        headers: &HeaderMap,
    ) -> anyhow::Result<Reply> {
        let mut request = Request::post(self.gateway.mcp_url(server))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(Bytes::from(message.to_string()))?;
        request.headers_mut().extend(headers.clone());
        self.client.send(request).await
    }

    /// The caller's session at the server; none where the server refuses it.
    async fn session(&self, server: &str, headers: &HeaderMap) -> Option<McpSession> {
        let opening = Opening {
            headers: headers.clone(),
            ..Opening::default()
        };
        let endpoints = [self.gateway.mcp_url(server)];
        McpSession::open_with(&self.client, &endpoints, opening)
            .await
            .ok()
    }

    async fn call(&self, server: &str, tool: &str, headers: &HeaderMap) -> anyhow::Result<i64> {
        let arguments = match tool {
            "claude" => json!({"prompt": "hello"}),
            tool if tool.ends_with("shell_exec") => {
                json!({"code": "print(1)", "language": "python"})
            }
            _ => json!({}),
        };
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}});
        let reply = match self.session(server, headers).await {
            Some(mut session) => session.post(&message).await?,
            // Also without a session: the refusal comes before anybody looks for one.
            None => self.post(server, &message, headers).await?,
        };
        if !reply.status.is_success() {
            return Ok(i64::from(reply.status.as_u16()));
        }
        let status = i64::from(reply.status.as_u16());
        let response = read_exchange(reply, &message).await?.response;
        match response["error"]["code"].as_i64() {
            Some(code) => Ok(code),
            None => {
                let is_error = response["result"]["isError"] == json!(true);
                ensure!(!is_error, "{tool} at {server} failed: {response}");
                Ok(status)
            }
        }
    }

    async fn of_session(
        &self,
        method: Method,
        server: &str,
        headers: &HeaderMap,
    ) -> anyhow::Result<Reply> {
        match self.session(server, headers).await {
            Some(mut session) if method == Method::DELETE => session.delete().await,
            Some(mut session) => session.listen(None).await,
            None => {
                self.plain(method, &format!("/servers/{server}/mcp"), headers)
                    .await
            }
        }
    }

    async fn plain(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
    ) -> anyhow::Result<Reply> {
        let body = match path {
            path if path.ends_with("/replay") => "{}",
            path if path.ends_with("/credential") => r#"{"secret": "mine"}"#,
            _ => "",
        };
        let path = path.replace("{run}", &self.run_id);
        let mut request = Request::builder()
            .method(method)
            .uri(self.gateway.url(&path))
            .header("accept", "text/event-stream, application/json")
            .header("content-type", "application/json")
            .body(Bytes::from(body))?;
        request.headers_mut().extend(headers.clone());
        self.client.send(request).await
    }
}

fn headers_of(caller: &str) -> anyhow::Result<HeaderMap> {
    let found = CALLERS.iter().find(|(name, _)| *name == caller);
    let (_, pairs) = found.with_context(|| format!("a caller named {caller}"))?;
    let pairs = pairs.iter().map(|(name, value)| {
        Ok((
            http::HeaderName::from_static(name),
            HeaderValue::from_str(value)?,
        ))
    });
    pairs.collect()
}

/// The cells of each line of the page's table.
fn table() -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().filter(|line| line.starts_with("| "));
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

#[tokio::test]
async fn every_row_of_the_page_is_true_for_every_caller() -> anyhow::Result<()> {
    let arrangement = Arrangement::start().await?;
    let table = table();
    let (head, rows) = table.split_first().context("a table")?;
    let (_, callers) = head.split_first().context("a head")?;
    ensure!(
        rows.len() > 25 && callers.len() == CALLERS.len(),
        "the page has lost its table"
    );
    let mut wrong = Vec::new();
    for row in rows {
        let (request, cells) = row.split_first().context("a row")?;
        for (caller, cell) in callers.iter().zip(cells) {
            let outcome = arrangement.outcome(request, &headers_of(caller)?).await;
            let outcome = outcome.with_context(|| format!("{caller}: {request}"))?;
            if outcome != cell.parse::<i64>()? {
                wrong.push(format!(
                    "{caller}: {request}: {outcome}, the page says {cell}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// The names in a list of tools.
fn tool_names(response: &Value) -> Vec<&str> {
    let tools = response["result"]["tools"].as_array();
    let names = tools
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str());
    names.collect()
}

#[tokio::test]
async fn lists_show_only_the_tools_that_the_caller_may_use() -> anyhow::Result<()> {
    let arrangement = Arrangement::start().await?;
    let list = async |server: &str, caller: &str| {
        let mut session = arrangement
            .session(server, &headers_of(caller)?)
            .await
            .context("a session")?;
        anyhow::Ok(session.request("tools/list", json!({})).await?.response)
    };
    let of_dev = list("tracker", "dev").await?;
    assert_eq!(tool_names(&of_dev), ["increment"]);
    let of_lead = list("tracker", "lead").await?;
    assert!(tool_names(&of_lead).len() > 10 && tool_names(&of_lead).contains(&"whoami"));
    let entry = |response: &Value| {
        let tools = response["result"]["tools"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        tools.into_iter().find(|tool| tool["name"] == "increment")
    };
    assert_eq!(
        entry(&of_dev),
        entry(&of_lead),
        "what is shown is shown as it is"
    );

    let in_group = list("all", "dev").await?;
    let names = tool_names(&in_group);
    let of_sandbox = names
        .iter()
        .filter(|name| name.starts_with("sandbox__"))
        .count();
    assert!(
        names.contains(&"tracker__increment") && of_sandbox > 0,
        "{names:?}"
    );
    assert_eq!(names.len(), 1 + of_sandbox, "{names:?}");
    let in_group = list("all", "staff").await?;
    let names = tool_names(&in_group);
    assert!(
        names.len() > 10 && names.iter().all(|name| name.starts_with("plain__")),
        "{names:?}"
    );

    let opening = Opening {
        headers: headers_of("dev")?,
        ..Opening::default()
    };
    let url = arrangement.gateway.url("/servers/tracker/sse");
    let mut older = LegacySession::open_with(&arrangement.client, &url, &opening).await?;
    let listed = older.request("tools/list", json!({})).await?.response;
    assert_eq!(tool_names(&listed), ["increment"]);
    let call = json!({"name": "whoami", "arguments": {}});
    let refused = older.request("tools/call", call).await?.response;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");

    // The stream acts with the rights with which it was opened, so another sender's are not taken for them.
    for (teams, status) in [("staff,dev", 404), ("dev", 202)] {
        let message = older.request_body("ping", json!({})).to_string();
        let request = Request::post(older.connection().endpoint())
            .header("content-type", "application/json")
            .header("x-mooring-user", "dev")
            .header("x-mooring-teams", teams)
            .body(Bytes::from(message))?;
        assert_eq!(
            arrangement.client.send(request).await?.status,
            status,
            "{teams}"
        );
    }
    Ok(())
}

/// Ways to a member of a group that pass by its own endpoint.
#[tokio::test]
async fn a_group_is_no_way_round_the_rules_of_its_members() -> anyhow::Result<()> {
    let toml = Arrangement::settings()?
        .replace(r#"members = ["plain","#, r#"members = ["files","#)
        .replace(
            "\"--stdio\"]\nallow = [{ teams = [\"dev\"] }]",
            "\"--stdio\"]\nallow = [{ teams = [\"dev\"], tools = [\"increment\"] }]",
        );
    let arrangement = Arrangement::start_with(toml).await?;
    let session = arrangement.session("all", &headers_of("dev")?).await;
    let mut at_group = session.context("a session")?;
    let listed = at_group.request("tools/list", json!({})).await?.response;
    let of_files = |name: &&str| name.starts_with("files__");
    let names: Vec<&str> = tool_names(&listed).into_iter().filter(of_files).collect();
    assert_eq!(names, ["files__increment"]);

    // A server may execute such a message, and a group would pass a notification on to every member.
    let params = json!({"name": "whoami", "arguments": {}});
    let without_id = json!({"jsonrpc": "2.0", "method": "tools/call", "params": params});
    let refused = at_group.post(&without_id).await?;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await?["error"]["code"], -32600);

    // The group's session is unknown at the member's own path.
    let endpoints = [arrangement.gateway.mcp_url("files")];
    let mut at_member = at_group.fork(&arrangement.client, &endpoints);
    let message = at_member.request_body("tools/list", json!({}));
    assert_eq!(at_member.post(&message).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn an_unknown_server_and_one_of_others_are_answered_alike() -> anyhow::Result<()> {
    let arrangement = Arrangement::start().await?;
    let refusal = async |server: &str, caller: &str| {
        let reply = arrangement.initialize(server, &headers_of(caller)?).await?;
        assert_eq!(reply.status, 404, "{server}");
        anyhow::Ok(reply.json().await?["error"].to_string())
    };
    for caller in ["guest", "staff"] {
        let of_others = refusal("tracker", caller).await?;
        assert_eq!(of_others, refusal("unknown", caller).await?);
        for hidden in ["tracker", "sandbox", "closed", "claude", "files"] {
            assert!(
                !of_others.contains(hidden),
                "{caller} sees {hidden}: {of_others}"
            );
        }
    }
    assert!(
        refusal("tracker", "staff").await?.contains("plain"),
        "their own are named"
    );
    let of_guest = refusal("tracker", "guest").await?;
    assert!(of_guest.contains("you may use none"), "{of_guest}");
    Ok(())
}

#[tokio::test]
async fn code_has_the_tools_of_its_caller() -> anyhow::Result<()> {
    let arrangement = Arrangement::start().await?;
    let session = arrangement.session("sandbox", &headers_of("dev")?).await;
    let mut session = session.context("a session")?;
    let code = "import os, tools\n\
        print(sorted(os.listdir('/tools')))\n\
        for server, tool in (('tracker', 'increment'), ('tracker', 'whoami'), ('plain', 'increment')):\n    \
            try:\n        \
                tools.call(server, tool, {})\n        \
                print('made')\n    \
            except Exception as error:\n        \
                print(error.kind)\n";
    let arguments = json!({"code": code, "language": "python"});
    let answer = whole_answer(&session.call("shell_exec", arguments).await?)?;
    let output = answer["output"].as_str().context("an output")?;
    let (mounted, calls) = output.split_once('\n').context("two parts")?;
    assert!(
        mounted.contains("tracker") && !mounted.contains("plain"),
        "{mounted}"
    );
    assert_eq!(
        calls.trim_end(),
        "made\nnot_mounted\nnot_mounted",
        "{answer}"
    );
    Ok(())
}
