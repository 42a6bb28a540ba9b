//! docs/stdio.md: each command as a client starts it.

use anyhow::ensure;
use mooring_tests::fixture::Fixture;
use mooring_tests::pages::Page;
use mooring_tests::printed::commands;
use mooring_tests::reader::Reader;
use mooring_tests::redis::Redis;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};

use super::{NOT_RUN, command_of, printed_by};

async fn count(client: &mut StdioClient) -> anyhow::Result<Value> {
    let result = client.call("increment", json!({})).await?;
    Ok(result["structuredContent"]["count"].clone())
}

#[tokio::test]
async fn the_commands_of_stdio_serve_their_clients() -> anyhow::Result<()> {
    let mut page = Page::read("docs/stdio.md")?;
    let (reader, fixture, redis) = (
        Reader::new()?,
        Fixture::start("one").await?,
        Redis::start().await?,
    );
    page.fill("http://127.0.0.1:9001/mcp", fixture.url())?;
    page.fill("redis://127.0.0.1:6379", redis.url())?;
    let block = page.take("console", "mooring stdio --server sandbox")?;
    let [sandbox, http, agent, from_file, in_redis] = &commands(&block)[..] else {
        anyhow::bail!("{block}")
    };
    let toml = format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
        fixture.url()
    );
    reader.write("mooring.toml", &toml)?;

    let client: Value = serde_json::from_str(&page.take("json", "mcpServers")?)?;
    let configured = command_of(&client["mcpServers"]["sandbox"])?;
    ensure!(sandbox.starts_with(&configured), "{sandbox}");
    for (command, code, output) in [
        (sandbox, "open('note', 'w').write('kept')", ""),
        (&configured, "print(open('note').read())", "kept\n"),
    ] {
        let mut client = reader.open(command).await?;
        let arguments = json!({"code": code, "language": "python"});
        assert_eq!(
            printed_by(&client.call("shell_exec", arguments).await?)?,
            output
        );
        client.close().await?;
    }
    for expected in [1, 2] {
        let mut client = reader.open(http).await?;
        assert_eq!(count(&mut client).await?, expected, "{http}");
        client.close().await?;
    }
    for expected in [3, 4] {
        let mut client = reader.open(from_file).await?;
        assert_eq!(count(&mut client).await?, expected, "{from_file}");
        client.close().await?;
    }
    // A settings file of this place is read without being named.
    reader.write(".config/mooring/mooring.toml", &toml)?;
    for expected in [1, 2] {
        let mut client = reader.open(in_redis).await?;
        assert_eq!(count(&mut client).await?, expected, "{in_redis}");
        client.close().await?;
    }
    let mut client = reader.open(agent).await?;
    let list = client.request("tools/list", json!({})).await?;
    assert_eq!(list["tools"][0]["name"], "claude", "{list}");
    client.close().await?;
    page.finish(&NOT_RUN)
}
