//! What a search finds, and in which order.

use super::super::search::{Detail, search};
use super::*;

fn of(server: &str, name: &str, description: &str, tags: &[&str]) -> MountedTool {
    MountedTool {
        server: server.to_owned(),
        description: description.to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..tool(name, json!({"properties": {"issueNumber": {}}}), None)
    }
}

fn mounted() -> Vec<MountedTool> {
    vec![
        of("github", "create-issue", "Opens a ticket.", &["write"]),
        of("github", "listIssues", "Lists issues.", &["read"]),
        of("github", "close_issue", "Closes an issue.", &["write"]),
        of("jira", "create-issue", "Makes an issue.", &[]),
        of("files", "read", "Reads a file, or creates it.", &["disk"]),
    ]
}

fn names(query: &str) -> Vec<String> {
    let found = search(&mounted(), query, Detail::Name, 10);
    let name = |entry: &Value| {
        format!(
            "{}/{}",
            entry["server"].as_str().unwrap(),
            entry["name"].as_str().unwrap()
        )
    };
    found.entries.iter().map(name).collect()
}

#[test]
fn the_exact_name_comes_first_and_the_order_is_always_the_same() {
    for (query, expected) in [
        ("read", &["files/read", "github/listIssues"][..]),
        (
            "create_issue",
            &[
                "github/create-issue",
                "jira/create-issue",
                "files/read",
                "github/close_issue",
                "github/listIssues",
            ],
        ),
        ("jira/create-issue", &["jira/create-issue"]),
        (
            "jira issue",
            &[
                "jira/create-issue",
                "github/close_issue",
                "github/create-issue",
                "github/listIssues",
                "files/read",
            ],
        ),
        ("Issues", &["github/listIssues"]),
        ("ticket", &["github/create-issue"]),
        ("disk", &["files/read"]),
        (
            "number",
            &[
                "files/read",
                "github/close_issue",
                "github/create-issue",
                "github/listIssues",
                "jira/create-issue",
            ],
        ),
        ("nothing at all", &[]),
        ("!?", &[]),
        (
            "",
            &[
                "files/read",
                "github/close_issue",
                "github/create-issue",
                "github/listIssues",
                "jira/create-issue",
            ],
        ),
    ] {
        let found = names(query);
        assert!(!expected.is_empty() || found.is_empty(), "{query}");
        let shown = &found[..expected.len().min(found.len())];
        assert_eq!(shown, expected, "{query}: {found:?}");
    }
    let mut reversed = mounted();
    reversed.reverse();
    assert_eq!(
        search(&mounted(), "issue", Detail::Schema, 9),
        search(&reversed, "issue", Detail::Schema, 9)
    );
}

#[test]
fn an_entry_tells_as_much_as_is_asked_for() {
    let entry = |detail| {
        search(&mounted(), "create issue", detail, 1)
            .entries
            .remove(0)
    };
    let name = entry(Detail::Name);
    assert_eq!(
        name,
        json!({
            "server": "github",
            "name": "create-issue",
            "python": "from tools.github import create_issue",
            "typescript": "import { create_issue } from \"tools/github/create_issue.ts\";",
        })
    );
    let summary = entry(Detail::Summary);
    assert_eq!(summary["summary"], "Opens a ticket.");
    assert_eq!(summary["python_call"], "create_issue(issueNumber=...)");
    assert_eq!(
        summary["typescript_call"],
        "await create_issue({issueNumber?})"
    );
    let schema = entry(Detail::Schema);
    assert_eq!(schema["tags"], json!(["write"]));
    assert!(schema["input_schema"]["properties"].is_object());
    let found = search(&mounted(), "", Detail::Name, 2);
    assert_eq!((found.entries.len(), found.total), (2, 5));
    assert_eq!("schema".parse(), Ok(Detail::Schema));
    assert!("all".parse::<Detail>().is_err());
}

#[test]
fn a_question_finds_what_it_is_about_and_not_what_shares_its_small_words() {
    let mut tools = vec![of(
        "weather",
        "get_weather",
        "Forecast for a city: temperature, wind and rain.",
        &[],
    )];
    tools.extend((0..9).map(|number| {
        let description =
            "Adds what the user is told to the graph, in the order in which it is given.";
        of("memory", &format!("add_{number}"), description, &[])
    }));
    let of_query = |query| search(&tools, query, Detail::Name, 10);
    let found = of_query("what is the temperature in Paris");
    assert_eq!((found.total, found.entries.len()), (1, 1), "{found:?}");
    assert_eq!(found.entries[0]["name"], "get_weather");
    // Of one word of four alike, nothing is said.
    let found = of_query("forecast of rain and wind for the user");
    assert_eq!(found.total, 1, "{found:?}");
    let found = of_query("the price of a share");
    assert_eq!((found.total, found.entries.len()), (0, 0), "{found:?}");
    assert_eq!(found.servers, ["memory", "weather"]);
    assert_eq!(of_query("all the tools").total, tools.len());
}

#[test]
fn a_summary_shows_how_a_tool_is_called_and_what_its_result_has() {
    let calls = |input, output| {
        let tools = [tool("read", input, output)];
        let entry = search(&tools, "read", Detail::Summary, 1).entries.remove(0);
        ["python_call", "typescript_call"].map(|field| entry[field].as_str().unwrap().to_owned())
    };
    let input = json!({
        "properties": {"path": {}, "from": {}, "a-b": {}, "tail": {}},
        "required": ["path", "from"],
    });
    let output = json!({"properties": {"content": {}}, "required": ["content"]});
    assert_eq!(
        calls(input, Some(output)),
        [
            "read(from_=, path=, a_b=..., tail=...) -> {\"content\"}",
            "await read({from, path, \"a-b\"?, tail?}) => {content}"
        ]
    );
    assert_eq!(calls(json!({}), None), ["read()", "await read()"]);
    let many: serde_json::Map<_, _> = (0..99)
        .map(|number| (format!("p{number:02}"), json!({})))
        .collect();
    let [python, typescript] = calls(json!({"properties": many}), None);
    assert!(python.ends_with(", p11=..., ...)"), "{python}");
    assert!(typescript.ends_with(", p11?, ...})"), "{typescript}");
}
