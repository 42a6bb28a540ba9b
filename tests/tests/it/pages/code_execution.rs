//! docs/code-execution.md and docs/code-policy.md: their settings and code, with the servers whose tools it calls.

use anyhow::{Context, ensure};
use mooring_tests::code::CodeVolume;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::printed::{Form, same_json};
use mooring_tests::reader::Reader;
use serde_json::{Value, json};

use super::{NOT_RUN, office, printed_by, python_prints, reader, session_at, until_served};

/// What the page's example of an answer has printed.
const FIFTY_FIVE: &str = "print(sum(range(11)))";

#[tokio::test]
async fn the_examples_of_code_execution_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/code-execution.md")?;
    answers(&mut page).await?;
    tools(&mut page).await?;
    page.finish(&NOT_RUN)
}

#[tokio::test]
async fn the_examples_of_code_policy_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/code-policy.md")?;
    policy(&mut page).await?;
    page.finish(&NOT_RUN)
}

async fn answers(page: &mut Page) -> anyhow::Result<()> {
    let (reader, address) = reader()?;
    page.fill("127.0.0.1:4444", &*address)?;
    let mut gateway = reader.start(&page.take("console", "mooring\n")?)?;
    until_served(&mut gateway, &address).await?;
    let mut session = session_at(&page.inline("http://127.0.0.1:4444/mcp")?, &[]).await?;
    let arguments = json!({"code": FIFTY_FIVE, "language": "python"});
    let result = session.call("shell_exec", arguments).await?;
    let printed = serde_json::from_str(&page.take("json", "structuredContent")?)?;
    let form = Form {
        varying: &["wall_time_ms"],
        shortened: &["metrics", "mooring~1run"],
    };
    same_json(&printed, &result, &form)?;
    let cases = [
        ("grep -c ERROR /scratch/*.log | sort", "1\n"),
        ("pip install pandas", ""),
    ];
    python_prints(&mut session, "print('ERROR', file=open('a.log', 'w'))").await?;
    for (code, output) in cases {
        let code = page.inline(code)?;
        let result = session.call("shell_exec", json!({"code": code})).await?;
        match output {
            "" => ensure!(result["isError"] == true, "{code}: {result}"),
            _ => ensure!(printed_by(&result)? == output, "{code}: {result}"),
        }
    }
    Ok(())
}

fn code_settings(toml: String, volume: &CodeVolume) -> anyhow::Result<Settings> {
    let deno = paths::tool("deno")?.display().to_string();
    Ok(Settings::toml(toml)
        .env(
            "MOORING_CODE_BASE_DIR",
            &volume.path().display().to_string(),
        )
        .env("MOORING_CODE_DENO_PATH", &deno))
}

fn calls(reader: &Reader) -> anyhow::Result<Vec<Value>> {
    let journal = std::fs::read_to_string(reader.path("journal"))?;
    let lines = journal.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

async fn tools(page: &mut Page) -> anyhow::Result<()> {
    let (reader, volume) = (Reader::new()?, CodeVolume::new()?);
    let github = office(&reader.write("journal", "")?, &["create-issue"])?;
    let toml = page.take("toml", "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n")?
        + &format!("\n[[servers]]\nid = \"github\"\nkind = \"stdio\"\ncommand = {github}\n");
    let gateway = Gateway::start("tools", code_settings(toml, &volume)?).await?;
    let mut session = session_at(&gateway.mcp_url("sandbox"), &[]).await?;
    let python = page.take("python", "from tools.github import")?;
    let code = format!("{python}\nprint(issue['number'], len(both))");
    assert_eq!(python_prints(&mut session, &code).await?, "17 2\n");
    let typescript = page.take("typescript", "tools/github/mod.ts")?;
    let code = format!("{typescript}\nconsole.log(issue.number);");
    let arguments = json!({"code": code, "language": "typescript"});
    let result = session.call("shell_exec", arguments).await?;
    assert_eq!(printed_by(&result)?, "17\n");

    let called = calls(&reader)?;
    let title = |call: &Value| call[1]["title"].as_str().map(str::to_owned);
    let mut titles: Vec<String> = called.iter().filter_map(title).collect();
    titles.sort_unstable();
    let expected = [
        "It does not start",
        "It does not start",
        "a",
        "a",
        "b",
        "b",
        "by its own names",
        "one dictionary will do",
    ];
    assert_eq!(titles, expected);
    ensure!(
        called[0] == json!(["create-issue", {"title": "It does not start", "labels": ["bug"]}])
    );
    Ok(())
}

/// The policy of the page, and personal data as tokens.
async fn policy(page: &mut Page) -> anyhow::Result<()> {
    let (reader, volume) = (Reader::new()?, CodeVolume::new()?);
    let journal = reader.write("journal", "")?;
    let github = office(&journal, &["create_issue", "delete_issue"])?;
    let crm = office(&journal, &["find_customer", "send_mail"])?;
    let files = office(&journal, &["read_file"])?;
    let private = page.inline("tokenization = { enabled = true }")?;
    let toml = page.take("toml", "[servers.sandbox_policy]")?
        + &format!(
            "\n[[servers]]\nid = \"github\"\nkind = \"stdio\"\ncommand = {github}\ntags = [\"crm\"]\n\
             [[servers]]\nid = \"files\"\nkind = \"stdio\"\ncommand = {files}\n\
             [[servers]]\nid = \"crm\"\nkind = \"stdio\"\ncommand = {crm}\n\
             [[servers]]\nid = \"private\"\nkind = \"code\"\n{private}\n"
        );
    let gateway = Gateway::start("policy", code_settings(toml, &volume)?).await?;
    let mut session = session_at(&gateway.mcp_url("sandbox"), &[]).await?;
    let code = "import tools\n\
                tools.call('github', 'create_issue', {'title': 'a'})\n\
                for server, tool in ('github', 'delete_issue'), ('files', 'read_file'):\n\
                \x20   try:\n\
                \x20       tools.call(server, tool, {})\n\
                \x20   except tools.ToolError as error:\n\
                \x20       print(type(error).__name__)";
    // What no pattern allows, and what is not mounted.
    let refused = "ToolDeniedError\nToolNotMountedError\n";
    assert_eq!(python_prints(&mut session, code).await?, refused);

    let mut session = session_at(&gateway.mcp_url("private"), &[]).await?;
    let python = page.take("python", "from tools.crm import")?;
    let shown = python
        .split("# ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let shown: Value = serde_json::from_str(shown.context("what is found")?)?;
    let code = format!("{python}\nimport json; print(json.dumps(customer))");
    let found: Value = serde_json::from_str(&python_prints(&mut session, &code).await?)?;
    assert_eq!(found, shown);
    let sent = json!({"to": "ada@example.org", "text": "Dear Ada Lovelace, ..."});
    assert_eq!(calls(&reader)?.last(), Some(&json!(["send_mail", sent])));
    Ok(())
}
