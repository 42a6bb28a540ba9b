//! Reads docker-compose.yml, so that a test starts processes with the same settings as operators' containers.

use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Map, Value};

use crate::paths;

/// Prints YAML as JSON, anchors and merges resolved.
const TO_JSON: &str =
    "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";

/// The file of the workspace.
#[derive(Debug)]
pub struct Compose(Value);

impl Compose {
    /// Reads it.
    pub fn read() -> anyhow::Result<Self> {
        let output = Command::new(paths::tool("python")?)
            .args(["-c", TO_JSON])
            .arg(paths::workspace().join("docker-compose.yml"))
            .output()
            .context("run python")?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self(serde_json::from_slice(&output.stdout)?))
    }

    /// The definition of a service.
    pub fn service(&self, name: &str) -> anyhow::Result<&Map<String, Value>> {
        let service = self.0.pointer("/services").and_then(|all| all.get(name));
        let service = service.and_then(Value::as_object);
        service.with_context(|| format!("the service {name}"))
    }

    /// The environment of a service, as name and value, where the operator sets no variable.
    pub fn environment(&self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let environment = self.service(name)?.get("environment");
        let environment = environment.and_then(Value::as_object);
        environment
            .with_context(|| format!("the environment of {name}"))?
            .iter()
            .map(|(name, value)| {
                let value = value.as_str().context("a value that is text")?;
                Ok((name.clone(), unset_value(value).to_owned()))
            })
            .collect()
    }
}

/// What a value `${NAME:-DEFAULT}` is for an operator who has not set the variable.
fn unset_value(value: &str) -> &str {
    let variable = value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let default = variable.and_then(|variable| variable.split_once(":-"));
    default.map_or(value, |(_, default)| default)
}
