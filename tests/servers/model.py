"""A stand-in for the model APIs that command-line agents call: the agents are real, their model is this.

Usage: model.py --port PORT
Serves Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's generateContent, each streamed and
whole, at any path that ends as theirs do. Of a request only what people said counts: each `model: COMMAND` in it, up to
the end of the line or a quotation mark, is a turn of the conversation, and the last one says what is answered:
  say TEXT          the text                    recall    all earlier commands, ` | ` between them
  fail              an error of the API         hang      nothing: the reply begins and does not end
  call TOOL JSON    asks for a call of the tool whose name ends so; then says what it returned
A request without a command is answered with `ok`: agents ask for titles and the like. Whatever else is requested is
404. GET /seen answers all requests so far: method, path, and the commands in them.
"""

import argparse
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMAND = re.compile(r'model: ([^"\n<]+)')
# How long a reply that does not end stays open, in seconds.
HANG_SECONDS = 86_400
MODEL = "stand-in"

seen: list[dict[str, Any]] = []
seen_lock = threading.Lock()


class Answer:
    """What the model says: a text, or a call of a tool."""

    def __init__(self, text: str = "", tool: str = "", arguments: str = "") -> None:
        self.text = text
        self.tool = tool
        self.arguments = arguments


class Failure(Exception):
    """The API is to answer an error."""


class Hang(Exception):
    """The API is to answer nothing."""


