"""What the API servers of several releases of Kubernetes know of the objects we make.

``python tests/tools/kube_schemas.py VERSION…`` (of Go modules k8s.io/kubernetes, fetched where they are not there)
writes tests/data/kubernetes_schemas.json. A definition is kept once for all releases in which it is the same,
``{name: [[[version, …], {field: type}, [required]]]}``, with types as ``string``, ``integer``, ``#name``, ``[type]`` (a
list), ``{type}`` (a map), ``any``, ``quantity``, ``int-or-string``.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "kubernetes_schemas.json"
KINDS = {
    ("", "v1"): "Binding ConfigMap Namespace Pod Secret Service ServiceAccount",
    ("apps", "v1"): "Deployment StatefulSet", ("batch", "v1"): "Job", ("coordination.k8s.io", "v1"): "Lease",
    ("discovery.k8s.io", "v1"): "EndpointSlice", ("networking.k8s.io", "v1"): "NetworkPolicy",
    ("policy", "v1"): "PodDisruptionBudget",
    ("rbac.authorization.k8s.io", "v1"): "ClusterRole ClusterRoleBinding Role RoleBinding",
    ("admissionregistration.k8s.io", "v1"): "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"}


def short(name: str) -> str:
    return name.removeprefix("io.k8s.").removeprefix("api.")


def type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return {"io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
                "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "string",
                "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "string"}.get(name, f"#{short(name)}")
    if schema.get("type") == "array":
        return f"[{type_of(schema['items'])}]"
    if "additionalProperties" in schema:
        return f"{{{type_of(schema['additionalProperties'])}}}"
    return str(schema.get("type", "any")) if schema.get("type") != "object" else "any"


def definitions(swagger: dict[str, Any]) -> dict[str, tuple[dict[str, str], list[str]]]:
    """All that the kinds reach, and one entry ``GROUP/VERSION/KIND`` each that leads to its definition."""
    given, found, left = swagger["definitions"], {}, []
    for name, schema in given.items():
        for one in schema.get("x-kubernetes-group-version-kind", ()):
            if one["kind"] in KINDS.get((one["group"], one["version"]), "").split():
                found["/".join((one["group"], one["version"], one["kind"])).lstrip("/")] = ({"": f"#{short(name)}"}, [])
                left.append(name)
    full = {short(name): name for name in given}
    while left:
        name = left.pop()
        if short(name) in found:
            continue
        schema = given[name]
        fields = {key: type_of(value) for key, value in sorted(schema.get("properties", {}).items())}
        found[short(name)] = fields, sorted(schema.get("required", ()))
        left += [full[text.strip("[]{}#")] for text in fields.values() if "#" in text]
    return found


def main(versions: list[str]) -> None:
    table: dict[str, list[list[Any]]] = {}
    for version in versions:
        got = subprocess.run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], check=True, cwd="/",
                             capture_output=True, text=True)
        swagger = json.loads((Path(json.loads(got.stdout)["Dir"]) / "api/openapi-spec/swagger.json").read_text())
        for name, (fields, required) in definitions(swagger).items():
            rows = table.setdefault(name, [])
            same = next((row for row in rows if row[1:] == [fields, required]), None)
            if same is None:
                rows.append([[version], fields, required])
            else:
                same[0].append(version)
    lines = [f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}" for name, rows in sorted(table.items())]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
