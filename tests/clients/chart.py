"""Renders the Helm chart by Helm's own code and checks what comes out against Kubernetes' own schemas, without a cluster.

    chart.py CHART < REQUESTS > REPLIES
    chart.py install|upgrade NAME CHART --namespace NAME --values FILE [--set NAME=VALUE] > REPLY

The second form stands for `helm` in the commands of guides. REQUESTS is a JSON list, REPLIES one of the same length. A request has `values` (as YAML), maybe `set` (as of `helm --set`),
and a reply either `refused` (why Helm does not render it), or `lint` (its warnings and errors), `manifests` (the objects)
and `problems` (where an object is not what Kubernetes' schema of that version says, unknown fields included).
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import helm_python as helm
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

KUBERNETES = "v1.37.0"
# Objects whose kinds an operator brings along; Kubernetes itself has no schema of them.
FOREIGN = "monitoring.coreos.com/v1"


class Schemas:
    """The strict schemas of one version, each read once: the package's own reader reads all for every object."""

    def __init__(self, version):
        (package,) = importlib.util.find_spec("kubernetes_validate").submodule_search_locations
        self.directory = Path(package, "kubernetes-json-schema", f"{version}-local-strict")
        shared = Resource.from_contents(self.read("_definitions.json"), DRAFT202012)
        self.registry = Registry().with_resource("/api/_definitions.json", shared).crawl()
        self.validators = {}

    def read(self, name):
        return json.loads((self.directory / name).read_text())

    def validator(self, manifest):
        group, _, version = manifest["apiVersion"].rpartition("/")
        parts = [manifest["kind"].lower(), group.split(".")[0], version]
        name = "-".join(part for part in parts if part) + ".json"
        if name not in self.validators:
            self.validators[name] = Draft202012Validator(self.read(name), registry=self.registry)
        return self.validators[name]

    def problems_of(self, manifest):
        if manifest["apiVersion"] == FOREIGN:
            return []
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        errors = self.validator(manifest).iter_errors(manifest)
        return [f"{name}, {error.json_path}: {error.message}" for error in errors]


def merge(base, over):
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
    return base


def reply_to(chart, path, schemas, request):
    values = helm.values_from_yaml(request["values"])
    for assignment in request.get("set", []):
        merge(values, helm.parse_set_string(assignment))
    # An upgrade of a cluster where nothing is yet: `lookup` finds nothing.
    try:
        rendered = chart.render(values, name="mooring", namespace="mcp")
    except helm.HelmError as error:
        return {"refused": str(error)}
    lint = helm.lint(path, values, strict=True, namespace="mcp")
    manifests, texts = [], {}
    for name, text in rendered.items():
        if name.endswith(".txt"):
            texts[name.rsplit("/", 1)[-1]] = text
            continue
        manifests += [document for document in yaml.safe_load_all(text) if document]
    return {
        "lint": [message["error"] for message in lint["messages"] if message["severity"] > 1] + lint["errors"],
        "manifests": manifests,
        "notes": texts.get("NOTES.txt", ""),
        "problems": [problem for manifest in manifests for problem in schemas.problems_of(manifest)],
    }


def main():
    schemas = Schemas(KUBERNETES)
    if sys.argv[1] not in ("install", "upgrade"):
        requests = json.load(sys.stdin)
        with helm.Chart.load(sys.argv[1]) as chart:
            json.dump([reply_to(chart, sys.argv[1], schemas, request) for request in requests], sys.stdout)
        return
    parser = argparse.ArgumentParser()
    for argument in ("command", "name", "chart"):
        parser.add_argument(argument)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--values", required=True)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    request = {"values": Path(given.values).read_text(), "set": given.set}
    with helm.Chart.load(given.chart) as chart:
        reply = reply_to(chart, given.chart, schemas, request)
    json.dump(reply, sys.stdout)
    sys.exit(1 if "refused" in reply or reply["lint"] or reply["problems"] else 0)


main()
