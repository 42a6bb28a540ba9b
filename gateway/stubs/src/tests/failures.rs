//! Calls that fail, and bridges that end: what a program is told, in both languages.

use super::bridge::{Deed, answering, deno, echo, frame, print_lines, python, together};
use super::*;

/// Every kind of failure, and one that is not known.
const KINDS: [(&str, &str); 12] = [
    ("tool_error", "ToolError"),
    ("not_mounted", "ToolNotMountedError"),
    ("denied", "ToolDeniedError"),
    ("limit", "ToolLimitError"),
    ("invalid", "ToolInvalidError"),
    ("timeout", "ToolTimeoutError"),
    ("unavailable", "ToolUnavailableError"),
    ("outcome_unknown", "ToolOutcomeUnknownError"),
    ("recursion", "ToolRecursionError"),
    ("diverged", "ToolDivergedError"),
    ("internal", "ToolInternalError"),
    ("new", "ToolError"),
];

/// Fails with the kind that the tool is called by; words that nobody asked for come first.
fn failing(call: &Value) -> Deed {
    let error = json!({"kind": call["tool"], "message": format!("{} it was", call["tool"].as_str().unwrap())});
    let stray = [
        json!({"id": 999, "result": 1}),
        json!({"id": "x", "result": 1}),
        json!({"id": [1], "result": 1}),
        json!({}),
        json!([1]),
        json!(null),
    ];
    let mut bytes: Vec<u8> = stray.iter().flat_map(frame).collect();
    bytes.extend(frame(&json!({"id": call["id"], "error": error})));
    Deed::Write(bytes)
}

fn expected_failures() -> Vec<String> {
    KINDS
        .map(|(kind, name)| format!("{name} {kind} some-server {kind} {kind} it was"))
        .to_vec()
}

#[test]
fn failures_are_exceptions_of_python() {
    let trees = Trees::new(&[], StubFormat::Python);
    let kinds = KINDS.map(|(kind, _)| kind);
    let program = format!(
        r#"
import tools
for kind in {kinds:?}:
    try:
        tools.call("some-server", kind)
    except tools.ToolError as error:
        assert str(error) == error.message
        print(type(error).__name__, error.kind, error.server, error.tool, error.message)
"#
    );
    assert_eq!(
        print_lines(&python(&trees, &program, failing)),
        expected_failures()
    );
}

#[test]
fn failures_are_errors_of_deno() {
    let trees = Trees::new(&[], StubFormat::TypeScript);
    let kinds = KINDS.map(|(kind, _)| kind);
    let program = format!(
        r#"
import {{ call, ToolError }} from "tools";
for (const kind of {kinds:?}) {{
  await call("some-server", kind).catch((error: ToolError) => {{
    console.log(error instanceof ToolError ? error.name : "?", error.kind, error.server, error.tool, error.message);
  }});
}}
"#
    );
    assert_eq!(
        print_lines(&deno(&trees, &program, failing)),
        expected_failures()
    );
}

/// Closes the bridge at the first call of a tool `close`; lies about a length at `lie`, writes no JSON at `noise`.
fn breaking(call: &Value) -> Deed {
    match call["tool"].as_str().unwrap() {
        "close" => Deed::Close,
        "lie" => Deed::Write(vec![0xff; 64]),
        "noise" => Deed::Write([&3_u32.to_be_bytes()[..], b"{x}"].concat()),
        _ => Deed::Keep(echo(call)),
    }
}

#[test]
fn a_bridge_that_ends_fails_what_is_open_and_what_comes_after() {
    for tool in ["close", "lie", "noise"] {
        let trees = Trees::new(&[], StubFormat::Python);
        let program = format!(
            r#"
import asyncio, tools
async def main():
    calls = [tools.call_async("s", "waits"), tools.call_async("s", "{tool}")]
    for error in await asyncio.gather(*calls, return_exceptions=True):
        print(type(error).__name__)
asyncio.run(main())
try:
    tools.call("s", "after")
except tools.ToolError as error:
    print(type(error).__name__)
"#
        );
        let expected = [
            "ToolOutcomeUnknownError",
            "ToolOutcomeUnknownError",
            "ToolUnavailableError",
        ];
        assert_eq!(
            print_lines(&python(&trees, &program, breaking)),
            expected,
            "{tool}"
        );
        let program = format!(
            r#"
import {{ call }} from "tools";
for (const settled of await Promise.allSettled([call("s", "waits"), call("s", "{tool}")])) {{
  console.log((settled as PromiseRejectedResult).reason.name);
}}
await call("s", "after").catch((error: Error) => console.log(error.name));
"#
        );
        assert_eq!(
            print_lines(&deno(&trees, &program, breaking)),
            expected,
            "{tool}"
        );
    }
}

