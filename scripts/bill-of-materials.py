#!/usr/bin/env python3
"""Writes what the gateway and the module are made of: bill-of-materials.py OUT

OUT/mooring.cdx.json is a software bill of materials (CycloneDX 1.5), OUT/third-party-licenses.txt the license texts of all
that is in it. Only what is compiled into the two binaries for this machine counts: no tests, no build scripts' helpers, no
other platforms. Both follow from Cargo.lock, and from the scripts of the operators' page.
"""

import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARIES = ("mooring", "mooring-module")
SCRIPTS = ROOT / "gateway" / "src" / "http" / "ui" / "assets" / "vendor"
LICENSE_FILE = re.compile(r"^(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)


def read_metadata() -> dict:
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    target = re.search(r"^host: (.+)$", host, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)


def checksums() -> dict:
    """The SHA-256 of each crate's archive, which Cargo.lock has and `cargo metadata` has not."""
    found = {}
    for entry in (ROOT / "Cargo.lock").read_text().split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "(.*)"$', entry, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def compiled_in(metadata: dict) -> dict:
    """The ids of all packages that are linked into the binaries, each with those that it depends on."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    open_ids = [id for id in nodes if names[id] in BINARIES]
    found = {}
    while open_ids:
        id = open_ids.pop()
        if id in found:
            continue
        is_normal = lambda dependency: any(kind["kind"] is None for kind in dependency["dep_kinds"])
        found[id] = [dependency["pkg"] for dependency in nodes[id]["deps"] if is_normal(dependency)]
        open_ids += found[id]
    return found


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict, sums: dict) -> dict:
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := sums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def htmx() -> dict:
    """The library of the operators' page, which is in the gateway's binary. Its file names carry the version."""
    (script,) = SCRIPTS.glob("htmx-*.min.js")
    version = re.fullmatch(r"htmx-(.+)\.min\.js", script.name)[1]
    purl = f"pkg:npm/htmx.org@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "htmx.org",
        "version": version,
        "purl": purl,
        "licenses": [{"expression": "0BSD"}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(script.read_bytes()).hexdigest()}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/bigskysoftware/htmx"}],
    }


def bill(packages: dict, depends: dict, version: str) -> dict:
    sums, scripts = checksums(), htmx()
    gateway = next(reference(packages[id]) for id in depends if packages[id]["name"] == "mooring")
    depends_on = {reference(packages[id]): [reference(packages[other]) for other in depends[id]] for id in depends}
    depends_on[gateway].append(scripts["bom-ref"])
    depends_on[scripts["bom-ref"]] = []
    components = [component(packages[id], sums) for id in depends] + [scripts]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "mooring", "name": "mooring", "version": version}},
        "components": sorted(components, key=lambda component: component["bom-ref"]),
        "dependencies": [{"ref": ref, "dependsOn": sorted(others)} for ref, others in sorted(depends_on.items())],
    }


def license_texts(packages: dict, depends: dict) -> str:
    """Each text once, after the crates that it is of. A crate that ships none is named with its license."""
    crates_of, without = collections.defaultdict(list), []
    for id in sorted(depends, key=lambda id: reference(packages[id])):
        package = packages[id]
        if package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(file for file in folder.iterdir() if file.is_file() and LICENSE_FILE.match(file.name))
        named = f"{package['name']} {package['version']} ({package['license']})"
        for file in files:
            crates_of[file.read_text(errors="replace").strip()].append(named)
        if not files:
            without.append(f"{named}, by {', '.join(package['authors']) or 'the authors of ' + str(package['repository'])}")
    scripts = htmx()
    named = f"{scripts['name']} {scripts['version']} (0BSD)"
    crates_of[(SCRIPTS / "LICENSE").read_text().strip()].append(named)
    parts = ["The binaries of Mooring contain the libraries below, under these licenses.\n"]
    for text, crates in sorted(crates_of.items(), key=lambda item: (-len(item[1]), item[1])):
        parts.append("=" * 80 + "\n" + "\n".join(dict.fromkeys(crates)) + "\n" + "-" * 80 + "\n" + text + "\n")
    if without:
        parts.append("=" * 80 + "\nWithout a text of their own; those of the licenses are above:\n" + "\n".join(without) + "\n")
    return "\n".join(parts)


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    metadata = read_metadata()
    packages = {package["id"]: package for package in metadata["packages"]}
    depends = compiled_in(metadata)
    version = next(package["version"] for package in metadata["packages"] if package["name"] == "mooring")
    (out / "mooring.cdx.json").write_text(json.dumps(bill(packages, depends, version), indent=1) + "\n")
    (out / "third-party-licenses.txt").write_text(license_texts(packages, depends))


if __name__ == "__main__":
    main()
