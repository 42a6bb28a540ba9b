//! Every profile of charts/mooring/ci is rendered without an objection of Helm's linter and of Kubernetes' schemas, its
//! settings are accepted by the gateway itself, and its pods may stop as long as the settings say.

use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::compose::Compose;
use mooring_tests::paths;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Rendered, chart, profile, render};
use crate::guides::variables;

/// Exit code of `mooring config check` if files that the settings name are missing on this machine.
const SERVICE_MISSING: i32 = 69;

fn rendered_profiles() -> anyhow::Result<Vec<(String, Rendered)>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(chart().join("ci"))? {
        let file = entry?.file_name().into_string().ok().context("a name")?;
        let name = file.strip_suffix("-values.yaml");
        names.push(name.with_context(|| file.clone())?.to_owned());
    }
    names.sort();
    assert_eq!(names, ["code", "everything", "fleet", "one-gateway"]);
    let texts: Vec<String> = names
        .iter()
        .map(|name| profile(name))
        .collect::<Result<_, _>>()?;
    let requests: Vec<(&str, &[&str])> = texts
        .iter()
        .map(|text| (text.as_str(), [].as_slice()))
        .collect();
    Ok(names.into_iter().zip(render(&requests)?).collect())
}

/// The environment of a container, with the addresses and secrets that a cluster would put in.
fn environment(pod: &Value) -> anyhow::Result<Vec<(String, String)>> {
    let variables = pod["containers"][0]["env"].as_array();
    let variables = variables.map_or(&[][..], Vec::as_slice);
    let own = variables
        .iter()
        .filter(|variable| variable["name"] != "POD_IP");
    own.map(|variable| {
        let name = variable["name"].as_str().context("a name")?;
        let value = match &variable["valueFrom"]["secretKeyRef"]["key"] {
            Value::String(key) if key == "url" => "redis://gateway:secret@redis:6379".to_owned(),
            _ => variable["value"].as_str().context("a value")?.to_owned(),
        };
        let address = if value.starts_with('[') {
            "fd00::7"
        } else {
            "10.0.0.7"
        };
        Ok((name.to_owned(), value.replace("$(POD_IP)", address)))
    })
    .collect()
}

fn check_by_the_gateway(name: &str, rendered: &Rendered) -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-chart-")?;
    let file = directory.path().join("mooring.toml");
    std::fs::write(&file, rendered.settings()?)?;
    let secrets = variables(rendered.settings()?)
        .into_iter()
        .map(|name| (name, "a-secret"));
    let output = Command::new(paths::binary("mooring")?)
        .args(["config", "check", "--config"])
        .arg(&file)
        .env_clear()
        .env("HOME", directory.path())
        .envs(secrets)
        .envs(environment(rendered.pod()?)?)
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let is_accepted = matches!(output.status.code(), Some(0 | SERVICE_MISSING));
    ensure!(
        is_accepted,
        "{name}: {told}\n{}",
        std::fs::read_to_string(&file)?
    );
    ensure!(!told.contains("no caller may use"), "{name}: {told}");
    Ok(())
}

/// The settings' own number, in milliseconds.
fn stop_patience_ms(settings: &str) -> anyhow::Result<u64> {
    let mut lines = settings.lines();
    let value = lines.find_map(|line| line.strip_prefix("stop_patience_ms = "));
    Ok(value
        .context("stop_patience_ms in the settings")?
        .parse::<u64>()?)
}

fn check_time_to_stop(name: &str, rendered: &Rendered) -> anyhow::Result<()> {
    let pod = rendered.pod()?;
    let grace = pod["terminationGracePeriodSeconds"].as_u64();
    let sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    let (grace, sleep) = (grace.context("a grace period")?, sleep.context("a sleep")?);
    let needed_ms = sleep * 1000 + stop_patience_ms(rendered.settings()?)?;
    ensure!(
        grace * 1000 >= needed_ms + 5000,
        "{name}: {grace} s for {needed_ms} ms"
    );
    Ok(())
}

#[test]
fn every_profile_is_accepted_by_helm_by_kubernetes_and_by_the_gateway() -> anyhow::Result<()> {
    for (name, rendered) in rendered_profiles()? {
        ensure!(
            rendered.refusal().is_none(),
            "{name}: {:?}",
            rendered.refusal()
        );
        let objections = rendered.objections();
        ensure!(objections.is_empty(), "{name}: {objections:?}");
        check_by_the_gateway(&name, &rendered)?;
        check_time_to_stop(&name, &rendered)?;
        let is_strict = name == "code";
        let profile =
            &rendered.pod()?["containers"][0]["securityContext"]["seccompProfile"]["type"];
        let expected = if is_strict {
            "Localhost"
        } else {
            "RuntimeDefault"
        };
        assert_eq!(profile, expected, "{name}");
    }
    Ok(())
}

/// By which the alert rules and dashboards find the gateways' metrics.
#[test]
fn gateways_are_scraped_as_one_job_whatever_the_release_is_called() -> anyhow::Result<()> {
    let values = profile("everything")?;
    let rendered = render(&[(&values, &["fullnameOverride=other"])])?;
    let monitor = rendered[0].object("ServiceMonitor", "other")?;
    let relabeling = &monitor["spec"]["endpoints"][0]["relabelings"][0];
    assert_eq!(
        *relabeling,
        json!({"targetLabel": "job", "replacement": "mooring"})
    );
    Ok(())
}

#[test]
fn what_kubernetes_does_not_know_is_found_in_a_rendered_object() -> anyhow::Result<()> {
    let right = profile("one-gateway")?;
    let wrong = format!("{right}extraVolumes:\n  - {{ name: x, emptydir: {{}} }}\n");
    let [found, none] = &render(&[(&wrong, &[]), (&right, &[])])?[..] else {
        anyhow::bail!("two replies");
    };
    let objections = found.objections();
    let told = format!("{objections:?}");
    ensure!(told.contains("emptydir"), "{told}");
    ensure!(none.objections().is_empty(), "{:?}", none.objections());
    Ok(())
}

#[test]
fn containers_of_the_compose_file_may_stop_as_long_as_its_settings_say() -> anyhow::Result<()> {
    let settings = std::fs::read_to_string(paths::workspace().join("deploy/mooring.toml"))?;
    let compose = Compose::read()?;
    let period = compose.service("gateway-1")?.get("stop_grace_period");
    let period = period.and_then(|period| period.as_str());
    let seconds = period.and_then(|period| period.strip_suffix('s'));
    let seconds: u64 = seconds.context("a period in seconds")?.parse()?;
    assert!(seconds * 1000 > stop_patience_ms(&settings)?);
    Ok(())
}
