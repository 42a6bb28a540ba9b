"""A gateway under callgrind that makes calls, for the scripts that read what it counted.

16 stateful sessions make their calls at the same time, through one gateway in front of Redis and an upstream server of this
module. Only the calls are counted.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

SESSIONS, CALLS, CALLS_BEFORE = 16, 3200, 480


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


def profile(binary, module):
    """What callgrind wrote about the calls: its lines."""
    redis_port, port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        settings, counted = directory / "mooring.toml", directory / "callgrind.out"
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
                ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counted}",
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
        return counted.read_text().splitlines()


def built(arguments, profile_name):
    """The gateway and the module: as given, or of a cargo profile."""
    target = pathlib.Path(__file__).resolve().parent.parent / "target" / profile_name
    defaults = [target / "mooring", target / "libmooring.so"]
    return [*arguments, *defaults[len(arguments):]]