/// Half a mebibyte that a frame adds to.
const AT_THE_LIMIT: &str = r#"
frame = len('{"id":1,"server":"s","tool":"t","arguments":{"x":""}}')
"#;

#[test]
fn frames_are_as_long_as_they_may_be_and_no_longer() {
    let trees = Trees::new(&[], StubFormat::Python);
    let program = format!(
        r#"
import tools{AT_THE_LIMIT}
print(len(tools.call("s", "t", {{"x": "a" * (1024 * 1024 - frame)}})))
try:
    tools.call("s", "t", {{"x": "a" * (1024 * 1024 - frame + 1)}})
except tools.ToolLimitError as error:
    print(error.kind)
for wrong in ({{"x": float("nan")}}, {{"x": "\ud800"}}, {{"x": object()}}):
    try:
        tools.call("s", "t", wrong)
    except (TypeError, ValueError) as error:
        print("refused")
print(len(tools.call("s", "t", {{}})))
"#
    );
    // The longest answer there is.
    let result_bytes = 8 * 1024 * 1024 - "{\"id\":1,\"result\":\"\"}".len();
    let long =
        |call: &Value| Deed::Answer(json!({"id": call["id"], "result": "r".repeat(result_bytes)}));
    let ran = python(&trees, &program, long);
    let length = result_bytes.to_string();
    assert_eq!(
        print_lines(&ran),
        [&length, "limit", "refused", "refused", "refused", &length]
    );
    assert_eq!(ran.calls[0].to_string().len(), 1024 * 1024);
    let program = r#"
import { call } from "tools";
const frame = '{"id":1,"server":"s","tool":"t","arguments":{"x":""}}'.length;
console.log((await call("s", "t", { x: "a".repeat(1024 * 1024 - frame) })).length);
await call("s", "t", { x: "a".repeat(1024 * 1024 - frame + 1) }).catch((error: any) => console.log(error.kind));
console.log((await call("s", "t", {})).length);
"#;
    let ran = deno(&trees, program, long);
    assert_eq!(print_lines(&ran), [&length, "limit", &length]);
    assert_eq!(ran.calls[0].to_string().len(), 1024 * 1024);
}

#[test]
fn a_forked_process_is_told_that_it_cannot_call() {
    let trees = Trees::new(&[], StubFormat::Python);
    let program = r#"
import os, tools
tools.call("s", "t")
child = os.fork()
if child == 0:
    try:
        tools.call("s", "t")
    except tools.ToolUnavailableError as error:
        os._exit(7 if "fork" in str(error) else 8)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(tools.call("s", "t")["tool"])
"#;
    assert_eq!(print_lines(&python(&trees, program, answering)), ["7", "t"]);
}

#[test]
fn without_a_bridge_the_reason_is_said() {
    let trees = Trees::new(&[], StubFormat::Python);
    let program = "import os, tools\nos.close(3)\ntry:\n    tools.call('s', 't')\nexcept tools.ToolUnavailableError as error:\n    print(error)\n";
    let expected = "tools cannot be called here: this process was started without descriptor 3\n";
    assert_eq!(python(&trees, program, answering).printed(), expected);
    let program = "import os, tools\nos.dup2(os.open('/dev/null', os.O_RDWR), 3)\ntry:\n    tools.call('s', 't')\nexcept tools.ToolUnavailableError as error:\n    print(error)\n";
    assert_eq!(python(&trees, program, answering).printed(), expected);
}

#[test]
fn an_awaited_call_that_is_given_up_leaves_the_others_alone() {
    let trees = Trees::new(&[], StubFormat::Python);
    let program = r#"
import asyncio, tools
async def main():
    first = asyncio.ensure_future(tools.call_async("s", "first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    print((await tools.call_async("s", "second"))["tool"])
    try:
        await first
    except asyncio.CancelledError:
        print("cancelled")
asyncio.run(main())
"#;
    assert_eq!(
        print_lines(&python(&trees, program, together(2))),
        ["second", "cancelled"]
    );
}
