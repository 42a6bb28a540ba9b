//! README: the count that goes beyond the death of a gateway, and the three examples, with the clients' configurations that it prints.

use anyhow::{Context, ensure};
use mooring_tests::code::CodeVolume;
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::printed::commands;
use mooring_tests::process::Process;
use mooring_tests::reader::Reader;
use mooring_tests::redis::{Module, Redis};
use serde_json::{Value, json};

use super::{
    NOT_RUN, command_of, free_address, instances, printed_by, python_prints, reader, session_at,
    until_served,
};

#[tokio::test]
async fn the_examples_of_readme_work() -> anyhow::Result<()> {
    let mut page = Page::read("README.md")?;
    sandbox(&mut page).await?;
    servers(&mut page).await?;
    fleet(&mut page).await?;
    page.finish(&NOT_RUN)
}

async fn sandbox(page: &mut Page) -> anyhow::Result<()> {
    let (reader, address) = reader()?;
    page.fill("127.0.0.1:4444", &*address)?;
    let mut gateway = reader.start(&page.take("console", "mooring\n")?)?;
    until_served(&mut gateway, &address).await?;

    let client: Value = serde_json::from_str(&page.inline("{\"mcpServers\"")?)?;
    let sandbox = &client["mcpServers"]["sandbox"];
    assert_eq!(sandbox["type"], "http");
    let mut over_http = session_at(sandbox["url"].as_str().context("a URL")?, &[]).await?;
    let code = "open('note', 'w').write('kept'); print(6 * 7)";
    assert_eq!(python_prints(&mut over_http, code).await?, "42\n");

    let client: Value = serde_json::from_str(&page.inline("{\"command\"")?)?;
    let mut over_stdio = reader.open(&command_of(&client)?).await?;
    let arguments = json!({"code": "print(open('note').read())", "language": "python"});
    let result = over_stdio.call("shell_exec", arguments).await?;
    assert_eq!(printed_by(&result)?, "kept\n");
    Ok(())
}

async fn servers(page: &mut Page) -> anyhow::Result<()> {
    let (reader, address) = reader()?;
    let fixtures = instances(page).await?;
    // npx finds the package in its cache.
    let memory = paths::tool("mcp-server-memory")?;
    reader.install_script(
        "npx",
        &format!(
            "[ \"$*\" = '-y @modelcontextprotocol/server-memory' ] && exec {}",
            memory.display()
        ),
    )?;
    let mut gateway = reader.start(&page.take("console", "--server tools=")?)?;
    until_served(&mut gateway, &address).await?;
    page.fill("127.0.0.1:4444", &*address)?;

    let url = page.inline("http://127.0.0.1:4444/servers/tools/mcp")?;
    let mut tools = session_at(&url, &[]).await?;
    for count in 1..=3 {
        assert_eq!(tools.increment().await?, count);
    }
    let rest = page.inline(".../servers/memory/mcp")?;
    let mut memory = session_at(
        &format!("http://{address}{}", rest.trim_start_matches("...")),
        &[],
    )
    .await?;
    let graph = memory.call("read_graph", json!({})).await?;
    ensure!(graph["structuredContent"]["entities"].is_array(), "{graph}");
    drop(fixtures);
    Ok(())
}

async fn fleet(page: &mut Page) -> anyhow::Result<()> {
    let (mut reader, first) = reader()?;
    let _fixtures = instances(page).await?;
    let flag = page.inline("--hash-max-listpack-value 512")?;
    let flag: Vec<&str> = flag.split(' ').collect();
    let (redis, volume) = (
        Redis::start_with(Module::Loaded, &flag).await?,
        CodeVolume::new()?,
    );
    page.fill("redis://127.0.0.1:6379", redis.url())?;
    page.fill("/srv/mooring", volume.path().display().to_string())?;
    reader.write("mooring.toml", &page.take("toml", "[store]")?)?;

    let block = page.take("console", "mooring config check --config mooring.toml")?;
    let [check, doctor, serve] = &commands(&block)[..] else {
        anyhow::bail!("{block}")
    };
    reader.run(check).await?;
    reader.run(doctor).await?;
    let mut one = reader.start(serve)?;
    until_served(&mut one, &first).await?;
    let second = free_address()?;
    reader.set("MOORING_LISTEN_ADDRESS", &*second);
    let mut two = reader.start(serve)?;
    until_served(&mut two, &second).await?;

    for (printed, address) in [("4441", &first), ("4442", &second)] {
        let (_, port) = address.rsplit_once(':').context("a port")?;
        page.fill(printed, port)?;
    }
    count(page, &mut reader, &mut one).await
}

/// Counts in one session through two gateways, the first of which is killed.
async fn count(page: &mut Page, reader: &mut Reader, first: &mut Process) -> anyhow::Result<()> {
    let script = paths::workspace().join("scripts/count.sh");
    page.fill("scripts/count.sh", script.display().to_string())?;
    reader.set("SESSION", reader.path_text("session"));
    let block = page.take("console", "count.sh")?;
    let steps = block.split("$ ").skip(1).map(str::lines);
    for mut step in steps {
        let command = step.next().context("a command")?;
        if command.starts_with("kill -9 ") {
            first.kill_now()?;
            continue;
        }
        let printed = reader.run(command).await?;
        assert!(printed.lines().eq(step), "{command}: {printed}");
    }
    Ok(())
}
