//! Every request that may name what is somebody's, by the gateway's routes.

use std::collections::BTreeMap;

use http::Method;
use mooring_tests::session::Opening;
use serde_json::{Value, json};

use super::{HERS, KEYED, NO_SERVER, SHARED};

/// How many characters of a session id name its server.
const SERVER_TAG_CHARS: usize = 8;
/// The sources that have the gateway's routes.
const ROUTERS: [&str; 2] = [
    include_str!("../../../../gateway/src/http/mod.rs"),
    include_str!("../../../../gateway/src/http/governance/mod.rs"),
];

/// What a request may name of somebody.
#[derive(Clone, Default)]
pub(crate) struct Ids {
    pub(crate) user: String,
    pub(crate) team: String,
    pub(crate) server: String,
    /// By server.
    pub(crate) sessions: BTreeMap<String, String>,
    /// The last event of a call's stream, by server.
    pub(crate) events: BTreeMap<String, String>,
    /// Of an open stream of HTTP+SSE, at `shared`.
    pub(crate) legacy: String,
    pub(crate) run: String,
    pub(crate) skill: String,
    pub(crate) skill_id: String,
    pub(crate) approval: String,
}

impl Ids {
    /// Well-formed ids of nothing.
    pub(crate) fn made_up(&self) -> Self {
        let all = |ids: &BTreeMap<String, String>| {
            let changed = ids.iter().map(|(server, id)| {
                let server = if server == HERS { NO_SERVER } else { server };
                (server.to_owned(), changed(id))
            });
            changed.collect()
        };
        let sessions = self.sessions.iter().map(|(server, id)| {
            let server = if server == HERS { NO_SERVER } else { server };
            (server.to_owned(), changed_session(id))
        });
        Self {
            user: "ida@vermilion.invalid".to_owned(),
            team: "team-of-nobody".to_owned(),
            server: NO_SERVER.to_owned(),
            sessions: sessions.collect(),
            events: all(&self.events),
            legacy: changed_session(&self.legacy),
            run: changed(&self.run),
            skill: "no_such_skill".to_owned(),
            skill_id: changed(&self.skill_id),
            approval: changed(&self.approval),
        }
    }

    /// Every id, longest first.
    pub(crate) fn texts(&self) -> Vec<&str> {
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

/// The id of a session that never was at the same server, which the end of the id names.
fn changed_session(id: &str) -> String {
    match id.len().checked_sub(SERVER_TAG_CHARS) {
        Some(at) => format!("{}{}", changed(&id[..at]), &id[at..]),
        None => changed(id),
    }
}

/// Another id of the same form: one digit or letter near its end is the next one. So the time at the start of a run's id,
/// by which lists are cut, stays, and so does the number behind an event's stream.
fn changed(id: &str) -> String {
    let (id, number) = match id.rsplit_once(':') {
        Some((stream, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (stream, format!(":{number}"))
        }
        _ => (id, String::new()),
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
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) session: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) body: Option<Value>,
}

impl Asked {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            session: None,
            event: None,
            body: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Method::POST, path)
        }
    }

    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Method::PUT, path)
        }
    }

    pub(crate) fn at(self, session: &str) -> Self {
        Self {
            session: Some(session.to_owned()),
            ..self
        }
    }

    pub(crate) fn after(self, event: &str) -> Self {
        Self {
            event: Some(event.to_owned()),
            ..self
        }
    }
}

pub(crate) fn message(method: &str, params: Value) -> Value {
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
pub(crate) fn requests(route: &str, ids: &Ids, own: &Ids) -> Option<Vec<Asked>> {
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
        r#""/top""# => vec![Asked::get("/top")],
        r#""/whoami""# => vec![Asked::get("/whoami")],
        "OPENAPI_PATH" => vec![Asked::get("/openapi.json")],
        r#""/.well-known/jwks.json""# => vec![Asked::get("/.well-known/jwks.json")],
        _ => return None,
    })
}

/// The path of every `.route(` and of every row `RestRoute::METHOD(` of the gateway, each once.
pub(crate) fn routes() -> Vec<&'static str> {
    let calls = ROUTERS.iter().flat_map(|source| {
        let rows = source.split("RestRoute::").skip(1);
        let rows = rows.filter_map(|row| Some(row.split_once('(')?.1));
        source.split(".route(").skip(1).chain(rows)
    });
    let mut paths: Vec<&str> = calls
        .filter_map(|call| Some(call.split_once(',')?.0.trim()))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
