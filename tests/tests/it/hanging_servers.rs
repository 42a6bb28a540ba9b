//! A server that hangs is waited for once. After that nobody waits for it, whoever asks, until it answers again.

use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder, USER};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

/// `upstream.response_headers_timeout_ms`: how long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Sessions that open while the server hangs. Each asks it three times.
const SESSIONS: u32 = 6;
/// How long a program takes that has to be fetched first: longer than an answer is waited for.
const FETCHED_AFTER_SECONDS: u32 = 3;
/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Two servers and groups of them, by prefix and by the tools' own names.
fn settings(well: &Fixture, hung: &Fixture) -> Settings {
    let mut toml = format!(
        "[store]\nurl = \"embedded\"\n[upstream]\nresponse_headers_timeout_ms = {}\n",
        ANSWER_WITHIN.as_millis()
    );
    for (id, fixture) in [("well", well), ("hung", hung)] {
        let url = fixture.url();
        toml += &format!("[[servers]]\nid = {id:?}\ninstances = [{url:?}]\n");
    }
    toml += "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"well\", \"hung\"]\n";
    Settings::toml(toml)
}

fn tool_names(list: &Value) -> Vec<String> {
    let tools = list["tools"].as_array().into_iter().flatten();
    tools
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect()
}

/// A new session at the group, and the names of its tools.
async fn open_and_list(endpoint: &str) -> anyhow::Result<(McpSession, Vec<String>)> {
    let client = HttpClient::new(SOON);
    let mut session = McpSession::open(&client, &[endpoint.to_owned()]).await?;
    let listed = session.request("tools/list", json!({})).await?;
    let names = tool_names(&result_of(listed.response)?);
    Ok((session, names))
}

#[tokio::test]
async fn a_group_waits_for_a_member_that_hangs_once_and_uses_it_again_when_it_answers()
-> anyhow::Result<()> {
    let (well, mut hung) = (Fixture::start("well").await?, Fixture::start("hung").await?);
    let gateway = Gateway::start("hanging", settings(&well, &hung)).await?;
    let endpoint = gateway.mcp_url("all");
    hung.process().stop()?;
    open_and_list(&endpoint).await?;

    let sessions = async {
        for _ in 0..SESSIONS {
            let (mut session, names) = open_and_list(&endpoint).await?;
            assert!(names.iter().any(|name| name == "well__increment"));
            assert!(!names.iter().any(|name| name.starts_with("hung__")));
            let instructions = session.initialize_result["instructions"].to_string();
            assert!(
                instructions.contains("Not available now: hung"),
                "{instructions}"
            );
            let level = json!({"level": "warning"});
            result_of(session.request("logging/setLevel", level).await?.response)?;
            let counted = session.call("well__increment", json!({})).await?;
            assert_eq!(counted["structuredContent"]["count"], 1);
        }
        anyhow::Ok(())
    };
    // Waiting each time would take twice as long.
    let limit = ANSWER_WITHIN * SESSIONS * 3 / 2;
    let opened = tokio::time::timeout(limit, sessions);
    opened
        .await
        .context("sessions wait for the member that hangs")??;

    hung.process().cont()?;
    wait::until_true("the member to be used again", SOON, async || {
        let (_, names) = open_and_list(&endpoint).await?;
        Ok(names.iter().any(|name| name == "hung__increment"))
    })
    .await
}

#[tokio::test]
async fn code_waits_for_a_server_that_hangs_no_longer_than_others_have() -> anyhow::Result<()> {
    const LIMIT: Duration = Duration::from_secs(20);
    let (well, mut hung) = (Fixture::start("well").await?, Fixture::start("hung").await?);
    let volume = CodeVolume::new()?;
    let mut toml = format!(
        "[upstream]\nresponse_headers_timeout_ms = {}\nclaim_lease_ms = {}\n",
        LIMIT.as_millis(),
        2 * LIMIT.as_millis(),
    );
    for (id, fixture) in [("well", &well), ("hung", &hung)] {
        let url = fixture.url();
        toml += &format!("[[servers]]\nid = {id:?}\nallow = [{{}}]\ninstances = [{url:?}]\n");
    }
    toml += "[[servers]]\nid = \"all\"\nkind = \"group\"\nallow = [{}]\nmembers = [\"well\", \"hung\"]\n";
    let settings = volume.settings("embedded").more_toml(&toml);
    let gateway = Gateway::start("hanging", settings).await?;
    hung.process().stop()?;

    let mut coder = Coder::open(&[&gateway], "ada").await?;
    let files = async {
        coder.write("/scratch/a", "kept").await?;
        assert_eq!(coder.read("/scratch/a").await?, "kept");
        assert_eq!(coder.names("/scratch").await?, ["a"]);
        anyhow::Ok(())
    };
    let files = tokio::time::timeout(LIMIT, files).await;
    files.context("file tools wait for a list of tools")??;

    // A group learns that the server hangs, and code does not wait for it any more.
    let opening = Opening::default().header(USER, "bob")?;
    McpSession::open_with(&HttpClient::new(SOON), &[gateway.mcp_url("all")], opening).await?;
    let ran = tokio::time::timeout(LIMIT, async {
        assert_eq!(coder.python("print(1)").await?, "1");
        coder
            .done("tool_search", json!({"query": "increment"}))
            .await
    });
    let found = ran.await.context("code waits for a server that hangs")??;
    assert!(found.to_string().contains("well"), "{found}");

    hung.process().cont()?;
    wait::until_true("the tools of the server", SOON, async || {
        let found = coder
            .done("tool_search", json!({"query": "increment"}))
            .await?;
        Ok(found.to_string().contains("hung"))
    })
    .await
}

#[tokio::test]
async fn the_tools_of_a_program_that_starts_slowly_are_mounted_by_the_first_call()
-> anyhow::Result<()> {
    let volume = CodeVolume::new()?;
    let program = stdio_command("slow", None, &[])?;
    let fetched = format!("sleep {FETCHED_AFTER_SECONDS}; exec \"$@\"");
    let command = [
        ["sh", "-c", &fetched, "sh"].map(str::to_owned).to_vec(),
        program,
    ]
    .concat();
    let toml = format!(
        "[upstream]\nresponse_headers_timeout_ms = 1000\n\
         [[servers]]\nid = \"slow\"\nallow = [{{}}]\nkind = \"stdio\"\ncommand = {command:?}\n"
    );
    let settings = volume.settings("embedded").more_toml(&toml);
    let gateway = Gateway::start("slow-program", settings).await?;
    let mut coder = Coder::open(&[&gateway], "ada").await?;
    let found = coder
        .done("tool_search", json!({"query": "increment"}))
        .await?;
    assert!(found.to_string().contains("slow"), "{found}");
    Ok(())
}
