#!/usr/bin/env python3
"""Checks the dependencies between the parts of the workspace.

1. Files of one crate do not import each other in circles of more than CIRCLE_MAX, and folders in none.
2. No crate depends, directly or through other crates, on what its place in the architecture rules out (FORBIDDEN).
3. The crate graph in ARCHITECTURE.md is the one of the manifests.

A name that a file has from another one counts as an import of the file that defines it. Code that only tests compile is
not read.

`check-imports.py [--write] [WORKSPACE]`; `--write` writes the graph into ARCHITECTURE.md.
"""

import pathlib
import re
import sys
import tomllib

BEGIN, END = "<!-- crates: scripts/check-imports.py --write -->", "<!-- end of crates -->"

# What a crate must not need, by itself or through others.
FORBIDDEN = {
    "mooring-session": {"tokio", "redis", "redis-module", "rusqlite", "axum", "hyper"},
    "mooring-delivery": {"tokio", "axum", "http", "hyper", "redis", "rusqlite"},
    "mooring-run-policy": {"tokio", "landlock", "seccompiler", "rustix", "libc"},
    "mooring-stubs": {"tokio", "rustix", "landlock", "mooring-sandbox", "mooring-store"},
    "mooring-protocol": {"axum", "hyper", "redis", "rusqlite"},
    "mooring-usage": {"axum", "hyper", "redis", "rusqlite"},
    "mooring-settings": {"tokio", "axum", "hyper", "redis", "rusqlite", "mooring-sandbox"},
    "mooring-sandbox": {"tokio", "axum", "hyper", "redis"},
    "mooring-store": {"axum", "hyper", "mooring-sandbox"},
    "mooring-upstream": {"axum", "redis", "rusqlite", "mooring-sandbox"},
    "mooring-peers": {"axum", "redis", "rusqlite", "mooring-sandbox"},
    "mooring-identity": {"axum", "redis", "rusqlite", "mooring-sandbox"},
    "mooring-router": {"axum", "mooring-sandbox"},
    "mooring-pipeline": {"axum"},
    "mooring-admin": {"axum"},
    "mooring-code": {"axum", "mooring-router"},
    "mooring-agent": {"axum", "mooring-router", "mooring-code"},
}

# What a crate must not use itself; crates below it may.
FORBIDDEN_DIRECTLY = {
    "mooring-protocol": {"tokio"},
    "mooring-router": {"redis", "rusqlite"},
    "mooring-pipeline": {"redis", "rusqlite"},
    "mooring-admin": {"redis", "rusqlite", "hyper", "http"},
    "mooring-code": {"redis", "rusqlite"},
    "mooring-agent": {"redis", "rusqlite"},
}

# The most files that may import each other in a circle.
CIRCLE_MAX = 3

TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{.*", re.S)
TEST_DECLARATION = re.compile(r"#\[cfg\((?:test|any\(test\b.*?\))\)\]\s*(?:pub(?:\([^)]*\))? )?(?:mod (\w+)|use [^;]*);", re.S)
COMMENT_OR_VISIBILITY = re.compile(r"//.*$|(?<=pub)\(in [\w:]+\)", re.M)
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)
PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")
ITEM = r"pub(?:\([^)]*\))? (?:(?:async|const|unsafe) )*(?:fn|struct|enum|trait|type|const|static) {}\b"


def manifests(root):
    """Each crate of the workspace by its name, with its directory and manifest."""
    members = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["members"]
    for directory in (root / member for member in members):
        manifest = tomllib.loads((directory / "Cargo.toml").read_text())
        yield manifest["package"]["name"], directory, manifest


def sources(directory):
    """The text of each module of a crate that is not for tests, by its path: `()` is the crate itself."""
    texts, test_modules = {}, {("tests",)}
    for path in sorted(directory.rglob("*.rs")):
        steps = path.relative_to(directory).with_suffix("").parts
        module = steps[:-1] if steps[-1] in ("mod", "lib", "main") else steps
        text = COMMENT_OR_VISIBILITY.sub("", TEST_MODULE.sub("", path.read_text()))
        test_modules |= {(*module, match[1]) for match in TEST_DECLARATION.finditer(text)}
        # A crate with a library and a program has two files at its top.
        texts[module] = texts.get(module, "") + TEST_DECLARATION.sub("", text)
    is_test = lambda module: any(module[:length] in test_modules for length in range(1, len(module) + 1))
    return {module: text for module, text in texts.items() if not is_test(module)}


def use_paths(tree):
    """The paths of a use declaration, each with the name that it brings in."""
    while "{" in tree:
        flat = lambda group: ",".join(group[1] + part.strip() for part in group[2].split(",") if part.strip())
        tree = re.sub(r"([\w:]*)\{([^{}]*)\}", flat, tree)
    for part in tree.split(","):
        path, _, alias = part.strip().partition(" as ")
        steps = tuple(path.removesuffix("::self").split("::"))
        yield steps, alias or steps[-1]


