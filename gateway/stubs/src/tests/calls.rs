//! Real programs that call tools: every form of a call, every failure, one by one and side by side.

use super::bridge::{answering, deno, print_lines, python, together};
use super::*;

const EVERY_IMPORT: &str = r#"
import os, sys, time
before = set(sys.modules)
import tools
loaded = sorted(name for name in set(sys.modules) - before)
assert not {"asyncio", "inspect", "dataclasses", "typing", "json", "re", "threading"} & set(loaded), loaded
count = 0
for server in sorted(os.listdir(os.environ["MOORING_TOOLS"])):
    directory = os.path.join(os.environ["MOORING_TOOLS"], server)
    if not os.path.isdir(directory):
        continue
    package = getattr(tools, server)
    for file in sorted(os.listdir(directory)):
        name, extension = os.path.splitext(file)
        if extension != ".py" or name == "__init__":
            continue
        assert name in dir(package), name
        function, awaited = getattr(package, name), getattr(package, name + "_async")
        assert callable(function) and function.__name__ == name and awaited.__name__ == name + "_async"
        assert sys.modules[f"tools.{server}.{name}"].__dict__[name] is function
        count += 1
print(count)
import skills
print(skills.greet.greet("a"))
from skills import greet
from skills.greet import greet
print(greet("b"), dir(skills))
try:
    from skills import nothing
except ImportError as error:
    print("no", error.name)
"#;

#[test]
fn every_stub_of_python_imports_and_little_is_loaded_for_it() {
    let tools = corpus::tools();
    let trees = Trees::new(&tools, StubFormat::Python);
    let ran = python(&trees, EVERY_IMPORT, answering);
    let count = tools.len().to_string();
    assert_eq!(
        print_lines(&ran),
        [&count, "hello a", "hello b ['greet']", "no skills"]
    );
    assert!(ran.calls.is_empty());
}

/// The orders in which a function and the module of its name can come into a package.
const ORDERS: &[&str] = &[
    "import tools\nf = tools.github.create_issue",
    "from tools.github import create_issue as f",
    "import tools.github.create_issue\nf = tools.github.create_issue",
    "import tools.github.create_issue as f",
    "from tools.github.create_issue import create_issue as f",
    "from tools.github.create_issue import create_issue_async\nimport tools\nf = tools.github.create_issue",
    "import tools\ntools.github.create_issue\nimport tools.github.create_issue\nf = tools.github.create_issue",
    "from tools.github import create_issue_async\nfrom tools import github\nf = github.create_issue",
    "import importlib\nimportlib.import_module('tools.github.create_issue')\nimport tools\nf = tools.github.create_issue",
    "from tools.github import *\nf = create_issue",
];

#[test]
fn a_function_is_called_whatever_was_imported_before_it() {
    let trees = Trees::new(&[corpus::create_issue()], StubFormat::Python);
    for order in ORDERS {
        let program = format!(
            "{order}\nimport tools\nassert f is tools.github.create_issue\nprint(f(title='t')['tool'])\n"
        );
        let ran = python(&trees, &program, answering);
        assert_eq!(ran.printed(), "create-issue\n", "{order}");
    }
}

