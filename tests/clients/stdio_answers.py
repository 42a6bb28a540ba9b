"""The official Python SDK client, which starts its server itself and speaks to it over standard input and output.

Usage: stdio_answers.py [--mode legacy|auto] [--env NAME=VALUE]... --calls JSON -- COMMAND [ARGUMENT]...
Lists the tools, makes the calls of a JSON array of {"name": ..., "arguments": ...} one after the other, closes, and
prints one JSON object as its last act:
{"tools": [NAME, ...], "answers": [{"is_error": false, "structured": {...}}, ...], "ended": [STATUS, ...]}
`ended` holds the exit status of every process that was started, negative where a signal ended it.
An answer that the SDK refuses ends the script with its exception.
"""

import argparse
import asyncio
import json

import mcp
from mcp.client import stdio

# How long one request may take before it is an error, in seconds.
REQUEST_WITHIN_SECONDS = 60.0

# How long the server may take to end after its input, in seconds, before the SDK ends it by a signal.
stdio.PROCESS_TERMINATION_TIMEOUT = 60.0


def remember_processes():
    """Returns a list that every process which the SDK starts from now on is in."""
    started = []
    start = stdio._create_platform_compatible_process

    async def start_and_remember(*arguments, **named):
        process = await start(*arguments, **named)
        started.append(process)
        return process

    stdio._create_platform_compatible_process = start_and_remember
    return started


async def main():
    """Makes the calls and prints the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["legacy", "auto"], default="legacy")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--calls", type=json.loads, required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    command, *more = arguments.command
    server = stdio.StdioServerParameters(
        command=command,
        args=more,
        env=dict(variable.split("=", 1) for variable in arguments.env),
    )
    started = remember_processes()
    answers = []
    async with mcp.Client(
        stdio.stdio_client(server),
        mode=arguments.mode,
        read_timeout_seconds=REQUEST_WITHIN_SECONDS,
    ) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for call in arguments.calls:
            result = await client.call_tool(call["name"], call["arguments"])
            answers.append({"is_error": result.is_error, "structured": result.structured_content})
    ended = [process.returncode for process in started]
    print(json.dumps({"tools": tools, "answers": answers, "ended": ended}))


asyncio.run(main())
