//! What other processes of the gateway's own user can see of it: servers of kind `stdio` are such processes.

use std::process::Command;

use anyhow::ensure;
use mooring_tests::gateway::Settings;
use mooring_tests::port::free_port;
use mooring_tests::process::Process;
use mooring_tests::wait;
use tempfile::TempDir;

use crate::rig::RAW_WITHIN;

#[tokio::test]
async fn a_process_of_the_same_user_cannot_read_the_gateways_environment() -> anyhow::Result<()> {
    const NOBODY: &str = "65534";
    const SECRET: &str = "zqxsecret";
    let directory = TempDir::new()?;
    ensure!(
        Command::new("chown")
            .args([NOBODY, &directory.path().display().to_string()])
            .status()?
            .success(),
        "make a directory of another user"
    );
    let settings =
        Settings::toml("[[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:1/mcp\"]\n");
    let gateway = settings.command("serve", directory.path())?;
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        let groups = ["--clear-groups", "--reuid", NOBODY, "--regid", NOBODY];
        command.args(groups);
        command
    };
    let mut command = as_nobody();
    command
        .arg(gateway.get_program())
        .args(gateway.get_args())
        .envs(
            gateway
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env(
            "MOORING_LISTEN_ADDRESS",
            format!("127.0.0.1:{}", free_port()?),
        )
        .env("ANY_SECRET", SECRET);
    let log = directory.path().join("log");
    let mut serving = Process::start("gateway", &mut command, &log)?;
    wait::until_true("the gateway to listen", RAW_WITHIN, async || {
        if let Some(status) = serving.exit_status()? {
            anyhow::bail!("{status}: {}", serving.log_text());
        }
        Ok(serving.log_text().contains("serving"))
    })
    .await?;
    let mut other = as_nobody();
    other.args(["sleep", "60"]).env("ANY_SECRET", SECRET);
    let mut other = Process::start(
        "another process",
        &mut other,
        &directory.path().join("other"),
    )?;
    let read = async |process: u32, file: &str| {
        let mut reading = as_nobody();
        reading.args(["cat", &format!("/proc/{process}/{file}")]);
        anyhow::Ok(String::from_utf8_lossy(&reading.output()?.stdout).into_owned())
    };
    wait::until_true(
        "a process of this user to be readable",
        RAW_WITHIN,
        async || Ok(read(other.id(), "environ").await?.contains(SECRET)),
    )
    .await?;
    for file in ["environ", "maps"] {
        let shown = read(serving.id(), file).await?;
        assert_eq!(shown, "", "/proc/PID/{file}");
    }
    other.kill_now()?;
    serving.kill_now()
}
