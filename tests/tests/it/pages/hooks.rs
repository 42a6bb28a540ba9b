//! docs/hooks.md: the question as it is printed, and the program, as operators copy them.

use anyhow::Context;
use mooring_tests::code::CodeVolume;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::hook::{Hook, HookAnswer};
use mooring_tests::pages::Page;
use mooring_tests::port::free_port;
use mooring_tests::printed::{Form, same_json};
use mooring_tests::reader::Reader;
use serde_json::json;

use super::{NOT_RUN, office, session_at, start_python};

const ADA: [(&str, &str); 2] = [("x-mooring-user", "ada"), ("x-mooring-teams", "dev")];

#[tokio::test]
async fn the_examples_of_hooks_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/hooks.md")?;
    let (reader, volume, port) = (Reader::new()?, CodeVolume::new()?, free_port()?);
    let hook = Hook::start(|_| HookAnswer::allowed()).await?;
    let journal = reader.write("journal", "")?;
    let tracker = office(&journal, &["create_issue", "delete_issue", "find_customer"])?;
    let toml = page.take("toml", "[[calls.hooks]]")?;
    let settings = |url: &str| {
        let hooked = toml.replace("http://127.0.0.1:9400/", url);
        let servers = "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n[[servers]]\nid = \"tracker\"\nkind = \"stdio\"\n";
        Settings::toml(format!("{servers}command = {tracker}\n{hooked}"))
            .users_by_header()
            .env("HOOK_TOKEN", "Bearer of-the-hook")
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            )
    };
    let gateway = Gateway::start("asking", settings(hook.url())).await?;
    let mut session = session_at(&gateway.mcp_url("tracker"), &ADA).await?;
    session
        .call("create_issue", json!({"title": "Broken link"}))
        .await?;
    let questions = hook.questions();
    let after = questions.last().context("a question")?;
    let printed = serde_json::from_str(&page.take("json", "\"phase\": \"after\"")?)?;
    same_json(&printed, after, &Form::default())?;

    reader.write("hook.py", &page.take("python", "class Hook")?)?;
    let mut process = start_python(&reader, "hook.py", &[&port.to_string()])?;
    let probe = async || {
        Ok(tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .map(drop)?)
    };
    process.ready(probe).await?;
    let gateway = Gateway::start("hooked", settings(&format!("http://127.0.0.1:{port}/"))).await?;
    let mut session = session_at(&gateway.mcp_url("tracker"), &ADA).await?;
    let refused = session.call("delete_issue", json!({"number": 17})).await;
    let refused = format!("{:#}", refused.err().context("a refusal")?);
    assert!(
        refused.contains("only administrators may delete"),
        "{refused}"
    );
    let found = session.call("find_customer", json!({"id": 17})).await?;
    assert_eq!(found["structuredContent"]["email"], "[address]", "{found}");
    let admin = [("x-mooring-user", "eve"), ("x-mooring-roles", "admin")];
    let mut session = session_at(&gateway.mcp_url("tracker"), &admin).await?;
    session.call("delete_issue", json!({"number": 17})).await?;
    page.finish(&NOT_RUN)
}
