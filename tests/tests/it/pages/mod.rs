//! README and the guides: every command and example is taken from its page and run against real parts, or is in the list
//! of those that cannot be run here.

mod access;
mod agents;
mod authentication;
mod checks;
mod code_execution;
mod deploying;
mod governance;
mod groups;
mod hooks;
mod operating_redis;
mod readme;
mod serving;
mod stdio;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::pages::{NotRun, Page, all_blocks_in};
use mooring_tests::paths;
use mooring_tests::port::free_port;
use mooring_tests::process::Process;
use mooring_tests::reader::Reader;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

/// The pages whose blocks the modules here run.
const PAGES: [&str; 19] = [
    "README.md",
    "docs/access.md",
    "docs/agents.md",
    "docs/authentication.md",
    "docs/code-execution.md",
    "docs/code-policy.md",
    "docs/commands.md",
    "docs/connections.md",
    "docs/contextforge.md",
    "docs/credentials.md",
    "docs/deploying.md",
    "docs/doctor.md",
    "docs/governance.md",
    "docs/groups.md",
    "docs/hooks.md",
    "docs/operating-redis.md",
    "docs/serving.md",
    "docs/stdio.md",
    "docs/tracing.md",
];

/// The other pages with blocks of code, and which module runs or checks these.
const ELSEWHERE: [(&str, &str); 9] = [
    ("docs/alerts.md", "watching: promtool reads the rules"),
    (
        "docs/docker-compose.md",
        "code_fleet: with a stand-in for Docker",
    ),
    ("docs/incidents.md", "incidents"),
    (
        "docs/kubernetes.md",
        "chart: with stand-ins for the cluster",
    ),
    ("docs/managed-redis.md", "without_module"),
    ("docs/migrating-from-contextforge.md", "migration"),
    ("docs/operating.md", "installed"),
    ("docs/quickstart.md", "installed, wrappers"),
    ("docs/settings.md", "guides: settings"),
];

const NOT_RUN: [NotRun; 5] = [
    NotRun {
        page: "README.md",
        part: "load balancer",
        reason: "a drawing",
    },
    NotRun {
        page: "README.md",
        part: "make run",
        reason: "one does not end, the other one runs this test",
    },
    NotRun {
        page: "README.md",
        part: "cargo install --locked --path gateway",
        reason: "a release build takes many minutes; the packages are built from the same crates",
    },
    NotRun {
        page: "docs/deploying.md",
        part: "apparmor_parser",
        reason: "needs AppArmor in the kernel, root and Docker",
    },
    NotRun {
        page: "docs/deploying.md",
        part: "sudo sysctl",
        reason: "changes limits of the whole machine",
    },
];

/// An unused address of this machine, for `listen.address`.
fn free_address() -> anyhow::Result<String> {
    Ok(format!("127.0.0.1:{}", free_port()?))
}

/// Waits until a gateway that a reader has started serves at this address.
async fn until_served(process: &mut Process, address: &str) -> anyhow::Result<()> {
    let (client, url) = (HttpClient::default(), format!("http://{address}/readyz"));
    let probe = async || {
        let reply = client.get(&url).await?;
        ensure!(reply.status == 200, "/readyz: {}", reply.status);
        Ok(())
    };
    process.ready(probe).await
}

/// A session at this URL with these headers.
async fn session_at(url: &str, headers: &[(&str, &str)]) -> anyhow::Result<McpSession> {
    let opening = (headers.iter()).try_fold(Opening::default(), |opening, (name, value)| {
        opening.header(name, value)
    })?;
    McpSession::open_with(&HttpClient::default(), &[url.to_owned()], opening).await
}

/// What a run of Python printed, through `shell_exec` of this session.
async fn python_prints(session: &mut McpSession, code: &str) -> anyhow::Result<String> {
    let arguments = json!({"code": code, "language": "python"});
    let result = session.call("shell_exec", arguments).await?;
    printed_by(&result)
}

/// The output in a result of `shell_exec` that is no error.
fn printed_by(result: &Value) -> anyhow::Result<String> {
    ensure!(
        result.get("isError") != Some(&Value::Bool(true)),
        "{result}"
    );
    let output = result.pointer("/structuredContent/output");
    let output = output.and_then(Value::as_str);
    Ok(output.with_context(|| result.to_string())?.to_owned())
}

/// The command, as a list in TOML, of a server that has these tools.
fn office(journal: &Path, tools: &[&str]) -> anyhow::Result<String> {
    let mut command = vec![
        paths::tool("python")?,
        paths::test_file("servers/office.py")?,
    ];
    command.push(journal.to_owned());
    command.extend(tools.iter().map(Into::into));
    Ok(format!("{command:?}"))
}

/// Starts a program in Python that a reader has written.
fn start_python(reader: &Reader, file: &str, arguments: &[&str]) -> anyhow::Result<Process> {
    let mut command = Command::new(paths::tool("python")?);
    command.arg(reader.path(file)).args(arguments);
    Process::start(file, &mut command, &reader.path("python.log"))
}

/// Fixtures in place of the two instances that pages print.
async fn instances(page: &mut Page) -> anyhow::Result<[Fixture; 2]> {
    let both = [Fixture::start("one").await?, Fixture::start("two").await?];
    for (port, fixture) in [9001, 9002].into_iter().zip(&both) {
        page.fill(&format!("http://127.0.0.1:{port}/mcp"), fixture.url())?;
    }
    Ok(both)
}

/// The command line in a client's configuration: `command` with `args`, or all words in `command`.
fn command_of(server: &Value) -> anyhow::Result<String> {
    let mut words: Vec<&str> = server["command"].as_str().into_iter().collect();
    for list in ["command", "args"] {
        let list = server[list].as_array().into_iter().flatten();
        words.extend(list.filter_map(Value::as_str));
    }
    ensure!(!words.is_empty(), "{server}");
    Ok(words.join(" "))
}

/// A reader whose gateway listens at an address of its own; it is returned too.
fn reader() -> anyhow::Result<(Reader, String)> {
    let (mut reader, address) = (Reader::new()?, free_address()?);
    reader.set("MOORING_LISTEN_ADDRESS", &*address);
    Ok((reader, address))
}

#[test]
fn every_page_with_blocks_is_run_or_it_is_said_what_runs_it() -> anyhow::Result<()> {
    let listed =
        |name: &str| PAGES.contains(&name) || ELSEWHERE.iter().any(|(page, _)| *page == name);
    let mut names = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(paths::workspace().join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    for name in names {
        let text = std::fs::read_to_string(paths::workspace().join(&name))?;
        let has_blocks = !all_blocks_in(&text).is_empty();
        ensure!(
            has_blocks == listed(&name) || PAGES.contains(&&*name),
            "{name} has blocks: {has_blocks}"
        );
    }
    for listed in &NOT_RUN {
        ensure!(
            PAGES.contains(&listed.page) && !listed.reason.is_empty(),
            "{listed:?}"
        );
    }
    Ok(())
}
