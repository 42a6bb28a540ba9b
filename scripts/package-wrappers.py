#!/usr/bin/env python3
"""Makes the wheel `mooring-gateway` and the npm packages `mooring` and `mooring-linux-ARCHITECTURE`, which carry the
gateway's binary: package-wrappers.py BUILT OUT

They are archives of a documented layout, so neither pip nor npm is needed. npm has a
package for each architecture beside the one that people name, and installs the one that fits.
"""

import base64
import hashlib
import io
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "Gateway for MCP servers that keeps sessions alive, and a sandbox for code of agents"
# What nothing in an archive depends on.
EPOCH = (1980, 1, 1, 0, 0, 0)
NPM_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}

LAUNCHER = """#!/usr/bin/env node
// Becomes the gateway of the package for this machine: signals and standard streams are the gateway's.
"use strict";
const { spawn } = require("node:child_process");

const name = `mooring-${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/bin/mooring`);
} catch {
  console.error(`mooring: there is no ${name}: it runs on Linux with x64 or arm64. If this is one, install without --omit=optional`);
  process.exit(69);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`mooring: ${binary}: ${error.message}`);
  process.exit(69);
});
child.on("exit", (code, signal) => (signal ? process.kill(process.pid, signal) : process.exit(code)));
"""


def workspace_version() -> str:
    text = (ROOT / "Cargo.toml").read_text()
    section = text.split("[workspace.package]")[1]
    return re.search(r'^version = "(.+)"', section, re.MULTILINE)[1]


def stripped(built: pathlib.Path) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        copy = pathlib.Path(work) / "mooring"
        subprocess.run(["strip", "-o", copy, built / "mooring"], check=True)
        return copy.read_bytes()


def glibc_tag(built: pathlib.Path) -> str:
    """The oldest glibc that the binary runs with, as a tag of wheels (PEP 600)."""
    symbols = subprocess.run(["objdump", "-T", built / "mooring"], check=True, capture_output=True, text=True).stdout
    newest = max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    return f"manylinux_{newest[0]}_{newest[1]}_{platform.machine()}"


def make_wheel(version: str, tag: str, binary: bytes, out: pathlib.Path) -> None:
    stem = f"mooring_gateway-{version}"
    metadata = f"Metadata-Version: 2.1\nName: mooring-gateway\nVersion: {version}\nSummary: {SUMMARY}\n" \
        "License: Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: mooring\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    files = [
        (f"{stem}.data/scripts/mooring", binary, 0o755),
        (f"{stem}.dist-info/METADATA", (metadata + (ROOT / "README.md").read_text()).encode(), 0o644),
        (f"{stem}.dist-info/WHEEL", wheel.encode(), 0o644),
        (f"{stem}.dist-info/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
    ]
    third_party = out / "third-party-licenses.txt"
    if third_party.exists():
        files.append((f"{stem}.dist-info/licenses/third-party-licenses.txt", third_party.read_bytes(), 0o644))
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content, _ in files)
    record_name = f"{stem}.dist-info/RECORD"
    files.append((record_name, (record + f"{record_name},,\n").encode(), 0o644))
    with zipfile.ZipFile(out / f"{stem}-py3-none-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def make_npm(manifest: dict, files: list, out: pathlib.Path) -> None:
    license_text = (ROOT / "LICENSE").read_bytes()
    readme = (ROOT / "README.md").read_bytes()
    files = [("package.json", json.dumps(manifest, indent=2).encode() + b"\n", 0o644), *files,
             ("LICENSE", license_text, 0o644), ("README.md", readme, 0o644)]
    name = out / f"{manifest['name']}-{manifest['version']}.tgz"
    with tarfile.open(name, "w:gz", compresslevel=6) as archive:
        for path, content, mode in files:
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))


def main() -> None:
    built, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    version, binary = workspace_version(), stripped(built)
    make_wheel(version, glibc_tag(built), binary, out)
    common = {"version": version, "license": "Apache-2.0"}
    platforms = {f"mooring-linux-{name}": version for name in NPM_ARCHITECTURES.values()}
    make_npm({"name": "mooring", "description": SUMMARY, **common, "bin": {"mooring": "bin/mooring.js"},
              "engines": {"node": ">=18"}, "optionalDependencies": platforms},
             [("bin/mooring.js", LAUNCHER.encode(), 0o755)], out)
    architecture = NPM_ARCHITECTURES[platform.machine()]
    make_npm({"name": f"mooring-linux-{architecture}", "description": f"{SUMMARY}: the binary for Linux on {architecture}",
              **common, "os": ["linux"], "cpu": [architecture], "libc": ["glibc"]},
             [("bin/mooring", binary, 0o755)], out)


if __name__ == "__main__":
    main()
