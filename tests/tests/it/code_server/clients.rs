//! Clients of one user that have sessions of their own: whose files they see, how many there may be, and what is no name.

use mooring_tests::client::HttpClient;
use mooring_tests::code::{SERVER, USER};
use mooring_tests::session::{McpSession, Opening};
use serde_json::json;

use super::{ADA, Scene};

const CLIENT: &str = "Mooring-Client";

async fn open(scene: &Scene, client: Option<&str>) -> anyhow::Result<McpSession> {
    let mut opening = Opening::default().header(USER, ADA)?;
    if let Some(client) = client {
        opening = opening.header(CLIENT, client)?;
    }
    let url = scene.gateway.mcp_url(SERVER);
    McpSession::open_with(&HttpClient::default(), &[url], opening).await
}

/// Writes `text` where all of these tests write it.
async fn write(session: &mut McpSession, text: &str) -> anyhow::Result<()> {
    let file = json!({"path": "/results/plan.txt", "content": text});
    let written = session.call("fs_write", file).await?;
    anyhow::ensure!(written["isError"] != true, "{written}");
    Ok(())
}

/// What is there, as code of the session sees it.
async fn read(session: &mut McpSession) -> anyhow::Result<String> {
    let code = "import os\nprint(open('/results/plan.txt').read() if os.path.exists('/results/plan.txt') else 'nothing')";
    let result = session.call("shell_exec", json!({"code": code})).await?;
    let answer = mooring_tests::code::whole_answer(&result)?;
    Ok(answer["output"]
        .as_str()
        .unwrap_or_default()
        .trim_end()
        .to_owned())
}

#[tokio::test]
async fn clients_that_name_themselves_do_not_see_each_others_files() -> anyhow::Result<()> {
    let scene =
        Scene::start_with(|settings| settings.env("MOORING_CODE_SESSION_BY", "client")).await?;
    for (client, text) in [
        (Some("editor"), "of the editor"),
        (Some("tests"), "of the tests"),
        (None, "of all others"),
    ] {
        let mut session = open(&scene, client).await?;
        assert_eq!(read(&mut session).await?, "nothing", "{client:?}");
        write(&mut session, text).await?;
    }
    // A conversation that begins anew under the same name finds its files.
    for (client, text) in [
        (None, "of all others"),
        (Some("tests"), "of the tests"),
        (Some("editor"), "of the editor"),
    ] {
        let mut session = open(&scene, client).await?;
        assert_eq!(read(&mut session).await?, text, "{client:?}");
    }
    assert_eq!(scene.volume.sessions()?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn without_the_setting_a_name_changes_nothing() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    write(&mut open(&scene, Some("editor")).await?, "shared").await?;
    assert_eq!(
        read(&mut open(&scene, Some("not a name")).await?).await?,
        "shared"
    );
    assert_eq!(scene.volume.sessions()?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn names_are_limited_in_form_and_number() -> anyhow::Result<()> {
    let scene = Scene::start_with(|settings| {
        settings
            .env("MOORING_CODE_SESSION_BY", "client")
            .env("MOORING_CODE_SESSIONS_MAX", "2")
    })
    .await?;
    let mut bad = open(&scene, Some("a:b")).await?;
    let refused = bad.call("shell_exec", json!({"code": "print(1)"})).await;
    let refused = format!("{:?}", refused.map(|result| result.to_string()));
    assert!(
        refused.contains("Mooring-Client has to be 1 to 32 letters"),
        "{refused}"
    );
    assert_eq!(scene.volume.sessions()?.len(), 0);

    let mut first = open(&scene, Some("first")).await?;
    write(&mut first, "first").await?;
    write(&mut open(&scene, Some("second")).await?, "second").await?;
    let third = open(&scene, Some("third"))
        .await?
        .call("shell_exec", json!({"code": "print(1)"}))
        .await?;
    assert_eq!(third["isError"], true, "{third}");
    assert!(third.to_string().contains("code.sessions_max"), "{third}");
    // The sessions that there are go on, and so does the one that is shared.
    assert_eq!(read(&mut first).await?, "first");
    assert_eq!(read(&mut open(&scene, None).await?).await?, "nothing");
    Ok(())
}
