//! Hooks: services that are asked about tool calls, and decide about each one whatever way it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::hook::{Hook, HookAnswer};
use mooring_tests::legacy::LegacySession;
use mooring_tests::session::{McpSession, Opening, read_exchange};
use serde_json::{Value, json};

use crate::recovery::{call, mark_of};

const REFUSED: i64 = -32016;
const UNANSWERED: i64 = -32017;
const INVALID: i64 = -32602;

/// A gateway with servers of several kinds, whose calls a hook is asked about.
struct Scene {
    hook: Hook,
    gateway: Gateway,
    fixture: Fixture,
    _volume: CodeVolume,
}

impl Scene {
    /// `rest` is what the hook's table has besides its address.
    async fn start(
        rest: &str,
        decide: impl Fn(&Value) -> HookAnswer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let hook = Hook::start(decide).await?;
        let (fixture, volume) = (Fixture::start("one").await?, CodeVolume::new()?);
        let (url, child) = (fixture.url(), stdio_command("child", None, &[])?);
        let settings = Settings::toml(format!(
            "[[servers]]\nid = \"web\"\ninstances = [{url:?}]\n\
             [[servers]]\nid = \"shared\"\ninstances = [{url:?}]\naffinity = \"off\"\n\
             [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {child:?}\n\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"web\", \"sandbox\"]\n\
             [[calls.hooks]]\nurl = {:?}\nheaders = {{ Authorization = \"env:HOOK_TOKEN\" }}\n{rest}\n",
            hook.url(),
        ))
        .users_by_header()
        .env("HOOK_TOKEN", "Bearer of-the-hook")
        .env("MOORING_CODE_BASE_DIR", &volume.path().display().to_string());
        Ok(Self {
            hook,
            gateway: Gateway::start("hooked", settings).await?,
            fixture,
            _volume: volume,
        })
    }

    async fn open(&self, server: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default()
            .header("x-mooring-user", "ada")?
            .header("x-mooring-teams", "dev")?;
        let endpoints = [self.gateway.mcp_url(server)];
        McpSession::open_with(&HttpClient::default(), &endpoints, opening).await
    }

    /// How often the upstream server has run `increment`.
    async fn increments(&self) -> anyhow::Result<u64> {
        Ok(self.fixture.stats().await?.calls_of("increment"))
    }
}

/// The code of the error that answers a call.
async fn refusal(
    session: &mut McpSession,
    tool: &str,
    arguments: Value,
) -> anyhow::Result<(i64, String)> {
    let params = json!({"name": tool, "arguments": arguments});
    error_of(&session.request("tools/call", params).await?.response)
}

fn error_of(response: &Value) -> anyhow::Result<(i64, String)> {
    let error = response
        .get("error")
        .with_context(|| format!("an error: {response}"))?;
    let code = error["code"].as_i64().context("a code")?;
    Ok((
        code,
        error["message"].as_str().context("a message")?.to_owned(),
    ))
}

/// The server, the tool and the phase of each question.
fn asked(questions: &[Value]) -> Vec<String> {
    let text = |question: &Value, key: &str| question[key].as_str().unwrap_or("-").to_owned();
    let words = |question| {
        ["server", "tool", "phase"]
            .map(|key| text(question, key))
            .join(" ")
    };
    questions.iter().map(words).collect()
}

