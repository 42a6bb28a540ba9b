//! `mooring servers list|show|park|unpark`

use serde_json::{Value, json};

use super::act::perform;
use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::{fields, listing, rows};
use crate::cli::ServersCommand;

/// The columns of the list.
const COLUMNS: [(&str, &str); 6] = [
    ("SERVER", "/id"),
    ("KIND", "/kind"),
    ("HEALTH", "/health"),
    ("INSTANCES", "/instances"),
    ("SESSIONS", "/sessions"),
    ("PARKED BY", "/parked/by"),
];
/// The fields that are shown of a server.
const SHOWN: [(&str, &str); 8] = [
    ("server", "/id"),
    ("kind", "/kind"),
    ("health", "/health"),
    ("keeps sessions", "/affinity"),
    ("sessions", "/sessions"),
    ("members", "/members"),
    ("parked by", "/parked/by"),
    ("why", "/parked/note"),
];
/// The columns of its instances.
const INSTANCES: [(&str, &str); 6] = [
    ("INSTANCE", "/instance"),
    ("HEALTH", "/health"),
    ("SESSIONS", "/sessions"),
    ("LAST CONTACT", "/last_contact/at"),
    ("CAUSE", "/last_contact/cause"),
    ("PARKED BY", "/parked/by"),
];

pub(super) async fn run(
    gateway: &Gateway,
    command: ServersCommand,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    match command {
        ServersCommand::List => {
            let answer = gateway.get_admin(&["servers"], &[]).await?;
            Ok(printed(&answer, is_json, |answer| {
                listing(rows(answer, "servers"), &COLUMNS)
            }))
        }
        ServersCommand::Show { id } => {
            let answer = gateway.get_admin(&["servers", &id], &[]).await?;
            Ok(printed(&answer, is_json, text))
        }
        ServersCommand::Park {
            id,
            instance,
            note,
            act,
        } => {
            let body = json!({"instance": instance, "note": note});
            perform(gateway, &["servers", &id, "park"], &body, &act, is_json).await
        }
        ServersCommand::Unpark { id, instance, act } => {
            let body = json!({"instance": instance});
            perform(gateway, &["servers", &id, "unpark"], &body, &act, is_json).await
        }
    }
}

fn text(server: &Value) -> String {
    let mut text = fields(server, &SHOWN);
    let instances = rows(server, "instance_list");
    if !instances.is_empty() {
        text.push('\n');
        text.push_str(&listing(instances, &INSTANCES));
    }
    text
}
