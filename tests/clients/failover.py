"""The official Python SDK client, whose gateway dies during a call.

Usage: failover.py --url URL [--url URL]... --begun FILE
Each HTTP request goes to the first URL that accepts connections. Calls `increment`, `slow`, which makes FILE once it
runs, and `increment` again, and prints one JSON object as its last act: {"counts": [1, 2], "ended": "how slow ended"}.
"""

import argparse
import asyncio
import json

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

# How long one request may take before it is an error, in seconds.
REQUEST_WITHIN_SECONDS = 40.0


class FirstThatAccepts(httpx2.AsyncBaseTransport):
    """Sends each request to the first of the URLs' origins that accepts connections."""

    def __init__(self, urls):
        self.urls = [httpx2.URL(url) for url in urls]
        self.transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        failure = None
        for url in self.urls:
            request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
            request.headers["host"] = f"{url.host}:{url.port}"
            try:
                return await self.transport.handle_async_request(request)
            except httpx2.ConnectError as error:
                failure = error
        raise failure

    async def aclose(self):
        await self.transport.aclose()


async def main():
    """Makes the calls and prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--begun", required=True)
    arguments = parser.parse_args()
    async with (
        httpx2.AsyncClient(
            transport=FirstThatAccepts(arguments.url), timeout=REQUEST_WITHIN_SECONDS
        ) as http,
        mcp.Client(
            streamable_http_client(arguments.url[0], http_client=http),
            mode="legacy",
            read_timeout_seconds=REQUEST_WITHIN_SECONDS,
        ) as client,
    ):
        counts = [(await client.call_tool("increment", {})).structured_content["count"]]
        try:
            await client.call_tool("slow", {"begun": arguments.begun})
            ended = "with a result"
        except mcp.MCPError as error:
            ended = str(error)
        counts.append((await client.call_tool("increment", {})).structured_content["count"])
    print(json.dumps({"counts": counts, "ended": ended}))


asyncio.run(main())
