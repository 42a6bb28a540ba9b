//! `mooring doctor` and `mooring config check` against what is really broken, and that `serve` says the same.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use anyhow::Context as _;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::port::free_port;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs `mooring` with these words and this settings file.
pub(crate) async fn mooring(words: &[&str], toml: &str) -> anyhow::Result<(Option<i32>, String)> {
    let directory = TempDir::with_prefix("mooring-doctor-")?;
    let file = directory.path().join("mooring.toml");
    std::fs::write(&file, toml)?;
    let mut command = Command::new(paths::binary("mooring")?);
    command
        .args(words)
        .arg("--config")
        .arg(&file)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory.path());
    // The servers of this test answer while the program runs.
    let run = tokio::task::spawn_blocking(move || command.output());
    let Output {
        status,
        stdout,
        stderr,
    } = run.await??;
    let text = [stdout, stderr].concat();
    Ok((status.code(), String::from_utf8_lossy(&text).into_owned()))
}

/// The line of one subject, and the one below it.
fn about<'a>(text: &'a str, subject: &str) -> &'a str {
    let start = text
        .find(&format!(" {subject}"))
        .unwrap_or_else(|| panic!("{subject}: {text}"));
    let end = text[start..].match_indices('\n').nth(1);
    &text[start..end.map_or(text.len(), |(end, _)| start + end)]
}

#[tokio::test]
async fn the_doctor_names_what_is_broken_and_what_to_do() -> anyhow::Result<()> {
    let (good, plain_redis) = (Fixture::start("good").await?, Redis::start().await?);
    let (closed, listen) = (free_port()?, free_port()?);
    let works = stdio_command("doctored", None, &[])?;
    let toml = format!(
        "[listen]\naddress = \"127.0.0.1:{listen}\"\n\
         [store]\nurl = {:?}\n[affinity]\nenabled = true\n\
         [worker]\nfleet_keys_file = \"/nowhere/fleet.keys\"\n\
         [[servers]]\nid = \"good\"\ninstances = [{:?}]\n",
        plain_redis.url().replace("redis://", "rediss://"),
        good.url(),
    );
    let servers = format!(
        "[[servers]]\nid = \"closed\"\ninstances = [\"http://127.0.0.1:{closed}/mcp\"]\n\
         [[servers]]\nid = \"path\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"works\"\ncommand = {works:?}\n\
         [[servers]]\nid = \"program\"\ncommand = \"mooring-no-such-program\"\n\
         [[servers]]\nid = \"crash\"\ncommand = [\"sh\", \"-c\", \"echo Error: missing API_KEY >&2; exit 3\"]\n\
         [[servers]]\nid = \"agent\"\nkind = \"agent\"\noutput = \"text\"\ncommand = [\"mooring-no-such-agent\", \"{{prompt}}\"]\n",
        good.url().replace("/mcp", "/elsewhere"),
    );
    // A gateway would not start without its key; all else is looked at.
    let (code, text) = mooring(&["doctor"], &format!("{toml}{servers}")).await?;
    assert_eq!(code, Some(69), "{text}");
    assert!(
        about(&text, "worker.fleet_keys_file").contains("cannot open"),
        "{text}"
    );
    assert!(about(&text, "store (rediss://").contains("TLS"), "{text}");
    assert!(
        about(&text, "server program").contains("was not found"),
        "{text}"
    );

    let toml = toml.replace("fleet_keys_file = \"/nowhere/fleet.keys\"\n", "");
    let toml = toml
        .replace("[store]\n", "[store]\n# ")
        .replace("# url", "# ");
    let (code, text) = mooring(&["doctor"], &format!("{toml}{servers}")).await?;
    assert_eq!(code, Some(69), "{text}");
    for (subject, words) in [
        ("server closed", "connection refused"),
        ("server closed", "start the server"),
        ("server path", "404"),
        (
            "server program",
            "\"mooring-no-such-program\" was not found",
        ),
        // As the log of `serve` has it.
        ("server program", "add its directory to the gateway's PATH"),
        ("server crash", "exit status: 3"),
        ("server crash", "missing API_KEY"),
        ("server agent", "\"mooring-no-such-agent\" was not found"),
        ("listen.address", "is free"),
        ("server good", "tools"),
        ("server works", "tools"),
    ] {
        assert!(
            about(&text, subject).contains(words),
            "{subject}: {words:?}: {text}"
        );
    }
    assert!(text.contains("problems: 5"), "{text}");

    let (code, text) = mooring(&["doctor", "--json"], &toml).await?;
    let report: Value = serde_json::from_str(&text).context(text)?;
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["healthy"], true);
    Ok(())
}

