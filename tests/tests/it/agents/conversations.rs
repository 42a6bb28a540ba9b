//! What one gateway makes of calls: whose conversation goes on, and what is answered.

use std::collections::BTreeSet;

use mooring_tests::agent::{AgentHome, Ids, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::script::answers;
use serde_json::{Value, json};

use super::{ADA, BOB, Scene, prompt_in, session_at, text};

#[tokio::test]
async fn a_call_without_a_parent_begins_anew_each_time() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut ada = scene.user(ADA).await?;
    for name in ["a", "b"] {
        let prompt = format!("remember {name}");
        let (answer, is_error) = ada.call(json!({"prompt": prompt})).await?;
        assert!(!is_error, "{answer}");
        assert_eq!(answer["resumed"], false);
        for field in ["parentSessionId", "startedFresh", "error"] {
            assert_eq!(answer[field], Value::Null, "{field}");
        }
        let session = text(&answer, "agentSessionId");
        assert_eq!(scene.home.remembered(&session)?, [name]);
    }
    let kept = scene.redis.cli(&["KEYS", "mcpgw:agent_session:*"])?;
    assert_eq!(kept, "");
    Ok(())
}

#[tokio::test]
async fn calls_under_one_parent_go_on_where_the_last_one_ended() -> anyhow::Result<()> {
    for ids in [Ids::Stay, Ids::Change] {
        let scene = Scene::start(1, ids, "").await?;
        let mut ada = scene.user(ADA).await?;
        let mut sessions = BTreeSet::new();
        for (prompt, is_resumed) in [
            ("remember a", false),
            ("remember b", true),
            ("recall", true),
        ] {
            let answer = ada.run("chat", prompt).await?;
            assert_eq!(answer["resumed"], is_resumed, "{ids:?}: {answer}");
            assert_eq!(answer["startedFresh"], Value::Null);
            assert_eq!(answer["parentSessionId"], "chat");
            assert_eq!(answer["exitCode"], 0);
            sessions.insert(text(&answer, "agentSessionId"));
            if prompt == "recall" {
                assert_eq!(answer["result"], "a\nb");
            }
        }
        let expected = if ids == Ids::Stay { 1 } else { 3 };
        assert_eq!(sessions.len(), expected, "{ids:?}");
        assert_eq!(sessions, scene.home.sessions()?);
    }
    Ok(())
}

#[tokio::test]
async fn other_parents_users_and_servers_have_other_conversations() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Stay)?, Redis::start().await?);
    let settings = home.settings(&redis.url(), &home.server_toml("other", "")?)?;
    let gateway = Gateway::start("gateway", settings).await?;
    let places = [
        (SERVER, ADA, "chat"),
        (SERVER, ADA, "chat2"),
        (SERVER, BOB, "chat"),
        ("other", ADA, "chat"),
    ];
    for (server, user, parent) in places {
        let mut session = session_at(&gateway, server, user).await?;
        let prompt = format!("remember {server} {user} {parent}");
        session.call(server, prompt_in(parent, &prompt)).await?;
    }
    for (server, user, parent) in places {
        let mut session = session_at(&gateway, server, user).await?;
        let result = session.call(server, prompt_in(parent, "recall")).await?;
        let answer = &result["structuredContent"];
        assert_eq!(answer["result"], format!("{server} {user} {parent}"));
        assert_eq!(answer["resumed"], true);
    }
    assert_eq!(home.sessions()?.len(), places.len());
    Ok(())
}

#[tokio::test]
async fn a_parent_may_have_any_name_without_control_characters() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Change, "").await?;
    let mut ada = scene.user(ADA).await?;
    let long = "x".repeat(256);
    let names = [
        " with spaces ",
        "zoë 日本 🦀",
        "a:b",
        "a:b:c",
        "*",
        "../../etc",
        "{session}",
        "-p",
        &long,
        &long[1..],
    ];
    for (number, name) in names.iter().enumerate() {
        let answer = ada.run(name, &format!("remember {number}")).await?;
        assert_eq!(answer["parentSessionId"], *name);
        assert_eq!(answer["resumed"], false, "{name:?}");
    }
    for (number, name) in names.iter().enumerate() {
        assert_eq!(ada.ask(name, "recall").await?, number.to_string());
    }
    Ok(())
}

#[tokio::test]
async fn what_the_tool_answers_is_what_its_schema_says() -> anyhow::Result<()> {
    let scene = Scene::start(2, Ids::Stay, "").await?;
    let calls = [
        (json!({"prompt": "echo hello"}), None),
        (prompt_in("chat", "remember a"), None),
        (prompt_in("chat", "recall"), None),
        (prompt_in("chat", "fail"), Some("exit status: 1")),
        (json!({"prompt": ""}), Some("prompt")),
        (
            json!({"prompt": "cwd", "workFolder": "/"}),
            Some("workFolder"),
        ),
    ];
    let urls: Vec<String> = scene.gateways.iter().map(|g| g.mcp_url(SERVER)).collect();
    let named = calls.iter().map(|(arguments, _)| (SERVER, arguments));
    let report = answers("answers.py", &[], &urls, ADA, named).await?;
    assert_eq!(report.tools, [SERVER]);
    assert_eq!(report.answers.len(), calls.len());
    for ((arguments, error), answer) in calls.iter().zip(&report.answers) {
        let about = format!("{arguments}: {answer:?}");
        assert_eq!(answer.is_error, error.is_some(), "{about}");
        match error {
            Some(error) => {
                assert!(text(&answer.structured, "error").contains(error), "{about}");
                assert!(answer.text.contains(error), "{about}");
            }
            None => assert_eq!(answer.structured["result"], answer.text, "{about}"),
        }
    }
    assert_eq!(report.answers[2].text, "a");
    Ok(())
}

