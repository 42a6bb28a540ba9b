//! Every tool of every mounted server: its stub imports and type-checks, and calling it in code returns what a client of
//! the server gets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use mooring_tests::paths;
use mooring_tests::session::McpSession;
use serde_json::{Value, json};

use super::{Rig, Upstreams, printed};

const ADA: &str = "ada@example.org";

/// What each tool is called with; a tool that is not here fails the test.
fn arguments(files: &str) -> BTreeMap<(&'static str, &'static str), Value> {
    let file = |name: &str| format!("{files}/{name}");
    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["counts"]});
    let relation = json!({"from": "Ada", "to": "Ada", "relationType": "knows"});
    let tree = json!({"root": {"name": "a", "children": [{"name": "b"}]}});
    let nested = json!({"outer": {"inner": {"deep": [1, 2.5]}, "class": "x"}, "map": {"a b": 1}, "pair": ["x", 1]});
    let mut all = BTreeMap::from([
        (("counting", "whoami"), json!({})),
        (("counting", "increment"), json!({})),
        (
            ("counting", "slow"),
            json!({"begun": file("begun"), "seconds": 0}),
        ),
        (("files", "create_directory"), json!({"path": file("made")})),
        (("files", "directory_tree"), json!({"path": files})),
        (
            ("files", "edit_file"),
            json!({"path": file("a.txt"), "edits": [{"oldText": "one", "newText": "two"}], "dryRun": true}),
        ),
        (("files", "get_file_info"), json!({"path": file("a.txt")})),
        (("files", "list_allowed_directories"), json!({})),
        (("files", "list_directory"), json!({"path": files})),
        (
            ("files", "list_directory_with_sizes"),
            json!({"path": files}),
        ),
        (
            ("files", "move_file"),
            json!({"source": file("absent"), "destination": file("nowhere")}),
        ),
        (("files", "read_file"), json!({"path": file("a.txt")})),
        (("files", "read_media_file"), json!({"path": file("a.txt")})),
        (
            ("files", "read_multiple_files"),
            json!({"paths": [file("a.txt"), file("absent")]}),
        ),
        (
            ("files", "read_text_file"),
            json!({"path": file("a.txt"), "head": 1}),
        ),
        (
            ("files", "search_files"),
            json!({"path": files, "pattern": "*.txt"}),
        ),
        (
            ("files", "write_file"),
            json!({"path": file("a.txt"), "content": "one\n"}),
        ),
        (("memory", "create_entities"), json!({"entities": [entity]})),
        (
            ("memory", "create_relations"),
            json!({"relations": [relation]}),
        ),
        (
            ("memory", "add_observations"),
            json!({"observations": [{"entityName": "Ada", "contents": ["counts"]}]}),
        ),
        (
            ("memory", "delete_entities"),
            json!({"entityNames": ["nobody"]}),
        ),
        (
            ("memory", "delete_observations"),
            json!({"deletions": [{"entityName": "nobody", "observations": ["x"]}]}),
        ),
        (
            ("memory", "delete_relations"),
            json!({"relations": [{"from": "x", "to": "y", "relationType": "z"}]}),
        ),
        (("memory", "read_graph"), json!({})),
        (("memory", "search_nodes"), json!({"query": "Ada"})),
        (("memory", "open_nodes"), json!({"names": ["Ada"]})),
        (("shapes", "plain"), json!({"text": "x\"\"\"", "count": 3})),
        (("shapes", "tree"), tree),
        (("shapes", "choice"), json!({"value": null, "any": ["x"]})),
        (
            ("shapes", "enums"),
            json!({"level": 3, "kind": "fixed", "several": 1.5}),
        ),
        (("shapes", "nested"), nested),
        (
            ("shapes", "all-of.named"),
            json!({"both": {"a": "x", "b": 1}, "from": "y", "with-hyphen": "z"}),
        ),
        (("shapes", "nothing"), json!({"any": 1})),
        (("shapes", "class"), json!({"self": "me", "print": "x"})),
    ]);
    for server in ["everything", "legacy-sse"] {
        all.extend([
            ((server, "echo"), json!({"message": "hello"})),
            ((server, "get-annotated-message"), json!({"messageType": "error", "includeImage": false})),
            ((server, "get-env"), json!({})),
            ((server, "get-resource-links"), json!({"count": 2})),
            ((server, "get-resource-reference"), json!({"resourceType": "Text", "resourceId": 1})),
            ((server, "get-structured-content"), json!({"location": "Chicago"})),
            ((server, "get-sum"), json!({"a": 1, "b": 2})),
            ((server, "get-tiny-image"), json!({})),
            ((server, "gzip-file-as-resource"), json!({"name": "x.gz", "data": "data:text/plain;base64,eA==", "outputType": "resource"})),
            ((server, "toggle-simulated-logging"), json!({})),
            ((server, "toggle-subscriber-updates"), json!({})),
            ((server, "trigger-long-running-operation"), json!({"duration": 1, "steps": 1})),
            ((server, "simulate-research-query"), json!({"topic": "tides", "ambiguous": false})),
            ((server, "trigger-elicitation-request"), json!({})),
            ((server, "trigger-url-elicitation"), json!({"url": "https://example.org/"})),
            ((server, "trigger-sampling-request"), json!({"prompt": "x"})),
        ]);
    }
    all
}

