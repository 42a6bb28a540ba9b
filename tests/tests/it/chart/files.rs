//! What the chart and the images carry a copy of, or say a second time, equals the original.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::paths;

/// The text of a file; none where it is not there.
fn text(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

/// The names of the files in a directory; none where it is not there.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".json"))
        .collect()
}

/// Charts are packed without what lies outside of them, and tools that fetch them leave out links.
#[test]
fn copies_in_the_chart_equal_their_originals() -> anyhow::Result<()> {
    let deploy = paths::workspace().join("deploy");
    let chart = super::chart().join("files");
    let mut pairs = vec![
        (deploy.join("seccomp.json"), chart.join("seccomp.json")),
        (
            deploy.join("prometheus/mooring-rules.yml"),
            chart.join("mooring-rules.yml"),
        ),
    ];
    let (dashboards, copies) = (deploy.join("grafana"), chart.join("grafana"));
    for name in names(&dashboards).union(&names(&copies)) {
        pairs.push((dashboards.join(name), copies.join(name)));
    }
    for (original, copy) in pairs {
        ensure!(
            text(&original) == text(&copy),
            "cp {} {}",
            original.display(),
            copy.display()
        );
    }
    ensure!(text(&chart.join("seccomp.json")).is_some());
    Ok(())
}

/// The rights of a user in a line of its definition.
fn rights<'a>(text: &'a str, begin: &str) -> anyhow::Result<Vec<&'a str>> {
    let mut lines = text.lines();
    let line = lines
        .find(|line| line.starts_with(begin))
        .with_context(|| begin.to_owned())?;
    let words = line.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('+') || *word == "nocommands")
        .collect())
}

#[test]
fn users_of_the_charts_redis_have_the_documented_rights() -> anyhow::Result<()> {
    let helpers = std::fs::read_to_string(super::chart().join("templates/_helpers.tpl"))?;
    let page = std::fs::read_to_string(paths::workspace().join("docs/operating-redis.md"))?;
    for user in ["gateway", "operator"] {
        let own = rights(&helpers, &format!("user {user} "))?;
        assert_eq!(own, rights(&page, &format!("ACL SETUSER {user} "))?);
        assert!(own.len() > 10, "{own:?}");
    }
    Ok(())
}

/// Versions of Debian packages are not pinned: its archive drops a revision as soon as there is a newer one.
#[test]
fn the_dockerfile_passes_its_linter_and_has_every_documented_target() -> anyhow::Result<()> {
    let file = paths::workspace().join("deploy/Dockerfile");
    let output = Command::new(paths::tool("hadolint")?)
        .args(["--no-color", "--ignore", "DL3008"])
        .arg(&file)
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && told.is_empty(), "{told}");
    let text = std::fs::read_to_string(&file)?;
    for target in ["gateway-slim", "gateway", "redis", "valkey"] {
        let stage = format!(" AS {target}");
        ensure!(text.lines().any(|line| line.ends_with(&stage)), "{target}");
    }
    Ok(())
}
