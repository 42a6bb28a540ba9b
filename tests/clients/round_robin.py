"""The official Python SDK client, each of whose HTTP requests goes to the next gateway in turn.

Usage: round_robin.py --url URL [--url URL]... [--sessions M] [--calls N] [--tool NAME] [--pause-ms T]
                      [--header NAME=VALUE]... [--broken resend|tell]
Opens M sessions at once, calls the tool N times in each, and prints one JSON object as its last act:
{"sessions": {"0": [1, 2, ...]}, "retries": {"refused": 0, "broken": 0, "unknown": 0},
 "errors": {"0": "..."}}

It behaves as a client behind a load balancer: a request whose connection is refused, or breaks before
the whole reply is there, goes to the next gateway. A `broken` one may have run, so it can leave a gap
in a session's counts; a `refused` one cannot. The SDK itself knows of none of this.
With `--broken tell` a broken call is not sent again as it is, but its caller is told that it may have
run. A call of which nobody can tell is `unknown`, and is made anew, with a new id: fastmcp loses the
answer to a request that has the id of one that still runs.
"""

import argparse
import asyncio
import json

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

# How long one request may take before it is an error of its session, in seconds.
REQUEST_WITHIN_SECONDS = 30.0

# What the gateway, and `--broken tell`, say where nobody can tell whether a call ran.
MAY_HAVE_RUN = "may have run"


class RoundRobin(httpx2.AsyncBaseTransport):
    """Sends each request to the next of the endpoints' origins."""

    def __init__(self, urls, first, retries, broken):
        self.urls = [httpx2.URL(url) for url in urls]
        self.turn = first
        self.retries = retries
        self.broken = broken
        self.transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        first = self.turn
        self.turn += 1
        failure = None
        for attempt in range(len(self.urls)):
            endpoint = self.urls[(first + attempt) % len(self.urls)]
            request.url = request.url.copy_with(
                scheme=endpoint.scheme, host=endpoint.host, port=endpoint.port
            )
            request.headers["host"] = f"{endpoint.host}:{endpoint.port}"
            try:
                response = await self.transport.handle_async_request(request)
                if request.method == "POST":
                    # Only a reply that is there as a whole is passed on, as a buffering proxy does.
                    await response.aread()
                return response
            except httpx2.ConnectError as error:
                failure = error
                self.count(request, "refused")
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
                failure = error
                self.count(request, "broken")
                if self.broken == "tell" and is_call(request):
                    return told(request)
        raise failure

    def count(self, request, kind):
        """Counts calls and answers only: the SDK comes back for a lost GET stream by itself."""
        if request.method == "POST":
            self.retries[kind] += 1

    async def aclose(self):
        await self.transport.aclose()


def is_call(request):
    """Whether the request calls a tool."""
    return request.method == "POST" and json.loads(request.content).get("method") == "tools/call"


def told(request):
    """The reply to a call whose connection broke."""
    error = {"code": -32000, "message": f"the connection broke; the call {MAY_HAVE_RUN}"}
    reply = {"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "error": error}
    return httpx2.Response(200, json=reply, request=request)


def value_of(result):
    """A number where the tool gives one, else its text; an error that a tool reports is an error."""
    text = result.content[0].text if result.content else ""
    if result.is_error:
        raise RuntimeError(text)
    return (result.structured_content or {}).get("count", text)


async def call_tool(client, name, retries):
    """One call; made once more where nobody can tell whether it ran."""
    try:
        return await client.call_tool(name, {})
    except mcp.MCPError as error:
        if MAY_HAVE_RUN not in str(error):
            raise
        retries["unknown"] += 1
        return await client.call_tool(name, {})


async def run_session(index, arguments, report):
    """One session from initialize to DELETE."""
    seen = report["sessions"].setdefault(str(index), [])
    headers = dict(header.split("=", 1) for header in arguments.header)
    transport = RoundRobin(arguments.url, index, report["retries"], arguments.broken)
    try:
        async with (
            httpx2.AsyncClient(transport=transport, headers=headers, timeout=REQUEST_WITHIN_SECONDS) as http,
            mcp.Client(
                streamable_http_client(arguments.url[0], http_client=http),
                mode="legacy",
                read_timeout_seconds=REQUEST_WITHIN_SECONDS,
            ) as client,
        ):
            for _ in range(arguments.calls):
                seen.append(value_of(await call_tool(client, arguments.tool, report["retries"])))
                await asyncio.sleep(arguments.pause_ms / 1000)
    except Exception as error:  # Whatever the SDK raises is this session's result.
        report["errors"][str(index)] = repr(error)


async def main():
    """Runs the sessions side by side and prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--tool", default="increment")
    parser.add_argument("--pause-ms", type=int, default=0)
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--broken", choices=["resend", "tell"], default="resend")
    arguments = parser.parse_args()
    report = {"sessions": {}, "retries": {"refused": 0, "broken": 0, "unknown": 0}, "errors": {}}
    await asyncio.gather(*(run_session(index, arguments, report) for index in range(arguments.sessions)))
    print(json.dumps(report))


asyncio.run(main())
