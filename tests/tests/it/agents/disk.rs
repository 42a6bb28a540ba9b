//! State directories in which nothing can be kept: the log says so, and a conversation goes on for as long as its process
//! lives.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use mooring_tests::agent::{Ids, SERVER};
use mooring_tests::session::Opening;
use mooring_tests::stdio::{StdioConnection, StdioSession};
use mooring_tests::stdio_client::StdioClient;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::fresh_processes::Machine;
use super::prompt_in;

/// The size of a file system that is soon full.
const SMALL_DISK: &str = "4m";

#[tokio::test]
async fn where_nothing_can_be_kept_a_conversation_goes_on_within_the_process() -> anyhow::Result<()>
{
    let machine = Machine::new(Ids::Change)?;
    let file = machine.state.path().join("file");
    std::fs::write(&file, "no directory")?;
    let settings = machine.settings.clone().state_home(&file);
    let mut client = StdioClient::open(&settings, SERVER, &[]).await?;
    for name in ["a", "b"] {
        let prompt = format!("remember {name}");
        client.ask(SERVER, prompt_in("chat", &prompt)).await?;
    }
    let answer = client.ask(SERVER, prompt_in("chat", "recall")).await?;
    assert_eq!(answer["result"], "a\nb");
    assert_eq!(answer["resumed"], true);
    let log = wait::until_logged("ERROR", 1, || client.log_text()).await?;
    assert!(
        log.contains("sessions.db") || log.contains("file/mooring"),
        "{log}"
    );
    client.close().await
}

/// `mooring stdio` whose state directory is a small file system of its own, which only its process sees.
async fn on_a_small_disk(machine: &Machine, directory: &Path) -> anyhow::Result<StdioSession> {
    let script = format!("mount -t tmpfs -o size={SMALL_DISK} tmpfs \"$0\" && exec \"$@\"");
    let started = machine.settings.command("stdio", directory)?;
    let mut command: Vec<String> = ["/usr/bin/env", "-i"].map(str::to_owned).to_vec();
    for (name, value) in started.get_envs() {
        let value = value.unwrap_or_default().to_string_lossy();
        command.push(format!("{}={value}", name.to_string_lossy()));
    }
    let state = machine.state.path().to_string_lossy().into_owned();
    let unshared = ["unshare", "--user", "--map-root-user", "--mount"];
    command.extend(unshared.map(str::to_owned));
    command.extend(["/bin/sh", "-c", &script, &state].map(str::to_owned));
    let program = started.get_program().to_string_lossy().into_owned();
    let arguments = started
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    command.push(program);
    command.extend(arguments);
    command.extend(["--server", SERVER].map(str::to_owned));
    StdioSession::open(StdioConnection::start(&command)?, &Opening::default()).await
}

/// Calls the tool of a session, which has to succeed.
async fn ask(client: &mut StdioSession, prompt: &str) -> anyhow::Result<Value> {
    let result = client.call(SERVER, prompt_in("chat", prompt)).await?;
    ensure!(result["isError"] != json!(true), "{prompt}: {result}");
    Ok(result["structuredContent"].clone())
}

#[tokio::test]
async fn where_the_disk_is_full_a_conversation_goes_on_within_the_process() -> anyhow::Result<()> {
    let machine = Machine::new(Ids::Change)?;
    let directory = tempfile::tempdir()?;
    let mut client = on_a_small_disk(&machine, directory.path()).await?;
    ask(&mut client, "remember a").await?;

    // Seen from here, its file system lies below its own root.
    let id = client.connection().id().context("a process")?;
    let state = machine.state.path().strip_prefix("/")?;
    let disk = Path::new("/proc")
        .join(id.to_string())
        .join("root")
        .join(state);
    ensure!(disk.join("mooring/sessions.db").exists(), "its file");
    let mut filler = std::fs::File::create(disk.join("filler"))?;
    // In pieces that leave no room for a page of the file.
    while filler.write_all(&[0; 512]).is_ok() {}

    ask(&mut client, "remember b").await?;
    ask(&mut client, "remember c").await?;
    let answer = ask(&mut client, "recall").await?;
    assert_eq!(answer["result"], "a\nb\nc", "{answer}");
    assert_eq!(answer["resumed"], true);
    let errors = std::fs::read_to_string(client.connection().errors())?;
    assert!(errors.contains("ERROR"), "{errors}");
    assert!(errors.contains("full"), "{errors}");
    Ok(())
}
