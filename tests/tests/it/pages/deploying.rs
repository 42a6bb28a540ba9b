//! docs/deploying.md: what it says of hosts; its commands change the machine and are not run.

use std::path::Path;

use anyhow::ensure;
use mooring_tests::pages::{Page, blocks};

use super::NOT_RUN;

#[test]
fn the_limits_of_deploying_are_those_of_the_kernel() -> anyhow::Result<()> {
    let page = Page::read("docs/deploying.md")?;
    let commands = blocks("docs/deploying.md", "console")?.join("\n");
    let settings = commands.split_whitespace();
    let limits = settings.filter_map(|word| word.split_once('='));
    let limits: Vec<&str> = limits
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("fs."))
        .collect();
    ensure!(limits.len() == 2, "{limits:?}");
    for limit in limits {
        let file = format!("/proc/sys/{}", limit.replace('.', "/"));
        ensure!(Path::new(&file).exists(), "{limit}");
    }
    page.finish(&NOT_RUN)
}
