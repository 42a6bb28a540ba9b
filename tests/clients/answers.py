"""The official Python SDK client, which holds what tools answer against their output schemas.

Usage: answers.py --url URL [--url URL]... [--header NAME=VALUE]... [--mode legacy|auto] --calls JSON
Each HTTP request goes to the next URL's origin. Lists the tools, makes the calls of a JSON array of
{"name": ..., "arguments": ...} one after the other, and prints one JSON object as its last act:
{"tools": [NAME, ...], "answers": [{"is_error": false, "structured": {...}, "text": "..."}, ...]}
An answer that the SDK refuses ends the script with its exception.
"""

import argparse
import asyncio
import itertools
import json

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

# How long one request may take before it is an error, in seconds.
REQUEST_WITHIN_SECONDS = 60.0


class RoundRobin(httpx2.AsyncBaseTransport):
    """Sends each request to the next of the URLs' origins."""

    def __init__(self, urls):
        self.urls = itertools.cycle(httpx2.URL(url) for url in urls)
        self.transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        url = next(self.urls)
        request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
        request.headers["host"] = f"{url.host}:{url.port}"
        return await self.transport.handle_async_request(request)

    async def aclose(self):
        await self.transport.aclose()


async def main():
    """Makes the calls and prints the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--mode", default="legacy")
    parser.add_argument("--calls", type=json.loads, required=True)
    arguments = parser.parse_args()
    headers = dict(header.split("=", 1) for header in arguments.header)
    answers = []
    async with (
        httpx2.AsyncClient(
            transport=RoundRobin(arguments.url), headers=headers, timeout=REQUEST_WITHIN_SECONDS
        ) as http,
        mcp.Client(
            streamable_http_client(arguments.url[0], http_client=http),
            mode=arguments.mode,
            read_timeout_seconds=REQUEST_WITHIN_SECONDS,
        ) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for call in arguments.calls:
            result = await client.call_tool(call["name"], call["arguments"])
            answers.append(
                {
                    "is_error": result.is_error,
                    "structured": result.structured_content,
                    "text": result.content[0].text,
                }
            )
    print(json.dumps({"tools": tools, "answers": answers}))


asyncio.run(main())
