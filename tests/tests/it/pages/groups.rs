//! docs/groups.md: the group of the example, and what it says without a member.

use anyhow::ensure;
use mooring_tests::code::CodeVolume;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::Page;
use serde_json::{Value, json};

use super::{NOT_RUN, printed_by, python_prints, session_at};

#[tokio::test]
async fn the_group_of_the_page_serves_its_members_and_names_a_missing_one() -> anyhow::Result<()> {
    let mut page = Page::read("docs/groups.md")?;
    let (mut fixture, volume) = (Fixture::start("one").await?, CodeVolume::new()?);
    page.fill("http://127.0.0.1:9001/mcp", fixture.url())?;
    let settings = Settings::toml(page.take("toml", "kind = \"group\"")?).env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    );
    let gateway = Gateway::start("grouping", settings).await?;
    let url = gateway.url(
        &page
            .inline("/servers/<group>/mcp")?
            .replace("<group>", "all"),
    );
    let mut session = session_at(&url, &[]).await?;
    let list = session.request("tools/list", json!({})).await?.response;
    let tools = list["result"]["tools"].as_array();
    let names: Vec<&str> = tools
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    ensure!(
        names.contains(&"tools__increment") && names.contains(&"sandbox__shell_exec"),
        "{names:?}"
    );
    let counted = session.call("tools__increment", json!({})).await?;
    assert_eq!(counted["structuredContent"]["count"], 1);
    let ran = session.call(
        "sandbox__shell_exec",
        json!({"code": "print(1)", "language": "python"}),
    );
    assert_eq!(printed_by(&ran.await?)?, "1\n");
    let mut alone = session_at(&gateway.mcp_url("sandbox"), &[]).await?;
    assert_eq!(python_prints(&mut alone, "print(2)").await?, "2\n");

    fixture.process().kill_now()?;
    let mark: Value = serde_json::from_str(&format!("{{{}}}", page.inline("\"_meta\"")?))?;
    let without = session_at(&url, &[]).await?.initialize_result;
    assert_eq!(without["_meta"], mark["_meta"], "{without}");
    page.finish(&NOT_RUN)
}
