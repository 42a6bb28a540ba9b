//! What a call may ask for, where the agent then works, and what reaches it.

use anyhow::Context;
use mooring_tests::agent::{AgentHome, Ids, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use serde_json::json;

use super::{ADA, Scene, prompt_in, session_at, text};

/// Longest prompt, in bytes.
const PROMPT_BYTES_MAX: usize = 100 * 1024;

#[tokio::test]
async fn the_agent_works_where_it_is_told_and_nowhere_else() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Stay)?, Redis::start().await?);
    let more = tempfile::tempdir()?;
    let (allowed, outside) = (more.path().join("allowed"), more.path().join("outside"));
    let inner = home.work_folder().join("inner");
    for folder in [&allowed, &outside, &inner] {
        std::fs::create_dir(folder)?;
    }
    let (leads_out, leads_in) = (home.work_folder().join("out"), more.path().join("in"));
    std::os::unix::fs::symlink(&outside, &leads_out)?;
    std::os::unix::fs::symlink(&inner, &leads_in)?;
    let settings = home.settings(&redis.url(), &format!("work_folders = [{allowed:?}]"))?;
    let gateway = Gateway::start("gateway", settings).await?;
    let mut session = session_at(&gateway, SERVER, ADA).await?;

    let default = home.work_folder();
    for (asked, works_in) in [
        (None, &default),
        (Some(&inner), &inner),
        (Some(&allowed), &allowed),
        (Some(&leads_in), &inner),
    ] {
        let arguments = json!({"prompt": "cwd", "workFolder": asked});
        let result = session.call(SERVER, arguments).await?;
        let works_in = works_in.canonicalize()?;
        let expected = works_in.to_str().context("a path")?;
        assert_eq!(result["structuredContent"]["result"], expected);
    }
    let known = home.sessions()?;
    let root = more.path().to_owned();
    let (relative, missing) = ("inner".into(), allowed.join("missing"));
    let dotted = allowed.join("../outside");
    for refused in [&outside, &leads_out, &root, &relative, &missing, &dotted] {
        let arguments = json!({"prompt": "cwd", "workFolder": refused});
        let result = session.call(SERVER, arguments).await?;
        assert_eq!(result["isError"], true, "{refused:?}: {result}");
        let error = text(&result["structuredContent"], "error");
        assert!(error.contains("workFolder"), "{error}");
    }
    assert_eq!(home.sessions()?, known);
    Ok(())
}

#[tokio::test]
async fn bad_arguments_are_refused_by_name_and_nothing_is_run() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut ada = scene.user(ADA).await?;
    let long_prompt = "x".repeat(PROMPT_BYTES_MAX + 1);
    for (arguments, named) in [
        (json!({}), "prompt"),
        (json!({"prompt": 5}), "prompt"),
        (json!({"prompt": " \n"}), "prompt"),
        (json!({"prompt": "echo a\0b"}), "prompt"),
        (json!({"prompt": long_prompt}), "prompt"),
        (prompt_in("", "echo a"), "parentSessionId"),
        (prompt_in(&"x".repeat(257), "echo a"), "parentSessionId"),
        (prompt_in("a\nb", "echo a"), "parentSessionId"),
        (
            json!({"prompt": "echo a", "parentSessionId": ["a"]}),
            "parentSessionId",
        ),
        (json!({"prompt": "echo a", "workFolder": 1}), "workFolder"),
        (json!({"prompt": "echo a", "session": "x"}), "session"),
    ] {
        let (answer, is_error) = ada.call(arguments).await?;
        assert!(is_error, "{answer}");
        let error = text(&answer, "error");
        assert!(error.contains(named), "{named}: {error}");
    }
    assert!(scene.home.sessions()?.is_empty());
    let mut session = session_at(&scene.gateways[0], SERVER, ADA).await?;
    let params = json!({"name": "claude", "arguments": {"prompt": "echo a"}});
    let exchange = session.request("tools/call", params).await?;
    assert_eq!(
        exchange.response["error"]["code"], -32602,
        "{:?}",
        exchange.response
    );
    Ok(())
}

#[tokio::test]
async fn the_agent_has_the_environment_that_the_settings_give_it() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Stay)?, Redis::start().await?);
    let settings = home
        .settings(&redis.url(), "inherit_env = [\"PASSED_ON\", \"NOT_THERE\"]")?
        .env("PASSED_ON", "passed on")
        .env("OF_THE_GATEWAY", "secret")
        .env("MOORING_STORE_KEY_PREFIX", "mcpgw:");
    let gateway = Gateway::start("gateway", settings).await?;
    let mut session = session_at(&gateway, SERVER, ADA).await?;
    let mut value = async |name: &str| {
        let arguments = json!({"prompt": format!("env {name}")});
        let result = session.call(SERVER, arguments).await?;
        anyhow::Ok(text(&result["structuredContent"], "result"))
    };
    assert_eq!(value("STANDIN_AGENT_FORK_IDS").await?, "0");
    assert_eq!(value("PASSED_ON").await?, "passed on");
    assert_ne!(value("PATH").await?, "unset");
    assert_ne!(value("HOME").await?, "unset");
    for name in [
        "OF_THE_GATEWAY",
        "NOT_THERE",
        "MOORING_STORE_KEY_PREFIX",
        "MOORING_LISTEN_ADDRESS",
        "MOORING_WORKER_NAME",
        "XDG_STATE_HOME",
    ] {
        assert_eq!(value(name).await?, "unset", "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_prompt_reaches_the_agent_byte_for_byte() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut ada = scene.user(ADA).await?;
    let longest = "x".repeat(PROMPT_BYTES_MAX - "echo ".len());
    for said in [
        "one\ntwo\r\n\tthree",
        "\"double\" 'single' `back` \\ slash",
        "$(touch it) ${HOME} $HOME ; rm x & | > < * ? ~ !",
        "--resume=x -p --",
        "{prompt} {session} {workFolder} {resume} {{",
        "zoë 日本 🦀 \u{202e}",
        &longest,
    ] {
        assert_eq!(ada.ask("chat", &format!("echo {said}")).await?, said);
    }
    // One that begins with a hyphen is a prompt all the same, though not one that the stand-in knows.
    for prompt in ["--resume=x", "-", "--help"] {
        let (answer, is_error) = ada.call(prompt_in("chat", prompt)).await?;
        assert!(is_error, "{answer}");
        let expected = format!("there is no command '{prompt}'");
        assert_eq!(answer["result"], expected);
    }
    let left: Vec<_> = std::fs::read_dir(scene.home.work_folder())?.collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}
