#!/usr/bin/env python3
"""Counts the instructions of a tools/call through the gateway, by layer, outside of the kernel.

    call-instructions.py [BINARY [MODULE]]

Runs BINARY (target/profiling/mooring, of `cargo build --profile profiling`) under `valgrind --tool=callgrind`, in front of
a Redis with MODULE (target/profiling/libmooring.so) and an upstream server. Unlike times, instructions are the same on a
busy machine. callgrind knows no SHA instructions, and counts a copy of more than 2 KiB by its bytes.
"""

import collections
import re
import sys

from profiled_gateway import CALLS, built, profile

# By the first that matches the name of a function.
LAYERS = [
    ("allocator", r"^(malloc|free|realloc|calloc|_int_\w+|unlink_chunk.*)$|__rustc::__r|malloc_"),
    ("copying and comparing bytes", r"mem(cpy|move|set|cmp|chr)|bcmp"),
    ("SHA-256", r"sha2|digest|mooring_secrets"),
    ("Redis client", r"redis|combine|command_connection|reply_reader"),
    ("HTTP on both sides", r"\bhyper|httparse|\bhttp(_body\w*)?::|h2::|tower|axum"),
    ("pipeline", r"mooring_pipeline"),
    ("edge", r"mooring_gateway|mooring_settings|mooring_identity|\burl::|idna"),
    ("router and turns", r"mooring_router|mooring_session"),
    ("store, without the client", r"mooring_store"),
    ("messages", r"mooring_protocol|serde"),
    ("upstream", r"mooring_upstream|mooring_peers"),
    ("metrics", r"metrics|quanta"),
    ("tokio and futures", r"tokio|mio::|futures_|parking_lot|socket"),
    ("standard library", r""),
]


def by_function(profile_lines):
    """Instructions by the function that has them itself, from callgrind's file."""
    names, counts, function = {}, collections.Counter(), None
    lines = iter(profile_lines)
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
    counts = by_function(profile(*built(sys.argv[1:], "profiling")))
    layers = collections.Counter()
    for function, count in counts.items():
        layers[next(name for name, pattern in LAYERS if re.search(pattern, function))] += count
    print("| layer | instructions a call |\n|---|---|")
    for name, _ in LAYERS:
        print(f"| {name} | {layers[name] // CALLS:,} |")
    print(f"| all | {layers.total() // CALLS:,} |")


main()
