//! Settings that cannot be used change nothing.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use super::http_server;
use super::settings::post_reload;

#[tokio::test]
async fn a_bad_file_changes_nothing_and_every_problem_is_named() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let server = http_server("tools", &[fixture.url()]);
    let mut gateway = Gateway::start("refusing", Settings::toml(server.clone())).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);

    let bad = "[affinity]\nttl_seconds = 0\n[log]\nlevel = \"loud\"\n";
    gateway.write_settings(&(bad.to_owned() + &http_server("other", &[fixture.url()])))?;
    gateway.hang_up()?;
    let log = wait::until_logged("settings not reloaded", 1, || gateway.process().log_text());
    let log = log.await?;
    let (status, answer) = post_reload(&gateway, None).await?;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(answer["error"]["code"], "settings_refused", "{answer}");
    for text in [&log, &answer.to_string()] {
        for key in ["affinity.ttl_seconds", "log.level"] {
            assert!(text.contains(key), "{key} is not in: {text}");
        }
    }
    assert_eq!(session.increment().await?, 2);
    let other = client.get(&gateway.mcp_url("other")).await?;
    assert_eq!(other.status, 404, "nothing is taken of a bad file");

    gateway.write_settings(&(server + &http_server("other", &[fixture.url()])))?;
    let (status, answer) = post_reload(&gateway, None).await?;
    assert_eq!(
        (status, &answer["servers_added"][0]),
        (200, &"other".into())
    );
    assert_eq!(session.increment().await?, 3);
    Ok(())
}
