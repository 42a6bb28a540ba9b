//! `mooring sessions search|end-matching`, over a running gateway.

use serde_json::{Value, json};

use super::act::{Confirmation, confirm};
use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, good, raw};
use super::progress::{Interruption, Progress};
use super::table::{listing, rows};
use crate::cli::ActArguments;

/// The columns of the list.
const COLUMNS: [(&str, &str); 7] = [
    ("SESSION", "/session"),
    ("KIND", "/kind"),
    ("PRINCIPAL", "/principal"),
    ("STATE", "/state"),
    ("LAST USED", "/last_used_at"),
    ("EXPIRES", "/expires_at"),
    ("PLACE", "/place"),
];
/// Most sessions of one page.
const PAGE_MAX: usize = 500;

/// Lists what matches, page by page.
pub(super) async fn search(
    gateway: &Gateway,
    words: &[String],
    limit: u32,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found: Vec<Value> = Vec::new();
    let mut cursor = None;
    loop {
        let room = limit.saturating_sub(found.len()).min(PAGE_MAX);
        let parameters = [
            ("text", Some(words.join(" "))),
            ("limit", Some(room.to_string())),
            ("cursor", cursor.take()),
        ];
        let page = gateway.get_admin(&["sessions"], &parameters).await?;
        found.extend(rows(&page, "sessions").iter().cloned());
        let next = page.get("next_cursor").and_then(Value::as_str);
        cursor = next.map(str::to_owned);
        if found.len() >= limit || cursor.is_none() {
            break;
        }
    }
    let has_more = cursor.is_some();
    if is_json {
        return Ok(raw(&json!({"sessions": found, "has_more": has_more})));
    }
    let mut text = listing(&found, &COLUMNS);
    if has_more {
        text.push_str("there may be more; --limit says how many are listed\n");
    }
    Ok(good(text))
}

/// Ends what matches, step by step.
pub(super) async fn end(
    gateway: &Gateway,
    words: &[String],
    act: &ActArguments,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    let path = ["sessions", "end"];
    let body = json!({"filter": {"text": words.join(" ")}});
    match confirm(gateway, &path, &body, act, is_json).await? {
        Confirmation::Refused(output) => return Ok(output),
        Confirmation::Confirmed => {}
    }
    let (mut ended, mut progress) = (0_u64, Progress::default());
    loop {
        let step = gateway.post_admin(&path, &body);
        let reply = match progress.unless_interrupted(step).await {
            Ok(reply) => reply?,
            Err(Interruption) => {
                let text = format!(
                    "interrupted: {ended} sessions were ended; repeat it to end the others\n"
                );
                return Ok(CommandOutput {
                    is_good: false,
                    ..good(text)
                });
            }
        };
        let progressed = reply.get("progress");
        let changed = progressed.and_then(|of| of.get("changed")?.as_u64());
        ended += changed.unwrap_or_default();
        progress.show(&format!("{ended} sessions ended"));
        if progressed.and_then(|of| of.get("is_left")?.as_bool()) != Some(true) {
            progress.end();
            return Ok(match is_json {
                true => raw(&json!({"ended": ended})),
                false => good(format!("{ended} sessions ended\n")),
            });
        }
    }
}