/// Tools whose answer is another one each time, or tells whose session it is: that they answer alike is enough.
const CHANGING: [&str; 10] = [
    "get-env",
    "get_file_info",
    "increment",
    "whoami",
    "get-resource-reference",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "simulate-research-query",
    "trigger-elicitation-request",
    "trigger-url-elicitation",
];

/// What a direct call comes to, in the form in which code gets it: a value, or an error.
async fn direct(session: &mut McpSession, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
    let params = json!({"name": tool, "arguments": arguments});
    let response = session.request("tools/call", params).await?.response;
    let Some(result) = response.get("result") else {
        return Ok(json!({"error": true}));
    };
    if result["isError"] == true {
        return Ok(json!({"error": true}));
    }
    if let Some(structured) = result.get("structuredContent") {
        return Ok(structured.clone());
    }
    let content = result["content"].as_array().cloned().unwrap_or_default();
    if let [only] = content.as_slice()
        && only["type"] == "text"
    {
        let text = only["text"].as_str().unwrap_or_default();
        return Ok(match serde_json::from_str(text) {
            Ok(parsed @ (Value::Object(_) | Value::Array(_))) => parsed,
            _ => json!(text),
        });
    }
    Ok(Value::Array(content))
}

/// Calls every tool in one run, and prints one line of JSON for each.
const CALL_ALL_PYTHON: &str = r#"
import json, importlib, tools
catalog = json.load(open("/tools/_catalog.json"))
wanted = json.load(open("/scratch/arguments.json"))
for tool in catalog["tools"]:
    server, name = tool["server"], tool["original_name"]
    arguments = wanted[server][name]
    package = importlib.import_module("tools." + tool["package"])
    function = getattr(package, tool["function"])
    try:
        value = function(arguments)
    except tools.ToolError as error:
        value = {"error": True}
    print(json.dumps([server, name, value]))
"#;

const CALL_ALL_TYPESCRIPT: &str = r#"
import * as tools from "tools";
const catalog = JSON.parse(Deno.readTextFileSync("/tools/_catalog.json"));
const wanted = JSON.parse(Deno.readTextFileSync("/scratch/arguments.json"));
for (const tool of catalog.tools) {
  const [server, name] = [tool.server, tool.original_name];
  let value: unknown;
  try {
    // deno-lint-ignore no-explicit-any
    value = await (tools as any)[tool.package][tool.function](wanted[server][name]);
  } catch (error) {
    if (!(error instanceof tools.ToolError)) throw error;
    value = { error: true };
  }
  console.log(JSON.stringify([server, name, value]));
}
"#;