#[tokio::test]
async fn the_doctor_says_that_a_setting_of_redis_makes_sessions_large() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--hash-max-listpack-value", "64"]).await?;
    let toml = format!(
        "[store]\nurl = {:?}\n[listen]\naddress = \"127.0.0.1:{}\"\n[[servers]]\nid = \"code\"\nkind = \"code\"\n",
        redis.url(),
        free_port()?
    );
    for (value, told) in [("64", Some("hash-max-listpack-value is 64")), ("512", None)] {
        redis.cli(&["CONFIG", "SET", "hash-max-listpack-value", value])?;
        let (_, text) = mooring(&["doctor"], &toml).await?;
        let store = about(&text, "store (redis://");
        match told {
            Some(told) => assert!(store.contains(told) && store.contains("512"), "{text}"),
            None => assert!(!store.contains("listpack"), "{text}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_doctor_says_that_redis_wants_a_password() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    redis.cli(&["CONFIG", "SET", "requirepass", "a-secret"])?;
    let toml = format!(
        "[store]\nurl = {:?}\n[listen]\naddress = \"127.0.0.1:{}\"\n[[servers]]\nid = \"code\"\nkind = \"code\"\n",
        redis.url(),
        free_port()?
    );
    let (_, text) = mooring(&["doctor"], &toml).await?;
    let store = about(&text, "store (redis://");
    assert!(store.contains("NOAUTH Authentication required"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_program_in_place_of_a_servers_id_is_answered_with_how_to_write_it() -> anyhow::Result<()>
{
    let toml = "[[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9/mcp\"]\n";
    for named in ["nobody", "npx -y @scope/server"] {
        let (code, text) = mooring(&["stdio", "--server", named], toml).await?;
        assert_eq!(code, Some(64), "{text}");
        for part in [named, "there is tools", "ID=PROGRAM"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_doctor_knows_the_gateways_own_port_from_anothers() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("running", crate::rig::kept(&[fixture.url()])).await?;
    let other: http::Uri = fixture.url().parse()?;
    let other = other.authority().context("an address")?.to_string();
    for (address, code, words) in [
        (
            format!("127.0.0.1:{}", gateway.port()),
            0,
            "a gateway is serving",
        ),
        (other, 69, "choose another port"),
    ] {
        let toml = format!(
            "[listen]\naddress = {address:?}\n[[servers]]\nid = \"one\"\ninstances = [{:?}]\n",
            fixture.url()
        );
        let (ended, text) = mooring(&["doctor"], &toml).await?;
        assert_eq!(ended, Some(code), "{text}");
        assert!(about(&text, "listen.address").contains(words), "{text}");
    }
    // It has no certificate for the private port, which may well be a gateway's.
    let toml = format!(
        "[worker]\npeer_listen = \"127.0.0.1:{}\"\n[[servers]]\nid = \"local\"\ncommand = {:?}\n",
        gateway.port(),
        stdio_command("private", None, &[])?,
    );
    let (ended, text) = mooring(&["doctor"], &toml).await?;
    assert_eq!(ended, Some(0), "{text}");
    assert!(
        about(&text, "worker.peer_listen").contains("is in use"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn check_and_serve_refuse_the_same_files_by_the_name_of_the_setting() -> anyhow::Result<()> {
    let (directory, redis) = (TempDir::new()?, Redis::start().await?);
    let key = directory.path().join("fleet.keys");
    std::fs::write(&key, "5".repeat(64))?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644))?;
    let absent = directory.path().join("absent");
    // Nothing can be made below a file, whoever asks.
    let below_a_file = key.join("sessions");
    let keys = |path: &std::path::Path| {
        format!(
            "[store]\nurl = {:?}\n[worker]\nfleet_keys_file = {path:?}\n\
             [[servers]]\nid = \"files\"\ncommand = [\"cat\"]\n",
            redis.url()
        )
    };
    for (toml, named) in [
        (keys(&key), ["worker.fleet_keys_file", "mode 0644"]),
        (keys(&absent), ["worker.fleet_keys_file", "cannot open"]),
        (
            format!("[code]\ntokens_key_file = {absent:?}\n"),
            ["code.tokens_key_file", "cannot open"],
        ),
        (
            format!("[code]\nbase_dir = {below_a_file:?}\n"),
            ["code.base_dir", "cannot be written"],
        ),
    ] {
        let (checked, said) = mooring(&["config", "check"], &toml).await?;
        let (served, log) = Gateway::refused(Settings::toml(toml.clone())).await?;
        assert_eq!(
            (checked, served.code()),
            (Some(69), Some(69)),
            "{said}{log}"
        );
        for word in named {
            assert!(
                said.contains(word) && log.contains(word),
                "{word}: {said}{log}"
            );
        }
    }
    Ok(())
}

/// `sudo mooring config check` is run on the files of the gateway's user.
#[tokio::test]
async fn root_reads_key_files_of_other_users_and_is_told_whose_they_are() -> anyhow::Result<()> {
    const OTHER: u32 = 12_345;
    let (directory, redis) = (TempDir::new()?, Redis::start().await?);
    let key = directory.path().join("fleet.keys");
    std::fs::write(&key, "5".repeat(64))?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
    // Only root can give a file away.
    let is_root = std::os::unix::fs::chown(&key, Some(OTHER), None).is_ok();
    let toml = format!(
        "[store]\nurl = {:?}\n[worker]\nfleet_keys_file = {key:?}\n[[servers]]\nid = \"files\"\ncommand = [\"cat\"]\n",
        redis.url()
    );
    let (checked, said) = mooring(&["config", "check"], &toml).await?;
    assert_eq!(checked, Some(0), "{said}");
    let owner = format!("belongs to the user {OTHER}");
    assert_eq!(said.contains(&owner), is_root, "{said}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_at_the_start_and_harms_nobody_else()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let toml = format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"memory\"\ncommand = \"mooring-no-such-program\"\nargs = [\"-y\"]\n",
        fixture.url()
    );
    let (checked, said) = mooring(&["config", "check"], &toml).await?;
    assert_eq!(checked, Some(0), "{said}");
    assert!(
        said.contains("server memory") && said.contains("was not found"),
        "{said}"
    );

    let mut gateway = Gateway::start("alone", Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let ready = client.get(&gateway.url("/readyz")).await?.json().await?;
    let memory = &ready["parts"]["servers"]["memory"];
    assert_eq!(
        (&ready["status"], &memory["status"]),
        (&json!("degraded"), &json!("unavailable"))
    );
    assert!(
        memory["last_contact"]["cause"]
            .to_string()
            .contains("was not found"),
        "{ready}"
    );
    let missing = "mooring-no-such-program";
    let log = wait::until_logged(missing, 1, || gateway.process().log_text()).await?;
    assert!(log.contains("WARN"), "{log}");
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(())
}
