//! What a process that serves one client is not for, and what it cannot do without: it ends at once, with the documented
//! exit code and words that say what to do.

use mooring_tests::gateway::Settings;
use mooring_tests::port::free_port;
use mooring_tests::stdio_client::refused;

use super::SERVER;
use crate::rig::kept;

/// Nobody listens there, and nobody is asked.
const NOBODY: &str = "http://127.0.0.1:9/mcp";

/// Ends with this exit code, and says all of this.
async fn check(
    settings: &Settings,
    server: &str,
    more: &[&str],
    code: i32,
    said: &[&str],
) -> anyhow::Result<()> {
    let (status, text) = refused(settings, server, more).await?;
    assert_eq!(status.code(), Some(code), "{server} {more:?}: {text}");
    for part in said {
        assert!(
            text.contains(part),
            "{server} {more:?}: {part:?} is not in: {text}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_there_is_not_is_refused_with_those_that_there_are() -> anyhow::Result<()> {
    let toml = format!(
        "[[servers]]\nid = \"web\"\ninstances = [{NOBODY:?}]\n[[servers]]\nid = \"code\"\nkind = \"code\"\n"
    );
    let settings = Settings::toml(toml);
    let said = ["`nobody`", "web", "code"];
    check(&settings, "nobody", &[], 64, &said).await?;
    check(
        &Settings::toml(""),
        "nobody",
        &[],
        64,
        &["`nobody`", "sandbox"],
    )
    .await
}

#[tokio::test]
async fn bad_settings_and_flags_are_refused_by_name() -> anyhow::Result<()> {
    let server = format!("[[servers]]\nid = {SERVER:?}\ninstances = [{NOBODY:?}]\n");
    let table = [
        ("[affinity]\nttl_seconds = 0\n", "affinity.ttl_seconds"),
        ("[store]\nurl = \"mysql://x\"\n", "store.url"),
        ("[nonsense]\nx = 1\n", "nonsense"),
    ];
    for (toml, named) in table {
        let settings = Settings::toml(format!("{toml}{server}"));
        check(&settings, SERVER, &[], 64, &[named]).await?;
    }
    let settings = Settings::toml(server);
    let both: &[&str] = &["--new-session", "--session", "x"];
    check(&settings, SERVER, both, 64, &["--new-session", "--session"]).await?;
    check(&settings, SERVER, &["--nonsense"], 64, &["--nonsense"]).await?;
    check(&settings, "web=ftp://nowhere", &[], 64, &["ftp://nowhere"]).await
}

#[tokio::test]
async fn a_store_that_is_away_ends_it_with_69_where_nothing_may_stand_for_it() -> anyhow::Result<()>
{
    let address = format!("127.0.0.1:{}", free_port()?);
    let settings = kept(&[NOBODY.to_owned()]).env("MOORING_STORE_ON_UNAVAILABLE", "fail");
    let store = format!("redis://{address}");
    check(&settings, SERVER, &["--store", &store], 69, &[&address]).await
}