/// The type checkers of both languages take every stub of the trees on the volume.
fn check_types(trees: &[PathBuf]) -> anyhow::Result<()> {
    let has = |file: &str| {
        let tree = trees
            .iter()
            .find(|tree| tree.join("tools/shapes").join(file).exists());
        tree.with_context(|| format!("a tree with {file} among {trees:?}"))
    };
    let python = has("plain.py")?;
    let mut mypy = Command::new(paths::tool("python")?);
    mypy.args([
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--cache-dir=/dev/null",
    ])
    .args(["--explicit-package-bases", "-p", "tools"]);
    passes(mypy.current_dir(python))?;
    let typescript = has("plain.ts")?;
    let mut stubs = Vec::new();
    for entry in std::fs::read_dir(typescript.join("tools"))? {
        let server = entry?.path();
        if server.is_dir() {
            stubs.extend(std::fs::read_dir(&server)?.filter_map(|stub| Some(stub.ok()?.path())));
        }
    }
    stubs.retain(|stub| stub.extension().is_some_and(|extension| extension == "ts"));
    anyhow::ensure!(stubs.len() >= 55, "{} stubs", stubs.len());
    let cache = tempfile::tempdir()?;
    let mut deno = Command::new(paths::tool("deno")?);
    deno.args(["check", "--quiet", "--no-config", "--no-remote"])
        .arg("--import-map=tools/_import_map.json")
        .args(stubs)
        .env("DENO_DIR", cache.path());
    passes(deno.current_dir(typescript))
}

fn passes(checker: &mut Command) -> anyhow::Result<()> {
    let checked = checker.output()?;
    let said =
        [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    anyhow::ensure!(checked.status.success(), "{}", said.concat());
    Ok(())
}

#[tokio::test]
async fn every_tool_imports_and_returns_what_a_direct_call_does() -> anyhow::Result<()> {
    let upstreams = Upstreams::start().await?;
    let files = upstreams.files.display().to_string();
    std::fs::write(upstreams.files.join("a.txt"), "one\n")?;
    let rig = Rig::start(&upstreams.tables, "").await?;
    let wanted = arguments(&files);
    let mut by_server: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
    for ((server, tool), arguments) in &wanted {
        by_server.entry(server).or_default().insert(tool, arguments);
    }
    // What is asked to be there already is there at the first time, too.
    let mut memory = rig.open("memory", ADA).await?;
    for tool in ["create_entities", "create_relations"] {
        memory.call(tool, wanted[&("memory", tool)].clone()).await?;
    }
    for (language, code) in [
        ("python", CALL_ALL_PYTHON),
        ("typescript", CALL_ALL_TYPESCRIPT),
    ] {
        let mut session = rig.open("sandbox", ADA).await?;
        let write = json!({
            "path": "/scratch/arguments.json",
            "content": serde_json::to_string(&by_server)?,
            "language": language,
        });
        session.call("fs_write", write).await?;
        let output = printed(&mut session, language, code).await?;
        let mut clients = BTreeMap::new();
        let mut called = 0;
        for line in output.lines() {
            let (server, tool, value): (String, String, Value) =
                serde_json::from_str(line).with_context(|| line.to_owned())?;
            let key = wanted
                .keys()
                .find(|key| **key == (server.as_str(), tool.as_str()));
            let key = key.with_context(|| format!("arguments for {server}/{tool}"))?;
            if !clients.contains_key(key.0) {
                let opening = mooring_tests::session::Opening {
                    capabilities: json!({"elicitation": {"form": {}, "url": {}}}),
                    ..Default::default()
                };
                clients.insert(key.0, rig.open_with(key.0, ADA, opening).await?);
            }
            called += 1;
            if CHANGING.contains(&key.1) {
                continue;
            }
            let client = clients.get_mut(key.0).context("a client")?;
            let expected = direct(client, key.1, &wanted[key]).await?;
            assert_eq!(value, expected, "{server}/{tool} in {language}");
        }
        assert!(called >= 55, "{called} tools were called in {language}");
    }
    check_types(&rig.0.volume.own(".tools")?)
}
