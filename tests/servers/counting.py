"""A stateful MCP server in Python (fastmcp): `increment` counts per session, `whoami` says where, `slow` takes its time.

Usage: counting.py --port PORT [--instance NAME] [--transport http|sse]
Prints one JSON line, {"port": PORT}, when it is about to listen; a caller polls the port after that.
The count lives in fastmcp's per-session state, so it is right only while every request of a session
reaches this process.
"""

import argparse
import asyncio
import json
import os
import pathlib

from fastmcp import Context, FastMCP

arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--instance", default=f"python-{os.getpid()}")
arguments.add_argument("--transport", choices=["http", "sse"], default="http")
arguments = arguments.parse_args()

server = FastMCP("counting")


@server.tool(annotations={"readOnlyHint": False, "idempotentHint": False})
async def increment(context: Context) -> dict:
    """Counts one up in this session."""
    count = (await context.get_state("count") or 0) + 1
    await context.set_state("count", count)
    return {"count": count, "instance": arguments.instance, "session": context.session_id}


@server.tool(annotations={"readOnlyHint": True, "idempotentHint": True})
async def whoami(context: Context) -> dict:
    """Says which process and session answers."""
    return {"instance": arguments.instance, "pid": os.getpid(), "session": context.session_id}


@server.tool
async def slow(begun: str, seconds: float = 60) -> str:
    """Makes the file `begun` when its reply has had time to begin, and ends some time later."""
    await asyncio.sleep(0.5)
    pathlib.Path(begun).touch()
    await asyncio.sleep(seconds)
    return "done"


print(json.dumps({"port": arguments.port}), flush=True)
server.run(
    transport=arguments.transport,
    host="127.0.0.1",
    port=arguments.port,
    show_banner=False,
    log_level="warning",
)
