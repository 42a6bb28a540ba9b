//! `mooring workers list|drain|undrain`

use std::time::Duration;

use serde_json::{Value, json};

use super::act::{perform, with_note};
use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, good, printed};
use super::progress::{Interruption, Progress};
use super::table::{listing, rows};
use crate::cli::WorkersCommand;

/// The columns of the list.
const COLUMNS: [(&str, &str); 6] = [
    ("WORKER", "/worker"),
    ("STATE", "/state"),
    ("ADDRESS", "/address"),
    ("BINDINGS", "/bindings"),
    ("LAST BEAT", "/last_beat_at"),
    ("DRAIN", "/drain/note"),
];
/// How often a drain is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(
    gateway: &Gateway,
    command: WorkersCommand,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    match command {
        WorkersCommand::List => {
            let answer = gateway.get_admin(&["workers"], &[]).await?;
            Ok(printed(&answer, is_json, |answer| {
                listing(rows(answer, "workers"), &COLUMNS)
            }))
        }
        WorkersCommand::Drain {
            worker,
            note,
            wait,
            act,
        } => {
            let path = ["workers", &worker, "drain"];
            let output = perform(gateway, &path, &with_note(&note), &act, is_json).await?;
            match wait && !act.dry_run && output.is_good {
                true => wait_until_drained(gateway, &worker, output).await,
                false => Ok(output),
            }
        }
        WorkersCommand::Undrain { worker, act } => {
            let path = ["workers", &worker, "undrain"];
            perform(gateway, &path, &json!({}), &act, is_json).await
        }
    }
}

/// Shows the connections that a gateway still owns, until it drains and has none, or is dead.
async fn wait_until_drained(
    gateway: &Gateway,
    worker: &str,
    output: CommandOutput,
) -> Result<CommandOutput, ClientError> {
    let mut progress = Progress::default();
    loop {
        let fleet = gateway.get_admin(&["fleet"], &[]).await?;
        let gateways = rows(&fleet, "gateways").iter();
        let alive = gateways.filter(|load| is_named(load, worker) && !is_in_state(load, "dead"));
        let alive: Vec<&Value> = alive.collect();
        let owned = |load: &&Value| load.get("owned").and_then(Value::as_u64);
        let left: u64 = alive.iter().filter_map(owned).sum();
        progress.show(&format!("{worker} owns {left} connections"));
        if left == 0 && alive.iter().all(|load| is_in_state(load, "draining")) {
            progress.end();
            return Ok(good(format!(
                "{}{worker} owns no connection\n",
                output.text
            )));
        }
        if let Err(Interruption) = progress.pause(LOOK_EVERY).await {
            let text = format!("{}interrupted: the gateway keeps draining\n", output.text);
            return Ok(CommandOutput {
                is_good: false,
                ..good(text)
            });
        }
    }
}

fn is_named(load: &Value, worker: &str) -> bool {
    ["worker", "name"]
        .iter()
        .any(|name| load.get(name).and_then(Value::as_str) == Some(worker))
}

fn is_in_state(load: &Value, state: &str) -> bool {
    load.get("state").and_then(Value::as_str) == Some(state)
}
