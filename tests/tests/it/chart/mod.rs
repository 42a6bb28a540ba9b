//! The Helm chart of charts/mooring, rendered by Helm's own code and checked against Kubernetes' own schemas.

mod files;
mod guide;
mod profiles;
mod refusals;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use mooring_tests::paths;
use serde_json::{Value, json};

fn chart() -> PathBuf {
    paths::workspace().join("charts/mooring")
}

/// The text of a profile, such as `fleet`.
fn profile(name: &str) -> anyhow::Result<String> {
    let file = chart().join(format!("ci/{name}-values.yaml"));
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// What Helm makes of values, each a YAML text and assignments as of `--set`, with Helm's and Kubernetes' objections.
fn render(requests: &[(&str, &[&str])]) -> anyhow::Result<Vec<Rendered>> {
    let requests: Vec<Value> = (requests.iter())
        .map(|(values, set)| json!({"values": values, "set": set}))
        .collect();
    let mut child = Command::new(paths::tool("python-chart")?)
        .arg(paths::test_file("clients/chart.py")?)
        .arg(chart())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(json!(requests).to_string().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let replies: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    Ok(replies.into_iter().map(Rendered).collect())
}

/// What came out for one set of values.
#[derive(Debug)]
struct Rendered(Value);

impl Rendered {
    /// Why Helm refuses the values.
    fn refusal(&self) -> Option<&str> {
        self.0["refused"].as_str()
    }

    /// What Helm's linter and Kubernetes' schemas object to.
    fn objections(&self) -> Vec<&Value> {
        let lists = [&self.0["lint"], &self.0["problems"]];
        lists
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .collect()
    }

    fn manifests(&self) -> &[Value] {
        self.0["manifests"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The object of a kind whose name ends so, the release's own being `mooring`.
    fn object(&self, kind: &str, name: &str) -> anyhow::Result<&Value> {
        let found = (self.manifests().iter())
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.with_context(|| format!("{kind} {name} in {}", self.0))
    }

    /// The gateways' pods.
    fn pod(&self) -> anyhow::Result<&Value> {
        let deployment = (self.manifests().iter()).find(|object| object["kind"] == "Deployment");
        Ok(&deployment.context("a Deployment")?["spec"]["template"]["spec"])
    }

    /// The settings file that the gateways read.
    fn settings(&self) -> anyhow::Result<&str> {
        let files = self.manifests().iter();
        let mut files = files.filter_map(|object| object["data"]["mooring.toml"].as_str());
        files.next().context("a settings file")
    }
}
