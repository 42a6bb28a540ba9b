//! Calls that code in a sandbox makes.

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::gateway::{Gateway, Settings};
use serde_json::json;

use super::attack::{Attack, LONG, SHORT};
use super::echo::{Echo, Fault};

/// Calls of one run. It prints one line for each: its text, and what it got.
const CALLS_PER_RUN: usize = 8;

const PROGRAM: &str = r#"
import json
from tools.web import echo
for number in range(CALLS):
    own = f"PREFIX-{number:03}"
    try:
        reply = {"result": echo(text=own)}
    except Exception as error:
        reply = {"error": str(error)}
    print(own, json.dumps(reply, default=str))
"#;

/// Runs of one session until the attack is over; how many of their calls were answered.
async fn run_repeatedly(
    endpoint: String,
    user: &str,
    number: usize,
    attack: &Attack,
) -> anyhow::Result<usize> {
    let mut coder = Coder::open_at(&[endpoint], user).await?;
    let (mut runs, mut answered) = (0, 0);
    while !attack.is_over(answered) {
        runs += 1;
        let prefix = format!("{user}-{number}-{runs}");
        let code = PROGRAM
            .replace("CALLS", &CALLS_PER_RUN.to_string())
            .replace("PREFIX", &prefix);
        let arguments = json!({"code": code, "language": "python"});
        let (answer, is_error) = coder.call("shell_exec", arguments).await?;
        let output = answer["output"].as_str().context("an output")?;
        for line in output.lines().filter(|_| !is_error) {
            let (own, reply) = line.split_once(' ').context("a line of the program")?;
            ensure!(own.starts_with(&prefix), "{prefix} got {line}");
            answered += usize::from(super::attack::is_own(own, reply)?);
        }
    }
    Ok(answered)
}

async fn check(fault: Fault, lasts: Duration) -> anyhow::Result<()> {
    let (echo, volume) = (Echo::start(Some(fault)).await?, CodeVolume::new()?);
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"web\"\naffinity = \"on\"\ninstances = [{:?}]\n\
         [[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n\
         sandbox_policy = {{ max_runs_per_minute = 1000 }}\n",
        echo.url(),
    ))
    .users_by_header()
    .env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    );
    let gateway = Gateway::start("foreign", settings).await?;
    let name = format!("{fault:?} by code");
    let attack = Attack::begin(name, lasts, echo.count_spoiled());
    attack
        .run(|user, number| {
            let (attack, endpoint) = (attack.clone(), gateway.mcp_url(SERVER));
            async move { run_repeatedly(endpoint, user, number, &attack).await }
        })
        .await
}

#[tokio::test]
async fn calls_of_code_get_their_own_replies_alone() -> anyhow::Result<()> {
    check(Fault::Surplus, SHORT).await?;
    check(Fault::OtherId, SHORT).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_of_servers_gives_code_a_foreign_reply() -> anyhow::Result<()> {
    // Code sends no notifications.
    let faults = Fault::ALL.into_iter();
    for fault in faults.filter(|fault| *fault != Fault::LateBody) {
        check(fault, LONG).await?;
    }
    Ok(())
}
