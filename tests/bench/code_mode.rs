//! Code that calls tools: what a call costs from within a run, what goes through the model's context where an agent calls
//! tools itself and where it writes code that does, and a hundred runs at once.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder, SERVER, USER};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::servers::filesystem_command;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::figures::percentile;

/// Calls of each kind that are timed.
const CALLS: usize = 300;
/// Runs at once.
const RUNS: usize = 100;
/// Files that the task looks through, and lines of each.
const FILES: usize = 40;
const LINES: usize = 60;
const NOBODY: &str = "bench@example.org";

/// All tables.
pub(crate) async fn measure() -> anyhow::Result<String> {
    let (volume, redis, fixture) = (
        CodeVolume::new()?,
        Redis::start().await?,
        Fixture::start("a").await?,
    );
    let files = TempDir::with_prefix("mooring-task-").context("make a directory")?;
    let root = files.path().canonicalize()?;
    for number in 0..FILES {
        let lines = (0..LINES).map(|line| match (line * 7 + number) % 11 {
            0 => format!("12:00:{line:02} ERROR request {line} of worker {number} failed\n"),
            _ => format!("12:00:{line:02} INFO request {line} of worker {number} was served\n"),
        });
        std::fs::write(
            root.join(format!("worker-{number:02}.log")),
            lines.collect::<String>(),
        )?;
    }
    let settings = Settings::toml(format!(
        "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n\
         [[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n\
         sandbox_policy = {{ max_runs_per_minute = 1000, max_execution_time_ms = 60000 }}\n\
         mount_rules = {{ include_servers = [\"web\", \"files\"] }}\n\n\
         [[servers]]\nid = \"web\"\nkind = \"http\"\ninstances = [{:?}]\nconcurrency = \"parallel\"\n\n\
         [[servers]]\nid = \"files\"\nkind = \"stdio\"\ncommand = {:?}\n",
        redis.url(),
        fixture.url(),
        filesystem_command(&root)?,
    ))
    .env("MOORING_CODE_BASE_DIR", &volume.path().display().to_string())
        .users_by_header();
    let keys = mooring_tests::fleet_keys::FleetKeys::new()?;
    let settings = settings.env(
        "MOORING_WORKER_FLEET_KEYS_FILE",
        &keys.path().display().to_string(),
    );
    let gateway = Gateway::start("bench", settings).await?;
    let calls = calls(&gateway).await?;
    let context = context(&gateway, &root.display().to_string()).await?;
    let answers = answers(&gateway).await?;
    let at_once = at_once(&gateway).await?;
    Ok(format!("{calls}\n\n{context}\n\n{answers}\n\n{at_once}"))
}

async fn open(gateway: &Gateway, server: &str) -> anyhow::Result<McpSession> {
    let opening = Opening {
        capabilities: json!({}),
        ..Opening::default()
    };
    let client = HttpClient::new(Duration::from_secs(120));
    let opening = opening.header(USER, NOBODY)?;
    McpSession::open_with(&client, &[gateway.mcp_url(server)], opening).await
}

fn ms(mut taken: Vec<f64>, part: f64) -> f64 {
    taken.sort_by(f64::total_cmp);
    let taken: Vec<Duration> = taken.into_iter().map(Duration::from_secs_f64).collect();
    percentile(&taken, part).as_secs_f64() * 1000.0
}

/// One call of a tool by a client, and from within a run.
async fn calls(gateway: &Gateway) -> anyhow::Result<String> {
    let mut direct = open(gateway, "web").await?;
    let mut by_client = Vec::new();
    for _ in 0..CALLS {
        let started = Instant::now();
        direct.increment().await?;
        by_client.push(started.elapsed().as_secs_f64());
    }
    let mut coder = Coder::open(&[gateway], NOBODY).await?;
    let code = format!(
        "import json, time, tools\ntools.web.increment()\ntaken = []\nfor _ in range({CALLS}):\n    \
         started = time.perf_counter()\n    tools.web.increment()\n    \
         taken.append(time.perf_counter() - started)\nprint(json.dumps(taken))"
    );
    let nested: Vec<f64> = serde_json::from_str(&coder.python(&code).await?)?;
    let mut lines = vec![
        format!("### One call of a tool, {CALLS} in a row"),
        String::new(),
        "| | p50 ms | p99 ms | p50 against the client's |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    let base = ms(by_client.clone(), 0.5);
    for (name, taken) in [("by a client", by_client), ("by code in a run", nested)] {
        let (p50, p99) = (ms(taken.clone(), 0.5), ms(taken, 0.99));
        lines.push(format!(
            "| {name} | {p50:.2} | {p99:.2} | {:.2} |",
            p50 / base
        ));
    }
    Ok(lines.join("\n"))
}

/// How long a part of an answer is as JSON.
fn length(answer: &Value, pointer: &str) -> usize {
    answer
        .pointer(pointer)
        .map_or(0, |part| part.to_string().len())
}

fn text<'a>(answer: &'a Value, pointer: &str) -> &'a str {
    let text = answer.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// What a model reads and writes in one exchange: the definitions, what it asks, and what it is told.
#[derive(Default)]
struct Read {
    definitions: usize,
    asked: usize,
    told: usize,
    exchanges: usize,
}

impl Read {
    async fn define(&mut self, session: &mut McpSession) -> anyhow::Result<()> {
        let exchange = session.request("tools/list", json!({})).await?;
        self.definitions += length(&exchange.response, "/result/tools");
        Ok(())
    }

