//! docs/migrating-from-contextforge.md, followed as printed: its commands turn an environment file and an export of
//! ContextForge into settings that the gateway accepts.

use anyhow::{Context, ensure};
use serde_json::json;

use mooring_tests::pages::blocks;

use crate::console::Console;

const PAGE: &str = "docs/migrating-from-contextforge.md";

/// As ContextForge's own `.env.example` has them.
const ENVIRONMENT: &str = "\
AUTH_REQUIRED=true
JWT_SECRET_KEY=my-test-key
REDIS_URL=redis://redis.internal:6379/0
MCPGATEWAY_SESSION_AFFINITY_ENABLED=true
MCPGATEWAY_SESSION_AFFINITY_TTL=600
CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB=512
";

#[test]
fn an_environment_and_an_export_become_settings_by_the_commands_of_the_page() -> anyhow::Result<()>
{
    let console = Console::new()?;
    let settings = blocks(PAGE, "toml")?;
    let settings = settings.first().context("a settings file")?;
    std::fs::write(console.path().join("mooring.toml"), settings)?;
    std::fs::write(console.path().join("contextforge.env"), ENVIRONMENT)?;
    let export = json!({"entities": {"gateways": [
        {"name": "GitHub Issues", "url": "https://github.internal/mcp", "transport": "STREAMABLEHTTP", "is_active": true, "tags": ["vcs"]},
        {"name": "older", "url": "http://older.internal/sse", "transport": "SSE", "is_active": true, "tags": [{"id": "old", "label": "Old"}]},
        {"name": "gone", "url": "http://gone.internal/mcp", "transport": "SSE", "is_active": false, "tags": []},
    ]}});
    std::fs::write(console.path().join("export.json"), export.to_string())?;

    let commands = blocks(PAGE, "console")?;
    let [environment, servers, keys] = &commands[..] else {
        anyhow::bail!("{PAGE} has {} blocks of commands", commands.len());
    };
    let printed = console.run(environment, &[])?;
    ensure!(printed.contains("configuration is valid"), "{printed}");
    let remark = printed.lines().find(|line| line.contains("JWT_SECRET_KEY"));
    ensure!(
        remark.is_some_and(|line| line.starts_with("remark:")),
        "{printed}"
    );

    // Its servers may need a Redis with keys of a fleet: the page names it, and this machine has none.
    let printed = console.run(servers, &[])?;
    for server in ["tools (http)", "GitHub-Issues (http)", "older (sse)"] {
        ensure!(printed.contains(server), "{server}: {printed}");
    }
    ensure!(!printed.contains("gone"), "{printed}");

    let key = console.run(keys, &[])?;
    ensure!(key.starts_with("mk_"), "{key}");
    Ok(())
}
