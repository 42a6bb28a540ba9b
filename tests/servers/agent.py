"""A stand-in for a command-line agent: it is run once per prompt, and takes up an earlier conversation by its id.

Usage: agent.py -p PROMPT [--resume ID] [--output-format stream-json|json|text] [--fork-ids] [--verbose]
A prompt is one command, a word and what follows it:
  remember TEXT   keeps the text in this session    recall   says all that was kept, in order, a line each
  forget          deletes this session              fail     ends with an error
  echo TEXT       says the text as it is            answer BYTES   says so many bytes
  sleep SECONDS   says so when it is over           spew BYTES     prints so many bytes before it answers
  cwd             says where it runs                env NAME       says a variable, or `unset`
  stderr TEXT     writes the text to stderr         spawn MARK     leaves a process that has MARK as an argument
Sessions are files below STANDIN_AGENT_HOME. A run that resumes goes on under the same id; with --fork-ids or
STANDIN_AGENT_FORK_IDS=1 it gets a new one, and the old one stays as it was. An id is printed only when its
file is there. What is printed has the shape of `claude -p --verbose --output-format stream-json`; the flag
--verbose changes nothing.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypedDict

# How long a process that `spawn` leaves would stay, in seconds.
STRAY_STAYS_SECONDS = 100_000
# What such a process does: it heeds nothing that asks for its end.
STRAY = f"""
import signal, sys, time
for asked in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(asked, signal.SIG_IGN)
print("ready", flush=True)
time.sleep({STRAY_STAYS_SECONDS})
"""
# Bytes of text in one line of what `spew` prints.
SPEWED_LINE_BYTES = 1000


class Conversation(TypedDict):
    """What a session's file holds."""

    remembered: list[str]


class Failed(Exception):
    """The command could not be done."""


class Sessions:
    """The sessions below a directory: a file each, which is always whole."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True)

    def path(self, session: str) -> Path:
        return self.home / f"{session}.json"

    def read(self, session: str) -> Conversation | None:
        try:
            conversation: Conversation = json.loads(self.path(session).read_text())
        except FileNotFoundError:
            return None
        return conversation

    def write(self, session: str, conversation: Conversation) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.home, delete=False) as file:
            json.dump(conversation, file)
        os.replace(file.name, self.path(session))

    def remember(self, session: str, text: str) -> None:
        """Adds a text, whoever else does so at the same moment."""
        with self.locked():
            conversation = self.read(session) or {"remembered": []}
            conversation["remembered"].append(text)
            self.write(session, conversation)

    def forget(self, session: str) -> None:
        self.path(session).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Run:
    """One run: a prompt in a session."""

    def __init__(self, sessions: Sessions, session: str, resumed: str | None, form: str) -> None:
        self.sessions = sessions
        self.session = session
        self.resumed = resumed
        self.form = form
        self.began = time.monotonic()

    def tell(self, line: dict[str, object]) -> None:
        """Prints a line of the stream, where it is one."""
        if self.form == "stream-json":
            print(json.dumps(line | {"session_id": self.session}), flush=True)

    def say(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        self.tell({"type": "assistant", "message": {"role": "assistant", "content": content}})

    def answer(self, prompt: str) -> int:
        """Does what the prompt says; the exit status."""
        self.tell({"type": "system", "subtype": "init", "cwd": os.getcwd()})
        try:
            result, is_error = self.do(prompt), False
        except Failed as failed:
            result, is_error = str(failed), True
        if not is_error:
            self.say(result)
        last: dict[str, object] = {
            "type": "result",
            "subtype": "error_during_execution" if is_error else "success",
            "is_error": is_error,
            "duration_ms": int((time.monotonic() - self.began) * 1000),
            "result": result,
        }
        if self.form == "json":
            print(json.dumps(last | {"session_id": self.session}), flush=True)
        elif self.form == "text":
            print(result, flush=True)
        else:
            self.tell(last)
        return 1 if is_error else 0

    def do(self, prompt: str) -> str:
        """Does a command; what is answered."""
        command, _, text = prompt.partition(" ")
        match command:
            case "remember":
                self.sessions.remember(self.session, text)
                return f"remembered {text}"
            case "recall":
                conversation = self.sessions.read(self.session) or {"remembered": []}
                return "\n".join(conversation["remembered"])
            case "forget":
                for session in {self.session, self.resumed or self.session}:
                    self.sessions.forget(session)
                return "forgotten"
            case "fail":
                raise Failed("the agent failed as it was told to")
            case "echo":
                return text
            case "answer":
                return "x" * int(text)
            case "sleep":
                self.say("I sleep")
                time.sleep(float(text))
                return f"slept {text}"
            case "spew":
                for _ in range(0, int(text), SPEWED_LINE_BYTES):
                    self.say("x" * SPEWED_LINE_BYTES)
                return f"spewed {text}"
            case "cwd":
                return os.getcwd()
            case "env":
                return os.environ.get(text, "unset")
            case "stderr":
                print(text, file=sys.stderr, flush=True)
                return "written"
            case "spawn":
                return str(spawn(text))
        raise Failed(f"there is no command {command!r}")


def spawn(mark: str) -> int:
    """Leaves a process in a session of its own, which heeds nothing; its id, when that is so."""
    stray = subprocess.Popen(
        [sys.executable, "-c", STRAY, mark],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if stray.stdout is not None:
        stray.stdout.readline()
    return stray.pid


def main() -> NoReturn:
    """Runs one prompt."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--prompt", required=True)
    parser.add_argument("--resume")
    parser.add_argument("--output-format", choices=["stream-json", "json", "text"], default="text")
    parser.add_argument("--fork-ids", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    # As agents do where it is no terminal: what is piped belongs to the prompt, and is waited for.
    prompt = arguments.prompt + sys.stdin.read()

    sessions = Sessions(Path(os.environ["STANDIN_AGENT_HOME"]))
    forks = arguments.fork_ids or os.environ.get("STANDIN_AGENT_FORK_IDS") == "1"
    resumed: str | None = arguments.resume
    session = resumed
    conversation = {"remembered": []} if resumed is None else sessions.read(resumed)
    if conversation is None:
        print(f"No conversation found with session ID: {resumed}", file=sys.stderr)
        sys.exit(1)
    if session is None or forks:
        session = str(uuid.uuid4())
        sessions.write(session, conversation)
    sys.exit(Run(sessions, session, resumed, arguments.output_format).answer(prompt))


if __name__ == "__main__":
    main()