    async fn call(
        &mut self,
        session: &mut McpSession,
        tool: &str,
        arguments: Value,
    ) -> anyhow::Result<Value> {
        self.asked += json!({"name": tool, "arguments": arguments})
            .to_string()
            .len();
        let result = session.call(tool, arguments).await?;
        // The text alone: what stands in the structured content too is read once.
        self.told += length(&result, "/content");
        self.exchanges += 1;
        Ok(result)
    }

    fn row(&self, name: &str, base: usize) -> String {
        let all = self.all();
        let part = all as f64 / base as f64;
        format!(
            "| {name} | {} | {} | {} | {} | {all} | {part:.3} |",
            self.exchanges, self.definitions, self.asked, self.told
        )
    }

    fn all(&self) -> usize {
        self.definitions + self.asked + self.told
    }
}

const TASK: &str = r#"
import collections, tools
listing = tools.files.list_directory(path=ROOT)["content"]
names = [line.removeprefix("[FILE] ") for line in listing.splitlines()]
errors = collections.Counter()
for name in names:
    text = tools.files.read_text_file(path=f"{ROOT}/{name}")["content"]
    errors[name] = text.count(" ERROR ")
print(errors.total(), "errors;", "most in", errors.most_common(1)[0])
"#;

/// Which of forty log files has the most errors, and how many there are in all.
async fn context(gateway: &Gateway, root: &str) -> anyhow::Result<String> {
    let (mut tools, mut code) = (Read::default(), Read::default());
    let mut session = open(gateway, "files").await?;
    tools.define(&mut session).await?;
    tools
        .call(&mut session, "list_directory", json!({"path": root}))
        .await?;
    let mut errors = 0;
    for number in 0..FILES {
        let path = format!("{root}/worker-{number:02}.log");
        let read = tools
            .call(&mut session, "read_text_file", json!({"path": path}))
            .await?;
        let log = text(&read, "/content/0/text");
        errors += log.matches(" ERROR ").count();
    }
    let mut session = open(gateway, SERVER).await?;
    code.define(&mut session).await?;
    let search = json!({"query": "list directory read file", "detail": "summary", "limit": 5});
    code.call(&mut session, "tool_search", search).await?;
    let program = format!("ROOT = {root:?}\n{TASK}");
    let result = code
        .call(
            &mut session,
            "shell_exec",
            json!({"code": program, "language": "python"}),
        )
        .await?;
    let output = text(&result, "/structuredContent/output");
    ensure!(
        output.starts_with(&format!("{errors} errors;")),
        "{errors}: {result}"
    );
    let base = tools.all();
    Ok([
        format!("### Bytes through the model's context: {FILES} log files, {errors} errors to be counted"),
        String::new(),
        "| | calls | definitions | asked | told | all | of direct |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
        tools.row("tools called by the agent", base),
        code.row("code that calls them", base),
    ]
    .join("\n"))
}

/// What the answer of a run holds, by where hosts look.
async fn answers(gateway: &Gateway) -> anyhow::Result<String> {
    let mut session = open(gateway, SERVER).await?;
    let listed = session.request("tools/list", json!({})).await?.response;
    let definitions = length(&listed, "/result");
    let mut lines = vec![
        format!("### What a model reads, in bytes (tools/list: {definitions})"),
        String::new(),
        "| run | printed | text | structured content | whole result |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let calling = |calls: usize| {
        format!("import tools\nfor _ in range({calls}):\n    tools.web.increment()\nprint({calls})")
    };
    for (name, code) in [
        ("`print(55)`", "print(55)".to_owned()),
        ("300 calls of tools", calling(300)),
        ("1,000 calls of tools", calling(1000)),
        (
            "100,000 lines",
            "for n in range(100_000):\n    print(n)".to_owned(),
        ),
    ] {
        let arguments = json!({"code": code, "language": "python"});
        let result = session.call("shell_exec", arguments).await?;
        ensure!(result.get("isError") == Some(&json!(false)), "{result}");
        let printed = result.pointer("/_meta/mooring~1run/metrics/bytes_written");
        let printed = printed.with_context(|| format!("the bytes printed: {result}"))?;
        lines.push(format!(
            "| {name} | {printed} | {} | {} | {} |",
            text(&result, "/content/0/text").len(),
            length(&result, "/structuredContent"),
            length(&result, "")
        ));
    }
    Ok(lines.join("\n"))
}

/// A hundred users run at once.
async fn at_once(gateway: &Gateway) -> anyhow::Result<String> {
    let mut coders = Vec::new();
    for number in 0..RUNS {
        let user = format!("user-{number}@example.org");
        let mut coder = Coder::open(&[gateway], &user).await?;
        coder.python("print(1)").await?;
        coders.push(coder);
    }
    let started = Instant::now();
    for coder in &mut coders {
        coder.python("print(6 * 7)").await?;
    }
    let one_by_one = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let runs = coders.iter_mut().map(async |coder| {
        let printed = coder.python("print(6 * 7)").await?;
        ensure!(printed == "42", "{printed}");
        anyhow::Ok(())
    });
    try_join_all(runs).await?;
    let together = started.elapsed().as_secs_f64();
    Ok(format!(
        "### {RUNS} runs of {RUNS} users\n\none by one {one_by_one:.2} s, at once {together:.2} s: {:.2} of that; all of \
         them ended well.",
        together / one_by_one
    ))
}