#[tokio::test]
async fn a_hook_is_asked_before_and_after_each_call_whatever_way_it_takes() -> anyhow::Result<()> {
    let scene = Scene::start("when = [\"before\", \"after\"]", |_| HookAnswer::allowed()).await?;
    for server in ["web", "shared", "child"] {
        let mut session = scene.open(server).await?;
        session.request("tools/list", json!({})).await?;
        assert!(scene.hook.questions().is_empty(), "a list is no call");
        session.call("increment", json!({})).await?;
        let questions = scene.hook.questions();
        let both = ["before", "after"].map(|phase| format!("{server} increment {phase}"));
        assert_eq!(asked(&questions), both);
    }

    let mut session = scene.open("web").await?;
    session.call("big", json!({"bytes": 3})).await?;
    let [before, after]: [Value; 2] = scene
        .hook
        .questions()
        .try_into()
        .map_err(|_| anyhow::anyhow!("two questions"))?;
    let call_id = before["call_id"].as_str().context("an id")?;
    let digest = before["session"].as_str().context("a digest")?;
    assert!(call_id.len() == 32 && digest.len() == 16, "{before}");
    let question = json!({
        "version": 1, "phase": "before", "call_id": call_id, "server": "web", "tool": "big", "user": "ada",
        "teams": ["dev"], "roles": [], "session": digest, "arguments": {"bytes": 3},
    });
    assert_eq!(before, question);
    assert_eq!(
        (&after["call_id"], &after["arguments"]),
        (&before["call_id"], &before["arguments"])
    );
    assert_eq!(after["result"]["content"][0]["text"], "xxx");

    let mut grouped = scene.open("all").await?;
    grouped.call("web__increment", json!({})).await?;
    assert_eq!(
        asked(&scene.hook.questions()),
        ["web increment before", "web increment after"]
    );

    let mut coder = scene.open("sandbox").await?;
    let code = "from tools.web import increment\nprint(increment()['count'])";
    let arguments = json!({"code": code, "language": "python"});
    let ran = whole_answer(&coder.call("shell_exec", arguments).await?)?;
    assert_eq!(ran["output"], "1\n", "{ran}");
    let by_code = [
        "sandbox shell_exec before",
        "web increment before",
        "web increment after",
        "sandbox shell_exec after",
    ];
    assert_eq!(asked(&scene.hook.questions()), by_code);
    let opening = Opening {
        protocol_version: "2024-11-05".to_owned(),
        ..Opening::default().header("x-mooring-user", "ada")?
    };
    let url = scene.gateway.url("/servers/child/sse");
    let mut legacy = LegacySession::open_with(&HttpClient::default(), &url, &opening).await?;
    legacy.call("increment", json!({})).await?;
    assert_eq!(
        asked(&scene.hook.questions()),
        ["child increment before", "child increment after"]
    );
    let answers = ["phase=\"before\"", "outcome=\"allowed\""];
    assert!(
        scene
            .gateway
            .metric("mooring_hook_answers_total", &answers)
            .await?
            >= 7.0
    );
    Ok(())
}

