"""An MCP server in Python (fastmcp) that admits requests by signed tokens alone, by default those of the gateway: `whoami`
says what the token says.

Usage: verifying.py --port PORT --journal FILE --keys FILE [--issuer ISSUER --algorithm NAME --audience NAME...]
                    [--revoked FILE]
FILE of --keys has the URL of the issuer's keys, and may be written after the start. FILE of --revoked has the ids of
tokens that are not admitted any more, or `all`. Each HTTP request is one line of
the journal: method, status, and the token's subject. Prints one JSON line, {"port": PORT}, when it is about to listen.
"""

import argparse
import base64
import json

from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from starlette.middleware import Middleware

arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--journal", required=True)
arguments.add_argument("--keys", required=True)
arguments.add_argument("--issuer", default="mooring")
arguments.add_argument("--algorithm", default="EdDSA")
arguments.add_argument("--revoked")
arguments.add_argument("--audience", nargs="+", default=["tools"])
arguments = arguments.parse_args()


class IssuerVerifier(JWTVerifier):
    async def verify_token(self, token):
        with open(arguments.keys, encoding="utf-8") as keys:
            self.jwks_uri = keys.read()
        verified = await super().verify_token(token)
        return None if verified and is_revoked(verified.claims.get("jti")) else verified


def is_revoked(token_id):
    if not arguments.revoked:
        return False
    with open(arguments.revoked, encoding="utf-8") as revoked:
        listed = revoked.read().split()
    return token_id in listed or "all" in listed


def subject(headers):
    """What the token says, verified or not; `-` without one."""
    token = dict(headers).get(b"authorization", b"").decode()
    try:
        claims = token.removeprefix("Bearer ").split(".")[1]
        return json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"]
    except (IndexError, ValueError, KeyError):
        return "-"


class Journal:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def noting(message):
            if message["type"] == "http.response.start":
                line = f"{scope['method']} {message['status']} {subject(scope['headers'])}"
                with open(arguments.journal, "a", encoding="utf-8") as journal:
                    print(line, file=journal)
            await send(message)

        await self.app(scope, receive, noting if scope["type"] == "http" else send)


verifier = IssuerVerifier(
    jwks_uri="http://127.0.0.1/unknown",
    issuer=arguments.issuer,
    audience=arguments.audience,
    algorithm=arguments.algorithm,
)
server = FastMCP("verifying", auth=verifier)


@server.tool(annotations={"readOnlyHint": True, "idempotentHint": True})
async def whoami() -> dict:
    """Says whom the request is for."""
    claims = get_access_token().claims
    return {name: claims.get(name) for name in ("sub", "teams", "sid", "aud", "jti")}


print(json.dumps({"port": arguments.port}), flush=True)
server.run(
    transport="http",
    host="127.0.0.1",
    port=arguments.port,
    show_banner=False,
    log_level="warning",
    middleware=[Middleware(Journal)],
)
