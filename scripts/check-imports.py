#!/usr/bin/env python3
"""Checks the dependencies between the parts of the workspace.

1. No two modules at the top level of one crate import each other, directly or through others.
2. No crate depends on what its place in the architecture rules out (FORBIDDEN).
3. The crate graph in ARCHITECTURE.md is the one of the manifests.

`check-imports.py --write` writes the graph into ARCHITECTURE.md.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- crates: scripts/check-imports.py --write -->", "<!-- end of crates -->"

# What a crate must not depend on, because what it does must not need it.
FORBIDDEN = {
    "mooring-session": {"tokio", "redis", "redis-module", "rusqlite", "axum", "hyper"},
    "mooring-protocol": {"tokio", "axum", "hyper", "redis", "rusqlite"},
    "mooring-usage": {"axum", "hyper", "redis", "rusqlite"},
    "mooring-settings": {"tokio", "axum", "hyper", "rusqlite"},
    "mooring-sandbox": {"tokio", "axum", "hyper", "redis"},
    "mooring-store": {"axum", "hyper"},
    "mooring-upstream": {"axum", "redis", "rusqlite"},
    "mooring-router": {"axum", "redis", "rusqlite"},
    "mooring-code": {"axum", "redis", "rusqlite", "mooring-router"},
    "mooring-agent": {"axum", "redis", "rusqlite", "mooring-router", "mooring-code"},
}

# Modules whose own imports count for no circle, with the reason.
CALLS_OUT = {
    # The functions that Redis calls hand over to the safe modules, which are written against the types beside them.
    ("mooring-module", "ffi"),
}

TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{.*", re.S)
TEST_FILE = re.compile(r"(^|/)tests?(/|\.rs$)|_tests?\.rs$|(^|/)test_support(/|\.rs$)")


def manifests():
    """Each crate of the workspace with its directory and manifest."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    for member in workspace["workspace"]["members"]:
        directory = ROOT / member
        yield directory, tomllib.loads((directory / "Cargo.toml").read_text())


def uses_of_root(relative):
    """What names a module at the top level of the crate in this file: `crate::` or as many `super::` as lead there."""
    steps = relative.with_suffix("").parts
    depth = len(steps) - (steps[-1] == "mod")
    root = rf"(?<![\w:])(?:crate|{'::'.join(['super'] * depth)})"
    return re.compile(root + r"::(?:\{(?P<group>[^;]*?)\};|(?P<name>\w+))", re.S)


def imports(source):
    """For each module at the top level of a crate, the others that it imports, with a file that does."""
    modules = {path.stem if path.is_file() else path.name for path in source.iterdir()} - {"lib", "main", "bin"}
    graph = {module: {} for module in modules}
    for path in source.rglob("*.rs"):
        relative = path.relative_to(source)
        module = relative.parts[0].removesuffix(".rs")
        if module not in modules or TEST_FILE.search(str(relative)):
            continue
        text = re.sub(r"^\s*//.*$", "", TEST_MODULE.sub("", path.read_text()), flags=re.M)
        for match in uses_of_root(relative).finditer(text):
            names = [match["name"]] if match["name"] else re.findall(r"(?:^|,)\s*(\w+)", match["group"])
            for name in names:
                if name in modules and name != module:
                    graph[module].setdefault(name, relative)
    return graph


def cycle(graph):
    """Some modules that import each other in a circle; none where there is no such circle."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module):] + [module]
        if module in done:
            return None
        path.append(module)
        for other in sorted(graph[module]):
            found = visit(other)
            if found:
                return found
        path.pop()
        done.add(module)
        return None

    return next(filter(None, map(visit, sorted(graph))), None)


def crate_graph(crates):
    """The crates as a Mermaid graph: an arrow for each dependency that no longer path implies."""
    names = {manifest["package"]["name"] for _, manifest in crates}
    uses = {
        manifest["package"]["name"]: names & set(manifest.get("dependencies", {}))
        for _, manifest in crates
    }

    def reached(name):
        return uses[name].union(*(reached(other) for other in uses[name]))

    lines = ["```mermaid", "graph TD"]
    for name in sorted(uses):
        implied = set().union(*(reached(other) for other in uses[name]))
        lines += [f"    {name} --> {other}" for other in sorted(uses[name] - implied)]
    return "\n".join(lines + ["```"])


def main():
    crates = list(manifests())
    problems = []
    for directory, manifest in crates:
        name = manifest["package"]["name"]
        graph = imports(directory / "src")
        graph.update({module: {} for crate, module in CALLS_OUT if crate == name})
        found = cycle(graph)
        if found:
            steps = [f"{a} -> {b} ({graph[a][b]})" for a, b in zip(found, found[1:])]
            problems.append(f"{name}: modules import each other in a circle: " + ", ".join(steps))
        ruled_out = FORBIDDEN.get(name, set()) & set(manifest.get("dependencies", {}))
        problems += [f"{name} must not depend on {other}" for other in sorted(ruled_out)]
    page = ROOT / "ARCHITECTURE.md"
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
