"""An MCP server on stdio that echoes, and that spoils answers with the answer to another call, mostly of another process.

`spoiling.py FAULTS DIRECTORY`: the faults, separated by commas, take turns; with `none`, nothing is spoiled. All processes
share the directory. Its file `last` has the id and the text of the last call, and each spoiled answer makes its file
`spoiled` one byte longer.
"""

import json
import os
import sys

FAULT_EVERY = 3
FAULTS, DIRECTORY = sys.argv[1:]
LAST = os.path.join(DIRECTORY, "last")
SPOILED = os.path.join(DIRECTORY, "spoiled")
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


def response(identifier, result):
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result})


def result(identifier, text):
    return response(identifier, {"content": [{"type": "text", "text": text}]})


def replace_last(identifier, text):
    """The last call of any process, in whose place this one comes."""
    try:
        with open(LAST, encoding="utf-8") as file:
            last = json.load(file)
    except FileNotFoundError:
        last = None
    own = f"{LAST}.{os.getpid()}"
    with open(own, "w", encoding="utf-8") as file:
        json.dump([identifier, text], file)
    os.replace(own, LAST)
    return last


def next_fault():
    with open(SPOILED, "ab") as file:
        file.write(b".")
        faults = FAULTS.split(",")
        return faults[file.tell() % len(faults)]


def spoil(identifier, text, last):
    """The lines for a call whose answer is spoiled: its own answer is one of them."""
    own = result(identifier, text)
    other = result(*last)
    without_id = json.dumps({"jsonrpc": "2.0", "result": json.loads(other)["result"]})
    with_both = f'{{"id": {json.dumps(identifier)}, {other[1:]}'
    return {
        "surplus": [own, other],
        "before": [other, own],
        "two-ids": [with_both, own],
        "no-id": [without_id, own],
        "cut": [other[:-4], own],
    }[next_fault()]


def answer(message, count):
    identifier, method = message["id"], message["method"]
    if method == "initialize":
        return [response(identifier, {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "spoiling", "version": "1"},
        })]
    if method == "tools/list":
        return [response(identifier, {"tools": [TOOL]})]
    if method != "tools/call":
        return [response(identifier, {})]
    text = message["params"]["arguments"]["text"]
    last = replace_last(identifier, text)
    if last is None or FAULTS == "none" or count % FAULT_EVERY:
        return [result(identifier, text)]
    return spoil(identifier, text, last)


def serve():
    count = 0
    for line in sys.stdin:
        message = json.loads(line)
        count += 1
        if "id" in message and "method" in message:
            print("\n".join(answer(message, count)), flush=True)


serve()
