//! The Debian packages on a machine with systemd, by the commands of docs/quickstart.md: installed, started, used,
//! restarted, watched and removed. The units are the ones of the package, with all that they take away from a process.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::clean_machine::CleanMachine;
use mooring_tests::{pages, paths, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

/// For what systemd does by itself.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// The packages, made once from the binaries of the test's own profile.
static PACKAGES: LazyLock<Result<TempDir, String>> =
    LazyLock::new(|| make_packages().map_err(|error| format!("{error:#}")));

fn make_packages() -> anyhow::Result<TempDir> {
    let packages = TempDir::with_prefix("mooring-packages-")?;
    let binaries = paths::binary("mooring")?;
    let made = Command::new(paths::workspace().join("scripts/package-debian.sh"))
        .arg(binaries.parent().context("a directory of binaries")?)
        .arg(packages.path())
        .args(["-Zgzip", "-z1"])
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    Ok(packages)
}

/// A clean machine with the packages in the directory in which its commands run.
async fn machine() -> anyhow::Result<CleanMachine> {
    let machine = CleanMachine::start().await?;
    let packages = PACKAGES
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    for package in std::fs::read_dir(packages.path())? {
        let package = package?;
        std::fs::copy(package.path(), machine.shared().join(package.file_name()))?;
    }
    Ok(machine)
}

fn install(machine: &CleanMachine) -> anyhow::Result<()> {
    machine
        .run("dpkg --install mooring_*.deb && systemctl start mooring.socket mooring.service")?;
    Ok(())
}

/// What the last command of a page printed: one JSON-RPC response.
fn result(printed: &str) -> anyhow::Result<Value> {
    let line = printed.lines().last().context("nothing was printed")?;
    let reply: Value = serde_json::from_str(line).with_context(|| printed.to_owned())?;
    Ok(reply["result"].clone())
}

#[tokio::test]
async fn a_package_is_installed_used_and_removed_without_a_trace_but_its_data() -> anyhow::Result<()>
{
    let machine = machine().await?;
    let steps = pages::commands("quickstart.md", "## One host")?;
    let [install, ask, change, remove] = steps.as_slice() else {
        anyhow::bail!("{steps:#?}")
    };
    machine.run(install)?;
    let units = "/usr/lib/systemd/system/mooring.service /usr/lib/systemd/system/mooring.socket";
    machine.run(&format!("systemd-analyze verify {units}"))?;
    let answered = result(&machine.run(ask)?)?;
    ensure!(
        answered["structuredContent"] == json!({"output": "42\n"}),
        "{answered}"
    );
    let ready = machine.run("curl --silent http://127.0.0.1:4444/readyz")?;
    let ready: Value = serde_json::from_str(&ready)?;
    ensure!(ready["status"] == "ok", "{ready}");
    let owner = machine.run("stat --format=%U:%a /var/lib/mooring /var/lib/mooring/sessions.db")?;
    ensure!(owner == "mooring:700\nmooring:600\n", "{owner}");
    machine.run(change)?;
    let backup = pages::commands("operating.md", "## Back up and restore")?;
    machine.run(&backup.join("\n"))?;
    let owner = machine.run("stat --format=%U:%a /var/lib/mooring/sessions.db")?;
    ensure!(owner == "mooring:600\n", "{owner}");
    let answered = result(&machine.run(ask)?)?;
    ensure!(answered["isError"] == false, "{answered}");
    machine.run("rm -r /root/mooring-backup; dpkg --install mooring-redis-module_*.deb")?;

    machine.run(remove)?;
    machine.run("apt-get purge --yes mooring-redis-module")?;
    let left = machine.changed_files()?;
    let is_bookkeeping = |file: &&String| {
        // The package manager's, systemd's own, and the accounts: the user still owns the data.
        let of_others = [
            "/var/lib/dpkg/",
            "/var/lib/apt/",
            "/var/cache/",
            "/var/log/",
            "/etc/",
        ];
        of_others.iter().any(|place| file.starts_with(place)) && !file.contains("mooring")
    };
    let left: Vec<&String> = left.iter().filter(|file| !is_bookkeeping(file)).collect();
    let is_data = |file: &&String| file.starts_with("/var/lib/mooring/");
    ensure!(left.iter().all(is_data), "{left:#?}");
    let database = "/var/lib/mooring/sessions.db".to_owned();
    ensure!(left.contains(&&database), "{left:#?}");
    Ok(())
}

/// Connects anew for each request, as fast as it can, until `/run/stop` is there.
const CLIENT: &str = "
import http.client, os
counts = {}
while not os.path.exists('/run/stop'):
    try:
        connection = http.client.HTTPConnection('127.0.0.1', 4444, timeout=60)
        connection.request('GET', '/healthz')
        outcome = str(connection.getresponse().status)
        connection.close()
    except OSError as error:
        outcome = repr(error)
    counts[outcome] = counts.get(outcome, 0) + 1
print(counts)
";

#[tokio::test]
async fn no_connection_is_refused_while_a_gateway_with_a_socket_unit_is_restarted_and_upgraded()
-> anyhow::Result<()> {
    let machine = machine().await?;
    install(&machine)?;
    std::fs::write(machine.shared().join("client.py"), CLIENT)?;
    let printed = machine.run(
        "python3 client.py >counts & client=$!\n\
         for restart in 1 2; do systemctl restart mooring.service; done\n\
         dpkg --install mooring_*.deb >upgraded\n\
         touch /run/stop; wait $client; cat counts; systemctl show --property NRestarts mooring.service",
    )?;
    // The stop of a gateway answers health probes with 503; what must not be is a connection without an answer.
    ensure!(
        printed.contains("'200':") && !printed.contains("Error"),
        "{printed}"
    );
    let log = machine.run("journalctl --unit mooring.service --no-pager --output cat")?;
    ensure!(log.matches("serving address=").count() == 4, "{log}");
    Ok(())
}

#[tokio::test]
async fn a_socket_for_another_address_than_the_settings_allow_is_refused() -> anyhow::Result<()> {
    let machine = machine().await?;
    machine.run("dpkg --install mooring_*.deb")?;
    machine.run(
        "install -d /run/systemd/system/mooring.socket.d\n\
         printf '[Socket]\\nListenStream=\\nListenStream=0.0.0.0:4444\\n' >/run/systemd/system/mooring.socket.d/all.conf\n\
         systemctl daemon-reload; systemctl start mooring.socket",
    )?;
    ensure!(machine.run("systemctl start mooring.service").is_err());
    let log = machine.run("journalctl --unit mooring.service --no-pager --output cat")?;
    ensure!(
        log.contains("it passed 0.0.0.0:4444, but listen.address is 127.0.0.1:4444"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_hangs_is_restarted_by_the_watchdog() -> anyhow::Result<()> {
    let machine = machine().await?;
    machine.run(
        "dpkg --install mooring_*.deb; install -d /run/systemd/system/mooring.service.d\n\
         printf '[Service]\\nWatchdogSec=5\\nTimeoutAbortSec=1\\n' >/run/systemd/system/mooring.service.d/short.conf\n\
         systemctl daemon-reload; systemctl start mooring.service",
    )?;
    let main = "systemctl show --property MainPID --value mooring.service";
    let before = machine.run(main)?;
    machine.run(&format!("kill -STOP {before}"))?;
    wait::until_true("another process serves", SETTLED_WITHIN, async || {
        let restarts =
            machine.run("systemctl show --property NRestarts --value mooring.service")?;
        let is_served =
            machine.run("curl --silent --fail --max-time 5 http://127.0.0.1:4444/healthz");
        Ok(restarts.trim() == "1" && is_served.is_ok())
    })
    .await?;
    ensure!(machine.run(main)? != before);
    Ok(())
}

#[tokio::test]
async fn the_module_package_is_what_redis_of_debian_loads() -> anyhow::Result<()> {
    let machine = machine().await?;
    let steps = pages::commands("quickstart.md", "## Several hosts")?;
    for step in &steps {
        machine.run(step)?;
    }
    let told = machine
        .run("runuser -u mooring -- mooring doctor --config /etc/mooring/mooring.toml || true")?;
    ensure!(told.contains("ok       store (redis://"), "{told}");
    Ok(())
}

#[test]
fn a_package_names_every_library_that_its_binary_loads() -> anyhow::Result<()> {
    let packages = PACKAGES
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    for (package, file) in [
        ("mooring_", paths::binary("mooring")?),
        ("mooring-redis-module_", paths::redis_module()?),
    ] {
        let made = package_file(packages.path(), package)?;
        let depends = printed("dpkg-deb", &["--field", &made, "Depends"])?;
        let headers = printed("objdump", &["-p", &file.display().to_string()])?;
        let loaded = headers
            .lines()
            .filter_map(|line| line.trim().strip_prefix("NEEDED"));
        for library in loaded.map(str::trim) {
            let named = match library {
                "libgcc_s.so.1" => "libgcc-s1",
                "libc.so.6" | "libm.so.6" | "ld-linux-x86-64.so.2" | "ld-linux-aarch64.so.1" => {
                    "libc6 (>= "
                }
                other => anyhow::bail!("{package}: no package is known for {other}"),
            };
            ensure!(depends.contains(named), "{package} {library}: {depends}");
        }
    }
    Ok(())
}

fn package_file(directory: &Path, package: &str) -> anyhow::Result<String> {
    let mut files = std::fs::read_dir(directory)?.filter_map(Result::ok);
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(package));
    Ok(file
        .context("no such package")?
        .path()
        .display()
        .to_string())
}

fn printed(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}
