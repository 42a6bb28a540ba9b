//! Clients that start their server anew for each call: from the start of the process to the first answer of a tool, against a
//! server of the usual make started in the same way.

use std::time::{Duration, Instant};

use anyhow::Context;
use mooring_tests::agent::{AgentHome, Ids, SERVER as AGENT};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Settings;
use mooring_tests::servers::everything_command;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::figures::percentile;

/// Processes of each kind.
const STARTS: usize = 60;

/// What is started.
struct Variant {
    name: &'static str,
    tool: &'static str,
    arguments: Value,
    how: How,
    taken: Vec<Duration>,
}

enum How {
    /// `mooring stdio` with these settings, for this server.
    Gateway {
        settings: Settings,
        server: &'static str,
        more: &'static [&'static str],
    },
    /// This command.
    Program(Vec<String>),
}

/// The table.
pub(crate) async fn measure() -> anyhow::Result<String> {
    let (state, fixture, agent) = (
        TempDir::with_prefix("mooring-fresh-").context("make a directory")?,
        Fixture::start("a").await?,
        AgentHome::new(Ids::Change)?,
    );
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\naffinity = \"on\"\n\n\
         [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
         sandbox_policy = {{ max_runs_per_minute = 1000 }}\n\n{}",
        fixture.url(),
        agent.server_toml(AGENT, "")?,
    ))
    .state_home(state.path());
    let gateway = |server, more| How::Gateway {
        settings: settings.clone(),
        server,
        more,
    };
    let variant = |name, tool, arguments, how| Variant {
        name,
        tool,
        arguments,
        how,
        taken: Vec::new(),
    };
    let hello = json!({"message": "hello"});
    let code = json!({"code": "print('hello')", "language": "python"});
    let prompt = json!({"prompt": "recall", "parentSessionId": "bench"});
    let mut variants = [
        variant(
            "server-everything on node",
            "echo",
            hello,
            How::Program(everything_command()?),
        ),
        variant(
            "`mooring stdio`, session continued",
            "increment",
            json!({}),
            gateway("tools", &[]),
        ),
        variant(
            "`mooring stdio`, new session",
            "increment",
            json!({}),
            gateway("tools", &["--new-session"]),
        ),
        variant(
            "`mooring stdio`, sandboxed python",
            "shell_exec",
            code,
            gateway("sandbox", &[]),
        ),
        variant(
            "`mooring stdio`, an agent resumed (a program in Python)",
            AGENT,
            prompt,
            gateway(AGENT, &[]),
        ),
    ];
    // They take turns, so that a busy machine is busy for all of them.
    for _ in 0..STARTS {
        for variant in &mut variants {
            variant.start().await?;
        }
    }
    let base = p50(&variants[0]);
    let mut lines = vec![
        format!("### Process start to the first answer of a tool, {STARTS} starts each"),
        String::new(),
        "| | p50 ms | p90 ms | p50 against node |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for variant in &variants {
        let p50 = p50(variant);
        lines.push(format!(
            "| {} | {p50:.1} | {:.1} | {:.3} |",
            variant.name,
            ms(variant, 0.9),
            p50 / base
        ));
    }
    Ok(lines.join("\n"))
}

impl Variant {
    async fn start(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut client = match &self.how {
            How::Gateway {
                settings,
                server,
                more,
            } => StdioClient::open(settings, server, more).await?,
            How::Program(words) => {
                let (program, arguments) = words.split_first().context("a program")?;
                let mut command = Command::new(program);
                command.args(arguments);
                StdioClient::open_program(command).await?
            }
        };
        client.call(self.tool, self.arguments.clone()).await?;
        self.taken.push(started.elapsed());
        client.kill().await
    }
}

fn p50(variant: &Variant) -> f64 {
    ms(variant, 0.5)
}

fn ms(variant: &Variant, part: f64) -> f64 {
    let mut taken = variant.taken.clone();
    taken.sort_unstable();
    percentile(&taken, part).as_secs_f64() * 1000.0
}
