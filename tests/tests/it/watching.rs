//! The files and pages that operators watch a fleet with: dashboards and rules name only what is there, every alert has its
//! page, and every error of the module its row.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use serde_json::Value;
use tempfile::TempDir;

const ERRORS: &str = include_str!("../../../docs/errors.md");
const FIGURES: &str = include_str!("../../../docs/commands/session.stats.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");
const ALERTS: &str = include_str!("../../../docs/alerts.md");
const RULES: &str = include_str!("../../../deploy/prometheus/mooring-rules.yml");
const MCP_RULES: &str = include_str!("../../../deploy/prometheus/mcp-server-rules.yml");
const MODULE_SCRIPT: &str = include_str!("../../../deploy/prometheus/redis-module.lua");

/// Each dashboard of deploy/grafana with its file name.
fn dashboards() -> anyhow::Result<Vec<(String, Value)>> {
    let mut dashboards = Vec::new();
    for entry in std::fs::read_dir(paths::workspace().join("deploy/grafana"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path())?;
        dashboards.push((name, serde_json::from_str(&text)?));
    }
    Ok(dashboards)
}

/// The queries of its panels and variables.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let variables = dashboard["templating"]["list"]
        .as_array()
        .into_iter()
        .flatten();
    targets
        .map(|target| &target["expr"])
        .chain(variables.map(|variable| &variable["query"]["query"]))
        .filter_map(Value::as_str)
        .collect()
}

/// The names in a query that are spelled like those of our metrics.
fn metrics_in(query: &str) -> BTreeSet<&str> {
    const OURS: [&str; 4] = ["mooring_", "session_affinity_", "process_", "redis_script_"];
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| OURS.iter().any(|ours| word.starts_with(ours)))
        .collect()
}

fn is_documented(metric: &str) -> bool {
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|part| metric.strip_suffix(part));
    let is_row = |name: &str| {
        let row = |after: &str| METRICS.contains(&format!("| `{name}{after}"));
        row("`") || row("{")
    };
    metric == "redis_script_values" || is_row(metric) || histogram.is_some_and(is_row)
}

#[test]
fn dashboards_and_rules_name_only_metrics_that_are_documented() -> anyhow::Result<()> {
    let dashboards = dashboards()?;
    let names: BTreeSet<&str> = dashboards.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "code.json",
        "fleet.json",
        "redis-module.json",
        "servers.json",
        "sessions.json",
    ];
    ensure!(names == BTreeSet::from(expected), "{names:?}");
    let mut texts = vec![("rules", RULES), ("rules of mcp_server", MCP_RULES)];
    for (name, dashboard) in &dashboards {
        let queries = queries(dashboard);
        ensure!(queries.len() > 5, "{name}");
        texts.extend(queries.into_iter().map(|query| (name.as_str(), query)));
    }
    for (place, text) in texts {
        for metric in metrics_in(text) {
            ensure!(
                is_documented(metric),
                "{place}: {metric} is not in docs/metrics.md"
            );
        }
    }
    Ok(())
}

#[test]
fn every_metric_is_on_a_dashboard() -> anyhow::Result<()> {
    let dashboards = dashboards()?;
    let shown: String = dashboards
        .iter()
        .flat_map(|(_, dashboard)| queries(dashboard))
        .collect();
    let rows = METRICS.lines().filter_map(|line| line.strip_prefix("| `"));
    let named = rows.filter_map(|row| row.split(['`', '{']).next());
    for metric in named.filter(|name| !metrics_in(name).is_empty()) {
        ensure!(shown.contains(metric), "{metric}");
    }
    Ok(())
}

#[test]
fn every_alert_has_its_heading_and_every_heading_its_alert() -> anyhow::Result<()> {
    let alerts: Vec<&str> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let headings: Vec<&str> = ALERTS
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    ensure!(alerts == headings, "{alerts:?}\n{headings:?}");
    for alert in alerts {
        let runbook = format!("runbook: docs/alerts.md#{}\n", alert.to_lowercase());
        ensure!(RULES.contains(&runbook), "{alert}");
        let section = ALERTS
            .split_once(&format!("### {alert}\n"))
            .context("its section")?
            .1;
        let section = section.split("\n#").next().unwrap_or_default();
        let steps = section
            .lines()
            .filter(|line| line.starts_with(['1', '2', '3', '4']))
            .count();
        ensure!(steps == 3, "{alert}: {steps} steps");
    }
    Ok(())
}

#[test]
fn rules_are_valid_and_fire_when_they_should() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-rules-")?;
    let rules = directory.path().join("mooring-rules.yml");
    let mcp_rules = directory.path().join("mcp-server-rules.yml");
    let tests = directory.path().join("rules.yml");
    std::fs::write(&rules, RULES)?;
    std::fs::write(&mcp_rules, MCP_RULES)?;
    std::fs::copy(paths::test_file("prometheus/rules.yml")?, &tests)?;
    let promtool = paths::tool("promtool")?;
    for arguments in [
        vec![
            "check".as_ref(),
            "rules".as_ref(),
            rules.as_os_str(),
            mcp_rules.as_os_str(),
        ],
        vec!["test".as_ref(), "rules".as_ref(), tests.as_os_str()],
    ] {
        let output = Command::new(&promtool).args(arguments).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{printed}\n{errors}");
    }
    Ok(())
}

#[tokio::test]
async fn the_script_for_redis_exporter_returns_every_figure_that_is_shown() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let returned = redis.cli(&["EVAL", MODULE_SCRIPT, "0"])?;
    let returned: Vec<&str> = returned.lines().collect();
    let mut figures = BTreeSet::new();
    for pair in returned.chunks_exact(2) {
        pair[1]
            .parse::<f64>()
            .with_context(|| format!("{pair:?}"))?;
        figures.insert(pair[0]);
    }
    let dashboards = dashboards()?;
    let queries = dashboards
        .iter()
        .flat_map(|(_, dashboard)| queries(dashboard))
        .chain([RULES]);
    let mut shown = BTreeSet::new();
    for query in queries {
        let keys = query.split("key=\"").skip(1);
        shown.extend(keys.filter_map(|rest| rest.split('"').next()));
    }
    ensure!(shown.len() > 20, "{shown:?}");
    ensure!(
        shown.is_subset(&figures),
        "{:?}",
        shown.difference(&figures)
    );
    Ok(())
}

/// The figures of the module are generated from its errors.
#[test]
fn every_error_code_of_the_module_is_explained() -> anyhow::Result<()> {
    let figures = FIGURES
        .lines()
        .filter_map(|line| line.strip_prefix("| `failures_"));
    let codes: BTreeSet<String> = figures
        .filter_map(|row| Some(row.split_once('`')?.0.to_uppercase()))
        .collect();
    let section = ERRORS
        .split_once("## The module's errors")
        .context("its section")?
        .1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect();
    ensure!(codes.len() > 8 && codes == rows, "{codes:?}\n{rows:?}");
    Ok(())
}
