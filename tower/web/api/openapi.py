"""The OpenAPI documents of Tower's own API, in the versions that kubectl reads for validation and `explain`.

Sans-IO.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tower.kube.accept import choose
from tower.web.api.calls.media_types import JSON
from tower.web.api.discovery import GROUP, GROUP_VERSIONS, GroupVersion, git_version
from tower.web.api.fields.kinds import KINDS
from tower.web.api.fields.other_kinds import OTHER_KINDS
from tower.web.api.openapi_protobuf import encoded

#: Media types of the protobuf form; the old one has a character that is not valid in media types.
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_TITLE = "Tower"


def _name(found: GroupVersion, kind: str) -> str:
    """Return the name of a kind's schema: the group's in reverse, as Kubernetes names them."""
    group = (found.group or "core.k8s.io").split(".")
    return ".".join((*reversed(group), found.version, kind))


def _schemas(found: GroupVersion) -> dict[str, Any]:
    kinds = dict.fromkeys(resource.kind for resource in found.resources)
    known = KINDS if found.group == GROUP else OTHER_KINDS
    return {
        _name(found, kind): {
            **known[kind if kind != "Event" or found.group else "CoreEvent"],
            "x-kubernetes-group-version-kind": [
                {"group": found.group, "version": found.version, "kind": kind}
            ],
        }
        for kind in kinds
    }


def _operation(action: str, found: GroupVersion, kind: str, *parameters: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{_name(found, kind)}"}
    return {
        "tags": [found.name.replace("/", "_")],
        "operationId": f"{action}{kind}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in parameters
        ],
        "responses": {"200": {"description": "OK", "content": {JSON: {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": found.group,
            "version": found.version,
            "kind": kind,
        },
    }


#: Operations of verbs: method, whether on one object, and query parameters.
_CHECKED = ("dryRun", "fieldManager", "fieldValidation")
_OPERATIONS = {
    "list": (
        "get",
        False,
        ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "watch"),
    ),
    "create": ("post", False, _CHECKED),
    "get": ("get", True, ()),
    "update": ("put", True, _CHECKED),
    "patch": ("patch", True, (*_CHECKED, "force")),
    "delete": ("delete", True, ("dryRun", "propagationPolicy")),
}


def _paths(found: GroupVersion) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    base = "/" + _key(found)
    for resource in found.resources:
        plural = resource.name.replace("clusters/", "clusters/{name}/")
        if resource.is_namespaced:
            plural = f"namespaces/{{namespace}}/{plural}"
        for verb, (method, is_one, parameters) in _OPERATIONS.items():
            if verb not in resource.verbs:
                continue
            named = is_one and not resource.parent
            path = paths.setdefault(f"{base}/{plural}/{{name}}" if named else f"{base}/{plural}", {})
            path[method] = _operation("post" if verb == "create" else verb, found, resource.kind, *parameters)
    for template, operations in paths.items():
        if names := re.findall(r"{(\w+)}", template):
            operations["parameters"] = [
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "uniqueItems": True},
                }
                for name in names
            ]
    return paths


def _key(found: GroupVersion) -> str:
    """Return the path of a group's document below `/openapi/v3/`."""
    return f"apis/{found.name}" if found.group else f"api/{found.version}"


def document(key: str) -> dict[str, Any] | None:
    """Return the OpenAPI 3 document at *key* below `/openapi/v3/`, or None."""
    found = next((each for each in GROUP_VERSIONS if _key(each) == key), None)
    if found is None:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": git_version()},
        "paths": _paths(found),
        "components": {"schemas": _schemas(found)},
    }


def index() -> dict[str, Any]:
    """Return the answer to `/openapi/v3`: the path of each group's document."""
    paths = {}
    for found in GROUP_VERSIONS:
        key = _key(found)
        digest = hashlib.sha256(json.dumps(document(key), sort_keys=True).encode()).hexdigest()
        paths[key] = {"serverRelativeURL": f"/openapi/v3/{key}?hash={digest[:32]}"}
    return {"paths": paths}


def version_two(accept: str) -> tuple[str, bytes]:
    """Return media type and body of the answer to `/openapi/v2`, which describes the kinds."""
    media = choose(accept, [JSON, PROTOBUF_V2, _OLD_PROTOBUF_V2]) or JSON
    version = git_version()
    schemas = {name: schema for found in GROUP_VERSIONS for name, schema in _schemas(found).items()}
    if media != JSON:
        return PROTOBUF_V2, encoded(_TITLE, version, schemas)
    value = {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": version},
        "paths": {},
        "definitions": schemas,
    }
    return media, json.dumps(value).encode()
