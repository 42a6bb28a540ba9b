//! `mooring events list`

use serde_json::Value;

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::{listing, rows};
use crate::cli::EventsCommand;
use mooring_store::unix_now_ms;

pub(super) async fn run(
    gateway: &Gateway,
    command: EventsCommand,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    let EventsCommand::List {
        limit,
        of,
        kind,
        since,
    } = command;
    let since = match since {
        None => None,
        Some(text) => Some(unix_now_ms().saturating_sub(length_ms(&text)?).to_string()),
    };
    let parameters = [
        ("limit", limit.map(|limit| limit.to_string())),
        ("user", of),
        ("kind", kind),
        ("since", since),
    ];
    let answer = gateway
        .get(&["code", "security-events"], &parameters)
        .await?;
    Ok(printed(&answer, is_json, list))
}

/// Parses a duration such as `30m` into milliseconds.
pub(super) fn length_ms(text: &str) -> Result<u64, ClientError> {
    let wrong = || {
        ClientError::Flag(
            "--since must be a number followed by s, m, h or d, such as 12h".to_owned(),
        )
    };
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds * 1_000).ok_or_else(wrong)
}

fn list(answer: &Value) -> String {
    const COLUMNS: [(&str, &str); 6] = [
        ("WHEN", "/created_at"),
        ("KIND", "/kind"),
        ("USER", "/user_email"),
        ("RUN", "/run_id"),
        ("TOOL", "/tool"),
        ("MESSAGE", "/message"),
    ];
    listing(rows(answer, "events"), &COLUMNS)
}
