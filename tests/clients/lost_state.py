"""The official Python SDK client, as a model sees it: the contents of results before and after a server has lost its state.

Usage: lost_state.py --url URL --tool NAME
Calls the tool, prints "ready", waits for a line of standard input, calls the tool twice more, and prints one JSON object
as its last act: {"results": [{"texts": ["1"], "structured": {"count": 1}}, ...]}. The SDK holds structured content against
the tool's output schema.
"""

import argparse
import asyncio
import json
import sys

import mcp


async def call(client, tool):
    """One call, with every text of its content."""
    result = await client.call_tool(tool, {})
    return {
        "texts": [content.text for content in result.content],
        "structured": result.structured_content,
    }


async def main():
    """Makes the calls and prints the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--tool", required=True)
    arguments = parser.parse_args()
    async with mcp.Client(arguments.url, read_timeout_seconds=60.0) as client:
        results = [await call(client, arguments.tool)]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(2):
            results.append(await call(client, arguments.tool))
    print(json.dumps({"results": results}))


asyncio.run(main())
