#!/usr/bin/env python3
"""Counts the instructions of a tools/call through the gateway, by layer, outside of the kernel.

    call-instructions.py [BINARY [MODULE]]

Runs BINARY (target/profiling/mooring, of `cargo build --profile profiling`) under `valgrind --tool=callgrind`, in front of a Redis with MODULE
(target/profiling/libmooring.so) and an upstream server of this script: 16 stateful sessions, which make their calls at the
same time. Unlike times, instructions are the same on a busy machine. callgrind knows no SHA instructions, and counts a
copy of more than 2 KiB by its bytes.
"""

import collections
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

SESSIONS, CALLS, CALLS_BEFORE = 16, 3200, 480
# By the first that matches the name of a function.
LAYERS = [
    ("allocator", r"^(malloc|free|realloc|calloc|_int_\w+|unlink_chunk.*)$|__rustc::__r|malloc_"),
    ("copying and comparing bytes", r"mem(cpy|move|set|cmp|chr)|bcmp"),
    ("SHA-256", r"sha2|digest|mooring_secrets"),
    ("Redis client", r"redis|combine|command_connection|reply_reader"),
    ("HTTP on both sides", r"\bhyper|httparse|\bhttp(_body\w*)?::|h2::|tower|axum"),
    ("edge", r"mooring_gateway|mooring_settings|mooring_identity|\burl::|idna"),
    ("router and turns", r"mooring_router|mooring_session"),
    ("store, without the client", r"mooring_store"),
    ("messages", r"mooring_protocol|serde"),
    ("upstream", r"mooring_upstream|mooring_peers"),
    ("metrics", r"metrics|quanta"),
    ("tokio and futures", r"tokio|mio::|futures_|parking_lot|socket"),
    ("standard library", r""),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_message(stream):
    """The first line, the headers and the body of a request or a response; nothing at the end."""
    first, headers = stream.readline(), {}
    if not first:
        return None
    while (line := stream.readline().strip()):
        name, value = line.split(b":", 1)
        headers[name.lower()] = value.strip()
    return first, headers, stream.read(int(headers.get(b"content-length", 0)))


def serve_upstream(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rb")
    while request := read_message(stream):
        message = json.loads(request[2] or b"{}")
        if "id" not in message:
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            continue
        session, result = "", {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"count": 1}}
        if message["method"] == "initialize":
            session = f"Mcp-Session-Id: up-{id(connection):032x}\r\n"
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                      "serverInfo": {"name": "upstream", "version": "1"}}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}Content-Length: {len(text)}\r\n\r\n"
        connection.sendall((head + text).encode())


def start_upstream():
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)

    def accept():
        while True:
            threading.Thread(target=serve_upstream, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


class Session:
    """One client with its own connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream, self.port, self.header, self.id = self.socket.makefile("rb"), port, "", 0
        self.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                 "clientInfo": {"name": "client", "version": "1"}})
        _, headers, _ = read_message(self.stream)
        self.header = f"Mcp-Session-Id: {headers[b'mcp-session-id'].decode()}\r\nMCP-Protocol-Version: 2025-11-25\r\n"

    def send(self, method, params):
        self.id += 1
        text = json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})
        self.socket.sendall(
            f"POST /servers/tools/mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{self.header}Content-Length: {len(text)}\r\n\r\n{text}"
            .encode())

    def receive(self):
        answer = json.loads(read_message(self.stream)[2])
        assert answer["id"] == self.id and "result" in answer, answer


def make_calls(sessions, calls):
    for _ in range(calls // len(sessions)):
        for session in sessions:
            session.send("tools/call", {"name": "count", "arguments": {"text": "hello"}})
        for session in sessions:
            session.receive()


def wait_until_ready(gateway, port):
    for _ in range(300):
        if gateway.poll() is not None:
            sys.exit("the gateway ended")
        try:
            with socket.create_connection(("127.0.0.1", port)) as probe:
                probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if b" 200 " in probe.makefile("rb").readline():
                    return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit("the gateway did not become ready")


def by_function(profile):
    """Instructions by the function that has them itself, from callgrind's file."""
    names, counts, function = {}, collections.Counter(), None
    lines = iter(profile.read_text().splitlines())
    for line in lines:
        if named := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?$", line):
            kind, number, name = named.groups()
            if name:
                names[number] = name
            if kind == "fn":
                function = names[number]
        elif line.startswith("calls="):
            next(lines)
        elif function and re.match(r"[0-9+*-]", line):
            counts[function] += int(line.split()[1])
    return counts


def main():
    target = pathlib.Path(__file__).resolve().parent.parent / "target/profiling"
    given, defaults = sys.argv[1:], [target / "mooring", target / "libmooring.so"]
    binary, module = [*given, *defaults[len(given):]]
    redis_port, port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        settings, profile = directory / "mooring.toml", directory / "callgrind.out"
        settings.write_text(
            f'[store]\nurl = "redis://127.0.0.1:{redis_port}"\n\n[listen]\naddress = "127.0.0.1:{port}"\n\n'
            '[worker]\nname = "count"\nthreads = 1\n\n[affinity]\nenabled = true\ninitializes_per_minute = 0\n\n'
            f'[[servers]]\nid = "tools"\nkind = "http"\ninstances = ["http://127.0.0.1:{start_upstream()}/mcp"]\n')
        redis = subprocess.Popen(
            ["redis-server", "--port", str(redis_port), "--save", "", "--dir", directory, "--loadmodule", module],
            stdout=subprocess.DEVNULL)
        gateway = None
        try:
            time.sleep(0.5)
            gateway = subprocess.Popen(
                ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile}",
                 binary, "serve", "--config", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until_ready(gateway, port)
            sessions = [Session(port) for _ in range(SESSIONS)]
            make_calls(sessions, CALLS_BEFORE)
            for step in ("on", "off"):
                subprocess.run(["callgrind_control", "-i", step, str(gateway.pid)], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if step == "on":
                    make_calls(sessions, CALLS)
            gateway.terminate()
            gateway.wait(60)
        finally:
            for process in (gateway, redis):
                if process and process.poll() is None:
                    process.kill()
                    process.wait()
        counts = by_function(profile)
    layers = collections.Counter()
    for function, count in counts.items():
        layers[next(name for name, pattern in LAYERS if re.search(pattern, function))] += count
    print("| layer | instructions a call |\n|---|---|")
    for name, _ in LAYERS:
        print(f"| {name} | {layers[name] // CALLS:,} |")
    print(f"| all | {layers.total() // CALLS:,} |")


main()
