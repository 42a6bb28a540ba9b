//! Personal data on its way through a run: the model's side sees tokens, and the tools see what they stand for.

use mooring_tests::servers::shapes_command;
use serde_json::{Value, json};

use super::{Rig, printed, run};
use crate::keyed::stdio_table;

const ADA: &str = "ada@example.org";

/// One of each type, with what it would look like if it leaked.
const PERSONAL: [(&str, &str); 4] = [
    ("EMAIL", "grace.hopper@navy.example"),
    ("PHONE", "+1 202-555-0143"),
    ("SSN", "078-05-1120"),
    ("CREDIT_CARD", "4111 1111 1111 1111"),
];

fn table() -> anyhow::Result<String> {
    Ok(stdio_table("shapes", &shapes_command()?))
}

#[tokio::test]
async fn nothing_personal_leaves_and_tools_receive_the_originals() -> anyhow::Result<()> {
    let of_code = "tokenization = { enabled = true }\n";
    let rig = Rig::start(&table()?, of_code).await?;
    let mut session = rig.open("sandbox", ADA).await?;
    // What a tool returns: the code makes it up from pieces, so that its own text holds none of it.
    for (number, (kind, value)) in PERSONAL.into_iter().enumerate() {
        let (left, right) = value.split_at(value.len() / 2);
        let code = format!(
            "import json, tools, sys\nvalue = {left:?} + {right:?}\n\
             answer = tools.shapes.plain(text='to ' + value)\nprint(json.dumps(answer))\n\
             open('/results/{kind}.txt', 'w').write(answer['received']['text'])\n\
             print('on the error stream: ' + value, file=sys.stderr)"
        );
        let answer = run(&mut session, "python", &code).await?;
        let text = answer.to_string();
        assert!(!text.contains(value), "{kind} leaked: {answer}");
        // Tokens of all types of a session are counted together.
        let token = format!("TKN_{kind}_{:06}", number + 1);
        assert!(text.contains(&token), "{answer}");
        let path = format!("/results/{kind}.txt");
        let read = session.call("fs_read", json!({"path": path})).await?;
        let content = read["structuredContent"]["content"]
            .as_str()
            .unwrap_or_default();
        assert_eq!(content, format!("to {token}"), "files hold tokens");
    }
    // A token goes back to the tool as what it stands for: the tool's answer has its length.
    let code = "import tools\nanswer = tools.shapes.plain(text='TKN_EMAIL_000001')\nprint(answer['received']['text'])";
    assert_eq!(
        printed(&mut session, "python", code).await?,
        "TKN_EMAIL_000001"
    );
    let code = "import tools\ntry:\n    tools.shapes.plain(text='x', count='TKN_EMAIL_000001')\nexcept Exception as error:\n    print(error)";
    let error = printed(&mut session, "python", code).await?;
    assert!(
        error.contains("TKN_EMAIL_000001") && !error.contains("hopper"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_token_is_one_sessions_and_outlives_its_gateways() -> anyhow::Result<()> {
    let of_code = "tokenization = { enabled = true }\n";
    let mut rig = Rig::start(&table()?, of_code).await?;
    let code = "import tools\nprint(tools.shapes.plain(text='ada@' + 'one.example')['received']['text'])\n\
                print(tools.shapes.plain(text='bob@' + 'two.example')['received']['text'])";
    let mut session = rig.open("sandbox", ADA).await?;
    let first = printed(&mut session, "python", code).await?;
    assert_eq!(first, "TKN_EMAIL_000001\nTKN_EMAIL_000002");
    for gateway in &mut rig.0.gateways {
        gateway.restart().await?;
    }
    let mut session = rig.open("sandbox", ADA).await?;
    let swapped =
        "import tools\nprint(tools.shapes.plain(text='bob@' + 'two.example')['received']['text'])";
    assert_eq!(
        printed(&mut session, "python", swapped).await?,
        "TKN_EMAIL_000002"
    );
    let mut other = rig.open("sandbox", "eve@example.org").await?;
    assert_eq!(
        printed(&mut other, "python", swapped).await?,
        "TKN_EMAIL_000001"
    );
    // Another user's token means nothing.
    let foreign =
        "import tools\nprint(len(tools.shapes.plain(text='TKN_EMAIL_000002')['received']['text']))";
    assert_eq!(printed(&mut other, "python", foreign).await?, "16");
    Ok(())
}

#[tokio::test]
async fn records_hold_tokens_and_what_is_off_changes_nothing() -> anyhow::Result<()> {
    let rig = Rig::start(&table()?, "tokenization = { enabled = true }\n").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code =
        "import tools\nprint(tools.shapes.plain(text='ada@' + 'one.example')['received']['text'])";
    let answer = run(&mut session, "python", code).await?;
    let run_id = answer["run_id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/servers/sandbox/code/runs/{run_id}");
    let record: Value = super::refused::governed(&rig.0.gateways[0], ADA, &path).await?;
    let text = record.to_string();
    assert!(text.contains("TKN_EMAIL_000001"), "{record}");
    assert!(!text.contains("ada@one.example"), "{record}");

    let rig = Rig::start(&table()?, "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    assert_eq!(
        printed(&mut session, "python", code).await?,
        "ada@one.example"
    );
    Ok(())
}