def texts_of(content: Any) -> str:
    """All text in a message's content, whatever shape it has."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(texts_of(part) for part in content)
    if isinstance(content, dict):
        kept = [content.get(name) for name in ("text", "content", "output", "parts", "response", "result")]
        return "\n".join(texts_of(part) for part in kept if part is not None)
    return ""


def decide(said: list[str], returned: str | None, tools: list[str]) -> Answer:
    """The answer to what people said so far and, where a tool was called last, to what it returned."""
    if not said:
        return Answer("ok")
    command, _, rest = said[-1].strip().partition(" ")
    match command:
        case "say":
            return Answer(rest)
        case "recall":
            return Answer(" | ".join(said[:-1]) or "nothing")
        case "fail":
            raise Failure
        case "hang":
            raise Hang
        case "call":
            if returned is not None:
                return Answer(f"returned {returned}")
            name, _, arguments = rest.partition(" ")
            found = [tool for tool in tools if tool.endswith(name)]
            if not found:
                return Answer(f"no tool {name} in {tools}")
            return Answer(tool=found[0], arguments=arguments.replace("'", '"') or "{}")
    return Answer(f"no command {command!r}")


class Api:
    """One API: how its requests are read, and its replies written."""

    def read(self, body: Any) -> tuple[list[Any], str | None, list[str]]:
        """What people said, what the tool that was called last returned, and the tools' names."""
        raise NotImplementedError

    def events(self, answer: Answer) -> list[dict[str, Any] | str]:
        """The reply as events, with their type in `type` where the API names them."""
        raise NotImplementedError

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The reply as one document."""
        raise NotImplementedError


class Messages(Api):
    """Anthropic: POST /v1/messages."""

    def read(self, body: Any) -> tuple[list[Any], str | None, list[str]]:
        said, returned = [], None
        for message in body["messages"]:
            if message["role"] != "user":
                continue
            content = message["content"]
            parts = content if isinstance(content, list) else [content]
            results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
            said += [part for part in parts if part not in results]
            returned = texts_of(results[-1]) if results else None
        return said, returned, [tool["name"] for tool in body.get("tools", [])]

    def block(self, answer: Answer) -> dict[str, Any]:
        if answer.tool:
            return {"type": "tool_use", "id": "toolu_1", "name": answer.tool, "input": json.loads(answer.arguments)}
        return {"type": "text", "text": answer.text}

    def whole(self, answer: Answer) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [self.block(answer)],
            "stop_reason": "tool_use" if answer.tool else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def events(self, answer: Answer) -> list[dict[str, Any] | str]:
        message = self.whole(answer)
        if answer.tool:
            block = self.block(answer) | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": answer.arguments}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": answer.text}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        return [
            {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]


class Responses(Api):
    """OpenAI: POST /v1/responses."""

    def read(self, body: Any) -> tuple[list[Any], str | None, list[str]]:
        said, returned = [], None
        for item in body["input"]:
            if item.get("type", "message") == "message" and item["role"] == "user":
                said.append(item["content"])
                returned = None
            elif item.get("type") == "function_call_output":
                returned = texts_of(item)
        tools = []
        for tool in body.get("tools", []):
            # A namespace groups the tools of one MCP server.
            for inner in tool.get("tools", [tool]):
                space = tool["name"] + "\0" if inner is not tool else ""
                tools.append(space + inner.get("name", ""))
        return said, returned, tools

    def item(self, answer: Answer) -> dict[str, Any]:
        if answer.tool:
            space, _, name = answer.tool.rpartition("\0")
            call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "status": "completed"}
            call |= {"namespace": space} if space else {}
            return call | {"arguments": answer.arguments}
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}

    def whole(self, answer: Answer) -> dict[str, Any]:
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": "resp_1", "object": "response", "created_at": 0, "model": MODEL, "usage": usage}
        return response | {"status": "completed", "output": [self.item(answer)]}

    def events(self, answer: Answer) -> list[dict[str, Any] | str]:
        response, item = self.whole(answer), self.item(answer)
        return [
            {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]


class Chat(Api):
    """OpenAI: POST /v1/chat/completions."""

    def read(self, body: Any) -> tuple[list[Any], str | None, list[str]]:
        said, returned = [], None
        for message in body["messages"]:
            if message["role"] == "user":
                said.append(message["content"])
                returned = None
            elif message["role"] == "tool":
                returned = texts_of(message["content"])
        return said, returned, [tool["function"]["name"] for tool in body.get("tools", [])]

    def message(self, answer: Answer) -> dict[str, Any]:
        if not answer.tool:
            return {"role": "assistant", "content": answer.text}
        function = {"name": answer.tool, "arguments": answer.arguments}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def whole(self, answer: Answer) -> dict[str, Any]:
        end = "tool_calls" if answer.tool else "stop"
        return {
            "id": "chat_1",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": self.message(answer), "finish_reason": end}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def events(self, answer: Answer) -> list[dict[str, Any] | str]:
        whole = self.whole(answer)
        end = whole["choices"][0]["finish_reason"]
        chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        begun = {"index": 0, "delta": self.message(answer), "finish_reason": None}
        ended = {"index": 0, "delta": {}, "finish_reason": end}
        return [
            chunk | {"choices": [begun]},
            chunk | {"choices": [ended], "usage": whole["usage"]},
            "[DONE]",
        ]


class Gemini(Api):
    """Google: POST /v1beta/models/NAME:generateContent and :streamGenerateContent."""

    def read(self, body: Any) -> tuple[list[Any], str | None, list[str]]:
        said, returned = [], None
        for content in body["contents"]:
            if content.get("role", "user") != "user":
                continue
            results = [part for part in content["parts"] if "functionResponse" in part]
            said += [part for part in content["parts"] if part not in results]
            returned = json.dumps(results[-1]["functionResponse"]["response"]) if results else None
        declared = [tool.get("functionDeclarations", []) for tool in body.get("tools", [])]
        return said, returned, [function["name"] for functions in declared for function in functions]

    def whole(self, answer: Answer) -> dict[str, Any]:
        part: dict[str, Any] = {"text": answer.text}
        if answer.tool:
            part = {"functionCall": {"name": answer.tool, "args": json.loads(answer.arguments)}}
        content = {"role": "model", "parts": [part]}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"index": 0, "content": content, "finishReason": "STOP"}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": "resp_1"}

    def events(self, answer: Answer) -> list[dict[str, Any] | str]:
        return [self.whole(answer)]


APIS: dict[str, Api] = {
    "/messages": Messages(),
    "/responses": Responses(),
    "/chat/completions": Chat(),
    ":generateContent": Gemini(),
    ":streamGenerateContent": Gemini(),
}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/seen":
            with seen_lock:
                self.document(200, seen)
        else:
            self.note([])
            self.refuse(404, "not found")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        # Whoever has this for a proxy asks for another host.
        self.do_GET()

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        path = self.path.partition("?")[0]
        api = next((api for end, api in APIS.items() if path.endswith(end)), None)
        if api is None:
            self.note([])
            return self.refuse(404, "not found")
        request = json.loads(body)
        content, returned, tools = api.read(request)
        said = [command.strip() for part in content for command in COMMAND.findall(texts_of(part))]
        self.note(said)
        is_streamed = request.get("stream") or path.endswith(":streamGenerateContent")
        try:
            answer = decide(said, returned, tools)
        except Failure:
            return self.refuse(400, "the model fails as it was told to")
        except Hang:
            self.begin("text/event-stream" if is_streamed else "application/json", None)
            time.sleep(HANG_SECONDS)
            return None
        if not is_streamed:
            return self.document(200, api.whole(answer))
        self.begin("text/event-stream", None)
        for event in api.events(answer):
            name = ""
            if isinstance(event, dict) and "type" in event:
                name = f"event: {event['type']}\n"
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.close_connection = True
        return None

    def note(self, said: list[str]) -> None:
        """Keeps what was requested."""
        with seen_lock:
            seen.append({"method": self.command, "path": self.path, "said": said})

    def begin(self, content_type: str, length: int | None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def document(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.begin("application/json", len(body), status)
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, message: str) -> None:
        """An error, in the form that each of the APIs can be read to have."""
        error = {"type": "invalid_request_error", "code": status, "status": "INVALID_ARGUMENT", "message": message}
        self.document(status, {"type": "error", "error": error})


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
server.daemon_threads = True
server.serve_forever()
