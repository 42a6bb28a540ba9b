"""An MCP server over stdio whose tools are those that examples in the guides call, with fixed answers.

Usage: office.py JOURNAL TOOL...
Offers the named tools. Each call is a line of JOURNAL: [tool, arguments].
"""

import json
import sys

TEXT = {"type": "string"}

TOOLS = {
    "create_issue": ({"title": TEXT}, "created 17"),
    "create-issue": ({"title": TEXT, "labels": {"type": "array", "items": TEXT}}, {"number": 17}),
    "list_issues": ({}, {"issues": []}),
    "delete_issue": ({"number": {"type": "integer"}}, "deleted"),
    "find_customer": ({"id": {"type": "integer"}}, {"name": "Ada Lovelace", "email": "ada@example.org"}),
    "read_file": ({"path": TEXT}, "text"),
    "send_mail": ({"to": TEXT, "text": TEXT}, "sent"),
}


def listed(name):
    schema = {"type": "object", "properties": TOOLS[name][0]}
    return {"name": name, "description": name, "inputSchema": schema}


def called(name, arguments):
    with open(sys.argv[1], "a", encoding="utf-8") as journal:
        journal.write(json.dumps([name, arguments]) + "\n")
    answer = TOOLS[name][1]
    if isinstance(answer, str):
        return {"content": [{"type": "text", "text": answer}]}
    return {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}


def result_of(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "office", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [listed(name) for name in sys.argv[2:]]}
    if method == "tools/call":
        return called(params["name"], params.get("arguments"))
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = result_of(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