#[tokio::test]
async fn hooks_are_asked_about_a_replay_as_about_the_call_that_it_repeats() -> anyhow::Result<()> {
    const CODE: &str = "print('once more')";
    // What the hook decides, and what the replay is answered: status, text of the answer.
    for (decision, status, said) in [
        ("nothing", 200, "once more"),
        ("refuse before", 403, "nothing ran: not again"),
        ("change before", 422, "a hook changed the arguments"),
        ("refuse after", 403, "its answer is withheld: not again"),
        ("change after", 200, "in its place"),
    ] {
        let is_replay = Arc::new(AtomicBool::new(false));
        let decides = Arc::clone(&is_replay);
        let scene = Scene::start("when = [\"before\", \"after\"]", move |question| {
            let phase = question["phase"].as_str().unwrap_or_default();
            let (what, when) = decision.split_once(' ').unwrap_or_default();
            HookAnswer::Json(
                match (when == phase && decides.load(Ordering::SeqCst), what) {
                    (true, "refuse") => json!({"allow": false, "reason": "not again"}),
                    (true, _) if phase == "before" => {
                        json!({"allow": true, "arguments": {"code": "print(2)"}})
                    }
                    (true, _) => json!({
                        "allow": true,
                        "result": {"content": [], "structuredContent": {"output": "in its place"}},
                    }),
                    (false, _) => json!({"allow": true}),
                },
            )
        })
        .await?;
        let mut coder = scene.open("sandbox").await?;
        let arguments = json!({"code": CODE, "language": "python"});
        let ran = whole_answer(&coder.call("shell_exec", arguments.clone()).await?)?;
        assert_eq!(scene.hook.questions().len(), 2, "of the run itself");
        is_replay.store(true, Ordering::SeqCst);
        let run = ran["run_id"].as_str().context("a run")?;
        let path = format!("/servers/sandbox/code/runs/{run}/replay");
        let replay = Request::post(scene.gateway.url(&path))
            .header("content-type", "application/json")
            .header("x-mooring-user", "ada")
            .header("x-mooring-teams", "dev");
        let replay = replay.body(Bytes::from("{}"))?;
        let answered = HttpClient::default().send(replay).await?;
        assert_eq!(answered.status, status, "{decision}");
        let text = answered.text().await?;
        assert!(text.contains(said), "{decision}: {text}");
        let questions = scene.hook.questions();
        assert_eq!(questions[0]["arguments"], arguments, "{decision}");
        let count = if decision.ends_with("before") { 1 } else { 2 };
        let both = ["sandbox shell_exec before", "sandbox shell_exec after"];
        assert_eq!(asked(&questions), both[..count], "{decision}");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_call_is_not_sent_and_a_refused_result_reaches_nobody() -> anyhow::Result<()> {
    let scene = Scene::start("when = [\"before\", \"after\"]", |question| {
        let is_refused = match question["phase"].as_str() {
            Some("before") => question["tool"] == "increment",
            _ => question["tool"] == "big",
        };
        match is_refused {
            true => HookAnswer::Json(json!({"allow": false, "reason": "not on a Sunday"})),
            false => HookAnswer::allowed(),
        }
    })
    .await?;
    for server in ["web", "shared", "child"] {
        let mut session = scene.open(server).await?;
        let before = refusal(&mut session, "increment", json!({})).await?;
        assert_eq!(
            before,
            (
                REFUSED,
                "a hook did not let the call through: not on a Sunday".to_owned()
            )
        );
        let (code, message) = refusal(&mut session, "big", json!({"bytes": 12})).await?;
        assert_eq!(code, REFUSED);
        assert!(
            message.ends_with("has run, and its result is withheld: not on a Sunday"),
            "{message}"
        );
    }
    let mut grouped = scene.open("all").await?;
    assert_eq!(
        refusal(&mut grouped, "web__increment", json!({})).await?.0,
        REFUSED
    );
    let mut coder = scene.open("sandbox").await?;
    let code = "from tools.web import increment\nprint(increment())";
    let arguments = json!({"code": code, "language": "python"});
    let ran = coder.call("shell_exec", arguments).await?.to_string();
    assert!(ran.contains("not on a Sunday"), "{ran}");
    assert_eq!(scene.increments().await?, 0, "none was sent");
    Ok(())
}

#[tokio::test]
async fn hooks_change_arguments_and_results_one_after_the_other() -> anyhow::Result<()> {
    let second = Hook::start(|question| match &question["result"] {
        Value::Null => HookAnswer::allowed(),
        result => {
            let text = result["content"][0]["text"].as_str().unwrap_or("none");
            let content = json!([{"type": "text", "text": format!("{} characters", text.len())}]);
            HookAnswer::Json(json!({"allow": true, "result": {"content": content}}))
        }
    })
    .await?;
    let rest = format!(
        "when = [\"before\"]\nservers = [\"web\"]\ntools = [\"b*\"]\n\
         [[calls.hooks]]\nurl = {:?}\nwhen = [\"before\", \"after\"]\nheaders = {{ Authorization = \"a\" }}\n",
        second.url()
    );
    let scene = Scene::start(&rest, |_| {
        HookAnswer::Json(json!({"allow": true, "arguments": {"bytes": 40}}))
    })
    .await?;
    let mut session = scene.open("web").await?;
    let result = session.call("big", json!({"bytes": 3})).await?;
    assert_eq!(
        result,
        json!({"content": [{"type": "text", "text": "40 characters"}]})
    );
    assert_eq!(asked(&scene.hook.questions()), ["web big before"]);
    let questions = second.questions();
    assert_eq!(asked(&questions), ["web big before", "web big after"]);
    let seen: Vec<&Value> = questions
        .iter()
        .map(|question| &question["arguments"]["bytes"])
        .collect();
    assert_eq!(
        seen,
        [40, 40],
        "a hook sees what those before it have changed"
    );
    session.call("increment", json!({})).await?;
    assert_eq!(
        asked(&scene.hook.questions()),
        Vec::<String>::new(),
        "its patterns do not fit"
    );
    Ok(())
}

#[tokio::test]
async fn without_a_valid_answer_the_setting_decides() -> anyhow::Result<()> {
    let failing = |question: &Value| match question["tool"].as_str() {
        Some("increment") => HookAnswer::Silence,
        Some("whoami") => HookAnswer::Json(json!({"allow": true, "argument": {}})),
        // The answer to a question about another call.
        Some("other") => HookAnswer::Json(json!({"allow": true, "call_id": "7"})),
        _ => HookAnswer::Status(500),
    };
    let when = "when = [\"before\"]\ntimeout_ms = 50\n";
    let refusing = Scene::start(when, failing).await?;
    let mut session = refusing.open("web").await?;
    for tool in ["increment", "whoami", "other", "big"] {
        let (code, message) = refusal(&mut session, tool, json!({"bytes": 1})).await?;
        assert_eq!(code, UNANSWERED, "{tool}: {message}");
        assert!(message.ends_with("the call has not run"), "{message}");
    }
    assert_eq!(refusing.increments().await?, 0);
    let failed = ["phase=\"before\"", "outcome=\"failed\""];
    assert_eq!(
        refusing
            .gateway
            .metric("mooring_hook_answers_total", &failed)
            .await?,
        4.0
    );

    let allowing = Scene::start(&format!("{when}on_failure = \"allow\"\n"), failing).await?;
    let mut session = allowing.open("web").await?;
    session.call("increment", json!({})).await?;
    let result = session.call("big", json!({"bytes": 2})).await?;
    assert_eq!(result["content"][0]["text"], "xx");

    let after = Scene::start("when = [\"after\"]\n", |_| HookAnswer::Status(302)).await?;
    let mut session = after.open("web").await?;
    let (code, message) = refusal(&mut session, "increment", json!({})).await?;
    assert_eq!(code, UNANSWERED);
    assert!(
        message.ends_with("has run, and its result is withheld"),
        "{message}"
    );
    assert_eq!(after.increments().await?, 1, "it has run");
    Ok(())
}

/// Two programs could read them in different ways: one takes the first value, another one the last.
#[tokio::test]
async fn arguments_that_a_hook_could_misread_are_refused() -> anyhow::Result<()> {
    let scene = Scene::start("when = [\"before\"]", |_| HookAnswer::allowed()).await?;
    let mut session = scene.open("web").await?;
    for arguments in [
        r#"{"bytes":1,"bytes":2}"#,
        r#"{"bytes":1,"more":[{"a":0,"\u0061":1}]}"#,
        r#"{"bytes":1e999}"#,
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"big","arguments":{arguments}}}}}"#
        );
        let request = session.http_request(Method::POST, Bytes::from(body))?;
        let reply = HttpClient::default().send(request).await?;
        let response = read_exchange(reply, &json!({"id": "x"})).await?.response;
        assert_eq!(error_of(&response)?.0, INVALID, "{response}");
    }
    assert!(scene.hook.questions().is_empty());
    assert_eq!(scene.fixture.stats().await?.calls_of("big"), 0);
    Ok(())
}

