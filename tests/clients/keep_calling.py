"""Any Python SDK client, used as its documentation shows, that keeps calling and tells what its user sees.

Usage: keep_calling.py --sdk mcp|fastmcp [--delay-ms T]
Each line of standard input is a JSON object of names and URLs: the sessions that are open from then on, and the program
ends with its input. The first line of the output is {"version": VERSION}. Each session calls `slow_increment`, which counts at once and answers after T ms, again and again.
Each outcome becomes a line: {"session": NAME, "seconds": 0.3} with "count" and "mark" (of the result's `_meta`; null
if it has none), or with "error", the text of the exception. A client that fails a few times in a row is opened again, as
by its user; the line for that has "is_reopened".
"""

import argparse
import asyncio
import contextlib
import functools
import importlib
import importlib.metadata
import json
import sys
import time

# How often a client fails before it is taken for broken, and the pause after each failure.
FAILURES_MAX = 20
PAUSE_SECONDS = 0.1

MARK = "mooring/rebound"


def mcp_client(url):
    """A client of `mcp`, 2.x if it has its `Client`, else 1.x."""
    mcp = importlib.import_module("mcp")
    return mcp.Client(url) if hasattr(mcp, "Client") else mcp_1_session(mcp, url)


@contextlib.asynccontextmanager
async def mcp_1_session(mcp, url):
    """A session of `mcp` 1.x."""
    http = importlib.import_module("mcp.client.streamable_http")
    async with http.streamable_http_client(url) as (read, write, _), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


def fastmcp_client(url):
    """A client of `fastmcp`."""
    return importlib.import_module("fastmcp").Client(url)


def say(name, began, **what):
    """Prints one line."""
    seconds = round(time.monotonic() - began, 3)
    print(json.dumps({"session": name, "seconds": seconds, **what}), flush=True)


def outcome_of(result):
    """The count and the mark of a result; both major versions of `mcp` are understood."""
    content = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    if content is None:
        raise RuntimeError(f"a result without a count: {result}")
    return {"count": content["count"], "mark": (result.meta or {}).get(MARK)}


async def call_until_broken(name, client, delay_ms, is_open):
    """Calls until the client has failed a few times in a row, or its session is closed."""
    call = getattr(client, "call_tool_mcp", None) or client.call_tool
    failures = 0
    while failures < FAILURES_MAX and is_open():
        began = time.monotonic()
        try:
            result = await call("slow_increment", {"delay_ms": delay_ms})
            if not is_open():
                return
            say(name, began, **outcome_of(result))
            failures = 0
        except Exception as error:  # Whatever the SDK raises is what its user sees.
            if not is_open():
                return
            say(name, began, error=describe(error))
            failures += 1
            await asyncio.sleep(PAUSE_SECONDS)


def describe(error):
    """The text of an exception, or of those in a group."""
    inner = getattr(error, "exceptions", None)
    if inner:
        return "; ".join(map(describe, inner))
    return f"{type(error).__name__}: {error}"


async def keep_calling(name, url, connect, delay_ms, is_open):
    """One session until it is closed, opened again where its client broke."""
    while is_open():
        try:
            async with connect(url) as client:
                await call_until_broken(name, client, delay_ms, is_open)
        except Exception as error:  # The client's own tasks may end it.
            if is_open():
                say(name, time.monotonic(), error=describe(error))
            await asyncio.sleep(PAUSE_SECONDS)
        if is_open():
            say(name, time.monotonic(), is_reopened=True)


async def main():
    """Opens the sessions of each line of the input, in place of those before."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sdk", choices=["mcp", "fastmcp"], required=True)
    parser.add_argument("--delay-ms", type=int, default=300)
    arguments = parser.parse_args()
    connect = {"mcp": mcp_client, "fastmcp": fastmcp_client}[arguments.sdk]
    # Imports take seconds, which are not the session's.
    importlib.import_module(arguments.sdk)
    print(json.dumps({"version": importlib.metadata.version(arguments.sdk)}), flush=True)
    tasks, generation = set(), 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        for task in tasks:
            # Some clients do not end before a server that is gone has answered.
            task.cancel()
        generation += 1
        for name, url in json.loads(line).items():
            is_open = functools.partial(lambda own: own == generation, generation)
            calling = keep_calling(name, url, connect, arguments.delay_ms, is_open)
            tasks.add(asyncio.create_task(calling))


asyncio.run(main())
