//! docs/governance.md: its commands at a running gateway, and the answer to a replay.

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::code::CodeVolume;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::{Page, inline_code};
use mooring_tests::printed::{Form, commands, form_of, same_json};
use mooring_tests::reader::Reader;
use serde_json::json;

use super::{NOT_RUN, office, session_at};

/// As many calls as the number in a file, which it changes: a replay makes one more than the record has.
const CODE: &str = "import os, tools\n\
                    again = os.path.exists('/results/again')\n\
                    open('/results/again', 'w').close()\n\
                    for title in ['first', 'second'][:1 + again]:\n\
                    \x20   try:\n\
                    \x20       tools.call('github', 'create_issue', {'title': title})\n\
                    \x20   except tools.ToolError:\n\
                    \x20       pass";

#[tokio::test]
async fn the_examples_of_governance_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/governance.md")?;
    let (mut reader, volume) = (Reader::new()?, CodeVolume::new()?);
    let github = office(&reader.write("journal", "")?, &["create_issue"])?;
    let toml = format!(
        "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\nskills_require_approval = true\n\
         [[servers]]\nid = \"github\"\nkind = \"stdio\"\ncommand = {github}\n"
    );
    reader.write(".config/mooring/mooring.toml", &toml)?;
    let settings = Settings::toml(toml).env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    );
    let gateway = Gateway::start("governed", settings).await?;
    reader.set(
        "MOORING_LISTEN_ADDRESS",
        format!("127.0.0.1:{}", gateway.port()),
    );
    let mut session = session_at(&gateway.mcp_url("sandbox"), &[]).await?;
    let failing = json!({"code": "raise SystemExit(3)", "language": "python"});
    session.call("shell_exec", failing).await?;

    page.fill("https://gateway.example", gateway.url(""))?;
    let block = page.take("console", "mooring runs list")?;
    let [list, show, skills] = &commands(&block)[..] else {
        anyhow::bail!("{block}")
    };
    let listed = reader.run(list).await?;
    let id = listed
        .lines()
        .nth(1)
        .and_then(|line| line.split(' ').next());
    let id = id.with_context(|| listed.clone())?;
    let printed = show.rsplit(' ').next().context("an id")?;
    assert_eq!(form_of(printed), form_of(id));
    let shown = reader.run(&show.replace(printed, id)).await?;
    ensure!(
        shown.contains("SystemExit(3)") && shown.contains("failed"),
        "{shown}"
    );
    reader.run(skills).await?;

    let arguments = json!({"code": CODE, "language": "python"});
    let ran = session.call("shell_exec", arguments).await?;
    let id = ran["_meta"]["mooring/run"]["run_id"].as_str();
    let id = id.with_context(|| ran.to_string())?;
    let replay = page.inline("mooring runs replay RUN")?;
    let replay = replay.replace("RUN", id);
    // A replay that differs ends with 1.
    let answer = reader
        .run(&format!("{replay} --json || [ $? = 1 ]"))
        .await?;
    let printed = serde_json::from_str(&page.take("json", "\"replay\"")?)?;
    let form = Form {
        varying: &[],
        shortened: &["run", "answer"],
    };
    same_json(&printed, &serde_json::from_str(&answer)?, &form)?;
    commands_of_the_table(&page, &reader, &gateway, id).await?;
    page.finish(&NOT_RUN)
}

/// Each command of the page's table, in its order, then each GET of the interface.
async fn commands_of_the_table(
    page: &Page,
    reader: &Reader,
    gateway: &Gateway,
    run: &str,
) -> anyhow::Result<()> {
    reader.write("report.py", "def report():\n    return 17\n")?;
    let first = async |path: &str, list: &str| -> anyhow::Result<String> {
        let url = gateway.url(&format!("/servers/sandbox/{path}"));
        let answer = HttpClient::default().get(&url).await?.json().await?;
        let id = answer[list][0]["id"].as_str().map(str::to_owned);
        id.with_context(|| format!("{path}: {answer}"))
    };
    let table = page.section("## Commands")?;
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| `mooring "))
        .collect();
    ensure!(rows.len() >= 9, "{rows:?}");
    for row in rows {
        let command = row.split('`').nth(1).context("a command")?;
        let approval = match command.contains("APPROVAL") {
            true => first("skills/approvals?status=pending", "approvals").await?,
            false => String::new(),
        };
        let skill = match command.ends_with(" ID") {
            true => first("skills", "skills").await?,
            false => String::new(),
        };
        let command = [
            ("RUN", run),
            ("NAME", "report"),
            ("FILE", "report.py"),
            ("APPROVAL", &*approval),
            (" ID", &format!(" {skill}")),
        ]
        .iter()
        .fold(command.to_owned(), |command, (printed, real)| {
            command.replace(printed, real)
        });
        // A replay that differs ends with 1.
        let differs = if command.contains("replay") {
            " || [ $? = 1 ]"
        } else {
            ""
        };
        ensure!(
            !reader.run(&format!("{command}{differs}")).await?.is_empty(),
            "{command}"
        );
    }
    let interface = inline_code(page.text());
    let mut asked = 0;
    for path in interface
        .iter()
        .filter_map(|code| code.strip_prefix("GET "))
    {
        let path = path
            .replace("{id}", "sandbox")
            .replace("{run}", run)
            .replace("{name}", "report");
        let reply = HttpClient::default().get(&gateway.url(&path)).await?;
        ensure!(reply.status == 200, "{path}: {}", reply.status);
        asked += 1;
    }
    ensure!(asked >= 7, "only {asked} requests were found");
    Ok(())
}