/// A client that breaks its stream and resumes it gets no result that a hook withholds.
#[tokio::test]
async fn a_resumed_result_is_shown_to_the_hook_too() -> anyhow::Result<()> {
    let scene = Scene::start("when = [\"after\"]", |question| {
        assert_eq!(question["phase"], "after");
        HookAnswer::Json(json!({"allow": false}))
    })
    .await?;
    let mut session = scene.open("child").await?;
    let params = json!({
        "name": "progress", "arguments": {"n": 2, "step_ms": 1}, "_meta": {"progressToken": "t"},
    });
    let call = session.request_body("tools/call", params);
    let mut stream = session.post(&call).await?;
    let mut last_event_id = None;
    while last_event_id.is_none() {
        last_event_id = stream.next_event().await?.context("an event")?.id;
    }
    drop(stream);
    let resumed = session.listen(last_event_id.as_deref()).await?;
    ensure!(resumed.status == 200, "resume: {}", resumed.status);
    let response = read_exchange(resumed, &call).await?.response;
    assert_eq!(error_of(&response)?.0, REFUSED, "{response}");
    let questions = scene.hook.questions();
    let resumed = questions.last().context("a question")?;
    assert_eq!(
        (&resumed["tool"], &resumed["server"]),
        (&Value::Null, &json!("child"))
    );
    assert!(resumed["result"]["content"].is_array(), "{resumed}");
    Ok(())
}

/// A hook knows nothing of the loss, and returns a result of its own.
#[tokio::test]
async fn a_result_that_a_hook_changes_still_tells_of_a_loss() -> anyhow::Result<()> {
    let changed = json!({"content": [{"type": "text", "text": "changed"}]});
    let answer = json!({"allow": true, "result": changed});
    let mut scene = Scene::start("when = [\"after\"]", move |_| {
        HookAnswer::Json(answer.clone())
    })
    .await?;
    let mut sessions = Vec::new();
    for (server, tool) in [("web", "increment"), ("all", "web__increment")] {
        let mut session = scene.open(server).await?;
        call(&mut session, tool).await?;
        sessions.push((session, tool));
    }
    scene.fixture.restart().await?;
    for (session, tool) in &mut sessions {
        let exchange = call(session, tool).await?;
        let text = &exchange.response["result"]["content"][0]["text"];
        assert_eq!(text, "changed", "{exchange:?}");
        assert!(mark_of(&exchange).is_some(), "{tool}: {exchange:?}");
        let next = call(session, tool).await?;
        assert_eq!(mark_of(&next), None, "{tool}: {next:?}");
    }
    Ok(())
}
