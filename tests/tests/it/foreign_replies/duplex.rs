//! Servers of kinds `stdio` and `sse`, where the replies to all requests of a session come over one channel, and groups
//! of them.

use std::path::Path;
use std::time::Duration;

use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use tempfile::TempDir;

use super::attack::{Attack, LONG, SHORT};
use super::sse::SseEcho;

/// What comes over the channel beside the answer to a call. Each has the text of another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The answer to the other call, behind the own one.
    Surplus,
    /// The answer to the other call, before the own one.
    Before,
    /// An answer with both ids.
    TwoIds,
    /// An answer without an id.
    NoId,
    /// An answer that is cut off.
    Cut,
    /// The answer to the other call in the response to the POST.
    Posted,
}

const OF_STDIO: [Fault; 5] = [
    Fault::Surplus,
    Fault::Before,
    Fault::TwoIds,
    Fault::NoId,
    Fault::Cut,
];
static OF_SSE: [Fault; 6] = [
    Fault::Surplus,
    Fault::Before,
    Fault::TwoIds,
    Fault::NoId,
    Fault::Cut,
    Fault::Posted,
];

impl Fault {
    /// Its name on the command line of `tests/servers/spoiling.py`.
    const fn name(self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::Before => "before",
            Self::TwoIds => "two-ids",
            Self::NoId => "no-id",
            Self::Cut => "cut",
            Self::Posted => "posted",
        }
    }
}

/// The command of a server over standard input. Its processes share this directory.
pub(super) fn stdio_command(faults: &[Fault], directory: &Path) -> anyhow::Result<Vec<String>> {
    let (python, program) = (
        paths::tool("python")?,
        paths::test_file("servers/spoiling.py")?,
    );
    let faults = match faults {
        [] => "none".to_owned(),
        faults => {
            let names: Vec<_> = faults.iter().map(|fault| fault.name()).collect();
            names.join(",")
        }
    };
    Ok(vec![
        python.display().to_string(),
        program.display().to_string(),
        faults,
        directory.display().to_string(),
    ])
}

/// Counts what the processes that share this directory have spoiled.
fn count_spoiled(directory: &Path) -> impl Fn() -> usize + Send + Sync + 'static {
    let file = directory.join("spoiled");
    move || std::fs::metadata(&file).map_or(0, |about| usize::try_from(about.len()).unwrap_or(0))
}

async fn start_gateway(tables: String) -> anyhow::Result<Gateway> {
    let group = "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"member\"]\n";
    let settings = Settings::toml(tables + group).users_by_header();
    Gateway::start("foreign", settings).await
}

async fn check_stdio(faults: &[Fault], lasts: Duration) -> anyhow::Result<()> {
    let (alone, member) = (TempDir::new()?, TempDir::new()?);
    let table = |id: &str, directory: &TempDir| {
        let command = stdio_command(faults, directory.path())?;
        anyhow::Ok(format!(
            "[[servers]]\nid = {id:?}\nkind = \"stdio\"\ncommand = {command:?}\n"
        ))
    };
    let tables = table("alone", &alone)? + &table("member", &member)?;
    let gateway = start_gateway(tables).await?;
    let attack_on = async |server: &str, directory: &TempDir, tool| {
        let count = count_spoiled(directory.path());
        let attack = Attack::begin(format!("{faults:?} at {server}"), lasts, count);
        attack.call_at(&gateway.mcp_url(server), tool).await
    };
    tokio::try_join!(
        attack_on("alone", &alone, "echo"),
        attack_on("all", &member, "member__echo"),
    )?;
    Ok(())
}

async fn check_sse(faults: &'static [Fault], lasts: Duration) -> anyhow::Result<()> {
    let (alone, member) = (SseEcho::start(faults).await?, SseEcho::start(faults).await?);
    let table = |id: &str, echo: &SseEcho| {
        let instance = echo.url();
        format!("[[servers]]\nid = {id:?}\nkind = \"sse\"\ninstances = [{instance:?}]\n")
    };
    let gateway = start_gateway(table("alone", &alone) + &table("member", &member)).await?;
    let attack_on = async |server: &str, echo: &SseEcho, tool| {
        let count = echo.count_spoiled();
        let attack = Attack::begin(format!("{faults:?} at {server}"), lasts, count);
        attack.call_at(&gateway.mcp_url(server), tool).await
    };
    tokio::try_join!(
        attack_on("alone", &alone, "echo"),
        attack_on("all", &member, "member__echo"),
    )?;
    Ok(())
}

#[tokio::test]
async fn answers_that_a_process_gives_to_others_reach_nobody() -> anyhow::Result<()> {
    check_stdio(&OF_STDIO, SHORT).await
}

#[tokio::test]
async fn answers_that_a_stream_of_events_has_for_others_reach_nobody() -> anyhow::Result<()> {
    check_sse(&OF_SSE, SHORT).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_of_processes_gives_anybody_a_foreign_reply() -> anyhow::Result<()> {
    for fault in OF_STDIO {
        check_stdio(&[fault], LONG).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_of_streams_of_events_gives_anybody_a_foreign_reply() -> anyhow::Result<()> {
    for faults in OF_SSE.each_ref().map(std::slice::from_ref) {
        check_sse(faults, LONG).await?;
    }
    Ok(())
}
