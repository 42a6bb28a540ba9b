//! `mooring runs list|show|replay`

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::{cell, fields, listing, printable, rows};
use crate::cli::RunsCommand;

/// The fields that `show` prints before a run's texts.
const SHOWN: [(&str, &str); 17] = [
    ("run", "/id"),
    ("status", "/status"),
    ("user", "/user_email"),
    ("session", "/session_id"),
    ("runtime", "/runtime"),
    ("started", "/started_at"),
    ("finished", "/finished_at"),
    ("worker", "/worker"),
    ("exit code", "/metrics/exit_code"),
    ("wall time (ms)", "/metrics/wall_time_ms"),
    ("cpu time (ms)", "/metrics/cpu_time_ms"),
    ("memory peak (bytes)", "/metrics/memory_peak_bytes"),
    ("limits hit", "/metrics/limits_hit"),
    ("isolation", "/metrics/isolation/tier"),
    ("tool calls", "/tool_calls_total"),
    ("security events", "/security_events_total"),
    ("replay of", "/replayed_from_run_id"),
];

pub(super) async fn run(
    gateway: &Gateway,
    command: RunsCommand,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    match command {
        RunsCommand::List {
            limit,
            status,
            of,
            before,
        } => {
            let parameters = [
                ("limit", limit.map(|limit| limit.to_string())),
                ("status", status),
                ("user", of),
                ("before", before),
            ];
            let answer = gateway.get(&["code", "runs"], &parameters).await?;
            Ok(printed(&answer, is_json, list))
        }
        RunsCommand::Show { run } => {
            let answer = gateway.get(&["code", "runs", &run], &[]).await?;
            Ok(printed(&answer, is_json, show))
        }
        RunsCommand::Replay { run, live } => {
            let mode = if live { "live" } else { "recorded" };
            let body = json!({"mode": mode});
            let answer = gateway
                .post(&["code", "runs", &run, "replay"], &body)
                .await?;
            let text = if is_json {
                format!("{answer}\n")
            } else {
                replayed(&answer)
            };
            let is_good = answer.pointer("/replay/same") == Some(&Value::Bool(true));
            Ok(CommandOutput { text, is_good })
        }
    }
}

fn list(answer: &Value) -> String {
    const COLUMNS: [(&str, &str); 7] = [
        ("RUN", "/id"),
        ("STATUS", "/status"),
        ("USER", "/user_email"),
        ("RUNTIME", "/runtime"),
        ("STARTED", "/started_at"),
        ("MS", "/metrics/wall_time_ms"),
        ("CALLS", "/tool_calls_total"),
    ];
    listing(rows(answer, "runs"), &COLUMNS)
}

fn show(run: &Value) -> String {
    let mut text = fields(run, &SHOWN);
    for call in rows(run, "tool_calls") {
        let line = ["/seq", "/server", "/tool", "/outcome", "/latency_ms"].map(|at| cell(call, at));
        let [seq, server, tool, outcome, latency] = line;
        let line = format!("call {seq}: {server}/{tool} {outcome}, {latency} ms\n");
        text.push_str(&printable(&line));
    }
    for event in rows(run, "security_events") {
        let line = format!(
            "event: {}: {}\n",
            cell(event, "/kind"),
            cell(event, "/message")
        );
        text.push_str(&printable(&line));
    }
    for (title, pointer) in [
        ("code", "/code_body"),
        ("output", "/output"),
        ("error", "/error"),
    ] {
        section(&mut text, title, run.pointer(pointer));
    }
    text
}

/// Adds a text under its title, if there is one.
fn section(text: &mut String, title: &str, body: Option<&Value>) {
    let Some(body) = body.and_then(Value::as_str) else {
        return;
    };
    text.push_str(&format!("\n--- {title} ---\n{}", printable(body)));
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn replayed(answer: &Value) -> String {
    let mut text = fields(
        answer,
        &[
            ("run", "/run/id"),
            ("replay of", "/replay/replayed_from_run_id"),
            ("mode", "/replay/mode"),
            ("same", "/replay/same"),
            ("same output", "/replay/same_output"),
            ("same error", "/replay/same_error"),
            ("recorded status", "/replay/recorded_status"),
            ("status", "/replay/status"),
            ("record complete", "/replay/record_complete"),
            ("divergences", "/replay/divergences_total"),
        ],
    );
    for found in answer
        .pointer("/replay/divergences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let [call, server, tool, what] =
            ["/call", "/server", "/tool", "/what"].map(|at| cell(found, at));
        text.push_str(&printable(&format!(
            "at call {call}: {server}/{tool}: {what}\n"
        )));
    }
    for (title, pointer) in [("output", "/answer/output"), ("error", "/answer/error")] {
        section(&mut text, title, answer.pointer(pointer));
    }
    text
}
