"""What a code session offers to Python beside the language itself: the mounted tools, and a few words for files.

Calls go through descriptor 3, which the program was started with: frames of a length, four bytes with the highest first,
and JSON. They may be made from any thread and from any event loop; answers come in any order. One thread reads them,
from the first call on.

The roots are ordinary directories: open(), os and pathlib work on them as anywhere.
"""

from __future__ import annotations

import os
import stat
import sys
from _thread import allocate_lock as _allocate_lock, start_new_thread as _start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from queue import SimpleQueue
    from types import ModuleType
    from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, overload

    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class Tool(Protocol[_P, _R]):
        """A tool: called with keywords, or with one dictionary."""

        @overload
        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
        @overload
        def __call__(self, arguments: Mapping[str, Any], /) -> _R: ...

    class AsyncTool(Protocol[_P, _R]):
        """A tool whose answer is awaited."""

        @overload
        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _R]: ...
        @overload
        def __call__(self, arguments: Mapping[str, Any], /) -> Coroutine[Any, Any, _R]: ...
else:
    ModuleType = type(sys)

__all__ = [
    "READ_ONLY_ROOTS",
    "ROOTS",
    "SCHEMA_VERSION",
    "ToolDeniedError",
    "ToolDivergedError",
    "ToolError",
    "ToolInternalError",
    "ToolInvalidError",
    "ToolLimitError",
    "ToolNotMountedError",
    "ToolOutcomeUnknownError",
    "ToolRecursionError",
    "ToolTimeoutError",
    "ToolUnavailableError",
    "WRITABLE_ROOTS",
    "call",
    "call_async",
    "list_dir",
    "read_file",
    "write_file",
]

SCHEMA_VERSION = "2026-02-01"
_TOOLS = os.environ.get("MOORING_TOOLS", "/tools")
_SKILLS = os.environ.get("MOORING_SKILLS", "/skills")
_SCRATCH = os.environ.get("MOORING_SCRATCH", "/scratch")
_RESULTS = os.environ.get("MOORING_RESULTS", "/results")
ROOTS = (_TOOLS, _SKILLS, _SCRATCH, _RESULTS)
READ_ONLY_ROOTS = (_TOOLS, _SKILLS)
WRITABLE_ROOTS = (_SCRATCH, _RESULTS)

_DESCRIPTOR = 3
_REQUEST_BYTES_MAX = 1024 * 1024
_RESULT_BYTES_MAX = 8 * 1024 * 1024
_READ_BYTES = 64 * 1024


