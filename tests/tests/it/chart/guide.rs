//! docs/kubernetes.md, followed as printed: its commands run with stand-ins for the cluster and the container engine, and what
//! Helm renders is then started as processes, Redis with its configuration and users, the gateway with its settings file. The
//! client's commands go to them.

use std::path::Path;

use anyhow::{Context, ensure};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::blocks;
use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};
use serde_json::Value;

use super::{Rendered, render};
use crate::console::Console;

const PAGE: &str = "docs/kubernetes.md";

fn reader() -> anyhow::Result<Console> {
    let console = Console::new()?;
    console.stand_ins(&["docker", "kubectl"])?;
    let helm = format!(
        "exec {} {} \"$@\" > rendered.json",
        paths::tool("python-chart")?.display(),
        paths::test_file("clients/chart.py")?.display()
    );
    console.program("helm", &helm)?;
    Ok(console)
}

/// What the cluster would decode.
fn secret(rendered: &Rendered, name: &str, entry: &str) -> anyhow::Result<String> {
    use base64::Engine as _;
    let secret = rendered.object("Secret", name)?;
    let text = secret["data"][entry]
        .as_str()
        .with_context(|| entry.to_owned())?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
    Ok(String::from_utf8(bytes)?)
}

fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(file, text)?;
    Ok(std::fs::set_permissions(
        file,
        std::fs::Permissions::from_mode(0o600),
    )?)
}

/// The chart's Redis: its own file and users, with the paths of this machine.
async fn start_redis(rendered: &Rendered, directory: &Path) -> anyhow::Result<Redis> {
    let users = directory.join("users.acl");
    write_secret(&users, &secret(rendered, "mooring-redis", "users.acl")?)?;
    let settings = &rendered.object("ConfigMap", "mooring-redis")?["data"]["redis.conf"];
    let settings = settings.as_str().context("a configuration")?;
    let settings = settings
        .replace("/etc/redis-users/users.acl", &users.display().to_string())
        .replace(
            "/usr/lib/redis/modules/libmooring.so",
            &paths::redis_module()?.display().to_string(),
        )
        .replace("dir /data", &format!("dir {}", directory.display()));
    let file = directory.join("redis.conf");
    std::fs::write(&file, settings)?;
    let file = file.display().to_string();
    // The module is the file's own.
    Redis::start_by(&["redis-server", &file], Module::Absent, &[]).await
}

/// One of the chart's gateways: its settings file, with the addresses and paths of this machine.
async fn start_gateway(
    rendered: &Rendered,
    directory: &Path,
    redis: &Redis,
    tools: &Fixture,
) -> anyhow::Result<Gateway> {
    let keys = directory.join("fleet.keys");
    write_secret(&keys, &secret(rendered, "mooring-fleet", "fleet.keys")?)?;
    let settings = (rendered.settings()?)
        .replace("/etc/mooring/fleet/fleet.keys", &keys.display().to_string())
        .replace(
            "/etc/mooring/api-keys/keys.json",
            &directory.join("keys.json").display().to_string(),
        )
        .replace("0.0.0.0:4500", "127.0.0.1:0")
        .replace("http://tools:9001/mcp", &tools.url());
    let url = secret(rendered, "mooring-redis", "url")?;
    let url = url.replace("mooring-redis:6379", &format!("127.0.0.1:{}", redis.port()));
    let settings = Settings::toml(settings).env("MOORING_STORE_URL", &url);
    Gateway::start("mooring-0", settings).await
}

#[tokio::test]
async fn the_quick_start_can_be_followed_as_printed() -> anyhow::Result<()> {
    let console = reader()?;
    let [values, ..] = &blocks(PAGE, "yaml")?[..] else {
        anyhow::bail!("{PAGE} has no values");
    };
    std::fs::write(console.path().join("values.yaml"), values)?;
    let commands = blocks(PAGE, "console")?;
    let [images, key, install, connect, upgrade] = &commands[..] else {
        anyhow::bail!("{PAGE} has {} blocks of commands", commands.len());
    };

    let script = format!("{images}{key}{install}echo \"$KEY\"");
    let key = console.run(&script, &[])?;
    let called = console.called()?;
    for call in [
        "docker build --file deploy/Dockerfile --target gateway --tag registry.example/mooring-gateway:0.1.0 .",
        "kubectl --namespace mcp create secret generic mooring-api-keys --from-file=keys.json",
        "kubectl --namespace mcp rollout status deployment/mooring",
    ] {
        ensure!(called.lines().any(|line| line == call), "{call}: {called}");
    }
    ensure!(console.path().join("keys.json").exists(), "{called}");

    let rendered = std::fs::read(console.path().join("rendered.json"))?;
    let rendered = Rendered(serde_json::from_slice::<Value>(&rendered)?);
    let image = &rendered.pod()?["containers"][0]["image"];
    assert_eq!(image, "registry.example/mooring-gateway:0.1.0");
    let redis = start_redis(&rendered, console.path()).await?;
    let tools = Fixture::start("tools").await?;
    let gateway = start_gateway(&rendered, console.path(), &redis, &tools).await?;
    let connect = connect.replace("127.0.0.1:4444", &format!("127.0.0.1:{}", gateway.port()));
    let printed = console.run(&connect, &[("KEY", key.trim())])?;
    ensure!(printed.contains("ada"), "{printed}");
    ensure!(printed.contains("serverInfo"), "{printed}");

    console.run(upgrade, &[])?;
    Ok(())
}

/// Each is a part of a file of values: with the rest of the quick start's it is complete.
#[test]
fn every_block_of_values_on_the_page_is_accepted() -> anyhow::Result<()> {
    let blocks = blocks(PAGE, "yaml")?;
    let [values, others @ ..] = &blocks[..] else {
        anyhow::bail!("{PAGE} has no values");
    };
    ensure!(others.len() >= 2, "{others:?}");
    let texts: Vec<String> = (others.iter())
        .map(|part| match part.strip_prefix("settings:\n") {
            Some(settings) => format!("{values}{settings}"),
            None => format!("{values}{part}"),
        })
        .collect();
    let requests: Vec<(&str, &[&str])> = texts
        .iter()
        .map(|text| (text.as_str(), [].as_slice()))
        .collect();
    for (text, rendered) in texts.iter().zip(render(&requests)?) {
        ensure!(
            rendered.refusal().is_none(),
            "{text}\n{:?}",
            rendered.refusal()
        );
        let objections = rendered.objections();
        ensure!(objections.is_empty(), "{text}\n{objections:?}");
    }
    Ok(())
}
