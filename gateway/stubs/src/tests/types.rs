//! What type checkers say of the stubs, and of calls of them.
//!
//! A checker takes seconds to start, so each looks at everything at once.

use super::*;

/// Calls that fit, and lines marked `# no` that do not.
const PYTHON: &str = r#"
import asyncio
import tools
from tools.github import create_issue, create_issue_async
from tools.github.shapes import shapes
from tools.github import names, tree, text, nothing, empty, choice, closed
from tools.odd import class_, list_, A_B, same, same_async

issue = create_issue(title="t", labels=["a"], priority="low", assignee={"login": "me"})
number: int = issue["number"]
login: str = issue["author"]["login"]
create_issue({"title": "t"})
create_issue(title="t", body=None)
tools.github.create_issue(title="t")
tools.call("github", "create-issue", {"title": "t"})
async def main() -> int:
    both = await asyncio.gather(create_issue_async(title="a"), tools.github.create_issue_async(title="b"))
    return both[0]["number"]
shapes(pair=[1, "a"], both={"x": 1, "y": "b"}, map={"a": [1.5]}, more=3)
names(user_name_2="a", class_="b", arg_1st="c")
tree(value=1.5, children=[{"value": 2}], json={"a": ["b", None]})
word: str = text(anything=1)
nothing(anything=1)
result: None = empty()  # void
choice(a="x")
closed(only=True)
whole: int = class_(x=1) + list_() + A_B() + same()
try:
    same()
except tools.ToolDeniedError as error:
    reason: str = error.message + error.kind

create_issue(title=1)  # no
create_issue()  # no
create_issue(title="t", unknown=1)  # no
create_issue(title="t", priority="medium")  # no
create_issue(title="t", labels="a")  # no
create_issue(title="t", assignee={"id": 3})  # no
issue["nothing"]  # no
wrong: str = issue["number"]  # no
closed(other=1)  # no
shapes(pair=[1, "a"], both={"x": 1})  # no
shapes(pair=[1, "a"], both={"x": 1, "y": "b"}, more="x")  # no
tree(value=1, children=[{"value": "x"}])  # no
tools.github.no_such_tool()  # no
tools.no_such_server  # no
async def wrong_main() -> str:
    return await same_async()  # no
"#;

/// The same in TypeScript. A line that does not fit follows its mark.
const TYPESCRIPT: &str = r#"
import { create_issue } from "tools/github/create_issue.ts";
import { names, tree, nothing, empty, choice, closed, text } from "tools/github/mod.ts";
import { shapes } from "tools/github/shapes.ts";
import * as odd from "tools/odd";
import * as tools from "tools";
import { call, ToolDeniedError } from "tools";
import * as skills from "skills";
import { greet } from "skills/greet.ts";

const issue = await create_issue({ title: "t", labels: ["a"], priority: "low", assignee: { login: "me" } });
const number: number = issue.number;
const login: string = issue.author.login;
await create_issue({ title: "t", body: null });
await tools.github.create_issue({ title: "t" });
await call("github", "create-issue", { title: "t" });
const both = await Promise.all([create_issue({ title: "a" }), tools.github.create_issue({ title: "b" })]);
const first: number = both[0].number;
const shape = await shapes({ pair: [1, "a"], both: { x: 1, y: "b" }, map: { a: [1.5] }, more: 3 });
const kind: "a" | "b" = shape.kind;
await names({ "user-name": "a", class: "b", "1st": "c" });
await tree({ value: 1.5, children: [{ value: 2 }], json: { a: ["b", null] } });
const word: string = await text({ anything: 1 });
await nothing({ anything: 1 });
const none: null = await empty();
await choice({ a: "x" });
await closed({ only: true });
const whole: number = await odd.class_({ x: 1 }) + await odd.list_() + await odd.A_B() + await odd.same();
const hello: string = greet("a") + skills.greet.greet("b");
const denied: string = new ToolDeniedError("a", "b", "c", "denied").message;
console.log(number, login, first, kind, word, none, whole, hello, denied);

// @ts-expect-error a number is no title
await create_issue({ title: 1 });
// @ts-expect-error the title is missing
await create_issue({});
// @ts-expect-error and so is everything
await create_issue();
// @ts-expect-error there is no such argument
await create_issue({ title: "t", unknown: 1 });
// @ts-expect-error there is no such priority
await create_issue({ title: "t", priority: "medium" });
// @ts-expect-error labels are many
await create_issue({ title: "t", labels: "a" });
// @ts-expect-error nor is there such a result
issue.nothing;
// @ts-expect-error a number is no text
const wrong: string = issue.number;
// @ts-expect-error the pair is the wrong way round
await shapes({ pair: ["a", 1], both: { x: 1, y: "b" } });
// @ts-expect-error y is missing
await shapes({ pair: [1, "a"], both: { x: 1 } });
// @ts-expect-error deep down a text is no number
await tree({ value: 1, children: [{ value: "x" }] });
// @ts-expect-error there is no such tool
await tools.github.no_such_tool();
// @ts-expect-error there is no such server
tools.no_such_server;
// @ts-expect-error neither of the two
await choice({ c: 1 });
console.log(wrong);
"#;

#[test]
fn mypy_takes_every_stub_and_calls_that_fit_and_no_others() {
    let trees = Trees::new(&corpus::tools(), StubFormat::Python);
    trees.program("program.py", PYTHON);
    let checked = clean(&installed("python"), trees.path())
        .args([
            "-m",
            "mypy",
            "--strict",
            "--no-color-output",
            "--no-error-summary",
            "--no-incremental",
        ])
        .args(["--explicit-package-bases", "-p", "tools", "-m", "program"])
        .output()
        .unwrap();
    let said = words(&checked);
    let lines = PYTHON.lines().enumerate();
    let marked = lines.filter(|(_, line)| line.ends_with("# no"));
    let wanted: Vec<String> = marked
        .map(|(index, _)| format!("program.py:{}", index + 1))
        .collect();
    let errors = said.lines().filter_map(|line| line.split_once(": error:"));
    let mut found: Vec<&str> = errors.map(|(place, _)| place).collect();
    found.dedup();
    assert_eq!(found, wanted, "{said}");
}

#[test]
fn deno_takes_every_stub_and_calls_that_fit_and_no_others() {
    let trees = Trees::new(&corpus::tools(), StubFormat::TypeScript);
    let program = trees.program("program.ts", TYPESCRIPT);
    let stubs = made(&corpus::tools(), StubFormat::TypeScript);
    let stubs = stubs.iter().filter(|file| file.path.ends_with(".ts"));
    let checked = clean(&installed("deno"), trees.path())
        .args([
            "check",
            "--quiet",
            "--no-config",
            "--no-remote",
            "--import-map=tools/_import_map.json",
        ])
        .arg(program)
        .args(stubs.map(|file| trees.path().join("tools").join(&file.path)))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", words(&checked));
}
