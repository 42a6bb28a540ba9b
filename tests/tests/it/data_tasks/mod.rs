//! Ten data tasks, each by the calls of an agent that has read the definitions of the tools and the answers, and nothing
//! else. A definition or message that misleads agents costs calls, and so does a result that is longer than it has to be.

use std::fs;

use anyhow::ensure;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, SERVER, USER};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::servers::{filesystem_command, memory_command};
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keyed::stdio_table;

/// What a run may take. The long job takes twice 5 s.
const RUN_TIME_MAX_MS: &str = "9000";

/// What a task took, or may take.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    calls: usize,
    /// Calls that brought the task no further.
    wasted: usize,
    /// Of all results, what a model reads.
    text_bytes: usize,
    /// The whole messages.
    body_bytes: usize,
}

/// An agent with one task.
struct Agent {
    session: McpSession,
    files: String,
    spent: Cost,
}

impl Agent {
    /// Calls a tool: its result and the text that a model reads.
    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<(Value, String)> {
        let params = json!({"name": tool, "arguments": arguments});
        let exchange = self.session.request("tools/call", params).await?;
        let result = exchange.response["result"].clone();
        let items = result["content"].as_array().cloned().unwrap_or_default();
        let text: String = items
            .iter()
            .filter_map(|item| item["text"].as_str())
            .collect();
        self.spent.calls += 1;
        self.spent.text_bytes += text.len();
        self.spent.body_bytes += exchange.response.to_string().len();
        Ok((result, text))
    }

    /// Calls a tool for something that the task needs.
    async fn use_tool(&mut self, tool: &str, arguments: Value) -> anyhow::Result<(Value, String)> {
        let (result, text) = self.call(tool, arguments).await?;
        if result["isError"] != false {
            self.spent.wasted += 1;
        }
        Ok((result, text))
    }

    /// Runs code: what it printed.
    async fn run(&mut self, code: &str) -> anyhow::Result<String> {
        let code = code.replace("FILES", &self.files);
        let answer = self.use_tool("shell_exec", json!({"code": code})).await;
        Ok(answer?.1)
    }

    async fn find_tools(&mut self, arguments: Value) -> anyhow::Result<String> {
        Ok(self.use_tool("tool_search", arguments).await?.1)
    }

    /// Runs code that has to end badly: the text has to name this reason.
    async fn crash(&mut self, arguments: Value, reason: &str) -> anyhow::Result<()> {
        let (result, text) = self.call("shell_exec", arguments).await?;
        ensure!(result["isError"] == true && text.contains(reason), "{text}");
        Ok(())
    }
}

/// A code server, and two other servers whose tools its code can call.
struct Rig {
    gateway: Gateway,
    files: TempDir,
    _volume: CodeVolume,
    _memory: TempDir,
}

impl Rig {
    async fn start() -> anyhow::Result<Self> {
        let files = TempDir::with_prefix("mooring-files-")?;
        write_files(&files)?;
        let memory = TempDir::with_prefix("mooring-memory-")?;
        let graph = memory.path().join("graph.json").display().to_string();
        let volume = CodeVolume::new()?;
        let tables = [
            format!("[[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n"),
            stdio_table("files", &filesystem_command(files.path())?),
            stdio_table("memory", &memory_command()?),
            format!("env = {{ MEMORY_FILE_PATH = {graph:?} }}\n"),
        ];
        let settings = Settings::toml(format!("[store]\nurl = \"embedded\"\n{}", tables.concat()));
        let base_dir = volume.path().display().to_string();
        let settings = settings
            .env("MOORING_CODE_BASE_DIR", &base_dir)
            .env(
                "MOORING_CODE_DEFAULT_MAX_EXECUTION_TIME_MS",
                RUN_TIME_MAX_MS,
            )
            .users_by_header();
        Ok(Self {
            gateway: Gateway::start("data-tasks", settings).await?,
            files,
            _volume: volume,
            _memory: memory,
        })
    }