class ToolError(Exception):
    """A call of a tool that failed. str() of it is the message of the tool, or the reason why the call was refused."""

    kind = "tool_error"

    def __init__(self, message: str, server: str = "", tool: str = "", kind: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.server = server
        self.tool = tool
        if kind is not None:
            self.kind = kind


class ToolNotMountedError(ToolError):
    """No such tool is mounted in this session."""

    kind = "not_mounted"


class ToolDeniedError(ToolError):
    """The policy of this server forbids the tool."""

    kind = "denied"


class ToolLimitError(ToolError):
    """Too many calls, or one whose arguments or result are too large."""

    kind = "limit"


class ToolInvalidError(ToolError):
    """What was sent is no call."""

    kind = "invalid"


class ToolTimeoutError(ToolError):
    """The tool took longer than it may."""

    kind = "timeout"


class ToolUnavailableError(ToolError):
    """The tool cannot be reached now. Nothing ran."""

    kind = "unavailable"


class ToolOutcomeUnknownError(ToolError):
    """The connection broke: the tool may have run, or not."""

    kind = "outcome_unknown"


class ToolRecursionError(ToolError):
    """It is a tool that runs code itself."""

    kind = "recursion"


class ToolDivergedError(ToolError):
    """A replay came to a call that the record does not have at this place."""

    kind = "diverged"


class ToolInternalError(ToolError):
    """A defect of the gateway's."""

    kind = "internal"


_ERRORS = {
    error.kind: error
    for error in (
        ToolNotMountedError,
        ToolDeniedError,
        ToolLimitError,
        ToolInvalidError,
        ToolTimeoutError,
        ToolUnavailableError,
        ToolOutcomeUnknownError,
        ToolRecursionError,
        ToolDivergedError,
        ToolInternalError,
    )
}


def call(server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Calls a mounted tool by its own names, and returns its result. Raises a ToolError where it fails."""
    bridge, number, frame = _prepare(server, tool, arguments)
    answered = _allocate_lock()
    answered.acquire()
    answers: list[tuple[bool, Any]] = []

    def settle(answer: tuple[bool, Any]) -> None:
        answers.append(answer)
        answered.release()

    bridge.expect(number, settle)
    try:
        bridge.write(frame)
        answered.acquire()
    finally:
        bridge.forget(number)
    return _result(server, tool, answers[0])


async def call_async(server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """As call, awaited: other tasks run meanwhile."""
    import asyncio

    bridge, number, frame = _prepare(server, tool, arguments)
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def arrive(answer: tuple[bool, Any]) -> None:
        if not future.done():
            future.set_result(answer)

    def settle(answer: tuple[bool, Any]) -> None:
        try:
            loop.call_soon_threadsafe(arrive, answer)
        except RuntimeError:
            pass  # The loop is over, and nobody waits.

    bridge.expect(number, settle)
    try:
        bridge.write_later(frame)
        answer = await future
    finally:
        bridge.forget(number)
    return _result(server, tool, answer)


def _prepare(server: str, tool: str, arguments: Mapping[str, Any] | None) -> tuple[_Bridge, int, bytes]:
    import json

    bridge = _bridge
    bridge.open()
    number = bridge.next_number()
    question = {"id": number, "server": server, "tool": tool, "arguments": dict(arguments or {})}
    # Not as ASCII: what no UTF-8 can be made of fails here, and not at the other end.
    frame = json.dumps(question, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(frame) > _REQUEST_BYTES_MAX:
        raise ToolLimitError(f"the arguments are {len(frame)} bytes long; at most {_REQUEST_BYTES_MAX} can be sent", server, tool)
    return bridge, number, len(frame).to_bytes(4, "big") + frame


def _result(server: str, tool: str, answer: tuple[bool, Any]) -> Any:
    is_result, value = answer
    if is_result:
        return value
    kind, message = value
    raise _ERRORS.get(kind, ToolError)(message, server, tool, kind)


class _Bridge:
    """The program's end of the bridge."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._guard = _allocate_lock()
        self._writing = _allocate_lock()
        self._is_open = False
        self._closed = ""
        self._last = 0
        self._open: dict[int, Callable[[tuple[bool, Any]], None]] = {}
        self._later: Any = None

    def open(self) -> None:
        """Makes sure that answers are read."""
        if os.getpid() != self._process:
            raise ToolUnavailableError("tools cannot be called from a forked process: call them from the program itself")
        with self._guard:
            if self._closed:
                raise ToolUnavailableError(self._closed)
            if self._is_open:
                return
            try:
                is_socket = stat.S_ISSOCK(os.fstat(_DESCRIPTOR).st_mode)
            except OSError:
                is_socket = False
            if not is_socket:
                raise ToolUnavailableError("tools cannot be called here: this process was started without descriptor 3")
            self._start(self._read_all)
            self._is_open = True

    def _start(self, work: Callable[[], None]) -> None:
        try:
            _start_new_thread(work, ())
        except RuntimeError:
            raise ToolUnavailableError("tools cannot be called: no thread can be started to read their answers") from None

    def next_number(self) -> int:
        with self._guard:
            self._last += 1
            return self._last

    def expect(self, number: int, settle: Callable[[tuple[bool, Any]], None]) -> None:
        with self._guard:
            if not self._closed:
                self._open[number] = settle
                return
        raise ToolUnavailableError(self._closed)

    def forget(self, number: int) -> None:
        self._open.pop(number, None)

    def write(self, frame: bytes) -> None:
        """Writes a whole frame, at once or waiting until the other end has read."""
        rest = memoryview(frame)
        with self._writing:
            try:
                while rest:
                    rest = rest[os.write(_DESCRIPTOR, rest):]
            except OSError as error:
                self._close(f"the bridge to the tools is closed: {error.strerror}")

    def write_later(self, frame: bytes) -> None:
        """Has another thread write the frame: an event loop does not wait."""
        with self._guard:
            if self._later is None:
                from queue import SimpleQueue

                later: SimpleQueue[bytes] = SimpleQueue()
                self._start(lambda: self._write_all(later))
                # Only now: frames in a queue that no thread reads would wait forever.
                self._later = later
        self._later.put(frame)

    def _write_all(self, frames: SimpleQueue[bytes]) -> None:
        while True:
            self.write(frames.get())

    def _read_all(self) -> None:
        reason = "the bridge to the tools is closed"
        try:
            self._read_frames()
        except OSError as error:
            reason = f"{reason}: {error.strerror}"
        except Exception as error:
            reason = f"{reason}: an answer could not be read: {error}"
        self._close(reason)

    def _read_frames(self) -> None:
        import json

        while True:
            head = self._read(4)
            if head is None:
                return
            length = int.from_bytes(head, "big")
            if length > _RESULT_BYTES_MAX:
                raise ValueError(f"it is {length} bytes long")
            body = self._read(length)
            if body is None:
                return
            self._settle(json.loads(body))

    def _read(self, length: int) -> bytearray | None:
        """This many bytes, or none where the bridge ends before."""
        data = bytearray()
        while len(data) < length:
            more = os.read(_DESCRIPTOR, min(length - len(data), _READ_BYTES))
            if not more:
                return None
            data += more
        return data

    def _settle(self, answer: Any) -> None:
        """Passes an answer to the waiting call, if it has not given up."""
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            return
        with self._guard:
            settle = self._open.pop(answer["id"], None)
        if settle is None:
            return
        error = answer.get("error")
        if isinstance(error, dict):
            settle((False, (str(error.get("kind", "internal")), str(error.get("message", "")))))
        else:
            settle((True, answer.get("result")))

    def _close(self, reason: str) -> None:
        with self._guard:
            self._closed = self._closed or reason
            waiting = list(self._open.values())
            self._open.clear()
        for settle in waiting:
            settle((False, ("outcome_unknown", f"{reason}; the tool may have run")))


_bridge = _Bridge()


class _Unset:
    """What an argument is that was not given."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET: Any = _Unset()


if TYPE_CHECKING:

    def given(arguments: dict[str, object], others: Mapping[str, object] = ...) -> NoReturn: ...
    def tool(server: str, name: str) -> Callable[[Callable[_P, _R]], Tool[_P, _R]]: ...
    def asynchronous(function: Tool[_P, _R]) -> AsyncTool[_P, _R]: ...
else:

    def given(arguments, others=None):
        """The arguments that were given, under the names that the tool has for them."""
        chosen = {name: value for name, value in arguments.items() if value is not UNSET}
        if others:
            chosen.update(others)
        return chosen

    def tool(server, name):
        """Makes a tool of a function that returns what it was given."""

        def decorate(function):
            def invoke(*arguments, **named):
                return call(server, name, _choose(function, arguments, named))

            async def invoke_async(*arguments, **named):
                return await call_async(server, name, _choose(function, arguments, named))

            for invoked, suffix in ((invoke, ""), (invoke_async, "_async")):
                invoked.__name__ = invoked.__qualname__ = function.__name__ + suffix
                invoked.__module__ = function.__module__
                invoked.__doc__ = function.__doc__
                invoked.__wrapped__ = function
            invoke.asynchronous = invoke_async
            return invoke

        return decorate

    def asynchronous(function):
        """The same tool, awaited."""
        return function.asynchronous

    def _choose(function, arguments, named):
        if not arguments:
            return function(**named)
        if len(arguments) == 1 and not named and hasattr(arguments[0], "keys"):
            return arguments[0]
        raise TypeError(f"{function.__name__}() takes its arguments by their names, or as one dictionary")


class _Package(ModuleType):
    """A package that reads a stub when its tool is asked for.

    What a stub's module would be is its function: importing the module by its own name changes nothing about that.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return dir(self)
        if not name.startswith("_"):
            for wanted in (name, name.removesuffix("_async")):
                path = f"{self.__name__}.{wanted}"
                try:
                    __import__(path)
                except ModuleNotFoundError as error:
                    if error.name != path:
                        raise
                else:
                    if name in self.__dict__:
                        return self.__dict__[name]
        raise AttributeError(f"nothing called {name!r} is mounted in {self.__name__}")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and not isinstance(value, _Package):
            function = value.__dict__.get(name)
            awaited = getattr(function, "asynchronous", None)
            if awaited is not None:
                super().__setattr__(f"{name}_async", awaited)
                value = function
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        names = {name for name in self.__dict__ if not name.startswith("_")}
        for file in os.listdir(self.__path__[0]):
            stem, dot, extension = file.partition(".")
            if not stem.startswith("_") and (extension == "py" or not dot):
                names.add(stem)
        names.discard("")
        return sorted(names)


def make_package(name: str) -> None:
    """Makes a package of stubs of the module of this name."""
    sys.modules[name].__class__ = _Package


def _place(path: str) -> str:
    """A path below a root, where the root is here."""
    for name, root in zip(("/tools", "/skills", "/scratch", "/results"), ROOTS):
        if root != name and (path == name or path.startswith(name + "/")):
            return root + path[len(name):]
    return path


def read_file(path: str) -> str:
    """Returns the text of a file, which must be UTF-8."""
    with open(_place(path), encoding="utf-8") as file:
        return file.read()


def write_file(path: str, content: str) -> int:
    """Writes text to a file below a writable root, makes the directories above it, and returns its size in bytes."""
    path = _place(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return os.path.getsize(path)


def list_dir(path: str = _SCRATCH) -> list[str]:
    """Returns the names in a directory, sorted."""
    return sorted(os.listdir(_place(path)))
