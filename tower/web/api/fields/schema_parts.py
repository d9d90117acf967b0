"""Parts of OpenAPI schemas that several kinds share."""

from __future__ import annotations

from typing import Any


def text(description: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a string."""
    return {"type": "string", "description": description, **more}


def object_schema(description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "description": description, "properties": properties, **more}


def metadata() -> dict[str, Any]:
    """Return the schema of `metadata`."""
    strings = {"type": "object", "additionalProperties": {"type": "string"}}
    return object_schema(
        "Standard object's metadata.",
        {
            "name": text("Name; unique."),
            "namespace": text("Namespace; only events have one."),
            "uid": text("Unique ID of this object."),
            "resourceVersion": text("Version of the object; changes with each write."),
            "generation": number("Increases with each change of the spec."),
            "creationTimestamp": text("Time of creation.", format="date-time"),
            "deletionTimestamp": text(
                "Time when the deletion was requested; the object is removed with its last finalizer.",
                format="date-time",
            ),
            "deletionGracePeriodSeconds": number("Always 0."),
            "labels": {**strings, "description": "Labels for selectors."},
            "annotations": {**strings, "description": "Annotations of other programs."},
            "finalizers": {
                **texts("Names of controllers that clean up before the object is removed."),
                "x-kubernetes-list-type": "set",
            },
            "ownerReferences": {
                "type": "array",
                "items": _owner(),
                "description": "Objects that this one depends on; stored only.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
            },
            "managedFields": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Owners of the fields, for server-side apply.",
            },
            "selfLink": text("Deprecated; ignored."),
        },
    )


def _owner() -> dict[str, Any]:
    return object_schema(
        "One owner.",
        {
            "apiVersion": text("API version of the owner."),
            "kind": text("Kind of the owner."),
            "name": text("Name of the owner."),
            "uid": text("Unique ID of the owner."),
            "controller": flag("Whether the owner is the controller."),
            "blockOwnerDeletion": flag("Not enforced."),
        },
        required=["apiVersion", "kind", "name", "uid"],
    )


def kind_properties() -> dict[str, Any]:
    """Return the schemas of the fields that every kind has."""
    return {
        "apiVersion": text("Version of this representation."),
        "kind": text("Kind of this object."),
        "metadata": metadata(),
    }


def number(description: str, kind: str = "integer") -> dict[str, Any]:
    """Return the schema of a number."""
    return {"type": kind, "description": description}


def flag(description: str) -> dict[str, Any]:
    """Return the schema of a boolean."""
    return {"type": "boolean", "description": description}


def texts(description: str) -> dict[str, Any]:
    """Return the schema of a list of strings."""
    return {"type": "array", "items": {"type": "string"}, "description": description}
