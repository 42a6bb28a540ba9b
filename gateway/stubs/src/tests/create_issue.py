# Made from the schemas of a tool.
from __future__ import annotations

from .._runtime import UNSET as _UNSET, asynchronous as _asynchronous, given as _given, tool as _tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as _t

    class User(_t.TypedDict):
        id: _t.NotRequired[int]
        login: str

    class User2(_t.TypedDict):
        login: str

    class Result(_t.TypedDict):
        author: User2
        number: int
        state: _t.NotRequired[_t.Literal["open"]]
else:
    User = User2 = Result = dict


@_tool("github", "create-issue")
def create_issue(
    *,
    title: str,
    assignee: User = _UNSET,
    body: str | None = _UNSET,
    labels: list[str] = _UNSET,
    priority: _t.Literal["low", "high", 3] = _UNSET,
) -> Result:
    """Create an issue

    Makes an issue.

    It is open then.

    It may destroy something.

    title: What it is about.
    """
    return _given({"title": title, "assignee": assignee, "body": body, "labels": labels, "priority": priority})


create_issue_async = _asynchronous(create_issue)
