//! Acts of operators: what they would do is shown, and asked about, before they are done.
//!
//! Invariant: nothing is done without an answer to the question or the flag --yes.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, good, raw};
use super::table::{cell, printable};
use crate::cli::ActArguments;

/// Whether an act is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Confirmation {
    /// It is.
    Confirmed,
    /// It is not; this is what there is to print.
    Refused(CommandOutput),
}

/// Previews the act at this path, and asks whether to do it.
pub(super) async fn confirm(
    gateway: &Gateway,
    path: &[&str],
    body: &Value,
    act: &ActArguments,
    is_json: bool,
) -> Result<Confirmation, ClientError> {
    if act.yes {
        return Ok(Confirmation::Confirmed);
    }
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.insert("preview".to_owned(), true.into());
    }
    let preview = gateway.post_admin(path, &body).await?;
    if act.dry_run {
        return Ok(Confirmation::Refused(match is_json {
            true => raw(&preview),
            false => good(effect(&preview)),
        }));
    }
    if !std::io::stdin().is_terminal() {
        let message = "there is no terminal to ask at: add --yes to do it, or --dry-run to see what it would do";
        return Err(ClientError::Flag(message.to_owned()));
    }
    let question = format!("{}Do it? [y/N] ", effect(&preview));
    let answer = tokio::task::spawn_blocking(move || ask(&question)).await;
    match answer {
        Ok(Ok(true)) => Ok(Confirmation::Confirmed),
        _ => Ok(Confirmation::Refused(good("nothing was done\n".to_owned()))),
    }
}

/// Previews, asks, does it, and says what was done.
pub(super) async fn perform(
    gateway: &Gateway,
    path: &[&str],
    body: &Value,
    act: &ActArguments,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    match confirm(gateway, path, body, act, is_json).await? {
        Confirmation::Refused(output) => Ok(output),
        Confirmation::Confirmed => {
            let reply = gateway.post_admin(path, body).await?;
            Ok(match is_json {
                true => raw(&reply),
                false => good(done(&reply)),
            })
        }
    }
}

/// The reason of an act, as its body has it.
pub(super) fn with_note(note: &str) -> Value {
    json!({"note": note})
}

fn effect(preview: &Value) -> String {
    let effect = cell(preview, "/preview/effect");
    let sessions = cell(preview, "/preview/sessions");
    printable(&format!("{effect} ({sessions} sessions)\n"))
}

fn done(reply: &Value) -> String {
    let subject = cell(reply, "/progress/subject");
    let act = cell(reply, "/progress/act");
    let is_changed = reply.pointer("/progress/changed").and_then(Value::as_u64) != Some(0);
    let outcome = match is_changed {
        true => "done",
        false => "it was so before",
    };
    let detail = reply.pointer("/progress/detail").and_then(Value::as_str);
    let outcome = detail.unwrap_or(outcome);
    printable(&format!("{act} {subject}: {outcome}\n"))
}

fn ask(question: &str) -> std::io::Result<bool> {
    let mut stderr = std::io::stderr();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
