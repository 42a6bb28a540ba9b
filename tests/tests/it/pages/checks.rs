//! Short pages: doctor's report, what contextforge.md, connections.md, commands.md and tracing.md print.

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::collector::Collector;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::printed::{exchanges, same_text};
use mooring_tests::reader::Reader;
use mooring_tests::redis::Redis;
use serde_json::json;

use super::{NOT_RUN, free_address, session_at};

#[tokio::test]
async fn the_doctor_reports_as_its_page_prints_it() -> anyhow::Result<()> {
    let mut page = Page::read("docs/doctor.md")?;
    let (mut reader, fixture, address) = (
        Reader::new()?,
        Fixture::start("one").await?,
        free_address()?,
    );
    let gone = fixture.url().replace("/mcp", "/nowhere");
    let toml = format!(
        "[listen]\naddress = {address:?}\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"memory\"\nkind = \"stdio\"\ncommand = \"npx\"\n\
         [[servers]]\nid = \"old\"\ninstances = [{gone:?}]\n",
        fixture.url()
    );
    reader.write("mooring.toml", &toml)?;
    page.fill("127.0.0.1:4444", &*address)?;
    page.fill("/home/ada", reader.path_text("").trim_end_matches('/'))?;
    let block = page.take("console", "mooring doctor")?;
    let exchanges = exchanges(&block);
    let [(doctor, printed)] = &exchanges[..] else {
        anyhow::bail!("{block}")
    };
    // No directory with npx.
    let binaries = paths::binary("mooring")?;
    let binaries = binaries.parent().context("a directory")?;
    reader.set("PATH", binaries.display().to_string());
    // The exit code for a problem.
    let report = reader.run(&format!("{doctor} || [ $? = 69 ]")).await?;
    same_text(printed, &report)?;
    page.finish(&NOT_RUN)
}

/// An environment file of ContextForge, as the page reads it.
#[tokio::test]
async fn an_environment_of_contextforge_is_read_as_the_page_says() -> anyhow::Result<()> {
    let mut page = Page::read("docs/contextforge.md")?;
    let reader = Reader::new()?;
    reader.write(
        ".env",
        "CODE_EXECUTION_ENABLED=false\nPLUGINS_ENABLED=true\n",
    )?;
    let script = page.take("sh", "mooring config check")?;
    let told = reader.run(&format!("{script} 2>&1")).await?;
    ensure!(told.contains("PLUGINS_ENABLED"), "{told}");
    page.finish(&NOT_RUN)
}

#[tokio::test]
async fn a_fleet_forwards_with_the_key_that_connections_makes() -> anyhow::Result<()> {
    let mut page = Page::read("docs/connections.md")?;
    let (reader, redis, fixture) = (
        Reader::new()?,
        Redis::start().await?,
        Fixture::start("old").await?,
    );
    reader.run(&page.take("console", "fleet.keys")?).await?;
    let files = stdio_command("files", None, &[])?;
    page.fill("/etc/mooring/fleet.keys", reader.path_text("fleet.keys"))?;
    page.fill("10.0.0.7:4500", "127.0.0.1:0")?;
    page.fill("http://127.0.0.1:3001/sse", fixture.sse_url())?;
    let command = "[\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]";
    page.fill(command, format!("{files:?}"))?;
    let toml = page.take("toml", "fleet_keys_file")?;
    let settings = Settings::toml(format!("[store]\nurl = {:?}\n{toml}", redis.url()));
    let gateways = Gateway::fleet(2, &settings).await?;
    for server in ["files", "old"] {
        let mut session = session_at(&gateways[0].mcp_url(server), &[]).await?;
        assert_eq!(session.increment().await?, 1);
        let other = [gateways[1].mcp_url(server)];
        let mut session = session.fork(&HttpClient::default(), &other);
        assert_eq!(session.increment().await?, 2, "{server}");
    }
    page.finish(&NOT_RUN)
}

#[tokio::test]
async fn the_digest_of_a_request_is_what_the_page_computes() -> anyhow::Result<()> {
    let mut page = Page::read("docs/commands.md")?;
    let (reader, redis) = (Reader::new()?, Redis::start().await?);
    let code = page.take("python", "def digest")?;
    let words = ["SESSION.GET", "mcpgw:absent"];
    let bytes: Vec<String> = words
        .iter()
        .map(|word| format!("b{}", json!(word)))
        .collect();
    let digest = format!("{code}\nprint(digest([{}]))\n", bytes.join(", "));
    reader.write("digest.py", &digest)?;
    let digest = reader.run("python3 digest.py").await?;
    let refused = format!("{:#}", redis.cli(&words).err().context("an error")?);
    ensure!(
        refused.contains(&format!("(request {})", digest.trim())),
        "{digest}{refused}"
    );
    page.finish(&NOT_RUN)
}

#[tokio::test]
async fn a_gateway_traces_with_the_settings_that_the_page_prints() -> anyhow::Result<()> {
    let mut page = Page::read("docs/tracing.md")?;
    let (collector, fixture) = (Collector::start().await?, Fixture::start("one").await?);
    page.fill("http://127.0.0.1:4318", collector.endpoint())?;
    page.fill("0.05", "1")?;
    let toml = page.take("toml", "otlp_endpoint")?;
    let server = format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
        fixture.url()
    );
    let settings = Settings::toml(format!("{toml}\n{server}")).env("OTLP_AUTHORIZATION", "Basic x");
    let gateway = Gateway::start("traced", settings).await?;
    let mut session = session_at(&gateway.mcp_url("tools"), &[]).await?;
    assert_eq!(session.increment().await?, 1);
    let spans = collector
        .until("a call", |spans| {
            spans.iter().any(|span| span.name == "tools/call increment")
        })
        .await?;
    let environment = spans[0].resource.get("deployment.environment.name");
    assert_eq!(environment.map(String::as_str), Some("Str(production)"));
    page.finish(&NOT_RUN)
}
