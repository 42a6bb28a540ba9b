"""What a code session offers to Python beside the language itself.

The four roots are ordinary directories: open(), os and pathlib work on them as anywhere.
No tools are mounted in this session: call() says so.
"""

import os

SCHEMA_VERSION = "2026-02-01"
ROOTS = ("/tools", "/skills", "/scratch", "/results")
WRITABLE_ROOTS = ("/scratch", "/results")


class ToolError(Exception):
    """A call of a tool that failed."""


class ToolNotMountedError(ToolError):
    """A call of a tool that is not mounted in this session."""

    def __init__(self, server, tool):
        super().__init__(f"no tool {tool!r} of a server {server!r} is mounted in this session")
        self.server = server
        self.tool = tool


def read_file(path):
    """Returns the text of a file, which must be UTF-8."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def write_file(path, content):
    """Writes text to a file below a writable root, makes the directories above it, and returns its size in bytes."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return os.path.getsize(path)


def list_dir(path="/scratch"):
    """Returns the names in a directory, sorted."""
    return sorted(os.listdir(path))


def call(server, tool, arguments=None):
    """Calls a mounted tool. Raises ToolNotMountedError: none is."""
    raise ToolNotMountedError(server, tool)