#[tokio::test]
async fn progress_is_told_before_the_answer_to_whom_asks_for_it() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut session = session_at(&scene.gateways[0], SERVER, ADA).await?;
    let mut params = json!({"name": SERVER, "arguments": {"prompt": "sleep 1"}});
    let silent = session.request("tools/call", params.clone()).await?;
    assert_eq!(silent.before, Vec::<Value>::new());
    assert_eq!(
        silent.response["result"]["structuredContent"]["result"],
        "slept 1"
    );
    params["_meta"] = json!({"progressToken": "token 1"});
    let told = session.request("tools/call", params).await?;
    let messages: Vec<&Value> = told.before.iter().map(|told| &told["params"]).collect();
    let expected = [
        json!({"progressToken": "token 1", "progress": 1, "message": "I sleep"}),
        json!({"progressToken": "token 1", "progress": 2, "message": "slept 1"}),
    ];
    assert_eq!(messages, expected.iter().collect::<Vec<_>>());
    assert!(
        told.before
            .iter()
            .all(|told| told["method"] == "notifications/progress")
    );
    assert_eq!(
        told.response["result"]["structuredContent"]["result"],
        "slept 1"
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_that_forgot_the_conversation_begins_it_anew_once_and_says_so()
-> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut ada = scene.user(ADA).await?;
    let first = text(&ada.run("chat", "remember a").await?, "agentSessionId");
    scene.home.lose(&first)?;
    let answer = ada.run("chat", "remember b").await?;
    assert_eq!(answer["resumed"], false, "{answer}");
    let reason = text(&answer, "startedFresh");
    assert!(reason.contains("did not know"), "{reason}");
    let second = text(&answer, "agentSessionId");
    assert_ne!(first, second);
    // The one that could not resume, and one more.
    assert_eq!(scene.runs("failed").await?, 1.0);
    assert_eq!(scene.runs("completed").await?, 2.0);
    let answer = ada.run("chat", "recall").await?;
    assert_eq!(answer["result"], "b");
    assert_eq!(answer["resumed"], true);
    assert_eq!(answer["startedFresh"], Value::Null);
    assert_eq!(scene.home.sessions()?, BTreeSet::from([second]));
    Ok(())
}

/// It may have begun anew, or it gives every run a new id.
#[tokio::test]
async fn an_agent_that_resumes_under_another_id_says_so() -> anyhow::Result<()> {
    for ids in [Ids::Stay, Ids::Change] {
        let scene = Scene::start(1, ids, "").await?;
        let mut session = session_at(&scene.gateways[0], SERVER, ADA).await?;
        for is_resumed in [false, true] {
            let arguments = json!({"prompt": "echo words", "parentSessionId": "chat"});
            let result = session.call(SERVER, arguments).await?;
            let answer = &result["structuredContent"];
            assert_eq!(answer["resumed"], is_resumed, "{result}");
            assert_eq!(answer["result"], "words");
            let text = result["content"][0]["text"].to_string();
            let is_told = is_resumed && ids == Ids::Change;
            assert_eq!(
                text.contains("under another id"),
                is_told,
                "{ids:?}: {text}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_that_fails_says_how_and_its_conversation_goes_on() -> anyhow::Result<()> {
    let command = [
        "/bin/sh",
        "-c",
        "echo out of coffee >&2; exit 7",
        "{prompt}",
    ];
    let broken = format!(
        "[[servers]]\nid = \"broken\"\nkind = \"agent\"\nallow = [{{}}]\ncommand = {command:?}\noutput = \"text\"\n"
    );
    let scene = Scene::start(1, Ids::Change, &broken).await?;
    let mut ada = scene.user(ADA).await?;
    ada.run("chat", "remember a").await?;
    let (answer, is_error) = ada.call(prompt_in("chat", "fail")).await?;
    assert!(is_error, "{answer}");
    assert_eq!(answer["exitCode"], 1);
    assert_eq!(answer["resumed"], true);
    assert_eq!(answer["startedFresh"], Value::Null);
    let error = text(&answer, "error");
    assert!(error.contains("exit status: 1"), "{error}");
    assert_eq!(answer["result"], "the agent failed as it was told to");
    // It goes on with what the failed run told.
    assert_eq!(ada.ask("chat", "recall").await?, "a");
    assert_eq!(scene.home.sessions()?.len(), 3);

    let mut session = session_at(&scene.gateways[0], "broken", ADA).await?;
    let result = session.call("broken", json!({"prompt": "work"})).await?;
    assert_eq!(result["isError"], true);
    let answer = &result["structuredContent"];
    assert_eq!(answer["exitCode"], 7);
    let error = text(answer, "error");
    assert!(error.contains("exit status: 7"), "{error}");
    assert!(error.contains("out of coffee"), "{error}");
    Ok(())
}
