#!/usr/bin/env python3
"""Prints the way of a tools/call through the gateway: which functions of its crates run for each call, by module.

    call-path.py [BINARY [MODULE]]

Runs BINARY (target/debug/mooring, in which no function is part of another one) like call-instructions.py. A closure and the
body of an async function count as the function that they are in. Functions that execute few instructions of their own, such
as those that return a field, are counted and not printed.
"""

import collections
import re
import sys

from profiled_gateway import CALLS, built, profile

# Of a function's own, for each call.
INSTRUCTIONS_MIN = 100
# Some calls do more than others, such as the one that finds a lease used up.
PART_OF_CALLS = 0.9


def is_ours(function):
    return re.match(r"<?mooring_\w+::", function) and "{{" not in function


def enclosing(function):
    """The function that a closure is in, for one of recursive calls too."""
    return re.sub(r"'\d+$", "", function).replace("::{{closure}}", "")


def module(function):
    """The module of a function: the lower-case part of its name, which is a file but for modules inside of files."""
    is_method = function.startswith("<")
    steps = re.match(r"<?([\w:]*\w)", function)[1].split("::")
    types = next((at for at, step in enumerate(steps) if step[0].isupper()), len(steps) - (not is_method))
    return "::".join(steps[:types])


def read(lines):
    """Own instructions of each function, and how often others call it."""
    names, own, calls = {}, collections.Counter(), collections.Counter()
    function = callee = None
    lines = iter(lines)
    for line in lines:
        if named := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?$", line):
            kind, number, name = named.groups()
            if name:
                names[number] = enclosing(name)
            if kind == "fn":
                function = names[number]
            else:
                callee = names[number]
        elif line.startswith("calls="):
            if function != callee:
                calls[callee] += int(line.split()[0].removeprefix("calls="))
            next(lines)
        elif function and re.match(r"[0-9+*-]", line):
            own[function] += int(line.split()[1])
    return own, calls


def main():
    own, calls = read(profile(*built(sys.argv[1:], "debug")))
    path = [name for name, count in calls.items() if is_ours(name) and count >= PART_OF_CALLS * CALLS]
    working = [name for name in path if own[name] >= INSTRUCTIONS_MIN * CALLS]
    by_module = collections.defaultdict(list)
    for name in sorted(working):
        by_module[module(name)].append(re.sub(r"\b[a-z_0-9]+::", "", name))
    print("| module | functions |\n|---|---|")
    for name, functions in sorted(by_module.items()):
        print(f"| `{name}` | {', '.join(f'`{function}`' for function in functions)} |")
    for what, names in ("with work of their own", working), ("in all", path):
        print(f"\n{what}: {len(names)} functions in {len({module(name) for name in names})} modules", end="")
    print()


main()
