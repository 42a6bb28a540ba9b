//! How the process ends: the documented exit codes, and messages that name what to change.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

use crate::rig::kept;

/// How long a stop may take: less than the ten seconds for which open replies are waited for, twice over.
const STOPPED_WITHIN: Duration = Duration::from_secs(25);

#[tokio::test]
async fn bad_settings_end_with_64_and_name_the_key_the_value_and_what_is_allowed()
-> anyhow::Result<()> {
    let server = "[[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9/mcp\"]\n";
    let table = [
        (
            "[affinity]\nttl_seconds = 0\n",
            ["affinity.ttl_seconds", "0", "from 1 to 2592000"],
        ),
        (
            "[affinity]\nenabled = \"maybe\"\n",
            ["affinity.enabled", "maybe", "true or false"],
        ),
        (
            "[affinity]\nttl = 5\n",
            ["affinity.ttl", "no such key", "ttl_seconds"],
        ),
        (
            "[store]\nurl = \"mysql://x\"\n",
            ["store.url", "mysql://x", "embedded"],
        ),
        (
            "[store]\non_unavailable = \"retry\"\n",
            ["store.on_unavailable", "retry", "fallback"],
        ),
        (
            "[listen]\nbody_bytes_max = \"4 MB\"\n",
            ["listen.body_bytes_max", "4 MB", "1024"],
        ),
        (
            "[auth]\nmode = \"basic\"\n",
            ["auth.mode", "basic", "trusted-header"],
        ),
        (
            "[default]\nserver = \"nobody\"\n",
            ["default.server", "nobody", "tools"],
        ),
        ("[nonsense]\nx = 1\n", ["nonsense", "", ""]),
    ];
    for (toml, named) in table {
        let (status, text) = Gateway::refused(Settings::toml(format!("{toml}{server}"))).await?;
        assert_eq!(status.code(), Some(64), "{toml}: {text}");
        for part in named {
            assert!(text.contains(part), "{toml}: {part:?} is not in: {text}");
        }
    }
    let variable = Settings::toml(server).env("MOORING_AFFINITY_TTL_SECONDS", "1h");
    let (status, text) = Gateway::refused(variable).await?;
    assert_eq!(status.code(), Some(64), "{text}");
    assert!(
        text.contains("MOORING_AFFINITY_TTL_SECONDS") && text.contains("1h"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn a_redis_without_the_module_or_without_a_server_ends_with_69() -> anyhow::Result<()> {
    let stock = Redis::start_with(Module::Absent, &[]).await?;
    let toml = |url: &str| {
        format!(
            "[store]\nurl = {url:?}\non_unavailable = \"fail\"\n[affinity]\nenabled = true\n[[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9/mcp\"]\n"
        )
    };
    let (status, text) = Gateway::refused(Settings::toml(toml(&stock.url()))).await?;
    assert_eq!(status.code(), Some(69), "{text}");
    for part in ["module", "loadmodule", "libmooring.so"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(stock.cli(&["KEYS", "*"])?.is_empty(), "nothing was written");
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_it_with_0_also_while_a_stream_is_open() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let url = fixture.url();
    tokio::try_join!(
        stopped_by(Signal::TERM, &url),
        stopped_by(Signal::INT, &url)
    )?;
    Ok(())
}

#[tokio::test]
async fn sighup_reloads_and_ends_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut gateway = Gateway::start("hung-up", kept(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    let id = Pid::from_raw(i32::try_from(gateway.process().id())?).expect("a process id");
    for count in 1..=2 {
        gateway.hang_up()?;
        wait::until("a line in the log", STOPPED_WITHIN, async || {
            let log = gateway.process().log_text();
            Ok((log.matches("settings reloaded").count() == count).then_some(()))
        })
        .await?;
        assert_eq!(session.increment().await?, count as u64);
    }
    kill_process(id, Signal::TERM)?;
    let status = gateway.process().ended(STOPPED_WITHIN).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

async fn stopped_by(signal: Signal, upstream: &str) -> anyhow::Result<()> {
    let mut gateway = Gateway::start("stopping", kept(&[upstream.to_owned()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    let stream = session.listen(None).await?;
    assert_eq!(stream.status, 200);
    let id = Pid::from_raw(i32::try_from(gateway.process().id())?).expect("a process id");
    kill_process(id, signal)?;
    let status = gateway.process().ended(STOPPED_WITHIN).await?;
    assert_eq!(status.code(), Some(0), "{signal:?}");
    let log = gateway.process().log_text();
    assert!(
        !log.contains("open replies were cut"),
        "a stream that answers no call is not waited for: {log}"
    );
    drop(stream);
    Ok(())
}