    /// Lets an agent of its own do a task, and compares what it took with what it may take.
    #[allow(clippy::print_stderr, reason = "the table is in docs/benchmarks.md")]
    async fn measure(
        &self,
        task: &str,
        most: Cost,
        work: impl AsyncFnOnce(&mut Agent) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let opening = Opening::default().header(USER, task)?;
        let client = HttpClient::new(std::time::Duration::from_secs(90));
        let endpoints = [self.gateway.mcp_url(SERVER)];
        let session = McpSession::open_with(&client, &endpoints, opening);
        let mut agent = Agent {
            session: session.await?,
            files: self.files.path().display().to_string(),
            spent: Cost::default(),
        };
        work(&mut agent).await?;
        let spent = agent.spent;
        eprintln!(
            "| {task} | {} | {} | {} | {} |",
            spent.calls, spent.wasted, spent.text_bytes, spent.body_bytes
        );
        let is_enough = spent.calls <= most.calls
            && spent.wasted <= most.wasted
            && spent.text_bytes <= most.text_bytes
            && spent.body_bytes <= most.body_bytes;
        ensure!(is_enough, "{task}: {spent:?} is more than {most:?}");
        Ok(())
    }
}

/// 20,000 orders, 200 invoices and three notes.
fn write_files(files: &TempDir) -> anyhow::Result<()> {
    let orders = (0..20_000).map(|n| {
        let (month, customer, amount) = (n % 12 + 1, n * 7 % 50, n % 97);
        format!("2026-{month:02}-05,customer-{customer},{amount}.50\n")
    });
    let orders = format!("date,customer,amount\n{}", orders.collect::<String>());
    fs::write(files.path().join("orders.csv"), orders)?;
    for directory in ["invoices", "notes"] {
        fs::create_dir(files.path().join(directory))?;
    }
    for n in 0..200 {
        let path = files.path().join(format!("invoices/{n}.json"));
        fs::write(path, json!({"number": n, "total": n * 3}).to_string())?;
    }
    for (name, text) in [
        ("ada", "wrote the first program\nliked horses"),
        ("bob", "is late"),
        ("eve", "listens"),
    ] {
        fs::write(files.path().join(format!("notes/{name}.txt")), text)?;
    }
    Ok(())
}

const fn most(calls: usize, wasted: usize, text_bytes: usize, body_bytes: usize) -> Cost {
    Cost {
        calls,
        wasted,
        text_bytes,
        body_bytes,
    }
}

async fn sums_over_files(rig: &Rig) -> anyhow::Result<()> {
    rig.measure(
        "CSV of 20,000 rows",
        most(2, 0, 3_000, 9_000),
        async |agent| {
            agent
                .find_tools(json!({"query": "read a text file"}))
                .await?;
            let printed = agent.run(include_str!("sales.py")).await?;
            ensure!(printed.starts_with("customer-"), "{printed}");
            Ok(())
        },
    )
    .await?;
    rig.measure("200 tool calls", most(2, 0, 3_000, 24_000), async |agent| {
        agent
            .find_tools(json!({"query": "list directory, read file"}))
            .await?;
        let printed = agent.run(include_str!("invoices.py")).await?;
        ensure!(printed == "200 59700\n", "{printed}");
        Ok(())
    })
    .await?;
    rig.measure(
        "search in 400 files",
        most(2, 0, 300, 3_000),
        async |agent| {
            agent.run(include_str!("logs.py")).await?;
            let printed = agent
                .run("grep -l ERROR /scratch/logs/*.log | sort")
                .await?;
            ensure!(printed.lines().count() == 11, "{printed}");
            Ok(())
        },
    )
    .await
}

async fn files_to_hand_out(rig: &Rig) -> anyhow::Result<()> {
    rig.measure("chart", most(2, 0, 100, 2_500), async |agent| {
        agent.run(include_str!("chart.py")).await?;
        let arguments = json!({"path": "/results/chart.png"});
        let (shown, _) = agent.use_tool("fs_read", arguments).await?;
        ensure!(shown["content"][0]["type"] == "image", "{shown}");
        Ok(())
    })
    .await?;
    rig.measure("xlsx", most(2, 0, 100, 5_000), async |agent| {
        agent.run(include_str!("workbook.py")).await?;
        let arguments = json!({"path": "/results/stock.xlsx", "encoding": "base64"});
        let (read, _) = agent.use_tool("fs_read", arguments).await?;
        ensure!(read["content"][0]["type"] == "resource", "{read}");
        Ok(())
    })
    .await
}