const PYTHON_FORMS: &str = r#"
import asyncio, inspect, json, tools
from tools.github import create_issue, create_issue_async, names
def show(value):
    print(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
show(create_issue(title="é😀"))
show(tools.github.create_issue(title="b", body=None))
show(create_issue({"title": "c"}))
show(tools.call("github", "create-issue", {"title": "d"}))
show(tools.call("github", "create-issue"))
show(names(user_name="a", user_name_2="b", user_name_3="c", class_="d", arg_1st="e", self="f", others="g"))
show(asyncio.run(create_issue_async(title="f")))
show(asyncio.run(tools.call_async("github", "create-issue", {"title": "g"})))
print(list(inspect.signature(create_issue).parameters), inspect.iscoroutinefunction(create_issue_async))
print(create_issue.__doc__.splitlines()[0])
for wrong in (lambda: create_issue(), lambda: create_issue(title="a", no=1), lambda: create_issue("a"),
              lambda: create_issue({"title": "a"}, body="b")):
    try:
        wrong()
    except TypeError:
        print("TypeError")
"#;

#[test]
fn python_calls_in_every_form() {
    let trees = Trees::new(&corpus::tools(), StubFormat::Python);
    let ran = python(&trees, PYTHON_FORMS, answering);
    let call = |arguments: &str| {
        format!("{{\"arguments\":{arguments},\"server\":\"github\",\"tool\":\"create-issue\"}}")
    };
    let names = r#"{"arguments":{"1st":"e","class":"d","others":"g","self":"f","user-name":"b","user.name":"c","user_name":"a"},"server":"github","tool":"names"}"#;
    assert_eq!(
        print_lines(&ran),
        [
            &call(r#"{"title":"é😀"}"#),
            &call(r#"{"body":null,"title":"b"}"#),
            &call(r#"{"title":"c"}"#),
            &call(r#"{"title":"d"}"#),
            &call("{}"),
            names,
            &call(r#"{"title":"f"}"#),
            &call(r#"{"title":"g"}"#),
            "['title', 'assignee', 'body', 'labels', 'priority'] True",
            "Create an issue",
            "TypeError",
            "TypeError",
            "TypeError",
            "TypeError",
        ]
    );
    let ids: Vec<u64> = ran
        .calls
        .iter()
        .map(|call| call["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
}

const DENO_FORMS: &str = r#"
import { create_issue } from "tools/github/mod.ts";
import { create_issue as direct } from "tools/github/create_issue.ts";
import * as tools from "tools";
import { call } from "tools";
import * as github from "tools/github";
import * as skills from "skills";
import { greet } from "skills/greet.ts";
const show = (value: any) => console.log(JSON.stringify({ arguments: value.arguments, tool: value.tool }));
show(await create_issue({ title: "é😀" }));
show(await direct({ title: "b", body: null }));
show(await tools.github.create_issue({ title: "c" }));
show(await call("github", "create-issue", { title: "d" }));
show(await call("github", "create-issue"));
show(await github.create_issue({ title: "f" }));
show(await (await import("tools/github/mod.ts")).create_issue({ title: "g" }));
console.log(greet("a"), skills.greet.greet("b"), Object.keys(tools.github).includes("create_issue"));
"#;

#[test]
fn deno_calls_in_every_form_and_ends_by_itself() {
    let trees = Trees::new(&corpus::tools(), StubFormat::TypeScript);
    let ran = deno(&trees, DENO_FORMS, answering);
    let call = |arguments: &str| format!("{{\"arguments\":{arguments},\"tool\":\"create-issue\"}}");
    assert_eq!(
        print_lines(&ran),
        [
            &call(r#"{"title":"é😀"}"#),
            &call(r#"{"title":"b","body":null}"#),
            &call(r#"{"title":"c"}"#),
            &call(r#"{"title":"d"}"#),
            &call("{}"),
            &call(r#"{"title":"f"}"#),
            &call(r#"{"title":"g"}"#),
            "hello a hello b true",
        ]
        .map(str::to_owned)
        .map(|line| line.replace(
            "\"title\":\"b\",\"body\":null",
            "\"body\":null,\"title\":\"b\""
        ))
    );
}

#[test]
fn python_calls_side_by_side_from_threads_and_tasks() {
    let trees = Trees::new(&[corpus::create_issue()], StubFormat::Python);
    let program = r#"
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
from tools.github import create_issue, create_issue_async
def one(number):
    return create_issue(title=str(number))["arguments"]["title"] == str(number)
with ThreadPoolExecutor(50) as pool:
    print(sum(pool.map(one, range(50))))
async def main():
    answers = await asyncio.gather(*[create_issue_async(title=str(number)) for number in range(50)])
    return [answer["arguments"]["title"] for answer in answers] == [str(number) for number in range(50)]
print(asyncio.run(main()))
def loop(numbers):
    async def both():
        return await asyncio.gather(*[create_issue_async(title=str(number)) for number in numbers])
    return [answer["arguments"]["title"] for answer in asyncio.run(both())] == [str(number) for number in numbers]
with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(loop, [range(25), range(25, 50)])))
"#;
    let ran = python(&trees, program, together(50));
    assert_eq!(print_lines(&ran), ["50", "True", "[True, True]"]);
}

#[test]
fn deno_calls_side_by_side() {
    let trees = Trees::new(&[corpus::create_issue()], StubFormat::TypeScript);
    let program = r#"
import { create_issue } from "tools/github/mod.ts";
const numbers = Array.from({ length: 50 }, (_, number) => String(number));
const answers: any[] = await Promise.all(numbers.map((title) => create_issue({ title })));
console.log(answers.every((answer, index) => answer.arguments.title === numbers[index]));
"#;
    let ran = deno(&trees, program, together(50));
    assert_eq!(print_lines(&ran), ["true"]);
}

#[test]
fn files_are_where_the_session_has_them() {
    let trees = Trees::new(&[], StubFormat::Python);
    let program = r#"
import os, tools
print(tools.write_file("/scratch/deep/file.txt", "h\u00e9llo"), tools.read_file("/scratch/deep/file.txt"))
print(tools.list_dir(), tools.ROOTS[2] == os.environ["MOORING_SCRATCH"])
"#;
    assert_eq!(
        print_lines(&python(&trees, program, answering)),
        ["6 héllo", "['deep'] True"]
    );
    let program = r#"
import { listDir, readFile, ROOTS, writeFile } from "tools";
console.log(writeFile("/results/deep/file.txt", "h\u00e9llo"), readFile("/results/deep/file.txt"));
console.log(listDir("/results").join(), ROOTS[2] === Deno.env.get("MOORING_SCRATCH"));
"#;
    assert_eq!(
        print_lines(&deno(&trees, program, answering)),
        ["6 héllo", "deep true"]
    );
}
