//! `mooring skills list|create|show|approve|reject|revoke`

use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::{cell, fields, listing, printable, rows};
use crate::cli::SkillsCommand;
use mooring_code::skills::SOURCE_BYTES_MAX;

pub(super) async fn run(
    gateway: &Gateway,
    command: SkillsCommand,
    is_json: bool,
) -> Result<CommandOutput, ClientError> {
    let (answer, text): (Value, fn(&Value) -> String) = match command {
        SkillsCommand::List { status, name } => {
            let parameters = [("status", status), ("name", name)];
            (gateway.get(&["skills"], &parameters).await?, list)
        }
        SkillsCommand::Create {
            name,
            file,
            language,
            description,
            scope,
        } => {
            let language = language.or_else(|| language_of(&file).map(str::to_owned));
            let body = json!({
                "name": name,
                "source_code": source(&file)?,
                "language": language,
                "description": description.unwrap_or_default(),
                "scope": scope,
            });
            (gateway.post(&["skills"], &body).await?, one)
        }
        SkillsCommand::Show { name, version } => {
            let version = version.map(|version| version.to_string());
            let answer = gateway
                .get(&["skills", &name], &[("version", version)])
                .await?;
            (answer, show)
        }
        SkillsCommand::Approve { approval } => {
            let path = ["skills", "approvals", &approval, "approve"];
            (gateway.post(&path, &json!({})).await?, decided)
        }
        SkillsCommand::Reject { approval, reason } => {
            let path = ["skills", "approvals", &approval, "reject"];
            let body = json!({"reason": reason.unwrap_or_default()});
            (gateway.post(&path, &body).await?, decided)
        }
        SkillsCommand::Revoke { skill } => {
            let path = ["skills", &skill, "revoke"];
            (gateway.post(&path, &json!({})).await?, one)
        }
    };
    Ok(printed(&answer, is_json, text))
}

fn source(file: &Path) -> Result<String, ClientError> {
    // One byte more than the limit, so that the gateway reports a source that is too long.
    let bytes_max = u64::try_from(SOURCE_BYTES_MAX.saturating_add(1)).unwrap_or(u64::MAX);
    let read = |input: &mut dyn std::io::Read| {
        let mut text = String::new();
        input
            .take(bytes_max)
            .read_to_string(&mut text)
            .map(|_| text)
    };
    let text = if file == Path::new("-") {
        read(&mut std::io::stdin().lock())
    } else {
        std::fs::File::open(file).and_then(|mut file| read(&mut file))
    };
    text.map_err(|source| ClientError::File {
        path: file.display().to_string(),
        source,
    })
}

fn language_of(file: &Path) -> Option<&'static str> {
    match file.extension()?.to_str()? {
        "py" => Some("python"),
        "ts" | "js" | "mts" | "mjs" => Some("typescript"),
        _ => None,
    }
}

fn list(answer: &Value) -> String {
    const COLUMNS: [(&str, &str); 9] = [
        ("NAME", "/name"),
        ("VERSION", "/version"),
        ("STATUS", "/status"),
        ("ACTIVE", "/is_active"),
        ("LANGUAGE", "/language"),
        ("SCOPE", "/scope"),
        ("OWNER", "/owner_email"),
        ("ID", "/id"),
        ("APPROVAL", "/approval_id"),
    ];
    listing(rows(answer, "skills"), &COLUMNS)
}

fn one(skill: &Value) -> String {
    fields(
        skill,
        &[
            ("name", "/name"),
            ("version", "/version"),
            ("status", "/status"),
            ("active", "/is_active"),
            ("language", "/language"),
            ("scope", "/scope"),
            ("owner", "/owner_email"),
            ("description", "/description"),
            ("created", "/created_at"),
            ("id", "/id"),
            ("approval", "/approval_id"),
            ("approval expires", "/approval_expires_at"),
            ("approved by", "/approved_by"),
            ("revoked by", "/revoked_by"),
            ("rejection reason", "/rejection_reason"),
        ],
    )
}

fn show(skill: &Value) -> String {
    let mut text = one(skill);
    for version in rows(skill, "versions") {
        let [number, status] = ["/version", "/status"].map(|at| cell(version, at));
        text.push_str(&printable(&format!("version {number}: {status}\n")));
    }
    let source = skill
        .get("source_code")
        .and_then(Value::as_str)
        .unwrap_or_default();
    text.push_str(&format!("\n--- source ---\n{}", printable(source)));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn decided(approval: &Value) -> String {
    fields(
        approval,
        &[
            ("name", "/name"),
            ("version", "/version"),
            ("status", "/status"),
            ("decided by", "/decided_by"),
            ("reason", "/rejection_reason"),
            ("skill", "/skill_id"),
        ],
    )
}