async fn long_output(rig: &Rig) -> anyhow::Result<()> {
    rig.measure("print 5 MB", most(2, 0, 30_000, 65_000), async |agent| {
        let all = "lines = [f'{n:06} ' + ('needle' if n == 61_803 else 'x' * 43) for n in range(100_000)]\n";
        let printed = agent.run(&format!("{all}print(*lines, sep='\\n')")).await?;
        ensure!(printed.contains("its first 1048576 bytes are in /results/output-"), "{printed}");
        ensure!(printed.contains("what is longer belongs in a file"), "{printed}");
        let found = format!("{all}print([line for line in lines if 'needle' in line])");
        let found = agent.run(&found).await?;
        ensure!(found == "['061803 needle']\n", "{found}");
        Ok(())
    })
    .await
}

async fn crashes(rig: &Rig) -> anyhow::Result<()> {
    rig.measure(
        "crashes of four kinds",
        most(4, 0, 500, 5_000),
        async |agent| {
            let code = |code: &str| json!({"code": code});
            agent
                .crash(code("{}['missing']"), "KeyError: 'missing'")
                .await?;
            agent
                .crash(code("bytearray(1 << 30)"), "MemoryError")
                .await?;
            agent
                .crash(code("import os\nos._exit(3)"), "exit code 3")
                .await?;
            let endless = json!({"code": "while True: pass", "timeout_ms": 1000});
            agent.crash(endless, "took longer than 1000 ms").await
        },
    )
    .await
}

async fn state_between_calls(rig: &Rig) -> anyhow::Result<()> {
    rig.measure("a file handed on, variables, shell", most(4, 0, 500, 5_000), async |agent| {
        let write = "import json\ncounts = {'a': 3, 'b': 5}\njson.dump(counts, open('/scratch/counts.json', 'w'))";
        agent.run(write).await?;
        let read = "import json\ncounts = json.load(open('/scratch/counts.json'))\nprint(sum(counts.values()), \
                    file=open('/results/sum.txt', 'w'))";
        agent.run(read).await?;
        let listed = agent.run("ls /scratch /results").await?;
        ensure!(listed.contains("counts.json"), "{listed}");
        let (_, text) = agent.use_tool("fs_read", json!({"path": "/results/sum.txt"})).await?;
        ensure!(text == "8\n", "{text}");
        Ok(())
    })
    .await
}

async fn two_servers(rig: &Rig) -> anyhow::Result<()> {
    rig.measure("two servers", most(3, 0, 5_000, 16_000), async |agent| {
        agent
            .find_tools(json!({"query": "read file create entities"}))
            .await?;
        let schema = json!({"query": "create entities", "detail": "schema", "limit": 1});
        let schema = agent.find_tools(schema).await?;
        ensure!(schema.contains("entityType"), "{schema}");
        let printed = agent.run(include_str!("notes.py")).await?;
        ensure!(
            printed == "[('ada', 2), ('bob', 1), ('eve', 1)]\n",
            "{printed}"
        );
        Ok(())
    })
    .await
}

/// The definition of `shell_exec` says how long a run may take, so an agent splits what takes longer.
async fn long_job(rig: &Rig) -> anyhow::Result<()> {
    rig.measure(
        "a job longer than a run",
        most(2, 0, 50, 2_500),
        async |agent| {
            agent.run(include_str!("half_a_job.py")).await?;
            let printed = agent.run(include_str!("half_a_job.py")).await?;
            ensure!(printed == "2 of 2\n", "{printed}");
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn ten_data_tasks_take_as_few_calls_as_they_should() -> anyhow::Result<()> {
    let rig = Rig::start().await?;
    let others = async {
        sums_over_files(&rig).await?;
        files_to_hand_out(&rig).await?;
        long_output(&rig).await?;
        crashes(&rig).await?;
        state_between_calls(&rig).await?;
        two_servers(&rig).await
    };
    tokio::try_join!(long_job(&rig), others).map(drop)
}
