"""The OpenAPI documents of Tower's own API, in the versions that kubectl reads for validation and `explain`.

Sans-IO.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tower.kube.accept import choose
from tower.web.api.discovery import GROUP, GROUP_VERSION, VERSION, git_version
from tower.web.api.fields.kinds import KINDS

#: Media types of the protobuf form; the old one has a character that is not valid in media types.
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: Path of the group's document below `/openapi/v3/`.
GROUP_KEY = f"apis/{GROUP_VERSION}"

_TITLE = "Tower"
_PREFIX = "io.kubesphere.cluster.v1alpha1"


def _identified(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**schema, "x-kubernetes-group-version-kind": [_group_version_kind(kind)]}


def _group_version_kind(kind: str) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _operation(action: str, kind: str, *parameters: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{_PREFIX}.{kind}"}
    return {
        "tags": [f"{GROUP}_{VERSION}"],
        "operationId": f"{action}{kind}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in parameters
        ],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }


def group_document() -> dict[str, Any]:
    """Return the OpenAPI 3 document of the group."""
    base = f"/apis/{GROUP_VERSION}"
    checked = ("dryRun", "fieldValidation")
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": git_version()},
        "paths": {
            f"{base}/clusters": {
                "get": _operation("list", "Cluster", "fieldSelector", "labelSelector", "watch"),
                "post": _operation("post", "Cluster", *checked),
            },
            f"{base}/clusters/{{name}}": {
                "get": _operation("get", "Cluster"),
                "patch": _operation("patch", "Cluster", *checked),
                "delete": _operation("delete", "Cluster", "dryRun"),
                "parameters": [name],
            },
            f"{base}/credentials": {"get": _operation("list", "Credential", "fieldSelector")},
            f"{base}/credentials/{{name}}": {
                "get": _operation("get", "Credential"),
                "delete": _operation("delete", "Credential"),
                "parameters": [name],
            },
            f"{base}/rotations": {
                "get": _operation("list", "Rotation"),
                "post": _operation("post", "Rotation"),
            },
            f"{base}/rotations/{{name}}": {
                "get": _operation("get", "Rotation"),
                "delete": _operation("delete", "Rotation"),
                "parameters": [name],
            },
        },
        "components": {
            "schemas": {f"{_PREFIX}.{kind}": _identified(schema, kind) for kind, schema in KINDS.items()}
        },
    }


def index() -> dict[str, Any]:
    """Return the answer to `/openapi/v3`: the path of each group's document."""
    digest = hashlib.sha256(json.dumps(group_document(), sort_keys=True).encode()).hexdigest()
    return {"paths": {GROUP_KEY: {"serverRelativeURL": f"/openapi/v3/{GROUP_KEY}?hash={digest[:32]}"}}}


def version_two(accept: str) -> tuple[str, bytes]:
    """Return media type and body of the answer to `/openapi/v2`: an empty document.

    Old clients require the document, and do not validate objects that it does not describe.
    """
    media = choose(accept, ["application/json", PROTOBUF_V2, _OLD_PROTOBUF_V2]) or "application/json"
    version = git_version()
    if media != "application/json":  # the message gnostic.openapi.v2.Document
        info = _field(1, _TITLE.encode()) + _field(2, version.encode())
        return PROTOBUF_V2, _field(1, b"2.0") + _field(2, info) + _field(8, b"")
    document = {"swagger": "2.0", "info": {"title": _TITLE, "version": version}, "paths": {}}
    return media, json.dumps(document).encode()


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited protobuf field of less than 128 B."""
    return bytes((number << 3 | 2, len(value))) + value