class Crate:
    """The files of a crate, and what each imports of the others."""

    def __init__(self, directory):
        self.texts = sources(directory)
        self.exports = {module: {} for module in self.texts}
        named = {module: set() for module in self.texts}
        for module, text in self.texts.items():
            for is_public, tree in USE.findall(text):
                for path, name in use_paths(tree):
                    path = self.absolute(module, path)
                    if path is not None:
                        self.exports[module].setdefault(name, []).append(path)
                        named[module] |= set() if is_public else {path}
            paths = (self.absolute(module, tuple(path.split("::"))) for path in PATH.findall(USE.sub("", text)))
            named[module] |= set(paths) - {None}
        self.imports = {module: {self.owner(path) for path in paths} - {module} for module, paths in named.items()}

    def absolute(self, module, path):
        """The path from the root of the crate; none if it leads into another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return module + path[1:]
        if path[0] == "super":
            above = sum(1 for step in path if step == "super")
            return module[: len(module) - above] + path[above:]
        return module + path if module + path[:1] in self.texts else None

    def owner(self, path, followed=()):
        """The file that defines what the path names."""
        module = ()
        while len(module) < len(path) and path[: len(module) + 1] in self.texts:
            module = path[: len(module) + 1]
        rest = path[len(module) :]
        if rest and (module, rest[0]) not in followed:
            if target := next(iter(self.exports[module].get(rest[0], [])), None):
                return self.owner(target + rest[1:], (*followed, (module, rest[0])))
            for target in self.exports[module].get("*", []):
                if re.search(ITEM.format(re.escape(rest[0])), self.texts.get(target[:-1], "")):
                    return target[:-1]
        return module

    def folders(self):
        """For each folder, what its parts import of each other."""
        for folder in sorted({module[:-1] for module in self.texts if module}):
            depth = len(folder)
            parts = {module[: depth + 1] for module in self.texts if module[:depth] == folder and len(module) > depth}
            graph = {part: set() for part in parts}
            for module, others in self.imports.items():
                if module[: depth + 1] in parts:
                    graph[module[: depth + 1]] |= {other[: depth + 1] for other in others} & parts - {module[: depth + 1]}
            yield graph, {module[: depth + 1] for module in self.texts if len(module) > depth + 1} & parts


def circles(graph):
    """The sets of nodes that lead to each other."""

    def reached(start):
        found, new = set(), [start]
        while new:
            for node in graph[new.pop()] - found:
                found.add(node)
                new.append(node)
        return found

    reach = {node: reached(node) for node in graph}
    found = {frozenset(other for other in reach[node] if node in reach[other]) for node in graph}
    return sorted((circle for circle in found if len(circle) > 1), key=sorted)


def large_circles(crate):
    """The circles of files that are too large, and those between parts of a folder of which one is a folder."""
    for circle in circles(crate.imports):
        if len(circle) > CIRCLE_MAX:
            yield "files", circle
    for graph, with_folders in crate.folders():
        for circle in circles(graph):
            if circle & with_folders:
                yield "folders", circle


def circle_problems(name, crate):
    """What is wrong with the imports of a crate."""
    for kind, circle in large_circles(crate):
        steps = ", ".join("/".join(module) or "lib" for module in sorted(circle))
        yield f"{name}: {len(circle)} {kind} import each other in a circle: {steps}"


def forbidden_problems(crates):
    """The crates that depend on what is ruled out for them, each with the way to it."""
    uses = {name: set(manifest.get("dependencies", {})) for name, _, manifest in crates}
    for name in uses:
        ways, new = {name: name}, [name]
        while new:
            crate = new.pop()
            for other in sorted(uses.get(crate, set()) - set(ways)):
                ways[other] = f"{ways[crate]} -> {other}"
                new.append(other)
        ruled_out = FORBIDDEN.get(name, set()) & set(ways) | FORBIDDEN_DIRECTLY.get(name, set()) & uses[name]
        yield from (f"{name} must not depend on {other}: {ways[other]}" for other in sorted(ruled_out))


def crate_graph(crates):
    """The crates as a Mermaid graph: an arrow for each dependency that no longer path implies."""
    names = {name for name, _, _ in crates}
    uses = {name: names & set(manifest.get("dependencies", {})) for name, _, manifest in crates}

    def reached(name):
        return uses[name].union(*(reached(other) for other in uses[name]))

    lines = ["```mermaid", "graph TD"]
    for name in sorted(uses):
        implied = set().union(*(reached(other) for other in uses[name]))
        lines += [f"    {name} --> {other}" for other in sorted(uses[name] - implied)]
    return "\n".join(lines + ["```"])


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    crates = list(manifests(root))
    problems = list(forbidden_problems(crates))
    for name, directory, _ in crates:
        problems += circle_problems(name, Crate(directory / "src"))
    page = root / "ARCHITECTURE.md"
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    expected = f"{before}{BEGIN}\n\n{crate_graph(crates)}\n\n{END}{after}"
    if "--write" in sys.argv:
        page.write_text(expected)
    elif text != expected:
        problems.append("ARCHITECTURE.md has another crate graph than the manifests; run: scripts/check-imports.py --write")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
