//! docs/agents.md: Claude Code by the page's settings and clients' configurations, another program, and the commands for
//! conversations with what they print.

use anyhow::{Context, ensure};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::model::{AgentProgram, ProgramHome};
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::printed::{commands, exchanges, same_text};
use mooring_tests::reader::Reader;
use serde_json::{Value, json};

use super::{NOT_RUN, command_of, session_at};

#[tokio::test]
async fn the_examples_of_agents_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/agents.md")?;
    let reader = claude(&mut page).await?;
    another_program(&mut page).await?;
    files(&mut page, &reader).await?;
    conversations(&mut page, &reader).await?;
    page.finish(&NOT_RUN)
}

/// The real program, with a stand-in for its model: both clients' processes continue one conversation.
async fn claude(page: &mut Page) -> anyhow::Result<Reader> {
    let mut reader = Reader::new()?;
    let program = ProgramHome::new(AgentProgram::Claude).await?;
    let (own, others): (Vec<_>, Vec<_>) =
        (program.variables()?.into_iter()).partition(|(name, _)| matches!(*name, "HOME" | "PATH"));
    let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
    let home = own
        .iter()
        .find(|(name, _)| *name == "HOME")
        .context("a home")?;
    let (printed, home) = ("inherit_env = [\"ANTHROPIC_API_KEY\"]", &home.1);
    page.fill(
        printed,
        format!("inherit_env = {names:?}\nenv = {{ HOME = {home:?} }}"),
    )?;
    for (name, value) in others {
        reader.set(name, value);
    }
    reader.install("claude", &paths::tool("claude")?)?;
    page.fill("/home/ada/projects", reader.path_text("projects"))?;
    std::fs::create_dir(reader.path("projects"))?;
    reader.write(
        ".config/mooring/mooring.toml",
        &page.take("toml", "profile = \"claude\"")?,
    )?;

    let first: Value = serde_json::from_str(&page.take("json", "mcpServers")?)?;
    let second: Value = serde_json::from_str(&page.take("json", "\"mcp\"")?)?;
    for (configured, prompt, answer) in [
        (&first["mcpServers"]["claude"], "model: say one", "one"),
        (&second["mcp"]["claude"], "model: recall", "say one"),
    ] {
        let mut client = reader.open(&command_of(configured)?).await?;
        let arguments = json!({"prompt": prompt, "parentSessionId": "parent-123"});
        let result = client.call("claude", arguments).await?;
        let structured = &result["structuredContent"];
        assert_eq!(structured["result"], answer, "{result}");
        assert_eq!(structured["resumed"], answer != "one", "{result}");
        client.close().await?;
    }
    Ok(reader)
}

async fn another_program(page: &mut Page) -> anyhow::Result<()> {
    let reader = Reader::new()?;
    reader.install_script(
        "helper",
        "resumed=no\n\
         for word; do case $word in --continue=*) resumed=${word#--continue=};; esac; done\n\
         echo '{\"type\": \"thinking\", \"text\": \"hm\"}'\n\
         echo \"{\\\"type\\\": \\\"answer\\\", \\\"session\\\": \\\"s1\\\", \\\"text\\\": \\\"resumed $resumed\\\"}\"",
    )?;
    page.fill(
        "\"helper\", \"--cd",
        format!("{:?}, \"--cd", reader.path_text("bin/helper")),
    )?;
    let gateway = Gateway::start(
        "helper",
        Settings::toml(page.take("toml", "id = \"helper\"")?),
    )
    .await?;
    let mut session = session_at(&gateway.mcp_url("helper"), &[]).await?;
    for answer in ["resumed no", "resumed s1"] {
        let arguments = json!({"prompt": "--version", "parentSessionId": "chat"});
        let result = session.call("helper", arguments).await?;
        assert_eq!(result["structuredContent"]["result"], answer, "{result}");
    }
    Ok(())
}

/// Import and export, to and from the file of claude-code-mcp.
async fn files(page: &mut Page, reader: &Reader) -> anyhow::Result<()> {
    let now = reader.run("date --utc +%FT%TZ").await?;
    let sessions = json!({"imported": {"claudeSessionId": "5a1f", "updatedAt": now.trim()}});
    reader.write(
        ".config/claude-code-mcp/sessions.json",
        &sessions.to_string(),
    )?;
    let block = page.take("console", "mooring sessions import")?;
    reader.run(&block).await?;
    let [_, export] = &commands(&block)[..] else {
        anyhow::bail!("{block}")
    };
    let file = export.rsplit(' ').next().context("a file")?;
    let exported: Value = serde_json::from_str(&std::fs::read_to_string(reader.path(file))?)?;
    let ids: Vec<&String> = exported.as_object().context("an object")?.keys().collect();
    assert_eq!(ids, ["imported", "parent-123"]);
    Ok(())
}

async fn conversations(page: &mut Page, reader: &Reader) -> anyhow::Result<()> {
    let block = page.take("console", "mooring sessions list")?;
    let exchanges = exchanges(&block);
    let [(list, printed), (show, about), (end, ended)] = &exchanges[..] else {
        anyhow::bail!("{block}")
    };
    let listed = reader.run(list).await?;
    // The page prints one of the two conversations.
    let row = listed.lines().find(|line| line.ends_with(":parent-123"));
    let row = row.with_context(|| listed.clone())?;
    let head = listed.lines().next().unwrap_or_default();
    same_text(printed, &format!("{head}\n{row}"))?;
    let digest = row.get(..4).context("a digest")?;
    let place = row.rsplit(' ').next().context("a place")?;
    let shown = reader.run(&show.replace("5a1f", digest)).await?;
    ensure!(shown.contains(place), "{shown}");
    same_text(about, &shown)?;
    let named = end.rsplit(' ').next().context("a place")?;
    same_text(ended, &reader.run(&end.replace(named, place)).await?)?;
    let listed = reader.run(list).await?;
    ensure!(!listed.contains("parent-123"), "{listed}");
    Ok(())
}
